"""Runs an engine's generators on a store: blocking, for `next_rendezvous`, and on a thread, for the heartbeats.

Theory of operation. `run` performs the effects of one generator on the thread that calls it, and sends each answer of
the store back into it. `KeepAlive` does that on its own thread, from the completed round on, before the members meet.
The agent's thread calls `standing`, which uses the last state that was read and the clock: a heartbeat thread that is
stuck in the store does not delay it.

Rule: a failed effect is repeated, never skipped, and the engine does not see the failure. A write carries its own
identity (version and writer), so a repeated write happens once. A repeated heartbeat may count twice.

Failures:

- The store is away. Effects are repeated for at most `outage_seconds_max`, heartbeats without a limit.
- Too many nodes write at once. `run` raises RendezvousTimeoutError.
- Another thread interrupts the holder. `run` raises Interrupted at the next effect or pause.
"""

from __future__ import annotations

import logging
import math
import random
import threading
from collections.abc import Callable, Generator
from dataclasses import replace
from typing import TypeVar

from .engine import Effect, Engine, Joined, Seen, Standing, Sync
from .errors import Interrupted, RendezvousConnectionError, RendezvousError, RendezvousTimeoutError
from .state import State
from .state_holder import StateHolder

T = TypeVar("T")
RETRY_SECONDS_MIN, RETRY_SECONDS_MAX = 0.01, 0.5  # between two attempts to reach the store
STOP_SECONDS = 1.0  # limit of `stop`: the heartbeat thread, a daemon, may be stuck in a user's store

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
    """Perform the effects of a generator until it returns, and return its result.

    Args:
        steps: the generator.
        holder: performs the effects.
        outage_seconds_max: the limit of an outage of the store, from its first failure on.
        timeout_seconds: the limit of all effects together.
        look: called with each Seen.
        away: called after each failed attempt, with the time of the first failure in a row and the time now.

    Raises:
        RendezvousConnectionError: the store was away for longer than `outage_seconds_max`.
        RendezvousTimeoutError: the effects took longer than `timeout_seconds`.
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
            # The store answers, but other nodes win every write.
            raise RendezvousTimeoutError("the shared state could not be written in time: too many nodes write at once, "
                                         "or the store is slow; raise close_timeout")  # fmt: skip
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
                effect = replace(effect, seconds=0.0, revision=None)  # its wait is over, and is not repeated
        holder.pause(pause * random.uniform(0.5, 1.0))
        pause = min(2 * pause, RETRY_SECONDS_MAX)


class KeepAlive:
    """A thread that sends the heartbeats of a member and follows the standing of its round."""

    def __init__(
        self, engine: Engine, joined: Joined, holder: StateHolder,
        told: Callable[[Standing, State | None], None] = lambda standing, state: None,
    ) -> None:  # fmt: skip
        """`holder` belongs to the thread until it has stopped; `told` is called once for each new standing."""
        self._engine, self._joined, self._holder = engine, joined, holder
        self._told, self._known, self._lock = told, Standing.CURRENT, threading.Lock()
        self._state: State | None = joined.state  # the last state that was read
        self._end: Standing | None = None
        self._kinds: set[str] = set()  # exception types that were logged
        self._changed = threading.Event()
        self._thread = threading.Thread(target=self._beat, name="trystate keep-alive", daemon=True)
        self._thread.start()

    @property
    def state(self) -> State | None:
        """The state that the store held when it was read last."""
        return self._state

    def standing(self) -> Standing:
        """The standing of the round, by the last read and by the clock. Never waits.

        The lease ends even if the heartbeat thread is stuck in the store, because the clock is read here.
        """
        state = self._state
        standing = self._end or self._engine.standing(self._joined, state, self._holder.clock())
        if standing is not self._known:
            with self._lock:
                known, self._known = self._known, standing
            if standing is not known:  # else another thread has reported it
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
                # the store is back after an outage, the member is still listed and continues to wait.
                steps = self._engine.keep_alive(self._joined, until=(Standing.EXPELLED, Standing.CLOSED))
                self._end = run(steps, self._holder, outage_seconds_max=math.inf, look=self._look)
            except Interrupted:
                return
            except Exception as error:  # any kind: without this thread the node would be expelled
                self._log(error)
                self._holder.pause(RETRY_SECONDS_MAX)

    def _look(self, seen: Seen) -> None:
        before, self._state = self.standing(), seen.state
        if self.standing() is not before:
            self._changed.set()

    def wait(self, seconds: float, known: Standing) -> None:
        """Block until the standing differs from `known`, or for `seconds`. Reads the clock four times per interval."""
        ends, look = self._holder.clock() + seconds, self._engine.settings.keep_alive_interval / 4
        while self.standing() is known and (left := ends - self._holder.clock()) > 0:
            self._changed.wait(min(left, look))
            self._changed.clear()

    def _log(self, error: Exception) -> None:
        kind = type(error).__name__
        if kind not in self._kinds:
            self._kinds.add(kind)
            log.warning("a heartbeat failed; the next ones continue (further %s are not logged): %s", kind, error,
                        exc_info=not isinstance(error, RendezvousError))  # fmt: skip
