"""A refinement map: each step of `Backward` over one graph is a step of `Engagements`, or several steps, or none.

The map takes one of the passes, by its number. It omits nodes and gradients, and the requests that wait for an answer
or are carried by one: these have no separate answer. A call of the coarser system is the BACKWARD of a pair, and in
the mode SMART also the MARK of a pair. A worker is engaged while its part counts, runs nodes or waits for answers.

A finer step may be several coarser steps: a node may ship several gradients, and a worker that a mark engages sends
further marks.
"""

from __future__ import annotations

import enum
from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any

from ..language import Condition, Expr, Kind, SymbolicState, and_, ite, or_
from ..language.state import trace_of
from ..language.transitions import Rule
from .backward import Backward, Ours, Smart
from .backward.fields import ENGAGED, UNANSWERED, Outcome, S
from .backward.fields import Call as Request
from .engagement import Call, Cancel, Engagements, Pass
from .vocabulary import Part

CALLS = {each: Call[each.name] for each in UNANSWERED}
CANCELS = {each: Cancel[each.name] for each in (Request.OUT, Request.DONE, Request.LOST, Request.OVER)}
PASSES = {Outcome.AWAITED: Pass.AWAITED, Outcome.RUNNING: Pass.RUNNING, Outcome.RETURNED: Pass.RETURNED}


class Coarse(Engagements):
    """The coarser system, in which each fault is an ordinary step and happens any number of times."""

    @classmethod
    def declarations(cls) -> dict[str, Any]:
        body = super().declarations()
        faults = {name: value for name, value in body.items() if isinstance(value, Rule) and value.fault}
        return {**body, **{name: replace(rule, fault="", kind=Kind.ENVIRONMENT) for name, rule in faults.items()}}


def coarse(fine: Backward) -> Coarse:
    """The coarser system, with as many workers and calls as the graph of the pass has."""
    kinds = 2 if isinstance(fine, Smart) else 1
    return Coarse(worker=fine.shape.workers, call=kinds * max(1, len(fine.pairs())))


def mapping(fine: Backward, target: Coarse, attempt: int = 0) -> dict[str, Expr]:
    """For each field of the coarser system, its value as an expression over the finer state, for one of its passes."""
    s = SymbolicState(fine, frozen="the refinement map")
    t = SymbolicState(target)
    calls = [(cells[attempt, p], *fine.shape.ends(p)) for cells in fine.requests(s) for p in fine.pairs()]
    under_way = [cell.isin(UNANSWERED) for cell, _, _ in calls]
    engaged = [is_engaged(fine, s, w, attempt) for w in fine.workers()]
    failed = [has_failed(fine, s, w, attempt) for w in fine.workers()]
    t.outcome = translated(s.outcome[attempt], PASSES, Pass.RAISED)
    for w in t.worker:
        t.root[w] = and_(w == fine.shape.home, s.outcome[attempt].isin((Outcome.RUNNING, Outcome.RETURNED)))
        t.engaged[w] = fine.at(w, engaged)
        t.failed[w] = fine.at(w, failed)
        if isinstance(fine, Ours):
            cancels = [translated(s.cancel[attempt, k], CANCELS, Cancel.UNSENT) for k in fine.workers()]
            t.cancel[w] = chosen(w, cancels)
    if isinstance(fine, Ours):
        t.unsure = or_(s.unsure)
    for c in t.call:
        t.state[c] = chosen(c, [translated(cell, CALLS, Call.FREE) for cell, _, _ in calls] or [Call.FREE])
        for w in t.worker:
            t.sent_by[c, w] = ends(c, w, under_way, [sender for _, sender, _ in calls])
            t.sent_to[c, w] = ends(c, w, under_way, [taker for _, _, taker in calls])
    return trace_of(t).bodies


def is_engaged(fine: Backward, s: S, w: int, attempt: int) -> Condition:
    """Is the worker's part engaged? In the wave of marks, the root is, and each worker that owes a mark's answer."""
    busy = s.phase[w].isin(ENGAGED)
    if isinstance(fine, Smart):
        busy = or_(busy, and_(s.phase[w] == Part.MARKING, or_(w == fine.shape.home, fine.holds_mark(s, w))))
    return and_(s.alive[w], fine.here(s, w, attempt), busy)


def has_failed(fine: Backward, s: S, w: int, attempt: int) -> Condition:
    """Is the worker dead, or its part dropped, or is the pass over there?"""
    over = fine.is_over(s, w, attempt) if isinstance(fine, Ours) else s.released[w]
    dropped = s.phase[w].isin((Part.FAILED, Part.CANCELLED))
    return or_(over, ~s.alive[w], and_(fine.here(s, w, attempt), dropped))


def translated(value: Expr, names: Mapping[Any, enum.Enum], other: enum.Enum) -> Condition:
    """The coarser name of a value."""
    found: Condition = other
    for finer, coarser in names.items():
        found = ite(value == finer, coarser, found)
    return found


def chosen(member: Expr, values: Sequence[Condition]) -> Condition:
    """The value of a member, selected from one value per member."""
    *before, found = values
    for k, value in enumerate(before):
        found = ite(member == k, value, found)
    return found


def ends(call: Expr, worker: Expr, under_way: Sequence[Condition], at: Sequence[int]) -> Condition:
    """Is the worker at this end of a call that is under way?"""
    return or_(*(and_(call == k, worker == w, there) for k, (there, w) in enumerate(zip(under_way, at, strict=True))))
