"""One context on several workers: who has it, the calls that take it along, and the passes that use it.

Worker 0 is the creator. Whoever has the context, and runs in it, may call any other worker; that one then has it too.

Abstractions. A worker serves one call at a time in this context. A pass is the root's, and ships once to each worker
that the root has called. All workers have, or make, a connection to the creator of a context that they have, so that
everybody notices who is lost. Messages may overtake each other, also between the same two workers: that is more than a
connection does.
"""

from __future__ import annotations

from typing import Any

from ..language import (
    Expr,
    SymbolicState,
    System,
    all_,
    and_,
    any_,
    arc,
    choice,
    constant,
    fault,
    flag,
    index,
    integer,
    ite,
    machine,
    may,
    not_,
    or_,
    ord_,
    transition,
)
from .vocabulary import CallState, CleanUp, ContextState, Edition, Shipped

S = SymbolicState
Condition = Any  # an Expr: the attributes of a symbolic state are typed as Any
TORCH, TRYSTATE = Edition.TORCH, Edition.TRYSTATE
C, L, M, U = ContextState, CallState, Shipped, CleanUp
LIVE = (C.CREATED, C.SHARED, C.IN_USE)
UNUSED = (*may(C.IN_USE, C.SHARED), *may(C.IN_USE, C.CREATED))
CREATOR = 0


class Sharing(System):
    """The fields, the machines, calls and passes; what ends a context is in `cleanup`."""

    Edition = (Edition.TORCH, Edition.TRYSTATE)

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

    @machine(ContextState, each="worker")
    def context(self, s: S, worker: Expr) -> Any:
        """The context on a worker."""
        used = or_(s.shipped[worker] == M.RUNNING, and_(ord_(worker) == CREATOR, s.running))
        live = ite(used, C.IN_USE, ite(any_(s.known[worker, j] for j in s.worker), C.SHARED, C.CREATED))
        return ite(s.has[worker], live, ite(s.over[worker], C.RELEASED, C.ABSENT))

    @machine(CallState, each="worker")
    def forward_call(self, s: S, worker: Expr) -> Any:
        """The call that a worker serves."""
        return s.call[worker]

    @machine(CleanUp, each="worker")
    def clean_up(self, s: S, worker: Expr) -> Any:
        """What the creator tells a worker of the release."""
        return s.clean[CREATOR, worker]

    @machine(Shipped, each="worker")
    def gradient(self, s: S, worker: Expr) -> Any:
        """The gradient that the root ships to a worker."""
        return s.shipped[worker]

    # ---- what the steps share

    def are_two(self, one: Expr, other: Expr) -> Condition:
        return not_(ord_(one) == ord_(other))

    def creates(self, s: S, worker: Expr) -> Condition:
        """Does a request that names the context have it here? Ours: not once it is over."""
        return not_(s.over[worker]) if self.edition is TRYSTATE else not_(False)

    def recreates(self, s: S, worker: Expr) -> Condition:
        """Does an answer that names the context have it here? In ours whoever asked has it, or it is over."""
        return not_(self.edition is TRYSTATE)

    def waits(self, s: S, worker: Expr) -> Condition:
        """Does it wait for a call of its own?"""
        return any_(s.caller[worker, j] for j in s.worker)

    # ---- forward

    @transition(each="worker", moves=[arc(C.ABSENT, C.CREATED)], cite="distributed-autograd-contexts 4.3.2: newContext")
    def enter(self, s: S, worker: Expr) -> None:
        """The creator enters `context()`."""
        s.when(ord_(worker) == CREATOR, ~s.entered)
        s.entered = True
        s.open = True
        s.has[worker] = True

    @transition(
        each=("worker", "worker"), fair=False,
        moves=[arc(C.CREATED, C.SHARED), arc(L.IDLE, L.REQUESTED)],
        cite="distributed-autograd-contexts 5.1: getMessageWithAutograd",
    )  # fmt: skip
    def ask(self, s: S, worker0: Expr, worker1: Expr) -> None:
        """A forward request: who asks records whom, before it sends."""
        s.when(self.are_two(worker0, worker1), s.call[worker1] == L.IDLE, s.asked < self.calls)
        s.when(s.has[worker0], ~s.dead[worker0], ~s.noticed[worker0, worker1])
        s.when(or_(and_(ord_(worker0) == CREATOR, s.open), s.inside[worker0]))
        s.asked = s.asked + 1
        s.call[worker1] = L.REQUESTED
        s.caller[worker0, worker1] = True
        s.known[worker0, worker1] = True

    @transition(
        each="worker", moves=[
            arc(L.REQUESTED, L.RUNNING), arc(C.ABSENT, C.CREATED), arc(C.RELEASED, C.CREATED, editions=[TORCH]),
            may(C.RELEASED, C.IN_USE, editions=[TORCH]),
        ],
        cite="distributed-autograd-contexts 5.2: getOrCreateContext",
    )  # fmt: skip
    def take_request(self, s: S, worker: Expr) -> None:
        """The request arrives: the body runs in the context; in ours outside of any, if that is over."""
        s.when(s.call[worker] == L.REQUESTED, ~s.dead[worker])
        s.inside[worker] = s.has[worker] | self.creates(s, worker)
        s.has[worker] = s.has[worker] | self.creates(s, worker)
        s.call[worker] = L.RUNNING

    @transition(
        each="worker", moves=[arc(L.RUNNING, L.ANSWERED), arc(C.CREATED, C.SHARED, editions=[TORCH])],
        cite="distributed-autograd-contexts 5.2: FORWARD_AUTOGRAD_RESP",
    )  # fmt: skip
    def answer(self, s: S, worker: Expr) -> None:
        """The body returns or raises: the thread is in no context any more; the answer names it if it is here."""
        s.when(s.call[worker] == L.RUNNING, ~s.dead[worker])
        if not self.outlives:
            s.when(or_(~self.waits(s, worker), ord_(worker) == CREATOR))  # whose own code waits, not the body
        s.carries[worker] = s.inside[worker] & s.has[worker]
        self.ends_request(s, worker)
        s.call[worker] = L.ANSWERED
        if self.edition is TORCH:
            for j in s.worker:
                s.known[worker, j] = s.known[worker, j] | (s.caller[j, worker] & s.carries[worker])

    def ends_request(self, s: S, worker: Expr) -> None:
        s.inside[worker] = False

    @transition(
        each="worker",
        moves=[arc(L.ANSWERED, L.IDLE), arc(C.RELEASED, C.CREATED, of="others", editions=[TORCH])],
        cite="distributed-autograd-contexts 5.2: addRecvRpcBackward",
    )  # fmt: skip
    def take_answer(self, s: S, worker: Expr) -> None:
        """The answer of a worker arrives, or nobody is there to take it."""
        s.when(s.call[worker] == L.ANSWERED)
        for j in s.worker:
            named = s.caller[j, worker] & s.carries[worker] & ~s.dead[j]
            s.has[j] = s.has[j] | (named & self.recreates(s, j))
        s.carries[worker] = False
        self.forgets_call(s, worker)

    @fault("timeout", each="worker", cite="tensorpipe_agent.cpp: pollTimeoutRpcs")
    def time_out(self, s: S, worker: Expr) -> None:
        """Who called a worker waits no longer; the call goes on."""
        s.when(s.call[worker] != L.IDLE, any_(s.caller[j, worker] & ~s.dead[j] for j in s.worker))
        for j in s.worker:
            s.caller[j, worker] = False

    def forgets_call(self, s: S, worker: Expr, when: Any = True) -> None:
        s.call[worker] = ite(when, L.IDLE, s.call[worker])
        for j in s.worker:
            s.caller[j, worker] = s.caller[j, worker] & not_(when)

    # ---- backward

    @transition(
        moves=[
            arc(C.SHARED, C.IN_USE, of="others"), arc(M.NONE, M.SENT, of="others"), may(M.NONE, M.FAILED, of="others"),
        ],
        cite="dist_engine.cpp:DistEngine::execute",
    )  # fmt: skip
    def begin_pass(self, s: S) -> None:
        """The creator runs a pass, and ships to all that it has called."""
        if not self.passes:
            s.when(False)
        s.when(s.open, ~s.began, s.has[CREATOR], any_(s.known[CREATOR, j] for j in s.worker))
        s.when(all_(s.call[j] == L.IDLE for j in s.worker))
        s.began = True
        s.running = True
        for j in s.worker:
            s.shipped[j] = ite(s.known[CREATOR, j], ite(s.noticed[CREATOR, j], M.FAILED, M.SENT), M.NONE)

    @transition(
        each="worker", moves=[
            arc(M.SENT, M.RUNNING), may(M.SENT, M.FAILED), arc(C.SHARED, C.IN_USE), may(C.CREATED, C.IN_USE),
        ],
        cite="request_callback_no_python.cpp: BACKWARD_AUTOGRAD_REQ",
    )  # fmt: skip
    def take_gradient(self, s: S, worker: Expr) -> None:
        """A gradient arrives: the worker's part runs, or there is no such context."""
        s.when(s.shipped[worker] == M.SENT, ~s.dead[worker])
        s.shipped[worker] = ite(s.has[worker], M.RUNNING, M.FAILED)

    @transition(each="worker", moves=[arc(M.RUNNING, M.DONE), UNUSED])
    def end_part(self, s: S, worker: Expr) -> None:
        """A worker's part is done."""
        s.when(s.shipped[worker] == M.RUNNING, ~s.dead[worker])
        s.shipped[worker] = M.DONE

    @fault("error", each="worker", bound=2, moves=[arc(M.RUNNING, M.FAILED), UNUSED])
    def fail_part(self, s: S, worker: Expr) -> None:
        """A node raises."""
        s.when(s.shipped[worker] == M.RUNNING, ~s.dead[worker])
        s.shipped[worker] = M.FAILED

    @transition(
        each="worker", moves=[arc((M.DONE, M.FAILED), M.NONE), arc(C.IN_USE, C.SHARED, of="others", editions=[TORCH])],
        cite="context.cpp: addOutstandingRpc",
    )  # fmt: skip
    def hear(self, s: S, worker: Expr) -> None:
        """The root is answered. torch: the first error ends its pass, and by each a callback writes to the context.

        Ours ends it when all have answered, and looks for the context by its id.
        """
        failed = s.shipped[worker] == M.FAILED
        s.when(failed | (s.shipped[worker] == M.DONE), ~s.dead[CREATOR])
        self.calls_back(s, failed)
        s.shipped[worker] = M.NONE

    def calls_back(self, s: S, failed: Any) -> None:
        if self.edition is TORCH:
            self.writes_to_the_context(s, failed)
            s.running = s.running & ~failed

    def writes_to_the_context(self, s: S, failed: Any) -> None:
        """Who runs the pass keeps the context alive."""
        s.crashed = s.crashed | (failed & ~s.running & ~s.has[CREATOR])

    @transition(
        moves=[arc(C.IN_USE, C.SHARED, of="others")], cite="dist_engine.cpp: clearAndWaitForOutstandingRpcsAsync"
    )
    def end_pass(self, s: S) -> None:
        """All are answered: backward() returns or raises."""
        s.when(s.running, all_(s.shipped[j] == M.NONE for j in s.worker))
        s.running = False
