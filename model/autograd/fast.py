"""FAST as the design note has it and torch 2.13 builds it: no message names its pass, and nobody is told of a failure.

A worker's first gradient of a pass begins its part; that request is answered when the part is over, all others at once,
so that the answers form a tree.
"""

from __future__ import annotations

from typing import Any

from ..language import (
    Expr,
    and_,
    arc,
    count,
    fault,
    flag,
    integer,
    ite,
    named,
    not_,
    or_,
    ord_,
    terminal,
    transition,
)
from .passes import (
    ENGAGED,
    OTHERS,
    OURS,
    OWN,
    RESET,
    RUNS,
    SKIPS,
    TORCH,
    TRYSTATE,
    UNANSWERED,
    Call,
    Condition,
    Each,
    K,
    N,
    Outcome,
    P,
    Passes,
    S,
    moves,
)

AGAIN = (
    *moves(OTHERS, [P.IDLE, P.DONE, P.FAILED], P.COUNTING), *RUNS, *RESET,
    *moves(OTHERS, [N.EXECUTED, N.WAITING, N.READY], N.READY, N.WAITING),
)  # fmt: skip
FAILS = moves(OTHERS, [*ENGAGED, P.PASSIVE], P.FAILED) + SKIPS
LIVE = (P.MARKING, P.COUNTING, P.RUNNING, P.PASSIVE)
TASK = (P.COUNTING, P.RUNNING, P.DRAINING)  # torch: the context is in the engine's set
TASKS_MAX = 30
ENDED = (Outcome.RETURNED, Outcome.UNUSED, Outcome.RAISED)


class Fast(Passes):
    """The messages of torch, what can happen to a message or a worker, and the calls of backward()."""

    left = integer(-4, TASKS_MAX, initial=0, per="worker", editions=[TORCH], doc="outstanding_tasks")
    deaf = flag(per=("attempt", "pair"), editions=[TORCH], doc="nobody waits for the answer: its time was over")
    crashed = flag(editions=[TORCH], doc="a callback has touched a context that was gone")

    @terminal
    def at_rest(self, s: S) -> Condition:
        """No call of backward() is running, or its process is gone."""
        home = self.shape.home
        over = (s.outcome[a].isin((Outcome.AWAITED, *ENDED)) for a in self.attempts())
        return or_(~s.alive[home], and_(s.outcome[0] != Outcome.AWAITED, *over))

    # ---- a pass begins

    def begins_now(self, s: S, attempt: Expr) -> None:
        """The root's worker calls backward(); the last call has returned or raised."""
        home, earlier = self.shape.home, self.attempts()[:-1]
        s.when(s.outcome[attempt] == Outcome.AWAITED, s.alive[home], ~s.released[home])
        s.when(*(or_(ord_(attempt) <= a, s.outcome[a].isin(ENDED)) for a in earlier))
        s.outcome[attempt] = Outcome.RUNNING

    @transition(
        each="attempt", editions=[TORCH, TRYSTATE],
        moves=[
            arc((P.IDLE, P.DONE), P.COUNTING, of=OTHERS), RESET,
            moves(OTHERS, [P.FAILED], P.COUNTING, editions=[TORCH]),
            moves(OTHERS, [P.CANCELLED], P.COUNTING, editions=[TRYSTATE]),
        ],
        cite="dist_engine.cpp:DistEngine::execute",
    )  # fmt: skip
    def begin(self, s: S, attempt: Expr) -> None:
        """backward() is called; in torch it raises when the context is in the engine's set."""
        self.begins_now(s, attempt)
        home, root = self.shape.home, self.shape.root
        free = not_(s.phase[home].isin(TASK)) if self.edition is TORCH else True
        s.outcome[attempt] = ite(free, Outcome.RUNNING, Outcome.RAISED)
        self.opens(s, ord_(attempt), [and_(w == home, free) for w in self.workers()])
        s.gradient[root] = ite(free, 1, s.gradient[root])

    def opens(self, s: S, attempt: Expr, when: Each) -> None:
        """A part of a pass begins on these workers, with nothing of the one before."""
        self.clears(s, when)
        for j in s.worker:
            here = self.at(j, when)
            s.phase[j] = ite(here, P.COUNTING, s.phase[j])
            s.current[j] = ite(here, attempt + 1, s.current[j])

    @transition(
        each="worker", cite="dist_engine.cpp:computeDependencies",
        moves=[arc(P.COUNTING, P.RUNNING), moves(OTHERS, [N.UNREACHED], N.WAITING, N.READY)],
    )  # fmt: skip
    def count_inputs(self, s: S, worker: Expr) -> None:
        """A worker counts what each node waits for, from the root and its sends."""
        s.when(s.phase[worker] == P.COUNTING)
        s.phase[worker] = P.RUNNING
        self.counts(s, worker)

    def counts(self, s: S, worker: Expr) -> None:
        for w in self.workers() if self.edition is TORCH else ():
            begun = ite(s.gradient[self.shape.root] > 0, 1, 0) if w == self.shape.home else 0
            s.left[w] = ite(worker == w, begun + len(self.shape.sends(w)), s.left[w])

    # ---- torch: nodes

    def feeds(self, s: S, before: S, node: Expr) -> None:
        super().feeds(s, before, node)
        if self.edition is not TORCH:
            return
        shape, failed = self.shape, list[Any]()
        for w in self.workers():
            runs = self.is_of(node, w)
            ready = (and_(s.fed[k] == self.waits_for(s, k), before.fed[k] != s.fed[k]) for k in shape.of(w))
            s.left[w] = ite(runs, s.left[w] - 1 + count(ready), s.left[w])
            confused = or_(
                *((node == f) & (before.fed[k] == self.waits_for(s, k)) for k in shape.of(w) for f in shape.feeders(k))
            )
            gone = or_(*((node == shape.pairs[p].recv) & s.released[w] for p in shape.recvs(w)))
            for k in shape.of(w, K.ACCUMULATE):
                s.grads[k] = ite(node == k, self.at_most(s.grads[k] + before.gradient[k]), s.grads[k])
            failed.append(or_(confused, gone))
        self.fails(s, failed)

    # ---- torch: messages

    @transition(
        each=("attempt", "pair"), editions=[TORCH],
        moves=[AGAIN],
        cite="dist_engine.cpp:executeSendFunctionAsync",
    )  # fmt: skip
    def take(self, s: S, attempt: Expr, pair: Expr) -> None:
        """A gradient arrives: the first begins the worker's part, any other is executed and answered at once."""
        s.when(s.call[attempt, pair] == Call.OUT)
        first, refused = self.takes(s, attempt, pair)
        s.call[attempt, pair] = ite(refused, Call.FAILED, ite(first, Call.HELD, Call.DONE))

    def takes(self, s: S, attempt: Expr, pair: Expr) -> tuple[Condition, Condition]:
        """Whether it begins the worker's part, and whether it is refused because the context is gone."""
        s.when(
            self.at_taker(
                pair, [s.alive[w] & (s.phase[w] != P.COUNTING) for w in self.workers()], "its taker does not count"
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

    @transition(
        each="worker", editions=[TORCH], moves=[
            moves(OWN, [P.RUNNING, P.PASSIVE], P.DRAINING), moves(OTHERS, [N.READY], N.WAITING),
            moves(OWN, [P.RUNNING, P.PASSIVE, P.DRAINING], P.FAILED), SKIPS,
        ],
        cite="graph_task.h:GraphTask::completed",
    )  # fmt: skip
    def finish(self, s: S, worker: Expr) -> None:
        """No task is outstanding: the local part is over; with an error if a node still waits for an input."""
        s.when(s.phase[worker] == P.RUNNING, s.left[worker] == 0)
        s.phase[worker] = P.DRAINING

        def is_short(w: int) -> Condition:
            return or_(*((s.fed[k] > 0) & (s.fed[k] < self.waits_for(s, k)) for k in self.shape.of(w)))

        self.fails(s, [and_(worker == w, is_short(w)) for w in self.workers()])

    @transition(
        each="worker", editions=[TORCH], moves=[arc(P.DRAINING, P.DONE)], cite="dist_engine.cpp:cleanupBackwardPass"
    )
    def drain(self, s: S, worker: Expr) -> None:
        """All gradients that it shipped are answered: it answers the first that it got, or backward() returns."""
        s.when(
            s.phase[worker] == P.DRAINING,
            not_(self.at(worker, [self.is_unanswered(s, w) for w in self.workers()], "it waits for an answer")),
        )
        s.phase[worker] = P.DONE
        self.answers(s, [worker == w for w in self.workers()], Call.DONE, Outcome.RETURNED)

    def answers(self, s: S, when: Each, answer: Call, outcome: Outcome) -> None:
        """Answer what the parts of these workers began with; at the root, backward() ends."""
        home = self.shape.home
        for a in s.attempt:
            for p in s.pair:
                held = and_(s.call[a, p] == Call.HELD, self.at_taker(p, when))
                s.call[a, p] = ite(held, answer, s.call[a, p])
            ends = and_(when[home], s.current[home] == ord_(a) + 1, s.outcome[a] == Outcome.RUNNING)
            s.outcome[a] = ite(ends, outcome, s.outcome[a])

    def fails(self, s: S, when: Each) -> None:
        """torch: the part is dropped here, and whoever began it is answered; nobody else is told."""
        for j in s.worker:
            s.phase[j] = ite(self.at(j, when), P.FAILED, s.phase[j])
        self.clears(s, when)
        self.answers(s, when, Call.FAILED, Outcome.RAISED)

    def is_unanswered(self, s: S, w: int) -> Condition:
        """Does a gradient that it has shipped in its pass wait for an answer?"""
        return or_(*(self.is_awaited(s, a, p) & (s.current[w] == a + 1) for a, p in self.calls_of(w)))

    def is_awaited(self, s: S, a: Any, p: Any) -> Condition:
        awaited = s.call[a, p].isin(UNANSWERED)
        return awaited & ~s.deaf[a, p] if self.edition is TORCH else awaited

    @transition(each=("attempt", "pair"), editions=[TORCH], moves=[FAILS], cite="context.cpp:addOutstandingRpc")
    def hear(self, s: S, attempt: Expr, pair: Expr) -> None:
        """An answer arrives; an error ends the pass that the worker is in, whichever it is."""
        failed = s.call[attempt, pair] == Call.FAILED
        s.when(or_(failed, s.call[attempt, pair] == Call.DONE))
        self.gives_up(s, pair, and_(failed, ~s.deaf[attempt, pair]))
        s.call[attempt, pair] = Call.OVER

    def gives_up(self, s: S, pair: Expr, when: Any) -> None:
        """torch: a gradient that was shipped has failed."""
        came = [and_(self.comes_from(pair, w), when, s.alive[w]) for w in self.workers()]
        runs = [s.phase[w].isin(TASK) for w in self.workers()]
        s.crashed = or_(s.crashed, *(and_(c, s.released[w], not_(runs[w])) for w, c in enumerate(came)))
        self.fails(s, [and_(came[w], runs[w]) for w in self.workers()])

    @transition(each=("attempt", "pair"), editions=[TORCH], moves=[FAILS], cite="the RPC timeout")
    def expire(self, s: S, attempt: Expr, pair: Expr) -> None:
        """A gradient that cannot be answered any more, or waits when all else has come to rest, times out."""
        state = s.call[attempt, pair]
        s.when(~s.deaf[attempt, pair], or_(self.is_lost(s, state, pair), (state == Call.HELD) & self.is_stuck(s)))
        s.deaf[attempt, pair] = True
        self.gives_up(s, pair, True)

    def is_lost(self, s: S, state: Condition, pair: Expr) -> Condition:
        """Is a request or its answer lost, or nobody there to take it?"""
        dead = self.at_taker(pair, [~s.alive[w] for w in self.workers()], "its taker is dead")
        return or_(state == Call.LOST, and_(state == Call.OUT, dead))

    def is_stuck(self, s: S) -> Condition:
        """Nothing moves but by a timeout."""
        moving = (Call.OUT, Call.DONE, Call.FAILED, Call.LOST)
        calls = (
            s.call[a, p].isin(moving) & self.is_awaited(s, a, p) for w in self.workers() for a, p in self.calls_of(w)
        )
        ready = (self.any_ready(s, w) | (s.phase[w] == P.COUNTING) for w in self.workers())
        ends = ((s.phase[w] == P.RUNNING) & (s.left[w] == 0) for w in self.workers())
        drains = ((s.phase[w] == P.DRAINING) & not_(self.is_unanswered(s, w)) for w in self.workers())
        return named("nothing else moves", not_(or_(*calls, *ready, *ends, *drains)))

    # ---- faults

    @fault("again", each="attempt", cite="dist_engine.cpp:computeDependencies: INTERNAL ASSERT")
    def begin_beside(self, s: S, attempt: Expr) -> None:
        """backward() is called while another call runs: it raises."""
        earlier = (and_(ord_(attempt) > a, s.outcome[a] == Outcome.RUNNING) for a in self.attempts()[:-1])
        s.when(s.outcome[attempt] == Outcome.AWAITED, or_(*earlier))
        s.outcome[attempt] = Outcome.RAISED

    @fault("lose", each=("attempt", "pair"))
    def lose(self, s: S, attempt: Expr, pair: Expr) -> None:
        """A gradient is lost, or the answer to one."""
        s.when(s.call[attempt, pair].isin((Call.OUT, Call.DONE, Call.FAILED)))
        s.call[attempt, pair] = Call.LOST

    @fault("copy", each=("attempt", "pair"), editions=[TORCH],
           moves=[AGAIN])  # fmt: skip
    def take_copy(self, s: S, attempt: Expr, pair: Expr) -> None:
        """A gradient that was taken in arrives again."""
        s.when(not_(s.call[attempt, pair].isin((Call.UNSENT, Call.OUT))))
        self.takes(s, attempt, pair)

    @fault("late", each=("attempt", "pair"), editions=[TORCH], moves=[FAILS])
    def time_out(self, s: S, attempt: Expr, pair: Expr) -> None:
        """A gradient is not answered in time, although it will be."""
        s.when(s.call[attempt, pair].isin((Call.OUT, Call.HELD, Call.DONE)), ~s.deaf[attempt, pair])
        s.deaf[attempt, pair] = True
        self.gives_up(s, pair, True)

    @fault(
        "error", each="node", moves=[
            arc(P.RUNNING, P.FAILED, of=OTHERS), moves(OTHERS, [P.RUNNING], P.CANCELLED, editions=OURS),
            arc(N.READY, N.SKIPPED), SKIPS,
        ],
    )  # fmt: skip
    def raise_error(self, s: S, node: Expr) -> None:
        """An operator raises instead."""
        s.when(
            named("an operator", self.kind(node, K.OP)),
            self.at(node, [self.is_ready(s, k) for k in self.nodes()], "all its inputs are there"),
        )
        self.fails(s, [self.is_of(node, w) for w in self.workers()])

    @fault("die", each="worker", moves=[moves(OWN, P, P.CANCELLED), SKIPS])
    def die(self, s: S, worker: Expr) -> None:
        """A worker dies: nothing more is answered."""
        s.when(s.alive[worker])
        s.alive[worker] = False
        s.phase[worker] = P.CANCELLED
        gone = [worker == w for w in self.workers()]
        self.clears(s, gone)
        self.loses(s, gone)

    def loses(self, s: S, gone: Each) -> None:
        """What was sent to a worker is not answered any more."""
        for a in s.attempt:
            for p in s.pair:
                lost = and_(s.call[a, p] == Call.HELD, self.at_taker(p, gone))
                s.call[a, p] = ite(lost, Call.LOST, s.call[a, p])

    @fault(
        "leave", moves=[
            moves(OTHERS, [*ENGAGED, P.MARKING], P.FAILED, editions=OURS),
            moves(OTHERS, [P.DONE], P.CANCELLED, editions=OURS), SKIPS,
        ],
    )  # fmt: skip
    def leave(self, s: S) -> None:
        """The context is left, whether a pass runs or not."""
        home = self.shape.home
        s.when(s.alive[home], ~s.released[home], s.outcome[0] != Outcome.AWAITED)
        self.releases(s, [w == home for w in self.workers()])

    @transition(
        each="worker", moves=[
            moves(OWN, [*ENGAGED, P.MARKING, P.DONE, P.PASSIVE], P.CANCELLED, editions=OURS), SKIPS,
        ],
    )  # fmt: skip
    def clean(self, s: S, worker: Expr) -> None:
        """A worker is told that the context is left, and releases it."""
        s.when(s.released[self.shape.home], ~s.released[worker], s.alive[worker])
        self.releases(s, [worker == w for w in self.workers()])

    def releases(self, s: S, when: Each) -> None:
        """torch: the context is dropped; a part that runs keeps its own hold of it."""
        for j in s.worker:
            s.released[j] = or_(s.released[j], self.at(j, when))
