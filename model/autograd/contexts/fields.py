"""One context on several workers: the workers that have it, the calls that carry it, and the passes that use it.

Theory of operation. Worker 0 is the creator. A worker that has the context and runs in it may call any other worker,
which then has it too. When the creator leaves the context or is lost, a request CLEAN goes from worker to worker along
the calls. Each worker that gets it releases the context. The editions differ in what a worker remembers about a context
that is over, and in when CLEAN is answered.

Abstractions. A worker serves one call at a time in this context. Only the creator runs a pass, and it ships once to
each worker that it has called. Each worker that has a context also has or makes a connection to its creator, so each
notices when the other is lost. Messages may overtake each other, also between the same two workers, which a connection
does not allow.
"""

from __future__ import annotations

from typing import Any

from ...language import *
from ...language.lifelines import Place, Value, between
from ..vocabulary import CallState, CleanUp, ContextState, Shipped

S = SymbolicState
LIVE = (ContextState.CREATED, ContextState.SHARED, ContextState.IN_USE)
CREATOR = 0


class Fields(System):
    """The fields of the system, its machines, and the methods that its steps share."""

    worker = index(3, "0 is the creator")
    calls = constant(2, "how many calls are made")
    outlives = constant(1, "1: the creator may leave before its calls have returned, 0: it waits")
    passes = constant(1, "1: the creator runs a backward pass, 0: none")

    entered = flag(doc="the context has been created")
    open = flag(doc="the creator has not left it")
    has = flag(per="worker")
    over = flag(per="worker", doc="it was released here; ours remembers that, torch does not")
    known = flag(per=("worker", "worker"), doc="the first sends CLEAN to the second at the release")

    asked = integer(0, "calls")
    call = choice(CallState, per="worker")
    caller = flag(per=("worker", "worker"), doc="the second serves a call of the first")
    inside = flag(per="worker", doc="the thread that serves the call has the context as its current one")
    carries = flag(per="worker", doc="the answer names the context")

    clean = choice(CleanUp, per=("worker", "worker"), doc="from the first to the second")
    told = flag(per=("worker", "worker"), doc="ours: the first does not send CLEAN to the second again")
    dead = flag(per="worker")
    noticed = flag(per=("worker", "worker"), doc="the first has noticed that the second is lost")

    began = flag(doc="the pass has begun")
    running = flag(doc="the pass has not ended at its root")
    shipped = choice(Shipped, per="worker", doc="from the root")
    crashed = flag(doc="a callback has used a context that was released")

    def lifelines(self) -> Lifelines:
        """A call is sent by the worker in `caller`, a gradient by the creator."""

        def call(indices: tuple[int, ...], value: Value) -> tuple[Place, Place]:
            callers = range(self.sizes["worker"])
            return next((k for k in callers if value(f"caller[{k}][{indices[0]}]")), None), indices[0]

        return Lifelines(
            places=dict.fromkeys(("entered", "open", "began", "running", "begin_pass", "end_pass"), CREATOR),
            here=("asked", "crashed", "carries"),
            messages={
                "call": Message(
                    call, sent=(CallState.REQUESTED,), taken=(CallState.RUNNING,),
                    answered=(CallState.ANSWERED,), received=(CallState.IDLE,),
                ),
                "clean": Message(
                    between, sent=(CleanUp.SENT,),
                    taken=(CleanUp.NONE, CleanUp.AGAIN, CleanUp.PASSING_ON),
                ),
                "shipped": Message(
                    lambda at, _: (CREATOR, at[0]), sent=(Shipped.SENT,),
                    taken=(Shipped.RUNNING, Shipped.FAILED),
                    answered=(Shipped.DONE, Shipped.FAILED), received=(Shipped.NONE,),
                ),
            },
        )  # fmt: skip

    @machine(ContextState)
    def context(self, s: S, worker: Expr) -> Any:
        """The context on a worker."""
        used = or_(s.shipped[worker] == Shipped.RUNNING, and_(ord_(worker) == CREATOR, s.running))
        live = ite(
            used,
            ContextState.IN_USE,
            ite(any_(s.known[worker, j] for j in s.worker), ContextState.SHARED, ContextState.CREATED),
        )
        return ite(s.has[worker], live, ite(s.over[worker], ContextState.RELEASED, ContextState.ABSENT))

    forward_call = machine_of(call, "The call that a worker serves.")

    @machine(CleanUp)
    def clean_up(self, s: S, worker: Expr) -> Any:
        """The CLEAN request from the creator to a worker."""
        return s.clean[CREATOR, worker]

    gradient = machine_of(shipped, "The gradient that the root ships to a worker.")

    # ---- shared by the steps

    def are_two(self, one: Expr, other: Expr) -> Condition:
        return not_(ord_(one) == ord_(other))

    def creates(self, s: S, worker: Expr) -> Condition:
        """Does a request that names the context create it here?"""
        return not_(False)

    def recreates(self, s: S, worker: Expr) -> Condition:
        """Does an answer that names the context create it here?"""
        return not_(False)

    def waits(self, s: S, worker: Expr) -> Condition:
        """Does the worker wait for its own call?"""
        return any_(s.caller[worker, j] for j in s.worker)

    def ends_request(self, s: S, worker: Expr) -> None:
        s.inside[worker] = False

    def forgets_call(self, s: S, worker: Expr, when: Any = True) -> None:
        s.call[worker] = ite(when, CallState.IDLE, s.call[worker])
        for j in s.worker:
            s.caller[j, worker] = s.caller[j, worker] & not_(when)

    def releases(self, s: S, worker: Expr, when: Any, told_by: Expr | None = None) -> None:
        """The context is over on a worker, which drops it and sends CLEAN on; in ours, its part of a pass fails."""
        self.passes_on(s, worker, when, told_by)
        s.has[worker] = s.has[worker] & not_(when)
        s.over[worker] = s.over[worker] | when
        reset(s.known, at=worker, when=when)

    def passes_on(self, s: S, worker: Expr, when: Any, told_by: Expr | None) -> None:
        """Send CLEAN to all workers in `known`."""
        for j in s.worker:
            self.tells(s, worker, j, and_(when, s.known[worker, j]))

    def tells(self, s: S, worker: Expr, other: Expr, when: Any) -> None:
        """Send CLEAN from one worker to another."""
        s.clean[worker, other] = ite(when, CleanUp.SENT, s.clean[worker, other])

    def has_answers(self, s: S, worker: Expr) -> None:
        """Called when a worker has an answer to CLEAN, which may be the last that it waited for."""

    def is_news(self, s: S, worker: Expr) -> Condition:
        """Does CLEAN change anything on this worker?"""
        raise NotImplementedError

    def taken(self, state: Any, first: Any) -> Any:
        """The state of a CLEAN after a worker has received it."""
        return CleanUp.NONE

    def hears_of_loss(self, s: S, worker: Expr, other: Expr, untold: Any) -> None:
        """Called when a worker notices that another is lost. `untold`: the other has not answered its CLEAN."""

    def dies(self, s: S, worker: Expr) -> None:
        """A worker dies: its messages are still on their way, and its peers have not noticed yet."""
        move(s.dead, False, True, s.entered, at=worker)
        reset(s.has, s.inside, s.known, at=worker)
        for j in s.worker:
            unsaid = s.clean[worker, j].isin((CleanUp.LOST, CleanUp.PASSING_ON))
            s.clean[worker, j] = ite(unsaid, CleanUp.NONE, s.clean[worker, j])

    def is_left(self, s: S) -> Condition:
        return s.entered & ~s.open

    def is_quiet(self, s: S) -> Condition:
        """Among the living workers, no message is on its way, no call or pass runs, and every loss is noticed."""
        calls = all_((s.call[j] == CallState.IDLE) | s.dead[j] for j in s.worker)
        gradients = s.dead[CREATOR] | s.shipped.all(Shipped.NONE)
        clean = all_((s.clean[i, j] == CleanUp.NONE) | (s.dead[i] & s.dead[j]) for j in s.worker for i in s.worker)
        known = all_(s.noticed[i, j] | s.dead[i] | ~s.dead[j] for j in s.worker for i in s.worker)
        return calls & gradients & clean & known & ~s.running
