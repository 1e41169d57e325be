"""Lemmas of the proof of the end of a backward pass, and a history field that only they have.

`trystate prove engagements` proves them together with the properties. `above` says which workers were above a worker in
the tree when it was engaged: those above the worker that sent the call that engaged it, and that worker itself. It is a
history: steps write it, and none reads it, so that it changes nothing that can happen. With it no lemma has to follow
the tree up to the root, and none has to say that it has no cycle.
"""

from __future__ import annotations

from ..language import Expr, all_, always, any_, flag, implies, ite
from .engagement import Call, Condition, Engagements, Pass, S


class Lemmas(Engagements):
    """The edition TRYSTATE, with the lemmas of its proof."""

    above = flag(per=("worker", "worker"), doc="history: the second was above the first when that was engaged")

    def engages(self, s: S, worker: Expr, call: Expr) -> None:
        for v in s.worker:
            higher = any_(s.sent_by[call, w] & ((v == w) | s.above[w, v]) for w in s.worker)
            s.above[worker, v] = ite(s.engaged[worker], s.above[worker, v], higher)
        super().engages(s, worker, call)

    def rests(self, s: S, worker: Expr) -> None:
        for v in s.worker:
            s.above[worker, v] = False
        super().rests(s, worker)

    @always(witness="a_worker_is_engaged")
    def there_is_one_root(self, s: S) -> Condition:
        """There is one root, of a pass that runs or has returned; before it nothing is there."""
        one = all_((v == w) | ~(s.root[v] & s.root[w]) for v in s.worker for w in s.worker)
        begun = implies(any_(s.root), s.outcome.isin((Pass.RUNNING, Pass.RETURNED)))
        nothing = ~any_(s.engaged) & all_(x == Call.FREE for x in s.state)
        return one & begun & implies(s.outcome == Pass.AWAITED, nothing)

    @always(witness="a_worker_is_engaged")
    def a_call_has_two_ends(self, s: S) -> Condition:
        """A call that is not free has one sender and one taker, and a free one has none."""
        return all_(self.has_one_end(s, c, ends) for c in s.call for ends in (s.sent_by, s.sent_to))

    def has_one_end(self, s: S, call: Expr, ends: Condition) -> Condition:
        one = all_((v == w) | ~(ends[call, v] & ends[call, w]) for v in s.worker for w in s.worker)
        return one & ((s.state[call] != Call.FREE) == any_(ends[call, w] for w in s.worker))

    @always(witness="a_worker_is_engaged")
    def the_failed_are_not_engaged(self, s: S) -> Condition:
        """A worker that has failed is not engaged; one at rest that has not failed is below none."""
        return all_(
            ~(s.failed[w] & s.engaged[w]) & implies(s.above[w, v], s.engaged[w] | s.failed[w])
            for w in s.worker
            for v in s.worker
        )

    @always(witness="a_worker_is_engaged")
    def the_root_is_above_all(self, s: S) -> Condition:
        """The root is above every other worker that is engaged, or waits for an answer."""
        return all_(
            implies(s.root[r] & (s.engaged[w] | self.waits(s, w)), (w == r) | s.above[w, r])
            for w in s.worker
            for r in s.worker
        )

    @always(witness="a_worker_is_engaged")
    def those_above_wait(self, s: S) -> Condition:
        """A worker above another has failed, or waits for a call that engages one between them, or has failed."""
        return all_(
            implies(s.above[w, v] & ~s.failed[v], any_(self.leads_to_it(s, c, v, w) for c in s.call))
            for w in s.worker
            for v in s.worker
        )

    def leads_to_it(self, s: S, call: Expr, above: Expr, worker: Expr) -> Condition:
        """Is the call one of `above`, that engages the worker or one above it, or has it failed?"""
        between = any_(self.holds(s, call, u) & ((u == worker) | s.above[worker, u]) for u in s.worker)
        return s.sent_by[call, above] & (between | s.state[call].isin((Call.FAILED, Call.LOST)))
