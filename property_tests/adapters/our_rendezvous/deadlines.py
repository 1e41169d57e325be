"""Steps of the model `Deadlines`, performed on our engine, driver and state holders: two threads are two greenlets.

The engine, `driver.run` and the state holders are the runtime's, with the time limits that the handler gives them.
The store and the clock are replaced; the clock is late for a call that is late in the model. A call stops before each
effect of the engine: the driver has the effect, and has not read the clock yet.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Generator, Mapping, Sequence
from dataclasses import replace
from functools import partial, partialmethod
from typing import Any, Self

from trystate.impl.rendezvous.driver import run
from trystate.impl.rendezvous.encoding import decode, encode
from trystate.impl.rendezvous.engine import Effect, Engine, Joined, Seen, Standing, Sync, Write, look
from trystate.impl.rendezvous.errors import Interrupted, RendezvousError, RendezvousStateError, RendezvousTimeoutError
from trystate.impl.rendezvous.observer import Counter, Lease
from trystate.impl.rendezvous.state import Settings, State
from trystate.impl.rendezvous.state_holder import StateHolder
from trystate.model.rendezvous.deadlines import TIMER, Deadlines
from trystate.model.rendezvous.vocabulary import Action, AgentPhase, Call, CallError, CallStep, Edition, Stored, Timer

from ...harness.checks import Check, Outcome
from ...harness.paths import replay_systems
from ...harness.subjects import Disagreement, Refused
from .. import calls
from ..torch_rendezvous import simulation as sim
from .parts import changed, participant

INTERVAL = 1000.0  # far more than the time limits below: a call that exceeds them still has its lease
TIMEOUT_SECONDS, LATE_SECONDS = 1.0, 10.0
NO_STATE = {Stored.CORRUPT: b"no JSON", Stored.FOREIGN: b""}
OWN, OTHER = participant(0), participant(1)
SETTINGS = Settings(1, 2, keep_alive_interval=INTERVAL, keep_alive_max_attempt=3)


class Backend:
    """A store in memory. Its value may be bytes that are not a state."""

    name = "memory"

    def __init__(self, state: State) -> None:
        self.data, self.stored = encode(state), Stored.STATE

    @property
    def state(self) -> State:
        return decode(self.data)

    def written(self, state: State) -> None:
        """Another node writes."""
        self.data = encode(state)

    def read(self) -> bytes | None:
        return NO_STATE.get(self.stored, self.data)

    def write(self, data: bytes, over: bytes | None) -> bytes | None:
        if self.read() == over:
            self.data = data
        return self.read()

    def beat(self, token: str) -> None:
        """Does nothing: no other node is modelled that could read it."""

    def counters(self, tokens: Sequence[str]) -> dict[str, Counter]:
        return dict.fromkeys(tokens)

    def clone(self) -> Self:
        return self

    def wait(self, revision: int, seconds: float) -> None:
        """Returns at once: a step of the model ends an interval."""

    def notify(self, revision: int) -> None:
        """Does nothing, like `wait`."""

    def interrupt(self) -> None:
        """Does nothing: the state holder notes the interrupt."""

    def resume(self) -> None:
        """Does nothing, like `interrupt`."""

    def close(self) -> None:
        """Does nothing: there is no connection."""


class Thread(calls.Thread):
    """One of the node's threads, with its current call."""

    over = False

    @property
    def at(self) -> CallStep:
        if self.operation is None:
            return CallStep.IDLE
        if self.operation.over and self.operation.error is not None and not self.over:
            return CallStep.RAISED
        if self.operation.over or self.over:
            return CallStep.RETURNED
        return CallStep.ACTING if self.operation.at == "write" else CallStep.SYNCING

    @property
    def error(self) -> CallError:
        if self.at is not CallStep.RAISED:
            return CallError.NONE
        kinds = {RendezvousTimeoutError: CallError.TIMEOUT, RendezvousStateError: CallError.STATE}
        return next((e for kind, e in kinds.items() if isinstance(self.operation.error, kind)), CallError.OTHER)

    def abandon(self) -> None:
        super().abandon()
        self.over = False


class OurDeadlines(calls.CallsSubject):
    """Subject for the model `Deadlines` (edition TRYSTATE): the engine of one node."""

    goes_on: Mapping[str, CallStep] = {"read": CallStep.SYNCING, "write": CallStep.ACTING}

    def __init__(self, model: Deadlines) -> None:
        self.model, self.threads = model, (Thread(), Thread())
        self.reset()

    def reset(self) -> None:
        self.abandon()
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
        return self.seconds + (LATE_SECONDS if self.any_late() else 0.0)

    def can_refuse(self, step: str) -> bool:
        return step in ("read", "write", "give_up", "end") or step.startswith("begin_")

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
        thread = self.may_begin(call, number)
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
        self.begun(call)

    def _watched(self, thread: Thread, steps: Generator[Effect, Seen, Any]) -> Generator[Effect, Seen, Any]:
        """The effects of a generator. A call stops before the driver has an effect."""
        effect, won = next(steps), False
        while True:
            # A heartbeat is over at its first wait. An exit is over when its write was won, or at another write.
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
                # After the exit, an error of the join belongs to the join.
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
                raise Disagreement(f"the heartbeat thread continues after an interrupt: {thread.operation.error!r}")
            self.holder.resume()
        thread.abandon()
        self.timer = Timer.STOPPED

    def _goes_on(self, thread: Thread, at: CallStep, gives_up: bool = False) -> None:
        if thread.at is not at or (thread.late and thread.call is not Call.EXIT) is not gives_up:
            raise Refused(f"the call is {thread.at.name}")
        thread.operation.resume()

    def _give_up(self, thread: Thread) -> None:
        self._goes_on(thread, CallStep.ACTING if thread.at is CallStep.ACTING else CallStep.SYNCING, gives_up=True)

    def _end(self, thread: Thread) -> None:
        self.must_be_over(thread)
        call, error, raised = thread.call, thread.error, thread.at is CallStep.RAISED
        thread.abandon()
        self.ended(call, raised)
        if call is Call.EXIT and error is CallError.TIMEOUT and self.backend.stored is Stored.STATE:
            run(self.engine.leave(), self.holder.clone(), outage_seconds_max=TIMEOUT_SECONDS)  # like next_rendezvous

    def _join(self) -> None:
        state = self.backend.state
        state = replace(state, round=state.round + 1, participants=(OWN, OTHER), expected=(), complete=True)
        self.backend.written(changed("keep_alive", state, OTHER))
        self._member_of(self.backend.state)
        self.phase, self.timer = AgentPhase.RUNNING, Timer.BEATING

    # ---- time, and other nodes

    def _last_beat(self, seconds_ago: float) -> None:
        self.engine.lease = Lease(self.engine.settings)
        self.engine.lease.confirm(self.seconds - seconds_ago)

    _heartbeat_gets_due = partialmethod(_last_beat, 1.5 * INTERVAL)
    _lease_ends = partialmethod(_last_beat, 5 * INTERVAL)

    def _another_writes(self) -> None:
        self.backend.written(changed("keep_alive", self.backend.state, OTHER))

    def _another_closes(self) -> None:
        self.backend.written(changed("mark_closed", self.backend.state, OTHER, "it is over"))

    # ---- what can be seen

    def seen(self) -> Mapping[str, Any]:
        state, token, lease = self.backend.state, self.engine.token, self.engine.lease
        tokens = [p.node.token for p in state.participants]
        return {
            "closed": state.closed is not None, "member": state.complete and token in tokens,
            "listed": state.find(token) is not None, "due": lease.beat_due(self.seconds),
            "lease": lease.holds(self.seconds),
        }  # fmt: skip


def every_edge(report: Callable[[str], None], edges_max: int | None = None) -> Outcome:
    """Replay every step of a node's calls on our engine and driver, or a sample."""
    return replay_systems([Deadlines(edition=Edition.TRYSTATE, faults=("corrupt",))], OurDeadlines, report, edges_max)


SAMPLE_EDGES = 500
CHECKS = (Check("our calls other than our heartbeats", every_edge, partial(every_edge, edges_max=SAMPLE_EDGES)),)
