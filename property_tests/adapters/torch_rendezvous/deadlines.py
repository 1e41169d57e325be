"""Steps of the model `Deadlines`, performed on torch's own handler: its two threads are two greenlets.

`next_rendezvous`, `set_closed`, `num_nodes_waiting`, `shutdown` and `_keep_alive` are torch's, unmodified, and so are
the executor, the operators and the state holder. Replaced are the sources of time, the event log, the backend, the lock
and the timer; a lock that is taken, and a timer that is to be waited for, stop the greenlet that asks for them. A call
stops before it syncs, with the store's answer in its hands, before it stores the token, decides and acts.
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Mapping
from contextlib import ExitStack
from datetime import datetime
from typing import Any
from unittest import mock

import greenlet  # type: ignore[import-untyped]
import torch.distributed.elastic.rendezvous.dynamic_rendezvous as dr
from torch._C._distributed_c10d import HashStore
from torch.distributed.elastic.rendezvous.api import RendezvousError, RendezvousStateError, RendezvousTimeoutError

from trystate.model.language.sorts import ordinal
from trystate.model.rendezvous.deadlines import AGENT, TIMER, Deadlines
from trystate.model.rendezvous.vocabulary import AgentPhase, Call, CallError, CallStep, Stored, Timer

from ...harness.subjects import Disagreement, Refused
from . import simulation as sim

P = CallStep
LATE_SECONDS = 10_000.0  # longer than any deadline
NO_PICKLE = {Stored.CORRUPT: b"no pickle", Stored.FOREIGN: b""}
STANDS = {
    "sync": P.SYNCING, "answered": P.ANSWERED, "token": P.LOADED, "decide": P.DECIDING, "act": P.ACTING,
}  # fmt: skip
CALLS: dict[Call, Callable[[Any], Any]] = {
    Call.EXIT: lambda handler: handler.next_rendezvous(),
    Call.SHUTDOWN: lambda handler: handler.shutdown(),
    Call.SET_CLOSED: lambda handler: handler.set_closed(),
    Call.POLL: lambda handler: handler.num_nodes_waiting(),
    Call.KEEP_ALIVE: lambda handler: handler._keep_alive(),
}
ERRORS: dict[type[BaseException], CallError] = {
    RendezvousTimeoutError: CallError.TIMEOUT,
    RendezvousStateError: CallError.STATE,
}


class Clock(sim.Clock):
    """`time.monotonic`: past every deadline for a call that is late."""

    def __init__(self) -> None:
        super().__init__()
        self.late: Callable[[], bool] = lambda: False

    def monotonic(self) -> float:
        return self.seconds + (LATE_SECONDS if self.late() else 0.0)

    def now(self) -> datetime:
        """The wall clock, for a program that is given one."""
        return sim.StillDate.now()  # type: ignore[no-any-return]


class Backend(sim.Backend):
    """A shared state that may be corrupt; it stops with each answer."""

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
    """torch's, which stops before a sync and before it stores the token."""

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

    def acquire(self) -> None:
        self.__enter__()

    def release(self) -> None:
        self.__exit__(sys.exc_info()[0])


class Beats:
    """The handle of the timer: it joins the thread."""

    def __init__(self, under_way: Callable[[], bool]) -> None:
        self.state, self._under_way = Timer.BEATING, under_way

    def start(self) -> None:
        self.state = Timer.BEATING

    def cancel(self) -> None:
        while self._under_way():
            sim.stop("blocked")
        self.state = Timer.STOPPED


class Thread:
    """One of the node's threads: the call that it is in."""

    def __init__(self, errors: Mapping[type[BaseException], CallError]) -> None:
        self._errors = errors
        self.call = Call.NONE
        self.operation: Any = None
        self.late = self.about_to_act = False
        self.noted: BaseException | None = None
        self.result: Any = None

    @property
    def at(self) -> CallStep:
        if self.operation is None:
            return P.IDLE
        if self.operation.over or self.operation.at == "returned":
            return P.RETURNED if self.noted is None else P.RAISED
        return STANDS[self.operation.at]

    @property
    def error(self) -> CallError:
        return CallError.NONE if self.noted is None else self._errors.get(type(self.noted), CallError.OTHER)

    def abandon(self) -> None:
        if self.operation is not None:
            self.operation.abandon()
        self.__init__(self._errors)  # type: ignore[misc]


def _handler(node: Any, settings: Any, holder: Any) -> Any:
    """A handler, parts of which are to be replaced."""
    return dr.DynamicRendezvousHandler(node, settings, "memory", HashStore(), holder)


class TorchDeadlines:
    """Subject for the model `Deadlines` (edition TORCH). Use it as a context manager: it replaces torch's time."""

    own: Any = dr._NodeDesc("node0", 1, 0)
    other: Any = dr._NodeDesc("node1", 1, 0)
    calls = CALLS
    errors: Mapping[type[BaseException], CallError] = ERRORS
    caught: type[Exception] = RendezvousError  # by shutdown and by the timer

    def __init__(self, model: Deadlines) -> None:
        self.model, self.clock = model, Clock()
        self.threads = Thread(self.errors), Thread(self.errors)
        self.clock.late = lambda: any(t.late for t in self.threads if t.operation is not None and t.operation.running)
        self._stack = ExitStack()

    def __enter__(self) -> TorchDeadlines:
        self._stack.enter_context(sim.simulated(self.clock, self._recorded))
        self._stack.enter_context(mock.patch.object(dr.logger, "disabled", True))  # a line for each call that is late
        self.reset()
        return self

    def __exit__(self, *exc: object) -> None:
        for thread in self.threads:
            thread.abandon()
        self._stack.close()

    def reset(self) -> None:
        for thread in self.threads:
            thread.abandon()
        self.phase = AgentPhase.RUNNING
        self.backend = Backend(sim.stop)
        self.lock, self.beats = Lock(), Beats(lambda: self.threads[TIMER].operation is not None)
        executor = self._made()
        self._run, executor.run = executor.run, self._watched_run
        self._sync_once, self.holder.sync = self.holder.sync, self._watched_sync
        self._holds(self._initial(), token=1)
        self.backend.version, self.backend.bits = 1, None
        self.holder.sync()

    def _made(self) -> Any:
        """A state holder and a handler, parts of which are replaced; its executor."""
        settings: Any = sim.settings(1, 2)
        self.holder: Any = Holder(self.backend, settings)
        self.handler = _handler(self.own, settings, self.holder)
        self.handler._heartbeat_lock, self.handler._keep_alive_timer = self.lock, self.beats
        return self.handler._op_executor

    def _initial(self) -> Any:
        """A complete round of this node and another."""
        state = dr._RendezvousState()
        state.round, state.complete = 1, True
        state.participants = {self.own: 0, self.other: 1}
        state.last_heartbeats = {self.own: sim.NOW, self.other: sim.NOW}
        return state

    # ---- the state holder, whose names differ

    def _holds(self, state: Any, token: int) -> None:
        """The copy is this state, and has to be written."""
        self.holder._state, self.holder._token = state, token
        self.holder.mark_dirty()

    def _synced_at(self, seconds: float) -> None:
        self.holder._last_sync_time = seconds

    def _forget_changes(self) -> None:
        self.holder._dirty = False

    def _seen_of_copy(self) -> dict[str, bool]:
        return {"token_good": self.holder._token == self.backend.version, "dirty": self.holder._dirty}

    def can_refuse(self, step: str) -> bool:
        own = ("ask_store", "load", "take_token", "decide", "act", "end")
        return step in own or step.startswith("begin_")

    def perform(self, step: str, indices: tuple[int, ...]) -> None:
        if step.startswith("begin_"):
            self._begin(Call[step.removeprefix("begin_").upper()], *indices)
        else:
            getattr(self, f"_{step}")(*(self.threads[k] for k in indices))

    # ---- the calls

    def _begin(self, call: Call, number: int) -> None:
        thread = self.threads[number]
        phases = {Call.SHUTDOWN: (AgentPhase.RUNNING, AgentPhase.FAILED)}.get(call, (AgentPhase.RUNNING,))
        may = self.beats.state is Timer.BEATING if call is Call.KEEP_ALIVE else self.phase in phases
        if thread.operation is not None or number != (TIMER if call is Call.KEEP_ALIVE else AGENT) or not may:
            raise Refused("this thread makes no such call now")

        def run() -> None:
            try:
                thread.result = self.calls[call](self.handler)
            except Exception as error:
                thread.noted = thread.noted or error
                raise

        thread.call, thread.operation = call, sim.Operation(run)
        thread.operation.resume()
        if thread.operation.at == "blocked":
            thread.abandon()
            raise Refused("it waits for the other thread")
        self.phase = {Call.EXIT: AgentPhase.EXITING, Call.SHUTDOWN: AgentPhase.DONE}.get(call, self.phase)

    def _asked(self, thread: Thread, operator: Any) -> Any:
        """The operator, which stops before it decides, and notes whether `_recorded` has to stop."""

        def decide(context: Any, until: float) -> Any:
            sim.stop("decide")
            action = operator(context, until)
            thread.about_to_act = action.name in ("KEEP_ALIVE", "REMOVE_FROM_PARTICIPANTS", "MARK_RENDEZVOUS_CLOSED")
            return action

        return decide

    def _watched_run(self, operator: Any, deadline: float, *update_deadline: Any) -> None:
        thread = self._running()
        try:
            self._run(self._asked(thread, operator), deadline, *update_deadline)
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

    def _recorded(self, **event: Any) -> None:
        """torch logs an action as the first thing that it does about it."""
        for thread in self.threads:
            if thread.about_to_act and thread.operation.running:
                thread.about_to_act = False
                sim.stop("act")

    def _running(self) -> Thread:
        return next(thread for thread in self.threads if thread.operation is not None and thread.operation.running)

    def _goes_on(self, thread: Thread, at: CallStep) -> None:
        if thread.at is not at:
            raise Refused(f"the call is {thread.at.name}")
        thread.operation.resume()

    def _ask_store(self, thread: Thread) -> None:
        self._synced_at(-1)
        self._goes_on(thread, P.SYNCING)

    def _serve_from_cache(self, thread: Thread) -> None:
        self._synced_at(self.clock.monotonic() + 2 * LATE_SECONDS)
        self._goes_on(thread, P.SYNCING)

    def _load(self, thread: Thread) -> None:
        self._goes_on(thread, P.ANSWERED)

    def _take_token(self, thread: Thread) -> None:
        self._goes_on(thread, P.LOADED)

    def _decide(self, thread: Thread) -> None:
        self._goes_on(thread, P.DECIDING)

    def _act(self, thread: Thread) -> None:
        self._goes_on(thread, P.ACTING)

    def _end(self, thread: Thread) -> None:
        if thread.at not in (P.RETURNED, P.RAISED):
            raise Refused(f"the call is {thread.at.name}")
        call, failed, caught = thread.call, thread.noted is not None, isinstance(thread.noted, self.caught)
        if not thread.operation.over and call is not Call.EXIT:
            thread.operation.resume()
        raised = thread.operation.error is not None
        wanted = failed and not (caught and call in (Call.SHUTDOWN, Call.KEEP_ALIVE))
        if raised is not wanted or (call is Call.SHUTDOWN and not raised and thread.result is failed):
            raise Disagreement(f"{call.name} returned {thread.result}, raised {thread.operation.error!r}")
        if call is Call.KEEP_ALIVE and raised:
            self.beats.state = Timer.DEAD  # _PeriodicTimer._run catches nothing: see the test of it
        ends = {Call.EXIT: AgentPhase.JOINING, Call.SHUTDOWN: AgentPhase.LEFT}.get(call, self.phase)
        self.phase = AgentPhase.FAILED if raised and call in (Call.EXIT, Call.SET_CLOSED, Call.POLL) else ends
        thread.abandon()

    def _join(self) -> None:
        def back(state: Any) -> None:
            state.participants = {self.own: 0, self.other: 1}
            state.last_heartbeats[self.own] = sim.NOW

        self.backend.written(back)
        self._synced_at(-1)
        self._forget_changes()
        self.holder.sync()
        self.phase, self.beats.state = AgentPhase.RUNNING, Timer.BEATING

    def _join_fails(self) -> None:
        self.phase = AgentPhase.FAILED

    # ---- time, and other nodes

    def _deadline_passes(self, thread: Thread) -> None:
        thread.late = True

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
        """`ask_store` and `serve_from_cache` say which it is."""

    def _corrupt(self) -> None:
        self.backend.stored = Stored.CORRUPT

    def _write_foreign(self) -> None:
        self.backend.stored = Stored.FOREIGN

    def _restore(self) -> None:
        self.backend.stored = Stored.STATE

    # ---- what can be seen

    def observe(self) -> Mapping[str, int]:
        stored, copy = self.backend.state(), self.holder.state
        out = {
            "stored": ordinal(self.backend.stored), "phase": ordinal(self.phase), "timer": ordinal(self.beats.state),
            "closed": stored.closed, "member": self.own in stored.participants,
            "due": self._is_due(stored), "copy_closed": copy.closed, "copy_member": self.own in copy.participants,
            "copy_due": self._is_due(copy), "lock": self.lock.taken, **self._seen_of_copy(),
        }  # fmt: skip
        for k, thread in enumerate(self.threads):
            out |= {f"call[{k}]": ordinal(thread.call), f"at[{k}]": ordinal(thread.at)}
            out |= {f"error[{k}]": ordinal(thread.error), f"late[{k}]": thread.late}
        return {name: int(value) for name, value in out.items()}

    def _is_due(self, state: Any) -> bool:
        """The node's heartbeat is older than the interval."""
        stamp = state.last_heartbeats.get(self.own)
        return stamp is not None and sim.age_of(stamp) != "FRESH"
