"""A node's part in a rendezvous whose state is a document: one key of any store, replaced by compare-and-set.

`rooms/part.py` has the same operations for a rendezvous whose state is in the server of our store. A handler has one of
the two.

Theory of operation. A part has the engine, the state holder and the heartbeat thread, which runs from the end of `join`
until `stop`. While it runs, it owns the state holder. Other operations then use a clone of the state holder, which has
its own connection (`_run_on_clone`).
"""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Generator
from dataclasses import replace
from typing import TypeVar

from .driver import KeepAlive, run
from .engine import Effect, Engine, Joined, Seen, Standing, look, until_alone
from .errors import RendezvousError
from .rooms.messages import Address, Summary
from .state import State
from .state_holder import StateHolder
from .store_backend import StoreBackend
from .waiting import Teller, Waits, awaited, lasting, served, unfinished

OUTAGE_SECONDS_MAX = 1.0  # short operations tolerate an outage of this length: one more attempt, on a new connection

T = TypeVar("T")


class DocumentPart:
    """One node's part. An operation raises a RendezvousError when it fails, and has a limit in seconds."""

    def __init__(
        self, engine: Engine, holder: StateHolder, told: Callable[[Standing, Summary | None], None], place: str = ""
    ) -> None:
        """`told` gets each new standing. `place`: the sentence for an endpoint that other machines cannot reach."""
        self.core, self.holder, self._told, self._place = engine, holder, told, place
        self.keep_alive: KeepAlive | None = None
        self.joined: Summary | None = None  # the complete round of the last join
        self._joined: Joined | None = None
        self.waits: Waits | None = None  # the sentences of the last join
        self.listed = False  # True from the start of a join; after a failed one it is unknown, and `leave` reads it

    @property
    def seen(self) -> Summary | None:
        """The state as it was read last."""
        return self._summary(self._state)

    @property
    def _state(self) -> State | None:
        return self.keep_alive.state if self.keep_alive is not None else self.holder.state

    def _summary(self, state: State | None) -> Summary | None:
        return summary(state, self.core.token) if state is not None else None

    # ---- joining, and the heartbeats

    def join(self, seconds: float, port: int, failed: bool = False, lapsed: bool = False, final: str = "") -> Summary:
        """Become a member of a complete round, which is returned, and start its heartbeats.

        `port`: where this node would serve the store of the round. The other arguments: `Engine.join`.
        """
        self.stop()
        self.core.me = replace(self.core.me, port=port)
        self.listed = True
        token, clock = self.core.token, self.holder.clock
        self.waits = waits = Waits(self.core.settings, clock() + seconds, place=self._place, others=self._others)

        def see(seen: Seen) -> None:
            waits.look(self._summary(seen.state), seen.now, lambda: awaited(seen.state, token))

        steps = self.core.join(seconds, failed=failed, lapsed=lapsed, final=final)
        self._joined = joined = run(steps, self.holder, outage_seconds_max=seconds, look=see, away=waits.away)
        self.keep_alive = KeepAlive(self.core, joined, self.holder, self._stands)
        self.joined = summary(joined.state, token)
        return self.joined

    def _others(self) -> str:
        backend = self.holder.backend
        with contextlib.suppress(RendezvousError):
            return backend.others() if isinstance(backend, StoreBackend) else ""
        return ""

    def _stands(self, standing: Standing, state: State | None) -> None:
        self._told(standing, self._summary(state))

    def standing(self) -> Standing:
        """The standing of this node's round; never waits, never fails."""
        return self.keep_alive.standing() if self.keep_alive is not None else Standing.CURRENT

    def wait(self, seconds: float, known: Standing) -> None:
        """Return when the standing differs from `known`, or after `seconds`."""
        if self.keep_alive is not None:
            self.keep_alive.wait(seconds, known)

    def unfinished(self) -> str:
        """The sentence for a node whose workers have succeeded while other nodes' workers still run; else empty."""
        return unfinished(self._state, self.core.token)

    def stop(self) -> None:
        """End the heartbeats."""
        beating, self.keep_alive = self.keep_alive, None
        if beating is None:
            return
        if beating.stop():
            self.holder.resume()
        else:  # the thread is stuck in an operation of the store: it keeps this holder, and ends with it
            stuck, self.holder = self.holder, self.holder.clone()
            stuck.close()

    # ---- operations other than the heartbeats

    def look(self, seconds: float) -> Summary | None:
        """Read the state."""
        return self._summary(self._run_on_clone(look(), seconds))

    def report(self, seconds: float) -> bool:
        """Report that the workers have succeeded; whether the report is then in the state."""
        assert self._joined is not None  # after `join`
        return self._run_on_clone(self.core.report(self._joined), seconds)

    def step_out(self, failed: bool, lapsed: bool) -> None:
        """Replace the node's round before its health is checked; never fails."""
        self._end_round(lambda joined: self.core.step_out(failed, lapsed))

    def give_notice(self) -> None:
        """Replace the round before a leaving member stops its workers; never fails."""
        self._end_round(self.core.give_notice)

    def _end_round(self, steps: Callable[[Joined], Generator[Effect, Seen, object]]) -> None:
        if self._joined is not None and self.listed:
            with contextlib.suppress(RendezvousError):
                self._run_on_clone(steps(self._joined), OUTAGE_SECONDS_MAX)

    def close(self, reason: str, verdict: str, seconds: float, *, anyway: bool) -> bool:
        """Close the rendezvous for everyone; only a member may, unless `anyway`. True if this node did it."""
        return self._run_on_clone(self.core.close(reason, verdict, anyway=anyway), seconds)

    def leave(self, seconds: float) -> None:
        """Take this node off the lists, if it may be listed."""
        if self.listed:
            self._run_on_clone(self.core.leave(), seconds)
            self.listed = False

    def until_alone(self, seconds: float, hurry: Callable[[], bool] = lambda: False) -> None:
        """Wait until no other node is listed, at most `seconds`, or until `hurry()` is true.

        A node that has left logs the others.
        """
        teller, token, ends = Teller(), self.core.token, self.holder.clock() + seconds

        def say(seen: Seen) -> None:
            teller.tell(lambda: served(seen.state, token), seen.now, lambda: f"up to {lasting(ends - seen.now)}")

        self._run_on_clone(until_alone(token, seconds, hurry), seconds + OUTAGE_SECONDS_MAX, say)

    def _run_on_clone(
        self,
        steps: Generator[Effect, Seen, T],
        timeout_seconds: float,
        look: Callable[[Seen], None] = lambda seen: None,
    ) -> T:
        """Run a generator on its own connection while another thread uses the state holder."""
        holder = self.holder.clone()
        try:
            return run(steps, holder, outage_seconds_max=OUTAGE_SECONDS_MAX, timeout_seconds=timeout_seconds, look=look)
        finally:
            holder.close()

    def interrupt(self) -> None:
        """End the operations of the holder's thread."""
        self.holder.interrupt()

    def end(self) -> None:
        """Close the connection; may be called twice."""
        self.holder.close()


def summary(state: State, token: str) -> Summary:
    """The parts of the state that the node with this token needs."""
    members = state.participants if state.complete else ()
    rank = next((rank for rank, p in enumerate(members) if p.node.token == token), -1)
    master = Address(members[0].host, members[0].port) if members else None
    return Summary(
        membership=state.membership(token), applied=False, drained=token in state.draining, is_done=token in state.done,
        verdict=0, rank=rank, version=state.version, revision=state.revision, round=state.round,
        complete=state.complete, calling=state.calling, participants=len(state.participants),
        expected=len(state.expected), waiting=len(state.waiting), spares=len(state.spares), seats=state.seats,
        done=len(state.done), spent=state.spent, members=b"", life=state.life, master=master, closed=state.closed,
        cause=state.cause, why="",
    )  # fmt: skip
