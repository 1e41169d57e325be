"""Piggybacking: an answer carries a request to the worker that receives it; that request has no separate answer.

An engaged worker owes an answer to its parent, which stays engaged until it has that answer. A request of the worker to
its parent waits for the answer and is sent with it: one gradient, or any number of marks. A request is sent separately
if the answer cannot carry it, or if the answer must itself wait for another gradient or for answers of other workers.
"""

from __future__ import annotations

from typing import Any

from ...language import *
from ..vocabulary import NodeKind, Part
from .fields import Call, Each, S
from .properties import Backward

CARRIERS = {"call": "carrier", "mark": "mark_carrier"}  # a request, and the field with the pair whose answer carries it


class Piggyback(Backward):
    """Requests that wait for an answer and are sent with it."""

    carrier = integer(0, "pair", per=("attempt", "pair"), doc="the pair whose answer carries the gradient, from 1")

    def keeps(self, s: S, kind: str, a: Any, p: int) -> Condition:
        """Does its taker wait for an answer of its sender?"""
        return or_(*(getattr(s, kind)[a, q] == Call.HELD for q in self.returns(p)))

    def returns(self, p: int) -> list[int]:
        """The pairs that go the other way."""
        source, taker = self.shape.ends(p)
        return [q for q in self.pairs() if self.shape.ends(q) == (taker, source)]

    def kept(self, s: S, kind: str, w: int) -> Condition:
        """The number of requests of a worker that wait for its answer."""
        return count(getattr(s, kind)[a, p] == Call.KEPT for a, p in self.calls_of(w))

    @transition()
    def ask_after_all(self, s: S, worker: Expr) -> None:
        """A kept request is sent separately: the answer waits for others, or cannot carry all requests."""
        due = [self.waits_in_vain(s, w) for w in self.workers()]
        s.when(self.at(worker, due, "its answer cannot take what waits for it"))
        self.empties(s, self.only(worker), Call.OUT)

    def feeds(self, s: S, before: S, node: Expr) -> None:
        """A gradient begins to run: the worker's answer will take time, so requests no longer wait for it."""
        super().feeds(s, before, node)
        begins = [or_(*(node == k for k in self.shape.of(w, NodeKind.SEND))) for w in self.workers()]
        self.empties(s, begins, Call.OUT)

    def waits_in_vain(self, s: S, w: int) -> Condition:
        """Does a request wait that its answer cannot carry?"""
        runs = and_(s.phase[w] == Part.RUNNING, not_(self.any_ready(s, w)))
        kept = self.kept(s, "call", w)
        return and_(runs, or_(kept > 1, and_(kept > 0, self.is_unanswered(s, w))))

    def empties(self, s: S, when: Each, to: Call) -> None:
        """Send the requests that wait at these workers, or drop them (UNSENT)."""
        for a in self.attempts():
            for p in self.pairs():
                sends = when[self.shape.ends(p)[0]]
                if to is Call.UNSENT:
                    s.load[a, p] = ite(and_(sends, s.call[a, p] == Call.KEPT), 0, s.load[a, p])
                for cells in self.requests(s):
                    cells[a, p] = ite(and_(sends, cells[a, p] == Call.KEPT), to, cells[a, p])

    def loads(self, s: S, kind: str, when: Each) -> None:
        """The next answers of these workers take the requests that wait for them."""
        cells, carriers = getattr(s, kind), getattr(s, CARRIERS[kind])
        for a in self.attempts():
            for p in self.pairs():
                for q in self.returns(p):
                    here = and_(when[self.shape.ends(p)[0]], cells[a, p] == Call.KEPT, cells[a, q] == Call.HELD)
                    carriers[a, p] = ite(here, q + 1, carriers[a, p])
                    cells[a, p] = ite(here, Call.CARRIED, cells[a, p])

    def unloads(self, s: S, kind: str, attempt: Expr, pair: Expr) -> list[Condition]:
        """For each pair, whether the answer for `pair` carries its request; such a request is then over."""
        cells, carriers = getattr(s, kind), getattr(s, CARRIERS[kind])
        came: list[Condition] = []
        for p in self.pairs():
            came.append(or_(*(and_(pair == q, carriers[attempt, p] == q + 1) for q in self.returns(p))))
            cells[attempt, p] = ite(came[p], Call.OVER, cells[attempt, p])
            carriers[attempt, p] = ite(came[p], 0, carriers[attempt, p])
        return came
