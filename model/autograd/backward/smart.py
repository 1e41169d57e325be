"""SMART, a mode of ours: a wave of marks finds the sends that the root reaches, and the pass waits only for these.

The wave is a separate diffusing computation, over MARK: the root marks the recvs that it reaches, and each worker
that is marked marks the recvs that its sends reach. When the root's marks are answered, all marks are. Then gradients
flow as in FAST.
"""

from __future__ import annotations

from typing import Any

from ...language import *
from ..vocabulary import Mode, Part
from .fields import OTHERS, RESET, SKIPS, UNANSWERED, Call, Each, S, moves
from .ours import OVER, TAKES, Ours

MARKED = moves(OTHERS, [Part.IDLE, Part.DONE, Part.CANCELLED], Part.MARKING) + RESET


class Smart(Ours, edition=Mode.SMART):
    """The messages of our mode SMART: ours, and the marks."""

    mark = choice(Call, per=("attempt", "pair"), doc="the MARK of a pair")
    mark_carrier = integer(0, "pair", per=("attempt", "pair"), doc="the pair whose answer carries the mark, from 1")
    marked = flag(per="pair", doc="its send is known to take part")

    # ---- the wave

    @transition(moves=[MARKED])
    def begin(self, s: S, attempt: Expr) -> None:
        """backward() is called: the root marks the recvs that it reaches, by requests to the workers of their sends."""
        self.begins_now(s, attempt)
        home = self.shape.home
        self.opens(s, ord_(attempt), [w == home for w in self.workers()])
        s.gradient[self.shape.root] = 1
        s.phase[home] = Part.MARKING
        self.marks_from(s, attempt, self.shape.root, True)

    def marks_from(self, s: S, attempt: Expr, node: int, when: Any) -> None:
        """Mark each recv that a node reaches and that has not been marked yet."""
        for p in self.shape.recvs(self.shape.nodes[node].worker):
            if self.shape.pairs[p].recv in self.shape.local_reach(node):
                new = and_(when, s.mark[attempt, p] == Call.UNSENT)
                s.mark[attempt, p] = ite(
                    new, ite(self.keeps(s, "mark", attempt, p), Call.KEPT, Call.OUT), s.mark[attempt, p]
                )

    @transition(moves=[MARKED])
    def take_mark(self, s: S, attempt: Expr, pair: Expr) -> None:
        """A mark arrives: the send is marked, and the recvs that it reaches."""
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
            s.phase[j] = ite(self.at(j, taken), Part.MARKING, s.phase[j])
        s.marked[pair] = or_(s.marked[pair], not_(refused))
        for p, one in enumerate(self.shape.pairs):
            self.marks_from(s, attempt, one.send, and_(pair == p, not_(refused)))

    def holds_mark(self, s: S, w: int) -> Condition:
        """Does it owe an answer to a mark?"""
        return or_(*(s.mark[a, p] == Call.HELD for a in self.attempts() for p in self.shape.sends(w)))

    @transition(moves=[arc(Part.MARKING, Part.COUNTING)])
    def end_wave(self, s: S, worker: Expr) -> None:
        """All marks that a worker sent are answered: it answers its own, or begins to count at the root."""
        s.when(s.phase[worker] == Part.MARKING, not_(self.where(s, worker, self.is_marking, "it waits for marks")))
        owes = [or_(w == self.shape.home, self.holds_mark(s, w)) for w in self.workers()]
        s.when(self.at(worker, owes, "it owes an answer, or is the root"))
        s.phase[worker] = ite(worker == self.shape.home, Part.COUNTING, Part.MARKING)
        self.loads(s, "mark", self.only(worker))
        self.releases_held(s, [s.mark], self.only(worker), Call.DONE)

    def is_marking(self, s: S, w: int) -> Condition:
        """Does it wait for the answer to a mark?"""
        return or_(*(s.mark[a, p].isin(UNANSWERED) & (s.current[w] == a + 1) for a, p in self.calls_of(w)))

    @transition(moves=[moves(OTHERS, [Part.MARKING], *OVER), SKIPS])
    def hear_marked(self, s: S, attempt: Expr, pair: Expr) -> None:
        """The answer to a mark arrives or is given up; the marks that it carries are taken in."""
        done, lost = s.mark[attempt, pair] == Call.DONE, self.is_lost(s, s.mark[attempt, pair], pair)
        s.when(or_(done, lost, s.mark[attempt, pair] == Call.FAILED))
        live = self.hears(s, attempt, pair)
        for p, came in enumerate(self.unloads(s, "mark", attempt, pair)):
            taken = and_(came, done, live[self.shape.ends(p)[1]])
            s.marked[p] = or_(s.marked[p], taken)
            self.marks_from(s, attempt, self.shape.pairs[p].send, taken)
        s.mark[attempt, pair] = Call.OVER
        self.fails(s, [and_(live[w], not_(done)) for w in self.workers()])

    @fault("lose")
    def lose_mark(self, s: S, attempt: Expr, pair: Expr) -> None:
        """A mark or its answer is lost."""
        move(s.mark, (Call.OUT, Call.DONE, Call.FAILED), Call.LOST, at=(attempt, pair))

    # ---- changes of the pass by the marks

    waits_for_all = False

    take_gradient = Ours.take_gradient.claiming(moves(OTHERS, [Part.MARKING], Part.COUNTING), TAKES)

    def requests(self, s: S) -> list[Any]:
        return [s.call, s.mark]

    def takes_part(self, s: S, pair: int) -> Condition:
        """Does the pass wait for a gradient to this send? SMART waits for the marked sends."""
        return s.marked[pair]

    def expects(self, s: S, attempt: Expr, pair: Expr) -> Condition:
        """No gradient comes for a send that is not marked."""
        return and_(s.marked[pair], self.at_taker(pair, [self.here(s, w, attempt) for w in self.workers()]))

    def opens(self, s: S, attempt: Any, when: Each) -> None:
        for p in s.pair:
            s.marked[p] = and_(s.marked[p], not_(self.at_taker(p, when)))
        super().opens(s, attempt, when)

    def is_engaged(self, s: S, w: int) -> Condition:
        return or_(super().is_engaged(s, w), self.holds_mark(s, w))

    def waits_in_vain(self, s: S, w: int) -> Condition:
        marks = and_(s.phase[w] == Part.MARKING, self.kept(s, "mark", w) > 0, self.is_marking(s, w))
        return or_(super().waits_in_vain(s, w), marks)

    # ---- properties of the wave

    @sometimes()
    def the_wave_ends(self, s: S) -> Condition:
        """The root counts: all marks are answered."""
        return s.phase[self.shape.home] == Part.COUNTING

    @always(witness="the_wave_ends")
    def marked_means_reachable(self, s: S) -> Condition:
        """A send that no root reaches is not marked."""
        return all_(or_(self.shape.paths[pair.send] > 0, ~s.marked[p]) for p, pair in enumerate(self.shape.pairs))

    @always(witness="the_wave_ends")
    def reachable_means_marked(self, s: S) -> Condition:
        """When the wave has ended, every send that the roots reach is marked."""
        home = self.shape.home
        running = s.phase[home].isin((Part.COUNTING, Part.RUNNING, Part.DONE))
        unmarked = (
            and_(self.shape.paths[pair.send] > 0, s.alive[w], s.current[w] == s.current[home], ~s.marked[p])
            for p, pair in enumerate(self.shape.pairs)
            for w in [self.shape.ends(p)[1]]
        )
        return implies(running, not_(any_(unmarked)))

    @step(on=("take_gradient", "hear_answer"), witness="a_worker_is_engaged")
    def gradients_come_for_the_marked(self, before: S, after: S, attempt: Expr, pair: Expr) -> Condition:
        """No gradient comes for a send that is not marked, unless its pass is over."""
        known = (or_(before.marked[p], self.is_over(before, self.shape.ends(p)[1], attempt)) for p in self.pairs())
        comes = (or_(pair == p, *(and_(pair == q, before.carrier[attempt, p] == q + 1) for q in self.pairs()))
                 for p in self.pairs())  # fmt: skip
        return all_(implies(c, k) for c, k in zip(comes, known, strict=True))
