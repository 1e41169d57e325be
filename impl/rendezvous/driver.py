"""Runs an engine's generators on a store: blocking, for `next_rendezvous`, and on a thread, for the heartbeats.

Theory of operation. `run` performs the effects of one generator on the thread that calls it, and sends each answer of
the store back into it. `KeepAlive` does that on a thread of its own, from the completed round on, before the members
meet. The agent's thread asks it for the standing of the round, which it computes from the last state that was read and
from the clock: a thread that is stuck in the store delays no answer.

Rule: a failed effect is repeated, never skipped, and the engine does not learn of it. A write carries its own identity
(version and writer), so that a repeated one happens once.

Three things can go wrong. The store is away: effects are repeated, for `outage_seconds_max` at most, and heartbeats for
as long as it takes. Too many nodes write at once: RendezvousTimeoutError. Another thread interrupts the holder:
Interrupted, at the next effect or pause.
"""

from __future__ import annotations

import logging
import math
import random
import threading
from collections.abc import Callable, Generator
from typing import TypeVar

from .engine import Effect, Engine, Joined, Seen, Standing, Sync
from .errors import Interrupted, RendezvousConnectionError, RendezvousError, RendezvousTimeoutError
from .state import State
from .state_holder import StateHolder

T = TypeVar("T")
RETRY_SECONDS_MIN, RETRY_SECONDS_MAX = 0.01, 0.5  # between two attempts to reach the store
STOP_SECONDS = 1.0  # `stop` waits so long for the heartbeat thread, which may be inside a user's store: it is a daemon

log = logging.getLogger("trystate.rendezvous")


def run(
    steps: Generator[Effect, Seen, T],
    holder: StateHolder,
    *,
    outage_seconds_max: float,
    timeout_seconds: float = math.inf,
    look: Callable[[Seen], None] = lambda seen: None,
    away: Callable[[float, float], None] = lambda since, now: None,
) -> T:
    """Perform the effects of a generator until it returns; its result.

    Args:
        steps: the generator.
        holder: performs the effects.
        outage_seconds_max: the store may be away so long, from the first failure on.
        timeout_seconds: for all effects together.
        look: called with each Seen.
        away: called after each failed attempt, with the time of the first one in a row, and the time now.

    Raises:
        RendezvousConnectionError: the store was away for longer.
        RendezvousTimeoutError: it took longer.
        Interrupted: another thread interrupted the holder.
    """
    ends = holder.clock() + timeout_seconds
    try:
        effect = next(steps)
        while True:
            seen = _performed(effect, holder, outage_seconds_max, ends, away)
            look(seen)
            effect = steps.send(seen)
    except StopIteration as returned:
        result: T = returned.value
        return result
    finally:
        steps.close()


def _performed(
    effect: Effect, holder: StateHolder, outage_seconds_max: float, ends: float, away: Callable[[float, float], None]
) -> Seen:
    lost: float | None = None
    pause = RETRY_SECONDS_MIN
    while True:
        if holder.clock() >= ends:
            raise RendezvousTimeoutError("the rendezvous did not take it in time: too many others write at once, or "
                                         "the store is slow; raise close_timeout")  # fmt: skip
        try:
            return holder.perform(effect)
        except RendezvousConnectionError as error:
            if holder.interrupted:
                continue  # the interrupt has ended the operation: `perform` raises Interrupted
            if lost is None:
                lost = holder.clock()
                log.warning("%s; trying again", error)
            away(lost, holder.clock())
            if holder.clock() - lost >= outage_seconds_max:
                raise
            if isinstance(effect, Sync):
                effect = Sync()  # its wait is over: only the read is repeated
        holder.pause(pause * random.uniform(0.5, 1.0))
        pause = min(2 * pause, RETRY_SECONDS_MAX)


class KeepAlive:
    """A thread that writes the heartbeats of a member, and knows at all times what has become of its round."""

    def __init__(
        self, engine: Engine, joined: Joined, holder: StateHolder,
        told: Callable[[Standing, State | None], None] = lambda standing, state: None,
    ) -> None:  # fmt: skip
        """`holder` belongs to the thread until it has stopped; `told` is called once for each new standing."""
        self._engine, self._joined, self._holder = engine, joined, holder
        self._told, self._known, self._lock = told, Standing.CURRENT, threading.Lock()
        self._state: State | None = joined.state  # as it was seen last
        self._end: Standing | None = None
        self._kinds: set[str] = set()  # of exceptions that were logged
        self._changed = threading.Event()
        self._thread = threading.Thread(target=self._beat, name="trystate keep-alive", daemon=True)
        self._thread.start()

    @property
    def state(self) -> State | None:
        """The state that the store held when it was read last."""
        return self._state

    def standing(self) -> Standing:
        """The standing of the round, by the last read and by the clock. Never waits.

        The heartbeat thread may be stuck in the store: the lease ends all the same, since the clock is read here.
        """
        state = self._state
        standing = self._end or self._engine.standing(self._joined, state, self._holder.clock())
        if standing is not self._known:
            with self._lock:
                known, self._known = self._known, standing
            if standing is not known:  # or another thread was faster
                self._told(standing, state)
        return standing

    def stop(self) -> bool:
        """End the thread; may be called twice. False: it has not ended yet, and still uses the holder."""
        self._holder.interrupt()
        if self._thread is not threading.current_thread():
            self._thread.join(STOP_SECONDS)
        return not self._thread.is_alive()

    def _beat(self) -> None:
        while self._end is None and not self._holder.interrupted:
            try:
                # LAPSED does not end the heartbeats. A member whose workers have succeeded waits for the others: when
                # the store is back after an outage, it is still listed, and goes on to wait.
                steps = self._engine.keep_alive(self._joined, until=(Standing.EXPELLED, Standing.CLOSED))
                self._end = run(steps, self._holder, outage_seconds_max=math.inf, look=self._look)
            except Interrupted:
                return
            except Exception as error:  # of any kind: without this thread the node would be expelled
                self._log(error)
                self._holder.pause(RETRY_SECONDS_MAX)

    def _look(self, seen: Seen) -> None:
        before, self._state = self.standing(), seen.state
        if self.standing() is not before:
            self._changed.set()

    def wait(self, seconds: float, known: Standing) -> None:
        """Block until the standing differs from `known`, or for `seconds`. Reads the clock four times an interval."""
        ends, look = self._holder.clock() + seconds, self._engine.settings.keep_alive_interval / 4
        while self.standing() is known and (left := ends - self._holder.clock()) > 0:
            self._changed.wait(min(left, look))
            self._changed.clear()

    def _log(self, error: Exception) -> None:
        kind = type(error).__name__
        if kind not in self._kinds:
            self._kinds.add(kind)
            log.warning("a heartbeat failed, the next ones go on (further %s are not logged): %s", kind, error,
                        exc_info=not isinstance(error, RendezvousError))  # fmt: skip
