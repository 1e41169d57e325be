"""Steps of the model `Deadlines`, performed on our engine, driver and state holders: two threads are two greenlets.

The engine, `driver.run` and the state holders are those of the runtime, with the limits of time that the handler gives
them. Replaced are the clock, which is late for a call that the model says is late, and the store. A call stops before
each effect of the engine: where the driver has the effect, and has not yet looked at the clock.
"""

from __future__ import annotations

import math
import time
from collections.abc import Callable, Generator, Mapping
from dataclasses import replace
from functools import partial
from typing import Any, Self

from trystate.impl.rendezvous import changes
from trystate.impl.rendezvous.driver import run
from trystate.impl.rendezvous.encoding import decode, encode
from trystate.impl.rendezvous.engine import Effect, Engine, Joined, Seen, Standing, Sync, Write
from trystate.impl.rendezvous.errors import (
    Interrupted,
    RendezvousError,
    RendezvousStateError,
    RendezvousTimeoutError,
)
from trystate.impl.rendezvous.state import Settings, State
from trystate.impl.rendezvous.state_holder import StateHolder
from trystate.model.language.sorts import ordinal
from trystate.model.rendezvous.deadlines import AGENT, TIMER, Deadlines
from trystate.model.rendezvous.vocabulary import Action, AgentPhase, Call, CallError, CallStep, Edition, Stored, Timer

from ...harness.checks import Check, Outcome
from ...harness.paths import replay_every_edge
from ...harness.subjects import Disagreement, Refused
from ..torch_rendezvous import simulation as sim
from .parts import participant

P = CallStep
INTERVAL = 1000.0  # far more than the limits of time below: who is late for these has its lease all the same
TIMEOUT_SECONDS, LATE_SECONDS = 1.0, 10.0
NO_STATE = {Stored.CORRUPT: b"no JSON", Stored.FOREIGN: b""}
OWN, OTHER = participant(0), participant(1)
SETTINGS = Settings(1, 2, keep_alive_interval=INTERVAL, keep_alive_max_attempt=3)


class Backend:
    """A store in memory, whose value may be no state."""

    name = "memory"

    def __init__(self, state: State) -> None:
        self.data, self.stored = encode(state), Stored.STATE

    @property
    def state(self) -> State:
        return decode(self.data)

    def written(self, state: State) -> None:
        """Somebody else writes."""
        self.data = encode(state)

    def read(self) -> bytes | None:
        return NO_STATE.get(self.stored, self.data)

    def write(self, data: bytes, over: bytes | None) -> bytes | None:
        if self.read() == over:
            self.data = data
        return self.read()

    def clone(self) -> Self:
        return self

    def wait(self, revision: int, seconds: float) -> None:
        """Nothing wakes it: the model says when an interval is over."""

    def notify(self, revision: int) -> None:
        """As `wait`."""

    def interrupt(self) -> None:
        """The state holder knows it."""

    def resume(self) -> None:
        """As `interrupt`."""

    def close(self) -> None:
        """There is no connection."""


class Thread:
    """One of the node's threads: the call that it is in."""

    def __init__(self) -> None:
        self.call, self.late, self.over = Call.NONE, False, False
        self.operation: Any = None

    @property
    def at(self) -> CallStep:
        if self.operation is None:
            return P.IDLE
        if self.operation.over and self.operation.error is not None and not self.over:
            return P.RAISED
        if self.operation.over or self.over:
            return P.RETURNED
        return P.ACTING if self.operation.at == "write" else P.SYNCING

    @property
    def error(self) -> CallError:
        if self.at is not P.RAISED:
            return CallError.NONE
        kinds = {RendezvousTimeoutError: CallError.TIMEOUT, RendezvousStateError: CallError.STATE}
        for kind, error in kinds.items():
            if isinstance(self.operation.error, kind):
                return error
        return CallError.OTHER

    def abandon(self) -> None:
        if self.operation is not None:
            self.operation.abandon()
        self.__init__()  # type: ignore[misc]


class OurDeadlines:
    """Subject for the model `Deadlines` (edition TRYSTATE): the engine of one node."""

    def __init__(self, model: Deadlines) -> None:
        self.model, self.threads = model, (Thread(), Thread())
        self.reset()

    def reset(self) -> None:
        for thread in self.threads:
            thread.abandon()
        self.seconds = 100_000.0
        self.phase, self.timer = AgentPhase.RUNNING, Timer.BEATING
        self.engine = Engine(OWN, SETTINGS, draw=lambda: 0.0, life="life")
        state = State("life", SETTINGS, participants=(OWN, OTHER), complete=True)
        self.backend = Backend(state)
        self.holder = StateHolder(self.backend, self._clock)
        self._member_of(state)

    def _member_of(self, state: State) -> None:
        self.joined = Joined(state, 0)
        self.engine.lease.confirm(self.seconds)

    def _clock(self) -> float:
        late = any(t.late for t in self.threads if t.operation is not None and t.operation.running)
        return self.seconds + (LATE_SECONDS if late else 0.0)

    def can_refuse(self, step: str) -> bool:
        return step in ("read", "write", "give_up", "end") or step.startswith("begin_")

    def perform(self, step: str, indices: tuple[int, ...]) -> None:
        if step.startswith("begin_"):
            self._begin(Call[step.removeprefix("begin_").upper()], *indices)
        else:
            getattr(self, f"_{step}")(*(self.threads[k] for k in indices))

    # ---- the calls

    def _generator(self, call: Call) -> Generator[Effect, Seen, Any]:
        if call is Call.EXIT:
            return self.engine.join(TIMEOUT_SECONDS)
        if call is Call.KEEP_ALIVE:
            return self.engine.keep_alive(self.joined, until=(Standing.EXPELLED, Standing.CLOSED))
        if call is Call.POLL:
            return look()
        return self.engine.close("the test is over", anyway=call is Call.SET_CLOSED)

    def _begin(self, call: Call, number: int) -> None:
        thread = self.threads[number]
        phases = {Call.SHUTDOWN: (AgentPhase.RUNNING, AgentPhase.FAILED)}.get(call, (AgentPhase.RUNNING,))
        may = self.timer is Timer.BEATING if call is Call.KEEP_ALIVE else self.phase in phases
        if thread.operation is not None or number != (TIMER if call is Call.KEEP_ALIVE else AGENT) or not may:
            raise Refused("this thread makes no such call now")
        if call in (Call.EXIT, Call.SHUTDOWN):
            self._stop_timer()
        limited = call not in (Call.EXIT, Call.KEEP_ALIVE)
        holder = self.holder.clone() if limited else self.holder
        seconds = TIMEOUT_SECONDS if limited else math.inf
        steps = self._watched(thread, self._generator(call))
        thread.call = call
        thread.operation = sim.Operation(
            lambda: run(steps, holder, outage_seconds_max=TIMEOUT_SECONDS, timeout_seconds=seconds)
        )
        thread.operation.resume()
        self.phase = {Call.EXIT: AgentPhase.EXITING, Call.SHUTDOWN: AgentPhase.DONE}.get(call, self.phase)

    def _watched(self, thread: Thread, steps: Generator[Effect, Seen, Any]) -> Generator[Effect, Seen, Any]:
        """The effects of a generator, each of which stops before the driver has it."""
        effect, won = next(steps), False
        while True:
            # A wait ends a heartbeat. Anything but its own write ends an exit, and the read after one.
            beaten = thread.call is Call.KEEP_ALIVE and isinstance(effect, Sync) and effect.revision is not None
            writes = isinstance(effect, Write)
            thread.over = beaten or (thread.call is Call.EXIT and won)
            if isinstance(effect, Write) and thread.call is Call.EXIT:
                thread.over = effect.action is not Action.REPLACE_ROUND
            sim.stop("write" if writes else "read")
            seen = yield effect
            won = won or seen.won
            try:
                effect = steps.send(seen)
            except StopIteration as end:
                return end.value
            except RendezvousError as error:
                # Where the exit is over, what the join raises is the join's.
                thread.over = thread.call is Call.EXIT and not isinstance(
                    error, RendezvousTimeoutError | RendezvousStateError
                )
                raise

    def _stop_timer(self) -> None:
        thread = self.threads[TIMER]
        if thread.operation is not None and not thread.operation.over:
            self.holder.interrupt()
            thread.operation.resume()
            if not isinstance(thread.operation.error, Interrupted):
                raise Disagreement(f"the thread that beats goes on after an interrupt: {thread.operation.error!r}")
            self.holder.resume()
        thread.abandon()
        self.timer = Timer.STOPPED

    def _goes_on(self, thread: Thread, at: CallStep, gives_up: bool = False) -> None:
        if thread.at is not at or (thread.late and thread.call is not Call.EXIT) is not gives_up:
            raise Refused(f"the call is {thread.at.name}")
        thread.operation.resume()

    def _read(self, thread: Thread) -> None:
        self._goes_on(thread, P.SYNCING)

    def _write(self, thread: Thread) -> None:
        self._goes_on(thread, P.ACTING)

    def _give_up(self, thread: Thread) -> None:
        self._goes_on(thread, P.ACTING if thread.at is P.ACTING else P.SYNCING, gives_up=True)

    def _end(self, thread: Thread) -> None:
        if thread.at not in (P.RETURNED, P.RAISED):
            raise Refused(f"the call is {thread.at.name}")
        call, error, raised = thread.call, thread.error, thread.at is P.RAISED
        thread.abandon()
        ends = {Call.EXIT: AgentPhase.JOINING, Call.SHUTDOWN: AgentPhase.LEFT}.get(call, self.phase)
        self.phase = AgentPhase.FAILED if raised and call in (Call.EXIT, Call.SET_CLOSED, Call.POLL) else ends
        if call is Call.EXIT and error is CallError.TIMEOUT and self.backend.stored is Stored.STATE:
            run(self.engine.leave(), self.holder.clone(), outage_seconds_max=TIMEOUT_SECONDS)  # as next_rendezvous does

    def _join(self) -> None:
        state = self.backend.state
        state = replace(state, round=state.round + 1, participants=(OWN, OTHER), expected=(), complete=True)
        self.backend.written(changes.keep_alive(state, OTHER))
        self._member_of(self.backend.state)
        self.phase, self.timer = AgentPhase.RUNNING, Timer.BEATING

    def _join_fails(self) -> None:
        self.phase = AgentPhase.FAILED

    # ---- time, and other nodes

    def _deadline_passes(self, thread: Thread) -> None:
        thread.late = True

    def _heartbeat_gets_due(self) -> None:
        self._last_beat(1.5 * INTERVAL)

    def _lease_ends(self) -> None:
        self._last_beat(5 * INTERVAL)

    def _last_beat(self, seconds_ago: float) -> None:
        self.engine.lease.give_up()
        self.engine.lease.confirm(self.seconds - seconds_ago)

    def _another_writes(self) -> None:
        self.backend.written(changes.keep_alive(self.backend.state, OTHER))

    def _another_closes(self) -> None:
        self.backend.written(changes.mark_closed(self.backend.state, OTHER, "it is over", SETTINGS, "life"))

    def _corrupt(self) -> None:
        self.backend.stored = Stored.CORRUPT

    def _write_foreign(self) -> None:
        self.backend.stored = Stored.FOREIGN

    def _restore(self) -> None:
        self.backend.stored = Stored.STATE

    # ---- what can be seen

    def observe(self) -> Mapping[str, int]:
        state, token, lease = self.backend.state, self.engine.token, self.engine.lease
        tokens = [p.node.token for p in state.participants]
        out = {
            "stored": ordinal(self.backend.stored), "phase": ordinal(self.phase), "timer": ordinal(self.timer),
            "closed": state.closed is not None, "member": state.complete and token in tokens,
            "listed": state.find(token) is not None, "due": lease.beat_due(self.seconds),
            "lease": lease.holds(self.seconds),
        }  # fmt: skip
        for k, thread in enumerate(self.threads):
            out |= {f"call[{k}]": ordinal(thread.call), f"at[{k}]": ordinal(thread.at)}
            out |= {f"error[{k}]": ordinal(thread.error), f"late[{k}]": thread.late}
        return {name: int(value) for name, value in out.items()}


def look() -> Generator[Effect, Seen, State | None]:
    """One read, as `is_closed` makes it."""
    return (yield Sync()).state


def every_edge(report: Callable[[str], None], edges_max: int | None = None) -> Outcome:
    """Replay every step of a node's calls on our engine and driver, or a sample."""
    started = time.perf_counter()
    system = Deadlines(edition=Edition.TRYSTATE, faults=("corrupt",))
    seen = replay_every_edge(
        system, OurDeadlines(system), refusals=True, repeats=False, edges_max=edges_max, report=report
    )
    return Outcome(seen.edges, "edges", seen.disagreements, time.perf_counter() - started, seen.edges_of_all)


SAMPLE_EDGES = 500
CHECKS = (Check("our calls beside our heartbeats", every_edge, partial(every_edge, edges_max=SAMPLE_EDGES)),)
