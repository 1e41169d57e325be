"""The calls that carry a context, and the pass that uses it: the steps that are the same in both editions.

Theory of operation. Forward: the creator enters the context (`enter`). A worker that runs in it calls another (`ask`),
which has the context when the request arrives (`take_request`). The body runs, may call other workers, and ends
(`answer`, `take_answer`). Backward: the creator begins a pass (`begin_pass`), a gradient begins the part of each worker
that it called (`take_gradient`, `end_part`), and the pass ends when all have answered (`hear_answer`, `end_pass`).

The editions differ in what a worker does with a message of a context that is over. They override four methods that the
steps call: `creates` and `recreates` (does a request or an answer bring the context back?), `notes_caller` and
`calls_back`. Each edition has its own steps for CLEAN: `torch.py`, `ours.py`. `environment.py` has the loss of
messages and of workers.
"""

from __future__ import annotations

from typing import Any

from ...language import *
from ..vocabulary import CallState, ContextState, Shipped
from .fields import CREATOR, Fields, S

UNUSED = may(ContextState.IN_USE, (ContextState.SHARED, ContextState.CREATED))


class Steps(Fields):
    """Calls that carry the context, and passes that use it, in both editions."""

    # ---- forward

    @transition(
        moves=[arc(ContextState.ABSENT, ContextState.CREATED)],
        cite="distributed-autograd-contexts 4.3.2: newContext",
    )
    def enter(self, s: S, worker: Expr) -> None:
        """The creator enters `context()`."""
        s.when(ord_(worker) == CREATOR, ~s.entered)
        s.entered = True
        s.open = True
        s.has[worker] = True

    @transition(
        fair=False,
        moves=[arc(ContextState.CREATED, ContextState.SHARED), arc(CallState.IDLE, CallState.REQUESTED)],
        cite="distributed-autograd-contexts 5.1: getMessageWithAutograd",
    )
    def ask(self, s: S, worker0: Expr, worker1: Expr) -> None:
        """A worker sends a forward request: it records its callee before it sends."""
        s.when(self.are_two(worker0, worker1), s.call[worker1] == CallState.IDLE, s.asked < self.calls)
        s.when(s.has[worker0], ~s.dead[worker0], ~s.noticed[worker0, worker1])
        s.when(or_(and_(ord_(worker0) == CREATOR, s.open), s.inside[worker0]))
        s.asked = s.asked + 1
        s.call[worker1] = CallState.REQUESTED
        s.caller[worker0, worker1] = True
        s.known[worker0, worker1] = True

    @transition(
        moves=[arc(CallState.REQUESTED, CallState.RUNNING), arc(ContextState.ABSENT, ContextState.CREATED)],
        cite="distributed-autograd-contexts 5.2: getOrCreateContext",
    )
    def take_request(self, s: S, worker: Expr) -> None:
        """The request arrives: the body runs in the context."""
        move(s.call, CallState.REQUESTED, CallState.RUNNING, ~s.dead[worker], at=worker)
        s.inside[worker] = s.has[worker] | self.creates(s, worker)
        s.has[worker] = s.has[worker] | self.creates(s, worker)

    @transition(
        moves=[arc(CallState.RUNNING, CallState.ANSWERED)],
        cite="distributed-autograd-contexts 5.2: FORWARD_AUTOGRAD_RESP",
    )
    def answer(self, s: S, worker: Expr) -> None:
        """The body returns or raises: its thread leaves the context, and the answer names it if it is still here."""
        move(s.call, CallState.RUNNING, CallState.ANSWERED, ~s.dead[worker], at=worker)
        if not self.outlives:
            s.when(or_(~self.waits(s, worker), ord_(worker) == CREATOR))  # the creator's own code waits
        s.carries[worker] = s.inside[worker] & s.has[worker]
        self.ends_request(s, worker)
        self.notes_caller(s, worker)

    def notes_caller(self, s: S, worker: Expr) -> None:
        """Record the caller that the worker answers; nothing here."""

    @transition(
        moves=[arc(CallState.ANSWERED, CallState.IDLE)],
        cite="distributed-autograd-contexts 5.2: addRecvRpcBackward",
    )
    def take_answer(self, s: S, worker: Expr) -> None:
        """The answer of a worker arrives, or its caller no longer takes it."""
        s.when(s.call[worker] == CallState.ANSWERED)
        for j in s.worker:
            named = s.caller[j, worker] & s.carries[worker] & ~s.dead[j]
            s.has[j] = s.has[j] | (named & self.recreates(s, j))
        s.carries[worker] = False
        self.forgets_call(s, worker)

    # ---- backward

    @transition(
        moves=[
            arc(ContextState.SHARED, ContextState.IN_USE, of="others"),
            arc(Shipped.NONE, Shipped.SENT, of="others"),
            may(Shipped.NONE, Shipped.FAILED, of="others"),
        ],
        cite="dist_engine.cpp:DistEngine::execute",
    )
    def begin_pass(self, s: S) -> None:
        """The creator runs a pass and ships a gradient to each worker that it has called."""
        if not self.passes:
            s.when(False)
        s.when(s.open, ~s.began, s.has[CREATOR], any_(s.known[CREATOR, j] for j in s.worker))
        s.when(s.call.all(CallState.IDLE))
        s.began = True
        s.running = True
        for j in s.worker:
            s.shipped[j] = ite(
                s.known[CREATOR, j], ite(s.noticed[CREATOR, j], Shipped.FAILED, Shipped.SENT), Shipped.NONE
            )

    @transition(
        moves=[
            arc(Shipped.SENT, Shipped.RUNNING),
            may(Shipped.SENT, Shipped.FAILED),
            arc(ContextState.SHARED, ContextState.IN_USE),
            may(ContextState.CREATED, ContextState.IN_USE),
        ],
        cite="request_callback_no_python.cpp: BACKWARD_AUTOGRAD_REQ",
    )
    def take_gradient(self, s: S, worker: Expr) -> None:
        """A gradient arrives: the worker's part runs, or fails without the context."""
        s.when(s.shipped[worker] == Shipped.SENT, ~s.dead[worker])
        s.shipped[worker] = ite(s.has[worker], Shipped.RUNNING, Shipped.FAILED)

    @transition(moves=[arc(Shipped.RUNNING, Shipped.DONE), UNUSED])
    def end_part(self, s: S, worker: Expr) -> None:
        """A worker's part is done."""
        move(s.shipped, Shipped.RUNNING, Shipped.DONE, ~s.dead[worker], at=worker)

    @transition(moves=[arc((Shipped.DONE, Shipped.FAILED), Shipped.NONE)], cite="context.cpp: addOutstandingRpc")
    def hear_answer(self, s: S, worker: Expr) -> None:
        """The root receives an answer."""
        failed = s.shipped[worker] == Shipped.FAILED
        s.when(failed | (s.shipped[worker] == Shipped.DONE), ~s.dead[CREATOR])
        self.calls_back(s, failed)
        s.shipped[worker] = Shipped.NONE

    def calls_back(self, s: S, failed: Any) -> None:
        """Further effects of the answer; none here."""

    def writes_to_the_context(self, s: S, failed: Any) -> None:
        """Write a failure into the context: a crash if the creator has released it and no pass runs."""
        s.crashed = s.crashed | (failed & ~s.running & ~s.has[CREATOR])

    @transition(
        moves=[arc(ContextState.IN_USE, ContextState.SHARED, of="others")],
        cite="dist_engine.cpp: clearAndWaitForOutstandingRpcsAsync",
    )
    def end_pass(self, s: S) -> None:
        """All are answered: backward() returns or raises."""
        s.when(s.running, s.shipped.all(Shipped.NONE))
        s.running = False
