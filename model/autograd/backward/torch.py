"""FAST as in the design note and in torch 2.13: no message names its pass, and no worker is notified of a failure.

A worker's first gradient of a pass begins its part. That request is answered when the part is over, and all others at
once, so the answers form a tree (Dijkstra and Scholten's diffusing computation, except for errors). A part that has
nothing `left` (torch: `outstanding_tasks`) is DRAINING; it is DONE when all its gradients are answered, and the pass
ends when the part of the root is DONE. Its defects are G1 to G8 in `findings`.
"""

from __future__ import annotations

from typing import Any

from ...language import *
from ..vocabulary import Edition, NodeKind, NodeState, Part
from .fields import *
from .properties import Backward

TASK = (Part.COUNTING, Part.RUNNING, Part.DRAINING)  # the context is in the engine's set
TASKS_MAX = 30
TAKEN = (
    *moves(OTHERS, [Part.IDLE, Part.DONE, Part.FAILED], Part.COUNTING), *RUNS, *RESET,
    *moves(OTHERS, [NodeState.EXECUTED, NodeState.WAITING, NodeState.READY], NodeState.READY, NodeState.WAITING),
)  # fmt: skip
FAILS = moves(OTHERS, [*ENGAGED, Part.PASSIVE], Part.FAILED) + SKIPS


class Torch(Backward, edition=Edition.TORCH):
    """The messages of torch."""

    left = integer(-4, TASKS_MAX, initial=0, per="worker", doc="outstanding_tasks")
    deaf = flag(per=("attempt", "pair"), doc="the sender no longer waits for the answer: its time was over")
    crashed = flag(doc="a callback has used a context that was released")

    # ---- a part of a pass

    @transition(
        moves=[
            arc((Part.IDLE, Part.DONE), Part.COUNTING, of=OTHERS),
            RESET,
            moves(OTHERS, [Part.FAILED], Part.COUNTING),
        ],
        cite="dist_engine.cpp:DistEngine::execute",
    )
    def begin(self, s: S, attempt: Expr) -> None:
        """backward() is called, and raises if the context is in the engine's set."""
        self.begins_now(s, attempt)
        home, root = self.shape.home, self.shape.root
        free = not_(s.phase[home].isin(TASK))
        s.outcome[attempt] = ite(free, Outcome.RUNNING, Outcome.RAISED)
        self.opens(s, ord_(attempt), [and_(w == home, free) for w in self.workers()])
        s.gradient[root] = ite(free, 1, s.gradient[root])

    @transition(moves=COUNTS, cite="dist_engine.cpp:computeDependencies")
    def count_inputs(self, s: S, worker: Expr) -> None:
        """A worker counts the inputs of each node, from the root and its sends; each of these is a task."""
        move(s.phase, Part.COUNTING, Part.RUNNING, at=worker)
        for w in self.workers():
            begun = ite(s.gradient[self.shape.root] > 0, 1, 0) if w == self.shape.home else 0
            s.left[w] = ite(worker == w, begun + len(self.shape.sends(w)), s.left[w])

    @transition(
        moves=[
            RUN,
            SKIPS,
            moves(OWN, [NodeState.READY], NodeState.SKIPPED),
            moves(OTHERS, [Part.RUNNING], Part.PASSIVE, Part.FAILED),
        ],
        cite="engine.cpp:Engine::evaluate_function",
    )
    def run(self, s: S, node: Expr) -> None:
        """A node with all inputs runs and feeds the nodes that follow; a recv ships to the send of its pair."""
        self.runs(s, node)

    def feeds(self, s: S, before: S, node: Expr) -> None:
        """A leaf adds to the context at once; a node that is given an input too many fails the part."""
        super().feeds(s, before, node)
        shape, failed = self.shape, list[Any]()
        for w in self.workers():
            runs = self.is_of(node, w)
            ready = (and_(s.fed[k] == self.waits_for(s, k), before.fed[k] != s.fed[k]) for k in shape.of(w))
            s.left[w] = ite(runs, s.left[w] - 1 + count(ready), s.left[w])
            confused = or_(
                *((node == f) & (before.fed[k] == self.waits_for(s, k)) for k in shape.of(w) for f in shape.feeders(k))
            )
            gone = or_(*((node == shape.pairs[p].recv) & s.released[w] for p in shape.recvs(w)))
            for k in shape.of(w, NodeKind.ACCUMULATE):
                s.grads[k] = ite(node == k, self.at_most(s.grads[k] + before.gradient[k]), s.grads[k])
            failed.append(or_(confused, gone))
        self.fails(s, failed)

    @transition(
        moves=[
            moves(OWN, [Part.RUNNING, Part.PASSIVE], Part.DRAINING),
            moves(OTHERS, [NodeState.READY], NodeState.WAITING),
            moves(OWN, [Part.RUNNING, Part.PASSIVE, Part.DRAINING], Part.FAILED),
            SKIPS,
        ],
        cite="graph_task.h:GraphTask::completed",
    )
    def finish(self, s: S, worker: Expr) -> None:
        """No task is outstanding: the local part is over, with an error if a node still waits for an input."""
        move(s.phase, Part.RUNNING, Part.DRAINING, s.left[worker] == 0, at=worker)
        short = {k: (s.fed[k] > 0) & (s.fed[k] < self.waits_for(s, k)) for k in self.nodes()}
        self.fails(s, [and_(worker == w, or_(*(short[k] for k in self.shape.of(w)))) for w in self.workers()])

    @transition(moves=[arc(Part.DRAINING, Part.DONE)], cite="dist_engine.cpp:cleanupBackwardPass")
    def come_to_rest(self, s: S, worker: Expr) -> None:
        """All gradients that a worker shipped are answered: it answers its first gradient, or backward() returns."""
        s.when(
            s.phase[worker] == Part.DRAINING, not_(self.where(s, worker, self.is_unanswered, "it waits for an answer"))
        )
        s.phase[worker] = Part.DONE
        self.answers(s, self.only(worker), Call.DONE, Outcome.RETURNED)

    def at_rest_in(self, s: S, worker: Expr) -> Any:
        missing = self.at(worker, [self.missing(s, w) > 0 for w in self.workers()])
        return ite(missing, Part.PASSIVE, Part.DRAINING)

    # ---- gradients and their answers

    @transition(moves=[TAKEN], cite="dist_engine.cpp:executeSendFunctionAsync")
    def take_gradient(self, s: S, attempt: Expr, pair: Expr) -> None:
        """A gradient arrives: the first begins the worker's part, any other is executed and answered at once."""
        s.when(s.call[attempt, pair] == Call.OUT)
        first, refused = self.takes_in(s, attempt, pair)
        s.call[attempt, pair] = ite(refused, Call.FAILED, ite(first, Call.HELD, Call.DONE))

    def takes_in(self, s: S, attempt: Expr, pair: Expr) -> tuple[Condition, Condition]:
        """Take in a gradient; returns whether it begins the worker's part, and whether it is refused as released."""
        s.when(
            self.at_taker(
                pair, [s.alive[w] & (s.phase[w] != Part.COUNTING) for w in self.workers()], "its taker does not count"
            )
        )
        first = self.at_taker(pair, [not_(s.phase[w].isin(TASK)) for w in self.workers()])
        refused = self.at_taker(pair, [s.released[w] for w in self.workers()])
        self.opens(s, ord_(attempt), [and_(self.goes_to(pair, w), first, not_(refused)) for w in self.workers()])
        for p, one in enumerate(self.shape.pairs):
            here = and_(pair == p, not_(refused))
            s.gradient[one.send] = ite(here, s.load[attempt, pair], s.gradient[one.send])
            s.ran[one.send] = and_(s.ran[one.send], not_(here))
        return first, refused

    @transition(moves=[FAILS], cite="context.cpp:addOutstandingRpc")
    def hear_answer(self, s: S, attempt: Expr, pair: Expr) -> None:
        """An answer arrives; an error ends the worker's current pass, even if the answer is for another."""
        failed = s.call[attempt, pair] == Call.FAILED
        s.when(or_(failed, s.call[attempt, pair] == Call.DONE))
        self.gives_up(s, pair, and_(failed, ~s.deaf[attempt, pair]))
        s.call[attempt, pair] = Call.OVER

    def is_awaited(self, s: S, a: Any, p: Any) -> Condition:
        return super().is_awaited(s, a, p) & ~s.deaf[a, p]

    # ---- failure

    def fails(self, s: S, when: Each) -> None:
        """Drop the parts of these workers and answer the requests that began them; no other worker is notified."""
        for j in s.worker:
            s.phase[j] = ite(self.at(j, when), Part.FAILED, s.phase[j])
        self.clears(s, when)
        self.answers(s, when, Call.FAILED, Outcome.RAISED)

    def gives_up(self, s: S, pair: Expr, when: Any) -> None:
        """A gradient that was shipped has failed; its callback finds the context by a bare pointer."""
        came = [and_(self.comes_from(pair, w), when, s.alive[w]) for w in self.workers()]
        runs = [s.phase[w].isin(TASK) for w in self.workers()]
        s.crashed = or_(s.crashed, *(and_(c, s.released[w], not_(runs[w])) for w, c in enumerate(came)))
        self.fails(s, [and_(came[w], runs[w]) for w in self.workers()])

    @transition(moves=[FAILS], cite="tensorpipe_agent.cpp: pollTimeoutRpcs")
    def expire(self, s: S, attempt: Expr, pair: Expr) -> None:
        """A gradient times out that can no longer be answered, or that waits when everything else has come to rest."""
        state = s.call[attempt, pair]
        s.when(~s.deaf[attempt, pair], or_(self.is_lost(s, state, pair), (state == Call.HELD) & self.is_stuck(s)))
        s.deaf[attempt, pair] = True
        self.gives_up(s, pair, True)

    def is_stuck(self, s: S) -> Condition:
        """Can only a timeout change the state?"""
        moving = (Call.OUT, Call.DONE, Call.FAILED, Call.LOST)
        calls = (
            s.call[a, p].isin(moving) & self.is_awaited(s, a, p) for w in self.workers() for a, p in self.calls_of(w)
        )
        ready = (self.any_ready(s, w) | (s.phase[w] == Part.COUNTING) for w in self.workers())
        ends = ((s.phase[w] == Part.RUNNING) & (s.left[w] == 0) for w in self.workers())
        drains = ((s.phase[w] == Part.DRAINING) & not_(self.is_unanswered(s, w)) for w in self.workers())
        return named("nothing else moves", not_(or_(*calls, *ready, *ends, *drains)))

    # ---- faults

    @fault("copy", moves=[TAKEN])
    def take_copy(self, s: S, attempt: Expr, pair: Expr) -> None:
        """A gradient that was taken in arrives again."""
        s.when(not_(s.call[attempt, pair].isin((Call.UNSENT, Call.OUT))))
        self.takes_in(s, attempt, pair)

    @fault("late", moves=[FAILS])
    def expire_early(self, s: S, attempt: Expr, pair: Expr) -> None:
        """A gradient is not answered in time, although it will be."""
        move(s.deaf, False, True, s.call[attempt, pair].isin((Call.OUT, Call.HELD, Call.DONE)), at=(attempt, pair))
        self.gives_up(s, pair, True)

    # ---- properties of this edition

    @always(witness="it_raises", needs="leave")
    def released_contexts_are_not_touched(self, s: S) -> Condition:
        """No callback runs on a context that was released."""
        return ~s.crashed
