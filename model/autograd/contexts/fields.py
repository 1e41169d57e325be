"""One context on several workers: which have it, the calls that take it along, and the passes that use it.

Theory of operation. Worker 0 is the creator. A worker that has the context, and runs in it, may call any other worker;
that one then has it too. The creator leaves the context, or is lost; a request CLEAN goes from worker to worker along
the calls, and each that gets it releases the context. The editions differ in what a worker remembers of a context that
is over, and in when CLEAN is answered.

Abstractions. A worker serves one call at a time in this context. A pass is the root's, and ships once to each worker
that the root has called. All workers have, or make, a connection to the creator of a context that they have, so that
each notices when one is lost. Messages may overtake each other, also between the same two workers: that is more than a
connection does.
"""

from __future__ import annotations

from typing import Any

from ...language import *
from ...language.lifelines import Place, Value, between
from ..vocabulary import CallState, CleanUp, ContextState, Shipped

S = SymbolicState
Condition = Any  # an Expr: the attributes of a symbolic state are typed as Any
LIVE = (ContextState.CREATED, ContextState.SHARED, ContextState.IN_USE)
CREATOR = 0


class Fields(System):
    """The fields of the system, its machines, and what its steps share."""

    worker = index(3, "0 is the creator")
    calls = constant(2, "how many calls are made")
    outlives = constant(1, "1: the creator may leave before its calls have returned, 0: it waits")
    passes = constant(1, "1: the creator runs a backward pass, 0: none")

    entered = flag(doc="the context has been created")
    open = flag(doc="the creator has not left it")
    has = flag(per="worker")
    over = flag(per="worker", doc="it was released here; ours remembers, torch does not")
    known = flag(per=("worker", "worker"), doc="the first is to tell the second of the release")

    asked = integer(0, "calls")
    call = choice(CallState, per="worker")
    caller = flag(per=("worker", "worker"), doc="the call that the second serves is the first's")
    inside = flag(per="worker", doc="the thread that serves the call has the context as its current one")
    carries = flag(per="worker", doc="the answer names the context")

    clean = choice(CleanUp, per=("worker", "worker"), doc="from the first to the second")
    told = flag(per=("worker", "worker"), doc="ours: the first need not tell the second again")
    dead = flag(per="worker")
    noticed = flag(per=("worker", "worker"), doc="the first knows that the second is lost")

    began = flag(doc="the pass has begun")
    running = flag(doc="the pass has not ended at its root")
    shipped = choice(Shipped, per="worker", doc="from the root")
    crashed = flag(doc="a callback has touched a context that was gone")

    def lifelines(self) -> Lifelines:
        """A call is sent by the worker that it notes as the caller; a gradient by the creator."""

        def call(indices: tuple[int, ...], value: Value) -> tuple[Place, Place]:
            callers = range(self.sizes["worker"])
            return next((k for k in callers if value(f"caller[{k}][{indices[0]}]")), None), indices[0]

        def from_creator(indices: tuple[int, ...], _: Value) -> tuple[Place, Place]:
            return CREATOR, indices[0]

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
                    from_creator, sent=(Shipped.SENT,),
                    taken=(Shipped.RUNNING, Shipped.FAILED),
                    answered=(Shipped.DONE, Shipped.FAILED), received=(Shipped.NONE,),
                ),
            },
        )  # fmt: skip

    @machine(ContextState, each="worker")
    def context(self, s: S, worker: Expr) -> Any:
        """The context on a worker."""
        used = or_(s.shipped[worker] == Shipped.RUNNING, and_(ord_(worker) == CREATOR, s.running))
        live = ite(
            used,
            ContextState.IN_USE,
            ite(any_(s.known[worker, j] for j in s.worker), ContextState.SHARED, ContextState.CREATED),
        )
        return ite(s.has[worker], live, ite(s.over[worker], ContextState.RELEASED, ContextState.ABSENT))

    @machine(CallState, each="worker")
    def forward_call(self, s: S, worker: Expr) -> Any:
        """The call that a worker serves."""
        return s.call[worker]

    @machine(CleanUp, each="worker")
    def clean_up(self, s: S, worker: Expr) -> Any:
        """The CLEAN request from the creator to a worker."""
        return s.clean[CREATOR, worker]

    @machine(Shipped, each="worker")
    def gradient(self, s: S, worker: Expr) -> Any:
        """The gradient that the root ships to a worker."""
        return s.shipped[worker]

    # ---- what the steps share

    def are_two(self, one: Expr, other: Expr) -> Condition:
        return not_(ord_(one) == ord_(other))

    def creates(self, s: S, worker: Expr) -> Condition:
        """Does a request that names the context have it here?"""
        return not_(False)

    def recreates(self, s: S, worker: Expr) -> Condition:
        """Does an answer that names the context have it here?"""
        return not_(False)

    def waits(self, s: S, worker: Expr) -> Condition:
        """Does it wait for a call of its own?"""
        return any_(s.caller[worker, j] for j in s.worker)

    def ends_request(self, s: S, worker: Expr) -> None:
        s.inside[worker] = False

    def forgets_call(self, s: S, worker: Expr, when: Any = True) -> None:
        s.call[worker] = ite(when, CallState.IDLE, s.call[worker])
        for j in s.worker:
            s.caller[j, worker] = s.caller[j, worker] & not_(when)

    def releases(self, s: S, worker: Expr, when: Any, told_by: Expr | None = None) -> None:
        """The context is over on a worker: it is dropped, what uses it fails, and others are told."""
        self.passes_on(s, worker, when, told_by)
        s.has[worker] = s.has[worker] & not_(when)
        s.over[worker] = s.over[worker] | when
        for j in s.worker:
            s.known[worker, j] = s.known[worker, j] & not_(when)

    def passes_on(self, s: S, worker: Expr, when: Any, told_by: Expr | None) -> None:
        """CLEAN to all workers that it knows."""
        for j in s.worker:
            self.tells(s, worker, j, and_(when, s.known[worker, j]))

    def tells(self, s: S, worker: Expr, other: Expr, when: Any) -> None:
        """CLEAN from one to another."""
        s.clean[worker, other] = ite(when, CleanUp.SENT, s.clean[worker, other])

    def has_answers(self, s: S, worker: Expr) -> None:
        """An answer to CLEAN may have been the last that the worker waited for."""

    def is_news(self, s: S, worker: Expr) -> Condition:
        """Does CLEAN change anything on this worker?"""
        raise NotImplementedError

    def taken(self, state: Any, first: Any) -> Any:
        """The state of a CLEAN after a worker has received it."""
        return CleanUp.NONE

    def hears_of_loss(self, s: S, worker: Expr, other: Expr, untold: Any) -> None:
        """A worker has found that another is lost, which it may not have told of the release."""

    def dies(self, s: S, worker: Expr) -> None:
        """A worker dies: its messages are still on their way, and its peers do not know yet."""
        s.when(s.entered, ~s.dead[worker])
        s.dead[worker] = True
        s.has[worker] = False
        s.inside[worker] = False
        for j in s.worker:
            s.known[worker, j] = False
            unsaid = s.clean[worker, j].isin((CleanUp.LOST, CleanUp.PASSING_ON))
            s.clean[worker, j] = ite(unsaid, CleanUp.NONE, s.clean[worker, j])

    def is_left(self, s: S) -> Condition:
        return s.entered & ~s.open

    def is_quiet(self, s: S) -> Condition:
        """Nothing is on its way, runs, or is unnoticed, among those that live."""
        calls = all_((s.call[j] == CallState.IDLE) | s.dead[j] for j in s.worker)
        gradients = s.dead[CREATOR] | all_(s.shipped[j] == Shipped.NONE for j in s.worker)
        clean = all_(
            all_((s.clean[i, j] == CleanUp.NONE) | (s.dead[i] & s.dead[j]) for i in s.worker) for j in s.worker
        )
        known = all_(all_(s.noticed[i, j] | s.dead[i] | ~s.dead[j] for i in s.worker) for j in s.worker)
        return calls & gradients & clean & known & ~s.running
