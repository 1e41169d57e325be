"""What an answer carries: a request to who gets it, which then has no answer of its own.

A worker that is engaged owes an answer to its parent, who is engaged until it has it. What the worker asks of its
parent waits for that answer, and goes with it: one gradient, or any marks. What the answer cannot carry goes by itself,
and so does what would wait there for another gradient to be run, or for the answers of others.
"""

from __future__ import annotations

from typing import Any

from ..language import Expr, and_, choice, count, integer, ite, not_, or_, transition
from .fast import Fast
from .passes import OURS, SMART, TORCH, UNANSWERED, Call, Condition, Each, K, P, S

MARKS = (SMART,)


class Carried(Fast):
    """Requests that wait for an answer, and that come with one."""

    carrier = integer(0, "pair", per=("attempt", "pair"), editions=OURS, doc="whose answer has the gradient, from 1")
    mark = choice(Call, per=("attempt", "pair"), editions=MARKS, doc="the MARK of a pair")
    mark_carrier = integer(0, "pair", per=("attempt", "pair"), editions=MARKS, doc="whose answer has the mark, from 1")

    def keeps(self, s: S, kind: str, a: Any, p: int) -> Condition:
        """Does its taker wait for an answer of its sender?"""
        if self.edition is TORCH:
            return False
        return or_(*(getattr(s, kind)[a, q] == Call.HELD for q in self.returns(p)))

    def returns(self, p: int) -> list[int]:
        """The pairs that go the other way."""
        source, taker = self.shape.ends(p)
        return [q for q in self.pairs() if self.shape.ends(q) == (taker, source)]

    def kept(self, s: S, kind: str, w: int) -> Condition:
        """How many requests of a worker wait for its answer."""
        return count(getattr(s, kind)[a, p] == Call.KEPT for a, p in self.calls_of(w))

    def is_marking(self, s: S, w: int) -> Condition:
        """Does it wait for the answer to a mark?"""
        if self.edition is not SMART:
            return False
        return or_(*(s.mark[a, p].isin(UNANSWERED) & (s.current[w] == a + 1) for a, p in self.calls_of(w)))

    @transition(each="worker", editions=OURS)
    def ask_after_all(self, s: S, worker: Expr) -> None:
        """What waits for an answer goes by itself: the answer waits for others, or cannot carry as much."""
        due = [or_(self.waits_in_vain(s, w), self.marks_in_vain(s, w)) for w in self.workers()]
        s.when(self.at(worker, due, "its answer cannot take what waits for it"))
        self.empties(s, [worker == w for w in self.workers()], Call.OUT)

    def feeds(self, s: S, before: S, node: Expr) -> None:
        super().feeds(s, before, node)
        if self.edition is not TORCH:
            begins = [or_(*(node == k for k in self.shape.of(w, K.SEND))) for w in self.workers()]
            self.empties(s, begins, Call.OUT)

    def waits_in_vain(self, s: S, w: int) -> Condition:
        runs = and_(s.phase[w] == P.RUNNING, not_(self.any_ready(s, w)))
        kept = self.kept(s, "call", w)
        return and_(runs, or_(kept > 1, and_(kept > 0, self.is_unanswered(s, w))))

    def marks_in_vain(self, s: S, w: int) -> Condition:
        if self.edition is not SMART:
            return False
        return and_(s.phase[w] == P.MARKING, self.kept(s, "mark", w) > 0, self.is_marking(s, w))

    def empties(self, s: S, when: Each, to: Call) -> None:
        """Nothing waits at these workers any more."""
        for kind in ("call", "mark") if self.edition is SMART else ("call",):
            cells = getattr(s, kind)
            for a in self.attempts():
                for p in self.pairs():
                    waits = and_(when[self.shape.ends(p)[0]], cells[a, p] == Call.KEPT)
                    if kind == "call" and to is Call.UNSENT:
                        s.load[a, p] = ite(waits, 0, s.load[a, p])
                    cells[a, p] = ite(waits, to, cells[a, p])

    def loads(self, s: S, kind: str, when: Each) -> None:
        """The answers that these workers are about to give take what waits for them."""
        cells, carriers = getattr(s, kind), s.carrier if kind == "call" else s.mark_carrier
        for a in self.attempts():
            for p in self.pairs():
                for q in self.returns(p):
                    here = and_(when[self.shape.ends(p)[0]], cells[a, p] == Call.KEPT, cells[a, q] == Call.HELD)
                    carriers[a, p] = ite(here, q + 1, carriers[a, p])
                    cells[a, p] = ite(here, Call.CARRIED, cells[a, p])

    def unloads(self, s: S, kind: str, attempt: Expr, pair: Expr) -> list[Condition]:
        """Of each pair, whether the answer to this one carries its request, which is over by that."""
        cells, carriers = getattr(s, kind), s.carrier if kind == "call" else s.mark_carrier
        came: list[Condition] = []
        for p in self.pairs():
            came.append(or_(*(and_(pair == q, carriers[attempt, p] == q + 1) for q in self.returns(p))))
            cells[attempt, p] = ite(came[p], Call.OVER, cells[attempt, p])
            carriers[attempt, p] = ite(came[p], 0, carriers[attempt, p])
        return came
