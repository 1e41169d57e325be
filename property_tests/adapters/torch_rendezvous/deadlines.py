"""Steps of the model `Deadlines`, performed on torch's own handler: its two threads are two greenlets.

`next_rendezvous`, `set_closed`, `num_nodes_waiting`, `shutdown` and `_keep_alive` are torch's, unmodified, and so are
the executor, the operators and the state holder. The sources of time, the event log, the backend, the lock and the
timer are replaced: a greenlet stops where it waits for the lock or for the timer. A call stops before it syncs, when it
has the store's answer, and before it stores the token, decides and acts.
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Mapping, Sequence
from contextlib import ExitStack
from typing import Any, cast
from unittest import mock

import greenlet  # type: ignore[import-untyped]
import torch.distributed.elastic.rendezvous.dynamic_rendezvous as dr
from torch._C._distributed_c10d import HashStore
from torch.distributed.elastic.rendezvous.api import RendezvousError, RendezvousStateError, RendezvousTimeoutError

from trystate.model.rendezvous.deadlines import TIMER, Deadlines
from trystate.model.rendezvous.vocabulary import AgentPhase, Call, CallError, CallStep, Stored, Timer

from ...harness.subjects import Disagreement, Refused
from .. import calls
from ..steps import Replacing
from . import simulation as sim

LATE_SECONDS = 10_000.0  # longer than any deadline
NO_PICKLE = {Stored.CORRUPT: b"no pickle", Stored.FOREIGN: b""}
STANDS = {
    "sync": CallStep.SYNCING, "answered": CallStep.ANSWERED, "token": CallStep.LOADED, "decide": CallStep.DECIDING,
    "act": CallStep.ACTING,
}  # fmt: skip
CALLS: Mapping[Call, Callable[[Any], Any]] = {
    Call.EXIT: lambda handler: handler.next_rendezvous(),
    Call.SHUTDOWN: lambda handler: handler.shutdown(),
    Call.SET_CLOSED: lambda handler: handler.set_closed(),
    Call.POLL: lambda handler: handler.num_nodes_waiting(),
    Call.KEEP_ALIVE: lambda handler: handler._keep_alive(),
}
ERRORS: Mapping[type[BaseException], CallError] = {
    RendezvousTimeoutError: CallError.TIMEOUT, RendezvousStateError: CallError.STATE,
}  # fmt: skip


class Clock(sim.Clock):
    """`time.monotonic`; for a late call it is past every deadline."""

    def __init__(self) -> None:
        super().__init__()
        self.late: Callable[[], bool] = lambda: False

    def monotonic(self) -> float:
        return self.seconds + (LATE_SECONDS if self.late() else 0.0)


class Backend(sim.Backend):
    """A shared state that may be corrupt. A call stops when it has an answer."""

    stored = Stored.STATE

    def served(self) -> bytes | None:
        return NO_PICKLE.get(self.stored, self.bits)

    def get_state(self) -> Any:
        answer = self.served(), self.version
        sim.stop("answered")
        return answer

    def set_state(self, state: bytes, token: Any = None) -> Any:
        if self.stored is Stored.STATE and token == self.version:
            self.bits = state
            self.version += 1
        answer = self.served(), self.version, state == self.served()
        sim.stop("answered")
        return answer

    def written(self, change: Callable[[Any], None]) -> None:
        """Another node writes."""
        self.rewrite(change)
        self.version += 1


class Holder(dr._BackendRendezvousStateHolder):
    """torch's state holder. A call stops before it syncs, and before it stores the token."""

    _stored_token: Any = None

    @property
    def _token(self) -> Any:
        return self._stored_token

    @_token.setter
    def _token(self, token: Any) -> None:
        sim.stop("token")
        self._stored_token = token

    def sync(self) -> Any:
        sim.stop("sync")
        return super().sync()


class Lock:
    """`_heartbeat_lock`, which older releases acquire and release."""

    taken = False

    def __enter__(self) -> None:
        while self.taken:
            sim.stop("blocked")
        self.taken = True

    def __exit__(self, kind: Any, *_: object) -> None:
        if kind is not greenlet.GreenletExit:
            sim.stop("returned")
        self.taken = False

    acquire = __enter__

    def release(self) -> None:
        self.__exit__(sys.exc_info()[0])


class Beats:
    """Replaces the timer: `cancel` waits until no heartbeat is being written."""

    def __init__(self, under_way: Callable[[], bool]) -> None:
        self.state, self._under_way = Timer.BEATING, under_way

    def start(self) -> None:
        self.state = Timer.BEATING

    def cancel(self) -> None:
        while self._under_way():
            sim.stop("blocked")
        self.state = Timer.STOPPED


class Thread(calls.Thread):
    """One of the node's threads, with its current call."""

    def __init__(self) -> None:
        super().__init__()
        self.about_to_act = False
        self.noted: BaseException | None = None
        self.result: Any = None

    @property
    def at(self) -> CallStep:
        if self.operation is None:
            return CallStep.IDLE
        if self.operation.over or self.operation.at == "returned":
            return CallStep.RETURNED if self.noted is None else CallStep.RAISED
        return STANDS[self.operation.at]

    @property
    def error(self) -> CallError:
        return CallError.NONE if self.noted is None else ERRORS.get(type(self.noted), CallError.OTHER)

    def abandon(self) -> None:
        super().abandon()
        self.about_to_act, self.noted, self.result = False, None, None


class TorchDeadlines(calls.CallsSubject, Replacing):
    """Subject for the model `Deadlines` (edition TORCH). It replaces torch's time."""

    threads: Sequence[Thread]
    own, other = dr._NodeDesc("node0", 1, 0), dr._NodeDesc("node1", 1, 0)
    goes_on: Mapping[str, CallStep] = {
        "load": CallStep.ANSWERED, "take_token": CallStep.LOADED, "decide": CallStep.DECIDING, "act": CallStep.ACTING,
    }  # fmt: skip

    def __init__(self, model: Deadlines) -> None:
        self.model, self.clock = model, Clock()
        self.threads = Thread(), Thread()
        self.clock.late = self.any_late

    def replace(self, stack: ExitStack) -> None:
        stack.enter_context(sim.simulated(self.clock, lambda **event: sim.act(self.threads)))
        stack.enter_context(mock.patch.object(dr.logger, "disabled", True))  # it would log each late call
        self.reset()

    def reset(self) -> None:
        self.abandon()
        self.phase = AgentPhase.RUNNING
        self.backend = Backend(sim.stop)
        self.lock, self.beats = Lock(), Beats(lambda: self.threads[TIMER].operation is not None)
        settings: Any = sim.settings(1, 2)
        self.holder = cast(Any, Holder(self.backend, settings))
        handler = dr.DynamicRendezvousHandler(self.own, settings, "memory", HashStore(), self.holder)
        self.handler = cast(Any, handler)
        self.handler._heartbeat_lock, self.handler._keep_alive_timer = self.lock, self.beats
        executor = self.handler._op_executor
        self._run, executor.run = executor.run, self._watched_run
        self._sync_once, self.holder.sync = self.holder.sync, self._watched_sync
        self.holder._state, self.holder._token = self._initial(), 1
        self.holder.mark_dirty()
        self.backend.version, self.backend.bits = 1, None
        self.holder.sync()

    def _initial(self) -> Any:
        """A complete round of this node and another."""
        state = dr._RendezvousState()
        state.round, state.complete = 1, True
        state.participants = {self.own: 0, self.other: 1}
        state.last_heartbeats = {self.own: sim.NOW, self.other: sim.NOW}
        return state

    def can_refuse(self, step: str) -> bool:
        return step in ("ask_store", "load", "take_token", "decide", "act", "end") or step.startswith("begin_")

    @property
    def timer(self) -> Timer:  # type: ignore[override]
        return self.beats.state

    # ---- the calls

    def _begin(self, call: Call, number: int) -> None:
        thread = self.may_begin(call, number)

        def run() -> None:
            try:
                thread.result = CALLS[call](self.handler)
            except Exception as error:
                thread.noted = thread.noted or error
                raise

        thread.call, thread.operation = call, sim.Operation(run)
        thread.operation.resume()
        if thread.operation.at == "blocked":
            thread.abandon()
            raise Refused("it waits for the other thread")
        self.begun(call)

    def _watched_run(self, operator: Any, deadline: float, *update_deadline: Any) -> None:
        thread = self._running()

        def decide(context: Any, until: float) -> Any:
            """A call stops before the operator decides, and again if it is to act (`simulation.act`)."""
            sim.stop("decide")
            action = operator(context, until)
            thread.about_to_act = action.name in ("KEEP_ALIVE", "REMOVE_FROM_PARTICIPANTS", "MARK_RENDEZVOUS_CLOSED")
            return action

        try:
            self._run(decide, deadline, *update_deadline)
        except Exception as error:
            thread.noted = error
            raise
        if thread.call is Call.EXIT:
            sim.stop("returned")

    def _watched_sync(self) -> Any:
        try:
            return self._sync_once()
        except Exception as error:
            self._running().noted = error
            raise

    def _running(self) -> Thread:
        return next(thread for thread in self.threads if thread.operation is not None and thread.operation.running)

    def _goes_on(self, thread: Thread, at: CallStep) -> None:
        if thread.at is not at:
            raise Refused(f"the call is {thread.at.name}")
        thread.operation.resume()

    def _ask_store(self, thread: Thread) -> None:
        self.holder._last_sync_time = -1
        self._goes_on(thread, CallStep.SYNCING)

    def _serve_from_cache(self, thread: Thread) -> None:
        self.holder._last_sync_time = self.clock.monotonic() + 2 * LATE_SECONDS
        self._goes_on(thread, CallStep.SYNCING)

    def _end(self, thread: Thread) -> None:
        self.must_be_over(thread)
        call, failed, caught = thread.call, thread.noted is not None, isinstance(thread.noted, RendezvousError)
        if not thread.operation.over and call is not Call.EXIT:
            thread.operation.resume()
        raised = thread.operation.error is not None
        wanted = failed and not (caught and call in (Call.SHUTDOWN, Call.KEEP_ALIVE))
        if raised is not wanted or (call is Call.SHUTDOWN and not raised and thread.result is failed):
            raise Disagreement(f"{call.name} returned {thread.result}, raised {thread.operation.error!r}")
        if call is Call.KEEP_ALIVE and raised:
            self.beats.state = Timer.DEAD  # _PeriodicTimer._run catches nothing: see the test of it
        self.ended(call, raised)
        thread.abandon()

    def _join(self) -> None:
        def back(state: Any) -> None:
            state.participants = {self.own: 0, self.other: 1}
            state.last_heartbeats[self.own] = sim.NOW

        self.backend.written(back)
        self.holder._last_sync_time, self.holder._dirty = -1, False
        self.holder.sync()
        self.phase, self.beats.state = AgentPhase.RUNNING, Timer.BEATING

    # ---- time, and other nodes

    def _heartbeat_gets_due(self) -> None:
        def age(state: Any) -> None:
            if self.own in state.last_heartbeats:
                state.last_heartbeats[self.own] = sim.NOW - sim.AGES["DUE"]

        self.backend.rewrite(age)
        age(self.holder.state)

    def _another_writes(self) -> None:
        self.backend.written(lambda state: None)

    def _another_closes(self) -> None:
        self.backend.written(lambda state: setattr(state, "closed", True))

    def _cache_ends(self) -> None:
        """Does nothing: the next step, `ask_store` or `serve_from_cache`, shows it."""

    # ---- what can be seen

    def seen(self) -> Mapping[str, Any]:
        stored, copy = self.backend.state(), self.holder.state
        return {
            "closed": stored.closed, "member": self.own in stored.participants,
            "due": self._is_due(stored), "copy_closed": copy.closed, "copy_member": self.own in copy.participants,
            "copy_due": self._is_due(copy), "lock": self.lock.taken,
            "token_good": self.holder._token == self.backend.version, "dirty": self.holder._dirty,
        }  # fmt: skip

    def _is_due(self, state: Any) -> bool:
        """The node's heartbeat is older than the interval."""
        stamp = state.last_heartbeats.get(self.own)
        return stamp is not None and sim.age_of(stamp) != "FRESH"
