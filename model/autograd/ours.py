"""Our pass: it has a number, its end is found over all messages, and the root tells all workers when it has failed.

Dijkstra and Scholten over BACKWARD and MARK: a worker at rest that is sent a request is engaged by it, and answers it
when it has come to rest again and all its own requests are answered; any other request it answers at once. So when the
root has come to rest, everything has. An answer may carry a request to who gets it: see `carried`. A part that fails is
dropped, and tells only whom it owes an answer; what is still on its way to it is refused, since the pass is over there.
The root tells everybody, and waits for their answers.
"""

from __future__ import annotations

from typing import Any

from ..language import Expr, and_, arc, choice, fault, flag, integer, ite, named, not_, or_, ord_, transition
from .carried import MARKS, Carried
from .fast import ENDED, LIVE
from .passes import (
    ENGAGED,
    OTHERS,
    OURS,
    OWN,
    PAIRS_MAX,
    RESET,
    RUNS,
    SKIPS,
    SMART,
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
    S,
    moves,
)

MARKED = moves(OTHERS, [P.IDLE, P.DONE, P.CANCELLED], P.MARKING) + RESET
OVER = (P.FAILED, P.CANCELLED)  # at the root, which tells the others; at any other worker
TAKEN = (
    *moves(OTHERS, [P.IDLE, P.DONE, P.CANCELLED], P.COUNTING, editions=[TRYSTATE]),
    *moves(OTHERS, [P.MARKING], P.COUNTING, editions=[SMART]),
)
ENDS = moves(OWN, [*ENGAGED, P.MARKING, P.PASSIVE], *OVER) + SKIPS


class Numbered(Carried):
    """The messages of our editions."""

    ended = integer(0, "attempt", per="worker", editions=OURS, doc="the highest pass that is known to be over")
    owed = integer(
        -PAIRS_MAX, PAIRS_MAX, initial=0, per="worker", editions=OURS, doc="missing gradients that nobody was told of"
    )
    delta = integer(
        -PAIRS_MAX, PAIRS_MAX, initial=0, per=("attempt", "pair"), editions=OURS, doc="so many, in the answer"
    )
    cancel = choice(Call, per=("attempt", "worker"), editions=OURS, doc="the CANCEL from the root to a worker")
    unused = flag(editions=OURS, doc="why the pass fails: a call is not used")
    unsure = flag(
        editions=OURS,
        doc="a CANCEL was given up: somebody may hold on to the pass, so that the context takes no other",
    )
    marked = flag(per="pair", editions=MARKS, doc="its send is known to take part")

    def begins_now(self, s: S, attempt: Expr) -> None:
        super().begins_now(s, attempt)
        if self.edition is not TORCH:
            s.when(~s.unsure)
            s.unused = False

    def opens(self, s: S, attempt: Any, when: Each) -> None:
        """A part begins: what the one before has made is the context's now, unless that failed."""
        if self.edition is not TORCH:
            for k in self.leaves():
                s.grads[k] = ite(when[self.shape.nodes[k].worker], self.total(s, k), s.grads[k])
            for j in s.worker:
                here = self.at(j, when)
                s.ended[j] = ite(and_(here, s.ended[j] < attempt), attempt, s.ended[j])
                s.owed[j] = ite(here, 0, s.owed[j])
            for p in s.pair if self.edition is SMART else ():
                s.marked[p] = and_(s.marked[p], not_(self.at_taker(p, when)))
        super().opens(s, attempt, when)

    def leaves(self) -> list[int]:
        return [k for w in self.workers() for k in self.shape.of(w, K.ACCUMULATE)]

    def total(self, s: S, k: int) -> Condition:
        """What get_gradients() says of a leaf; what a pass has made counts when the part is done."""
        if self.edition is TORCH:
            return s.grads[k]
        done = and_(s.phase[self.shape.nodes[k].worker] == P.DONE, s.ran[k])
        return ite(done, self.at_most(s.grads[k] + s.gradient[k]), s.grads[k])

    def counts(self, s: S, worker: Expr) -> None:
        super().counts(s, worker)
        for w in self.workers() if self.edition is not TORCH else ():
            s.owed[w] = s.owed[w] + ite(worker == w, self.missing(s, w), 0)

    def here(self, s: S, w: int, attempt: Any) -> Condition:
        """Is the worker's part one of this attempt?"""
        return s.current[w] == self.number(attempt) + 1

    def number(self, attempt: Any) -> Any:
        return ord_(attempt) if isinstance(attempt, Expr) and attempt.sort.kind == "index" else attempt

    # ---- gradients

    @transition(
        each=("attempt", "pair"), editions=OURS, moves=[*TAKEN, RUNS, RESET, moves(OTHERS, [N.WAITING], N.READY)]
    )
    def take_gradient(self, s: S, attempt: Expr, pair: Expr) -> None:
        """A gradient arrives: it engages who is at rest, who is engaged answers at once; it is refused if late."""
        s.when(s.call[attempt, pair] == Call.OUT)
        refused, engaged = self.takes_in(s, attempt, pair)
        s.call[attempt, pair] = ite(refused, Call.FAILED, ite(engaged, Call.DONE, Call.HELD))

    def takes_in(self, s: S, attempt: Expr, pair: Expr, known: Any = False) -> tuple[Condition, Condition]:
        """Take a gradient in that is not known; whether it is refused, and whether its taker is engaged already."""
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
            s.owed[w] = s.owed[w] - ite(and_(known, phase[w].isin((P.RUNNING, P.PASSIVE))), 1, 0)
            s.phase[w] = ite(and_(known, phase[w] == P.PASSIVE), P.RUNNING, s.phase[w])
            s.phase[w] = ite(and_(known, phase[w] == P.MARKING), P.COUNTING, s.phase[w])
        for p, one in enumerate(self.shape.pairs):
            s.gradient[one.send] = ite(and_(pair == p, is_new), s.load[attempt, pair], s.gradient[one.send])
        return refused, engaged

    def is_over(self, s: S, w: int, attempt: Any) -> Condition:
        dropped = and_(self.here(s, w, attempt), s.phase[w] == P.CANCELLED)
        return or_(s.ended[w] > self.number(attempt), s.released[w], dropped)

    def expects(self, s: S, attempt: Expr, pair: Expr) -> Condition:
        """SMART: no gradient comes for a send that is not marked."""
        if self.edition is not SMART:
            return True
        return and_(s.marked[pair], self.at_taker(pair, [self.here(s, w, attempt) for w in self.workers()]))

    @transition(
        each="worker", editions=OURS,
        moves=[arc(P.DRAINING, P.DONE), moves(OWN, [P.DRAINING], P.PASSIVE, P.FAILED), SKIPS],
    )  # fmt: skip
    def come_to_rest(self, s: S, worker: Expr) -> None:
        """Nothing is left to do or to wait for: a worker answers, and says what is missing; the root is through."""
        s.when(
            s.phase[worker] == P.RUNNING,
            self.at(worker, [self.is_at_rest(s, w) for w in self.workers()], "it is at rest"),
        )
        self.loads(s, "call", [worker == w for w in self.workers()])
        home, missing = self.shape.home, self.at(worker, [self.missing(s, w) > 0 for w in self.workers()])
        complete, is_home = s.owed[home] == 0, worker == home
        for a in s.attempt:
            for p in s.pair:
                held = and_(self.at_taker(p, [worker == w for w in self.workers()]), s.call[a, p] == Call.HELD)
                s.delta[a, p] = ite(held, s.owed[worker], s.delta[a, p])
                s.call[a, p] = ite(held, Call.DONE, s.call[a, p])
            returns = and_(is_home, complete, s.current[home] == ord_(a) + 1)
            s.outcome[a] = ite(returns, Outcome.RETURNED, s.outcome[a])
        s.unused = or_(s.unused, and_(is_home, not_(complete)))
        s.phase[worker] = ite(and_(missing, not_(is_home)), P.PASSIVE, P.DONE)
        s.owed[worker] = 0
        self.fails(s, [and_(w == home, is_home, not_(complete)) for w in self.workers()])

    def is_at_rest(self, s: S, w: int) -> Condition:
        return and_(not_(self.any_ready(s, w)), not_(self.is_unanswered(s, w)), self.kept(s, "call", w) <= 1)

    @transition(
        each=("attempt", "pair"), editions=OURS,
        moves=[
            moves(OTHERS, [P.RUNNING, P.DRAINING], *OVER), SKIPS,
            arc(P.DRAINING, P.RUNNING, of=OTHERS), arc(N.WAITING, N.READY, of=OTHERS),
        ],
    )  # fmt: skip
    def hear_answer(self, s: S, attempt: Expr, pair: Expr) -> None:
        """The answer to a gradient arrives, or is given up: the missing are added up, an error fails the part.

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
        """Where the sender of a request still is in the pass."""
        return [and_(self.comes_from(pair, w), self.here(s, w, attempt), s.phase[w].isin(LIVE)) for w in self.workers()]

    # ---- failure

    def fails(self, s: S, when: Each) -> None:
        """The parts of these workers are dropped: who is owed an answer is told, and by the root all workers are."""
        if self.edition is TORCH:
            super().fails(s, when)
            return
        home = self.shape.home
        for a in self.attempts():
            for j in s.worker:
                told = and_(when[home], self.here(s, home, a), self.tells(s, a, j))
                s.cancel[a, j] = ite(told, Call.OUT, s.cancel[a, j])
        for j in s.worker:
            here = self.at(j, when)
            s.phase[j] = ite(here, ite(j == home, P.FAILED, P.CANCELLED), s.phase[j])
            s.ended[j] = ite(and_(here, s.ended[j] < s.current[j]), s.current[j], s.ended[j])
            s.owed[j] = ite(here, 0, s.owed[j])
        self.clears(s, when)
        self.empties(s, when, Call.UNSENT)
        self.answers(s, [and_(when[w], w != home) for w in self.workers()], Call.FAILED, Outcome.RAISED)

    def tells(self, s: S, a: int, worker: Expr) -> Condition:
        """Whom the root tells that its pass has failed: it cannot know whom that has reached."""
        return worker != self.shape.home

    @transition(each="worker", editions=OURS, moves=[arc(P.FAILED, P.CANCELLED)])
    def settle(self, s: S, worker: Expr) -> None:
        """Everybody who was told has answered: backward() raises."""
        s.when(s.phase[worker] == P.FAILED, not_(self.is_telling(s)))
        s.phase[worker] = P.CANCELLED
        self.answers(s, [worker == w for w in self.workers()], Call.FAILED, Outcome.RAISED)

    def is_telling(self, s: S) -> Condition:
        """Does the root wait for an answer to CANCEL?"""
        home = self.shape.home
        told = (
            and_(self.here(s, home, a), s.cancel[a, w].isin(UNANSWERED))
            for a in self.attempts()
            for w in self.workers()
        )
        return named("somebody has not answered", or_(*told))

    def answers(self, s: S, when: Each, answer: Call, outcome: Outcome) -> None:
        if self.edition is TORCH:
            super().answers(s, when, answer, outcome)
            return
        super().answers(s, [and_(when[w], s.unused) for w in self.workers()], answer, Outcome.UNUSED)
        super().answers(s, when, answer, outcome)
        for a in s.attempt:
            for p in s.pair if self.edition is SMART else ():
                held = and_(self.at_taker(p, when), s.mark[a, p] == Call.HELD)
                s.mark[a, p] = ite(held, answer, s.mark[a, p])

    @transition(
        each=("attempt", "worker"),
        editions=OURS,
        moves=[moves(OWN, [*LIVE, P.DRAINING, P.DONE], P.CANCELLED), SKIPS],
    )
    def take_cancel(self, s: S, attempt: Expr, worker: Expr) -> None:
        """A worker is told that the pass is over: it drops its part, or remembers it if it has none, and answers."""
        s.when(s.cancel[attempt, worker] == Call.OUT, s.alive[worker])
        s.cancel[attempt, worker] = Call.DONE
        self.fails(s, [and_(worker == w, self.here(s, w, attempt)) for w in self.workers()])
        s.ended[worker] = ite(s.ended[worker] <= ord_(attempt), ord_(attempt) + 1, s.ended[worker])

    def is_engaged(self, s: S, w: int) -> Condition:
        """Does it owe an answer, or is it the root?"""
        root = and_(w == self.shape.home, s.phase[w] != P.DONE)
        held = (s.call[a, p] == Call.HELD for a in self.attempts() for p in self.shape.sends(w))
        return or_(root, self.holds_mark(s, w), *held)

    @transition(each=("attempt", "worker"), editions=OURS)
    def hear_cancelled(self, s: S, attempt: Expr, worker: Expr) -> None:
        """A CANCEL is answered, or given up; who is dead keeps nothing."""
        state = s.cancel[attempt, worker]
        nobody = and_(state == Call.OUT, ~s.alive[worker])
        s.when(or_(nobody, state == Call.LOST, state == Call.DONE))
        s.unsure = or_(s.unsure, and_(state == Call.LOST, s.alive[worker]))
        s.cancel[attempt, worker] = Call.OVER

    # ---- SMART: the wave

    @transition(each="attempt", editions=MARKS, moves=[MARKED])
    def begin_marking(self, s: S, attempt: Expr) -> None:
        """backward() is called: the root marks what it reaches, and tells who sent it."""
        self.begins_now(s, attempt)
        home = self.shape.home
        self.opens(s, ord_(attempt), [w == home for w in self.workers()])
        s.gradient[self.shape.root] = 1
        s.phase[home] = P.MARKING
        self.marks_from(s, attempt, self.shape.root, True)

    def marks_from(self, s: S, attempt: Expr, node: int, when: Any) -> None:
        """Whatever a node reaches that has not been marked yet is marked."""
        for p in self.shape.recvs(self.shape.nodes[node].worker):
            if self.shape.pairs[p].recv in self.shape.local_reach(node):
                new = and_(when, s.mark[attempt, p] == Call.UNSENT)
                s.mark[attempt, p] = ite(
                    new, ite(self.keeps(s, "mark", attempt, p), Call.KEPT, Call.OUT), s.mark[attempt, p]
                )

    @transition(each=("attempt", "pair"), editions=MARKS, moves=[MARKED])
    def take_mark(self, s: S, attempt: Expr, pair: Expr) -> None:
        """A send is marked, and what it reaches."""
        s.when(s.mark[attempt, pair] == Call.OUT)
        s.when(self.at_taker(pair, [s.alive[w] for w in self.workers()], "its taker lives"))
        refused = self.at_taker(pair, [self.is_over(s, w, attempt) for w in self.workers()])
        part = [self.here(s, w, attempt) for w in self.workers()]
        engaged = self.at_taker(
            pair, [and_(part[w], or_(w == self.shape.home, self.holds_mark(s, w))) for w in self.workers()]
        )
        s.mark[attempt, pair] = ite(refused, Call.FAILED, ite(engaged, Call.DONE, Call.HELD))
        taken = [and_(self.goes_to(pair, w), not_(refused)) for w in self.workers()]
        self.opens(s, ord_(attempt), [and_(taken[w], not_(part[w])) for w in self.workers()])
        for j in s.worker:
            s.phase[j] = ite(self.at(j, taken), P.MARKING, s.phase[j])
        s.marked[pair] = or_(s.marked[pair], not_(refused))
        for p, one in enumerate(self.shape.pairs):
            self.marks_from(s, attempt, one.send, and_(pair == p, not_(refused)))

    def holds_mark(self, s: S, w: int) -> Condition:
        if self.edition is not SMART:
            return False
        return or_(*(s.mark[a, p] == Call.HELD for a in self.attempts() for p in self.shape.sends(w)))

    @transition(each="worker", editions=MARKS, moves=[arc(P.MARKING, P.COUNTING)])
    def end_wave(self, s: S, worker: Expr) -> None:
        """All marks that it sent are answered: a worker answers, the root begins to count."""
        s.when(
            s.phase[worker] == P.MARKING,
            not_(self.at(worker, [self.is_marking(s, w) for w in self.workers()], "it waits for marks")),
        )
        owes = [or_(w == self.shape.home, self.holds_mark(s, w)) for w in self.workers()]
        s.when(self.at(worker, owes, "it owes an answer, or is the root"))
        s.phase[worker] = ite(worker == self.shape.home, P.COUNTING, P.MARKING)
        self.loads(s, "mark", [worker == w for w in self.workers()])
        for a in s.attempt:
            for p in s.pair:
                held = and_(self.at_taker(p, [worker == w for w in self.workers()]), s.mark[a, p] == Call.HELD)
                s.mark[a, p] = ite(held, Call.DONE, s.mark[a, p])

    @transition(each=("attempt", "pair"), editions=MARKS, moves=[moves(OTHERS, [P.MARKING], *OVER), SKIPS])
    def hear_marked(self, s: S, attempt: Expr, pair: Expr) -> None:
        """The answer to a mark arrives, or none will; the marks that it carries are taken in."""
        done, lost = s.mark[attempt, pair] == Call.DONE, self.is_lost(s, s.mark[attempt, pair], pair)
        s.when(or_(done, lost, s.mark[attempt, pair] == Call.FAILED))
        live = self.hears(s, attempt, pair)
        for p, came in enumerate(self.unloads(s, "mark", attempt, pair)):
            taken = and_(came, done, live[self.shape.ends(p)[1]])
            s.marked[p] = or_(s.marked[p], taken)
            self.marks_from(s, attempt, self.shape.pairs[p].send, taken)
        s.mark[attempt, pair] = Call.OVER
        self.fails(s, [and_(live[w], not_(done)) for w in self.workers()])

    # ---- faults

    @fault("copy", each=("attempt", "pair"), editions=OURS)
    def take_copy_again(self, s: S, attempt: Expr, pair: Expr) -> None:
        """A gradient that was taken in arrives again: it is recognised, and not answered."""
        s.when(not_(s.call[attempt, pair].isin((Call.UNSENT, Call.KEPT, Call.CARRIED, Call.OUT))))
        s.when(self.was_taken(s, attempt, pair))
        self.takes_in(s, attempt, pair, known=self.recognises())

    def recognises(self) -> bool:
        """A gradient is told apart from its copy by context, pass and message."""
        return True

    def was_taken(self, s: S, attempt: Expr, pair: Expr) -> Condition:
        """Has this gradient been taken in, or is its pass over there?"""

        got = [
            or_(*(and_(pair == p, s.gradient[self.shape.pairs[p].send] > 0) for p in self.shape.sends(w)))
            for w in self.workers()
        ]
        over = [or_(self.is_over(s, w, attempt), ~s.alive[w]) for w in self.workers()]
        taken = [or_(and_(self.here(s, w, attempt), got[w]), over[w]) for w in self.workers()]
        return self.at_taker(pair, taken, "it was taken in")

    @fault("lose", each=("attempt", "pair"), editions=MARKS)
    def lose_mark(self, s: S, attempt: Expr, pair: Expr) -> None:
        """A mark is lost, or the answer to one."""
        s.when(s.mark[attempt, pair].isin((Call.OUT, Call.DONE, Call.FAILED)))
        s.mark[attempt, pair] = Call.LOST

    @fault("lose", each=("attempt", "worker"), editions=OURS)
    def lose_cancel(self, s: S, attempt: Expr, worker: Expr) -> None:
        """A CANCEL is lost, or the answer to one."""
        s.when(s.cancel[attempt, worker].isin((Call.OUT, Call.DONE)))
        s.cancel[attempt, worker] = Call.LOST

    @fault("late", each="worker", editions=OURS, moves=[ENDS])
    def run_out_of_time(self, s: S, worker: Expr) -> None:
        """A worker's deadline passes while the pass runs."""
        s.when(s.phase[worker].isin(LIVE))
        self.ends(s, [worker == w for w in self.workers()])

    def ends(self, s: S, when: Each) -> None:
        """A part ends by itself; the root's, when backward() has returned, is only dropped."""
        home = self.shape.home
        through = and_(when[home], s.phase[home] == P.DONE)
        self.fails(s, [and_(when[w], not_(through)) if w == home else when[w] for w in self.workers()])
        self.clears(s, [and_(w == home, through) for w in self.workers()])
        s.phase[home] = ite(through, P.CANCELLED, s.phase[home])

    @transition(each="worker", editions=OURS, moves=[ENDS])
    def run_out_alone(self, s: S, worker: Expr) -> None:
        """A part of a pass that has ended, and that nobody tells, ends by its own deadline."""
        s.when(
            s.phase[worker].isin(LIVE),
            self.at(worker, [self.is_forgotten(s, w) for w in self.workers()], "its pass is over"),
        )
        self.ends(s, [worker == w for w in self.workers()])

    def is_forgotten(self, s: S, w: int) -> Condition:
        over = or_(*(and_(self.here(s, w, a), s.outcome[a].isin(ENDED)) for a in self.attempts()))
        coming = (and_(self.here(s, w, a), s.cancel[a, w] == Call.OUT) for a in self.attempts())
        return and_(or_(over, ~s.alive[self.shape.home]), not_(or_(*coming)))

    @transition(each="worker", editions=OURS, moves=[ENDS])
    def notice_loss(self, s: S, worker: Expr) -> None:
        """The connection to a worker that has died, and takes part, is lost: the pass fails here."""
        s.when(
            s.phase[worker].isin(LIVE),
            self.at(worker, [self.is_bereft(s, w) for w in self.workers()], "a peer is lost"),
        )
        self.ends(s, [worker == w for w in self.workers()])

    def is_bereft(self, s: S, w: int) -> Condition:
        """Is one dead that is the root, or that it has sent to, owes an answer, or expects a gradient of?"""
        near = (
            and_(~s.alive[there if here == w else here], self.here(s, w, a), self.concerns(s, w, a, p))
            for a in self.attempts() for p in self.pairs() for here, there in [self.shape.ends(p)] if w in (here, there)
        )  # fmt: skip
        return or_(~s.alive[self.shape.home], *near)

    def concerns(self, s: S, w: int, a: int, p: int) -> Condition:
        """Does a worker's part still have to do with the other end of a pair?"""
        marks = [s.mark] if self.edition is SMART else []
        if self.shape.ends(p)[0] == w:
            return or_(*(cells[a, p] != Call.UNSENT for cells in (s.call, *marks)))
        send = self.shape.pairs[p].send
        owes = (cells[a, p] == Call.HELD for cells in (s.call, *marks))
        return or_(and_(self.begins(s, send), s.gradient[send] == 0), *owes)

    def loses(self, s: S, gone: Each) -> None:
        super().loses(s, gone)
        for a in s.attempt if self.edition is not TORCH else ():
            for p in s.pair if self.edition is SMART else ():
                lost = and_(self.at_taker(p, gone), s.mark[a, p] == Call.HELD)
                s.mark[a, p] = ite(lost, Call.LOST, s.mark[a, p])

    def releases(self, s: S, when: Each) -> None:
        super().releases(s, when)
        if self.edition is TORCH:
            return
        self.ends(s, [and_(when[w], s.phase[w].isin((*LIVE, P.DONE))) for w in self.workers()])
