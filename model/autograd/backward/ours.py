"""FAST, ours: numbered passes, one termination over all messages, and CANCEL to all workers when a pass has failed.

Theory of operation. This is the diffusing computation of Dijkstra and Scholten (1980) over BACKWARD, and over MARK in
`smart`. A request *engages* a worker at rest. The worker answers that request when it has come to rest again and all
its own requests are answered. It answers any other request at once. So when the root has come to rest, every worker
has. Each answer carries in `delta` the number of sends without a gradient, at its worker and in the subtree below it.
The root adds these up in `owed`; a pass in which a gradient is missing fails with the name of the call. An answer may
carry a request to the worker that gets it: see `piggyback`.

Failures. A part that fails is dropped and answers only the request that engaged it. Its worker refuses later requests,
since its `ended` records that the pass is over. The root cannot determine which workers its gradients have reached, so
it sends CANCEL to all and waits for their answers. If an answer is lost, the context takes no other pass.
"""

from __future__ import annotations

from typing import Any

from ...language import *
from ..vocabulary import Edition, NodeKind, NodeState, Part
from .fields import *
from .piggyback import Piggyback
from .properties import Backward

OVER = (Part.FAILED, Part.CANCELLED)  # FAILED: the root, until all have answered CANCEL; CANCELLED: otherwise
ENDS = moves(OWN, [*ENGAGED, Part.MARKING, Part.PASSIVE], *OVER) + SKIPS
TAKES = (*RUNS, *RESET, *moves(OTHERS, [NodeState.WAITING], NodeState.READY))


class Ours(Piggyback, edition=Edition.TRYSTATE):
    """The messages of our mode FAST."""

    held_by = (*LIVE, Part.DRAINING, Part.FAILED, Part.DONE)

    ended = integer(0, "attempt", per="worker", doc="the highest pass that is known to be over")
    owed = integer(-PAIRS_MAX, PAIRS_MAX, initial=0, per="worker", doc="missing gradients not yet sent to the root")
    delta = integer(-PAIRS_MAX, PAIRS_MAX, initial=0, per=("attempt", "pair"), doc="the same, in the answer")
    cancel = choice(Call, per=("attempt", "worker"), doc="the CANCEL from the root to a worker")
    unused = flag(doc="the pass fails because a call is not used")
    unsure = flag(doc="a CANCEL was given up: a worker may still have the pass; no other begins")

    # ---- a part of a pass

    @transition(
        moves=[
            arc((Part.IDLE, Part.DONE), Part.COUNTING, of=OTHERS),
            RESET,
            moves(OTHERS, [Part.CANCELLED], Part.COUNTING),
        ],
    )
    def begin(self, s: S, attempt: Expr) -> None:
        """backward() is called."""
        self.begins_now(s, attempt)
        self.opens(s, ord_(attempt), [w == self.shape.home for w in self.workers()])
        s.gradient[self.shape.root] = 1

    def begins_now(self, s: S, attempt: Expr) -> None:
        """A pass begins only if no CANCEL was given up."""
        super().begins_now(s, attempt)
        s.when(~s.unsure)
        s.unused = False

    def opens(self, s: S, attempt: Any, when: Each) -> None:
        """A part begins: the gradients of the part before it now belong to the context, unless that part failed."""
        for k in self.leaves():
            s.grads[k] = ite(when[self.shape.nodes[k].worker], self.total(s, k), s.grads[k])
        for j in s.worker:
            here = self.at(j, when)
            s.ended[j] = ite(and_(here, s.ended[j] < attempt), attempt, s.ended[j])
            s.owed[j] = ite(here, 0, s.owed[j])
        super().opens(s, attempt, when)

    @transition(moves=COUNTS)
    def count_inputs(self, s: S, worker: Expr) -> None:
        """A worker counts the inputs of each node, from the root and its sends; each send is owed a gradient."""
        move(s.phase, Part.COUNTING, Part.RUNNING, at=worker)
        for w in self.workers():
            s.owed[w] = s.owed[w] + ite(worker == w, self.missing(s, w), 0)

    @transition(moves=RUN)
    def run(self, s: S, node: Expr) -> None:
        """A node with all inputs runs and feeds the nodes that follow; a recv ships to the send of its pair."""
        self.runs(s, node)

    def total(self, s: S, k: int) -> Condition:
        """The gradients of a pass count when the part is done."""
        done = and_(s.phase[self.shape.nodes[k].worker] == Part.DONE, s.ran[k])
        return ite(done, self.at_most(s.grads[k] + s.gradient[k]), s.grads[k])

    @transition(moves=[arc(Part.DRAINING, Part.DONE), moves(OWN, [Part.DRAINING], Part.PASSIVE, Part.FAILED), SKIPS])
    def come_to_rest(self, s: S, worker: Expr) -> None:
        """A worker has nothing left to do or to wait for: it answers with its deficit; at the root, backward() ends."""
        # `phase` stays RUNNING when no node can run. The machine `part` shows such a part as DRAINING, and the moves
        # above belong to the machine.
        s.when(s.phase[worker] == Part.RUNNING, self.where(s, worker, self.is_at_rest, "it is at rest"))
        self.loads(s, "call", self.only(worker))
        home, missing = self.shape.home, self.at(worker, [self.missing(s, w) > 0 for w in self.workers()])
        complete, is_home = s.owed[home] == 0, worker == home
        for a in s.attempt:
            for p in s.pair:
                held = and_(self.at_taker(p, self.only(worker)), s.call[a, p] == Call.HELD)
                s.delta[a, p] = ite(held, s.owed[worker], s.delta[a, p])
                s.call[a, p] = ite(held, Call.DONE, s.call[a, p])
            returns = and_(is_home, complete, s.current[home] == ord_(a) + 1)
            s.outcome[a] = ite(returns, Outcome.RETURNED, s.outcome[a])
        s.unused = or_(s.unused, and_(is_home, not_(complete)))
        s.phase[worker] = ite(and_(missing, not_(is_home)), Part.PASSIVE, Part.DONE)
        s.owed[worker] = 0
        self.fails(s, [and_(w == home, is_home, not_(complete)) for w in self.workers()])

    def is_at_rest(self, s: S, w: int) -> Condition:
        return and_(not_(self.any_ready(s, w)), not_(self.is_unanswered(s, w)), self.kept(s, "call", w) <= 1)

    # ---- gradients and their answers

    @transition(moves=[moves(OTHERS, [Part.IDLE, Part.DONE, Part.CANCELLED], Part.COUNTING), TAKES])
    def take_gradient(self, s: S, attempt: Expr, pair: Expr) -> None:
        """A gradient arrives: it engages a worker at rest; an engaged one answers at once; a late one is refused."""
        s.when(s.call[attempt, pair] == Call.OUT)
        refused, engaged = self.takes_in(s, attempt, pair)
        s.call[attempt, pair] = ite(refused, Call.FAILED, ite(engaged, Call.DONE, Call.HELD))

    def takes_in(self, s: S, attempt: Expr, pair: Expr, known: Any = False) -> tuple[Condition, Condition]:
        """Take in a new gradient; returns whether it is refused, and whether its taker is already engaged."""
        s.when(self.at_taker(pair, [s.alive[w] for w in self.workers()], "its taker lives"))
        refused = or_(
            self.at_taker(pair, [self.is_over(s, w, attempt) for w in self.workers()]),
            not_(self.expects(s, attempt, pair)),
        )
        engaged = self.at_taker(pair, [and_(self.here(s, w, attempt), self.is_engaged(s, w)) for w in self.workers()])
        is_new = and_(not_(refused), not_(known))
        taken = [and_(self.goes_to(pair, w), is_new) for w in self.workers()]
        part = [self.here(s, w, attempt) for w in self.workers()]
        phase = [s.phase[w] for w in self.workers()]
        self.opens(s, ord_(attempt), [and_(taken[w], not_(part[w])) for w in self.workers()])
        for w in self.workers():
            known = and_(taken[w], part[w])
            s.owed[w] = s.owed[w] - ite(and_(known, phase[w].isin((Part.RUNNING, Part.PASSIVE))), 1, 0)
            s.phase[w] = ite(and_(known, phase[w] == Part.PASSIVE), Part.RUNNING, s.phase[w])
            s.phase[w] = ite(and_(known, phase[w] == Part.MARKING), Part.COUNTING, s.phase[w])
        for p, one in enumerate(self.shape.pairs):
            s.gradient[one.send] = ite(and_(pair == p, is_new), s.load[attempt, pair], s.gradient[one.send])
        return refused, engaged

    def is_over(self, s: S, w: int, attempt: Any) -> Condition:
        dropped = and_(self.here(s, w, attempt), s.phase[w] == Part.CANCELLED)
        return or_(s.ended[w] > self.number(attempt), s.released[w], dropped)

    def expects(self, s: S, attempt: Expr, pair: Expr) -> Condition:
        """Can a gradient come for this send in this pass?"""
        return True

    @transition(
        moves=[
            moves(OTHERS, [Part.RUNNING, Part.DRAINING], *OVER),
            SKIPS,
            arc(Part.DRAINING, Part.RUNNING, of=OTHERS),
            arc(NodeState.WAITING, NodeState.READY, of=OTHERS),
        ],
    )
    def hear_answer(self, s: S, attempt: Expr, pair: Expr) -> None:
        """The answer to a gradient arrives or is given up: missing gradients are added up; an error fails the part.

        A gradient that it carries is taken in.
        """
        done, lost = s.call[attempt, pair] == Call.DONE, self.is_lost(s, s.call[attempt, pair], pair)
        s.when(or_(done, lost, s.call[attempt, pair] == Call.FAILED))
        live = self.hears(s, attempt, pair)
        for w in self.workers():
            s.owed[w] = s.owed[w] + ite(and_(live[w], done), s.delta[attempt, pair], 0)
        for p, came in enumerate(self.unloads(s, "call", attempt, pair)):
            w, send = self.shape.ends(p)[1], self.shape.pairs[p].send
            taken = and_(came, done, live[w], self.begins(s, send))
            s.gradient[send] = ite(taken, s.load[attempt, p], s.gradient[send])
            s.owed[w] = s.owed[w] - ite(taken, 1, 0)
        s.call[attempt, pair] = Call.OVER
        s.delta[attempt, pair] = 0
        self.fails(s, [and_(live[w], not_(done)) for w in self.workers()])

    def hears(self, s: S, attempt: Expr, pair: Expr) -> Each:
        """Is the sender of the request still in the pass?"""
        return [and_(self.comes_from(pair, w), self.here(s, w, attempt), s.phase[w].isin(LIVE)) for w in self.workers()]

    def is_engaged(self, s: S, w: int) -> Condition:
        """Does it owe an answer, or is it the root?"""
        root = and_(w == self.shape.home, s.phase[w] != Part.DONE)
        held = (s.call[a, p] == Call.HELD for a in self.attempts() for p in self.shape.sends(w))
        return or_(root, *held)

    # ---- failure

    def fails(self, s: S, when: Each) -> None:
        """Drop the parts of these workers; each answers the request that engaged it, the root sends CANCEL to all."""
        home = self.shape.home
        for a in self.attempts():
            for j in s.worker:
                told = and_(when[home], self.here(s, home, a), self.tells(s, a, j))
                s.cancel[a, j] = ite(told, Call.OUT, s.cancel[a, j])
        for j in s.worker:
            here = self.at(j, when)
            s.phase[j] = ite(here, ite(j == home, Part.FAILED, Part.CANCELLED), s.phase[j])
            s.ended[j] = ite(and_(here, s.ended[j] < s.current[j]), s.current[j], s.ended[j])
            s.owed[j] = ite(here, 0, s.owed[j])
        self.clears(s, when)
        self.empties(s, when, Call.UNSENT)
        self.answers(s, [and_(when[w], w != home) for w in self.workers()], Call.FAILED, Outcome.RAISED)

    def tells(self, s: S, a: int, worker: Expr) -> Condition:
        """Does the root send CANCEL to this worker? It cannot determine which workers its pass has reached."""
        return worker != self.shape.home

    @transition(moves=[arc(Part.FAILED, Part.CANCELLED)])
    def settle(self, s: S, worker: Expr) -> None:
        """Every worker has answered CANCEL: backward() raises."""
        move(s.phase, Part.FAILED, Part.CANCELLED, not_(self.is_telling(s)), at=worker)
        self.answers(s, self.only(worker), Call.FAILED, Outcome.RAISED)

    def is_telling(self, s: S) -> Condition:
        """Does the root wait for an answer to CANCEL?"""
        home = self.shape.home
        told = (
            and_(self.here(s, home, a), s.cancel[a, w].isin(UNANSWERED))
            for a in self.attempts()
            for w in self.workers()
        )
        return named("a worker has not answered", or_(*told))

    def answers(self, s: S, when: Each, answer: Call, outcome: Outcome) -> None:
        super().answers(s, [and_(when[w], s.unused) for w in self.workers()], answer, Outcome.UNUSED)
        super().answers(s, when, answer, outcome)

    @transition(moves=[moves(OWN, [*LIVE, Part.DRAINING, Part.DONE], Part.CANCELLED), SKIPS])
    def take_cancel(self, s: S, attempt: Expr, worker: Expr) -> None:
        """A worker receives CANCEL: it drops its part of the pass, records that the pass is over, and answers."""
        move(s.cancel, Call.OUT, Call.DONE, s.alive[worker], at=(attempt, worker))
        self.fails(s, [and_(worker == w, self.here(s, w, attempt)) for w in self.workers()])
        s.ended[worker] = ite(s.ended[worker] <= ord_(attempt), ord_(attempt) + 1, s.ended[worker])

    @transition()
    def hear_cancelled(self, s: S, attempt: Expr, worker: Expr) -> None:
        """A CANCEL is answered or given up; a dead worker keeps nothing."""
        state = s.cancel[attempt, worker]
        nobody = and_(state == Call.OUT, ~s.alive[worker])
        s.when(or_(nobody, state == Call.LOST, state == Call.DONE))
        s.unsure = or_(s.unsure, and_(state == Call.LOST, s.alive[worker]))
        s.cancel[attempt, worker] = Call.OVER

    @transition(moves=[ENDS])
    def expire(self, s: S, worker: Expr) -> None:
        """A part of a pass that has ended, without a CANCEL to its worker, ends by its own deadline."""
        s.when(s.phase[worker].isin(LIVE), self.where(s, worker, self.is_forgotten, "its pass is over"))
        self.ends(s, self.only(worker))

    def is_forgotten(self, s: S, w: int) -> Condition:
        over = or_(*(and_(self.here(s, w, a), s.outcome[a].isin(ENDED)) for a in self.attempts()))
        coming = (and_(self.here(s, w, a), s.cancel[a, w] == Call.OUT) for a in self.attempts())
        return and_(or_(over, ~s.alive[self.shape.home]), not_(or_(*coming)))

    @transition(moves=[ENDS])
    def notice_loss(self, s: S, worker: Expr) -> None:
        """The connection to a dead worker that takes part is lost: the pass fails here."""
        s.when(s.phase[worker].isin(LIVE), self.where(s, worker, self.is_bereft, "a peer is lost"))
        self.ends(s, self.only(worker))

    def is_bereft(self, s: S, w: int) -> Condition:
        """Is the root dead, or a worker that it has sent to, owes an answer to, or expects a gradient from?"""
        near = (
            and_(~s.alive[there if here == w else here], self.here(s, w, a), self.concerns(s, w, a, p))
            for a in self.attempts()
            for p in self.pairs()
            for here, there in [self.shape.ends(p)]
            if w in (here, there)
        )
        return or_(~s.alive[self.shape.home], *near)

    def concerns(self, s: S, w: int, a: int, p: int) -> Condition:
        """Does a worker's part still depend on the worker at the other end of a pair?"""
        if self.shape.ends(p)[0] == w:
            return or_(*(cells[a, p] != Call.UNSENT for cells in self.requests(s)))
        send = self.shape.pairs[p].send
        owes = (cells[a, p] == Call.HELD for cells in self.requests(s))
        return or_(and_(self.begins(s, send), s.gradient[send] == 0), *owes)

    def ends(self, s: S, when: Each) -> None:
        """A part ends by itself; if backward() has returned, the root's part is only dropped."""
        home = self.shape.home
        through = and_(when[home], s.phase[home] == Part.DONE)
        self.fails(s, [and_(when[w], not_(through)) if w == home else when[w] for w in self.workers()])
        self.clears(s, [and_(w == home, through) for w in self.workers()])
        s.phase[home] = ite(through, Part.CANCELLED, s.phase[home])

    def releases(self, s: S, when: Each) -> None:
        super().releases(s, when)
        self.ends(s, [and_(when[w], s.phase[w].isin((*LIVE, Part.DONE))) for w in self.workers()])

    def is_unsure(self, s: S) -> Condition:
        return s.unsure

    def is_on_its_way(self, s: S, a: int) -> Condition:
        cancels = (s.cancel[a, w].isin(UNANSWERED[:-1]) & s.alive[self.shape.home] for w in self.workers())
        return or_(super().is_on_its_way(s, a), *cancels)

    def is_pending(self, s: S, a: int) -> Condition:
        """May a message under way still have an effect? A request that arrives after CANCEL is refused."""
        held = (cells[a, p] == Call.HELD for cells in self.requests(s) for p in self.pairs())
        return or_(*(s.cancel[a, w].isin(UNANSWERED) for w in self.workers()), *held)

    # ---- steps with other moves here: a part that fails is over, except at the root, which sends CANCEL

    raise_error = Backward.raise_error.also(moves(OTHERS, [Part.RUNNING], Part.CANCELLED))
    leave = Backward.leave.claiming(
        SKIPS, moves(OTHERS, [*ENGAGED, Part.MARKING], Part.FAILED), moves(OTHERS, [Part.DONE], Part.CANCELLED)
    )
    clean = Backward.clean.claiming(
        SKIPS, moves(OWN, [*ENGAGED, Part.MARKING, Part.DONE, Part.PASSIVE], Part.CANCELLED)
    )

    # ---- faults

    @fault("copy")
    def take_copy(self, s: S, attempt: Expr, pair: Expr) -> None:
        """A gradient that was taken in arrives again: it is recognised and not answered."""
        s.when(not_(s.call[attempt, pair].isin((Call.UNSENT, Call.KEPT, Call.CARRIED, Call.OUT))))
        s.when(self.was_taken(s, attempt, pair))
        self.takes_in(s, attempt, pair, known=self.recognises())

    def recognises(self) -> bool:
        """A copy of a gradient is recognised by its context, pass and message."""
        return True

    def was_taken(self, s: S, attempt: Expr, pair: Expr) -> Condition:
        """Has this gradient been taken in, or is its pass over at the taker?"""
        got = [
            or_(*(and_(pair == p, s.gradient[self.shape.pairs[p].send] > 0) for p in self.shape.sends(w)))
            for w in self.workers()
        ]
        over = [or_(self.is_over(s, w, attempt), ~s.alive[w]) for w in self.workers()]
        taken = [or_(and_(self.here(s, w, attempt), got[w]), over[w]) for w in self.workers()]
        return self.at_taker(pair, taken, "it was taken in")

    @fault("lose")
    def lose_cancel(self, s: S, attempt: Expr, worker: Expr) -> None:
        """A CANCEL or its answer is lost."""
        move(s.cancel, (Call.OUT, Call.DONE), Call.LOST, at=(attempt, worker))

    @fault("late", moves=[ENDS])
    def expire_early(self, s: S, worker: Expr) -> None:
        """A worker's deadline passes while the pass runs."""
        s.when(s.phase[worker].isin(LIVE))
        self.ends(s, self.only(worker))

    # ---- properties of this edition

    @always(witness="a_worker_is_engaged")
    def only_unused_calls_are_named(self, s: S) -> Condition:
        """A call is named as unused only if it is unused; with SMART no call is."""
        if {"late", "die"} & set(self.faults) or (self.shape.unused and self.waits_for_all):
            return or_(True)  # after a part that ended by itself, gradients seem to be missing
        return not_(any_(s.outcome[a] == Outcome.UNUSED for a in self.attempts()))

    @always(witness="a_worker_is_engaged")
    def the_missing_are_counted(self, s: S) -> Condition:
        """When the root has come to rest, its `owed` is the number of missing gradients in all parts."""
        home = self.shape.home
        parts = (Part.RUNNING, Part.PASSIVE, Part.DONE)
        same = [w for w in self.workers() if w != home]
        failed = or_(*((s.current[w] == s.current[home]) & ~s.phase[w].isin(parts) for w in same))
        known = s.owed[home]
        rest = and_(s.phase[home] == Part.RUNNING, self.is_at_rest(s, home), not_(failed))
        missing = count(
            and_(or_(w == home, s.current[w] == s.current[home]), self.begins(s, k), s.gradient[k] == 0)
            for w in self.workers()
            for k in self.shape.of(w, NodeKind.SEND)
        )
        return implies(rest, known == missing)
