"""A node of two threads as the model `Deadlines` has it: what its subjects have in common, whatever handler it has.

A subject keeps `threads`, each with its call, the phase of the agent, a `backend` whose value may be no state,
and `timer`; the steps that it does not define here are its own.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from trystate.model.language.sorts import ordinal
from trystate.model.rendezvous.deadlines import AGENT, TIMER
from trystate.model.rendezvous.vocabulary import AgentPhase, Call, CallStep, Stored, Timer

from ..harness.subjects import Refused


class Thread:
    """One of the node's threads, with its current call. A subclass has `at`, a CallStep, and `error`, a CallError."""

    def __init__(self) -> None:
        self.call, self.late = Call.NONE, False
        self.operation: Any = None

    def abandon(self) -> None:
        if self.operation is not None:
            self.operation.abandon()
        self.call, self.late, self.operation = Call.NONE, False, None


class CallsSubject:
    """Subject for the model `Deadlines`."""

    goes_on: Mapping[str, CallStep]  # steps that resume a call, and where it has to be
    threads: Sequence[Any]
    phase: AgentPhase
    timer: Timer
    backend: Any

    def any_late(self) -> bool:
        """Whether the call that runs is late."""
        return any(t.late for t in self.threads if t.operation is not None and t.operation.running)

    def abandon(self) -> None:
        """End all calls."""
        for thread in self.threads:
            thread.abandon()

    def perform(self, step: str, indices: tuple[int, ...]) -> None:
        if step.startswith("begin_"):
            self._begin(Call[step.removeprefix("begin_").upper()], *indices)
        elif step in self.goes_on:
            self._goes_on(self.threads[indices[0]], self.goes_on[step])
        else:
            getattr(self, f"_{step}")(*(self.threads[k] for k in indices))

    def _goes_on(self, thread: Any, at: CallStep) -> None:
        raise NotImplementedError

    def _begin(self, call: Call, number: int) -> None:
        raise NotImplementedError

    def may_begin(self, call: Call, number: int) -> Any:
        """Returns the thread that makes the call.

        Raises:
            Refused: it makes no such call now.
        """
        thread = self.threads[number]
        phases = (AgentPhase.RUNNING, AgentPhase.FAILED) if call is Call.SHUTDOWN else (AgentPhase.RUNNING,)
        may = self.timer is Timer.BEATING if call is Call.KEEP_ALIVE else self.phase in phases
        if thread.operation is not None or number != (TIMER if call is Call.KEEP_ALIVE else AGENT) or not may:
            raise Refused("this thread makes no such call now")
        return thread

    def begun(self, call: Call) -> None:
        self.phase = {Call.EXIT: AgentPhase.EXITING, Call.SHUTDOWN: AgentPhase.DONE}.get(call, self.phase)

    def ended(self, call: Call, raised: bool) -> None:
        ends = {Call.EXIT: AgentPhase.JOINING, Call.SHUTDOWN: AgentPhase.LEFT}.get(call, self.phase)
        self.phase = AgentPhase.FAILED if raised and call in (Call.EXIT, Call.SET_CLOSED, Call.POLL) else ends

    def must_be_over(self, thread: Any) -> None:
        if thread.at not in (CallStep.RETURNED, CallStep.RAISED):
            raise Refused(f"the call is {thread.at.name}")

    def _join_fails(self) -> None:
        self.phase = AgentPhase.FAILED

    def _deadline_passes(self, thread: Any) -> None:
        thread.late = True

    def _corrupt(self) -> None:
        self.backend.stored = Stored.CORRUPT

    def _write_foreign(self) -> None:
        self.backend.stored = Stored.FOREIGN

    def _restore(self) -> None:
        self.backend.stored = Stored.STATE

    def seen(self) -> Mapping[str, Any]:
        """The cells that only this subject has."""
        raise NotImplementedError

    def observe(self) -> Mapping[str, int]:
        out = {
            "stored": ordinal(self.backend.stored), "phase": ordinal(self.phase), "timer": ordinal(self.timer),
            **self.seen(),
        }  # fmt: skip
        for k, thread in enumerate(self.threads):
            out |= {f"call[{k}]": ordinal(thread.call), f"at[{k}]": ordinal(thread.at)}
            out |= {f"error[{k}]": ordinal(thread.error), f"late[{k}]": thread.late}
        return {name: int(value) for name, value in out.items()}
