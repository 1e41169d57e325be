"""A backward pass over one graph seen as one over any: each step of `Backward` is a step of `Engagements`, or none.

The map takes one of the passes, by its number. It forgets nodes and gradients, CANCEL, and requests that wait for an
answer or are carried by one: these have no answer of their own. A call of the coarser system is the BACKWARD of a pair,
and in the mode SMART also the MARK of a pair. A worker is engaged while its part counts or runs nodes.
"""

from __future__ import annotations

import enum
from collections.abc import Mapping, Sequence

from ..language import Expr, SymbolicState, and_, ite, or_
from ..language.state import trace_of
from .backward import Backward, Ours, Smart
from .backward import fields as fine_fields
from .backward.fields import Condition, Outcome, S
from .engagement import Call, Engagements, Pass
from .vocabulary import Part

CALLS = {each: Call[each.name] for each in fine_fields.UNANSWERED}
PASSES = {Outcome.AWAITED: Pass.AWAITED, Outcome.RUNNING: Pass.RUNNING, Outcome.RETURNED: Pass.RETURNED}


def coarse(fine: Backward) -> Engagements:
    """The coarser system, with as many workers and calls as the graph of the pass has."""
    kinds = 2 if isinstance(fine, Smart) else 1
    return Engagements(worker=fine.shape.workers, call=kinds * max(1, len(fine.pairs())))


def mapping(fine: Backward, target: Engagements, attempt: int = 0) -> dict[str, Expr]:
    """For each field of the coarser system, its value as an expression over the finer state, for one of its passes."""
    s = SymbolicState(fine, frozen="the refinement map")
    t = SymbolicState(target)
    calls = [(cells[attempt, p], *fine.shape.ends(p)) for cells in fine.requests(s) for p in fine.pairs()]
    under_way = [cell.isin((*CALLS,)) for cell, _, _ in calls]
    engaged = [is_engaged(fine, s, w, attempt) for w in fine.workers()]
    failed = [has_failed(fine, s, w, attempt) for w in fine.workers()]
    t.outcome = translated(s.outcome[attempt], PASSES, Pass.RAISED)
    for w in t.worker:
        t.root[w] = and_(w == fine.shape.home, s.outcome[attempt].isin((Outcome.RUNNING, Outcome.RETURNED)))
        t.engaged[w] = fine.at(w, engaged)
        t.failed[w] = fine.at(w, failed)
    for c in t.call:
        state: Condition = Call.FREE
        for k, (cell, _, _) in enumerate(calls):
            state = ite(c == k, translated(cell, CALLS, Call.FREE), state)
        t.state[c] = state
        for w in t.worker:
            t.sent_by[c, w] = ends(c, w, under_way, [sender for _, sender, _ in calls])
            t.sent_to[c, w] = ends(c, w, under_way, [taker for _, _, taker in calls])
    return trace_of(t).bodies


def is_engaged(fine: Backward, s: S, w: int, attempt: int) -> Condition:
    """Has the worker's part something to do? In the wave of marks the root has, and a worker that owes an answer."""
    here = s.phase[w].isin((Part.COUNTING, Part.RUNNING))
    if isinstance(fine, Smart):
        here = or_(here, and_(s.phase[w] == Part.MARKING, or_(w == fine.shape.home, fine.holds_mark(s, w))))
    return and_(s.alive[w], fine.here(s, w, attempt), here)


def has_failed(fine: Backward, s: S, w: int, attempt: int) -> Condition:
    """Is the pass over on this worker, for a cause?"""
    over = fine.is_over(s, w, attempt) if isinstance(fine, Ours) else s.released[w]
    dropped = s.phase[w].isin((Part.FAILED, Part.CANCELLED))
    return or_(over, ~s.alive[w], and_(fine.here(s, w, attempt), dropped))


def translated(value: Expr, names: Mapping[enum.Enum, enum.Enum], other: enum.Enum) -> Expr:
    """The coarser name of a value."""
    found: Condition = other
    for origin, name in names.items():
        found = ite(value == origin, name, found)
    return found


def ends(call: Expr, worker: Expr, under_way: Sequence[Condition], at: Sequence[int]) -> Condition:
    """Is the worker that end of a call, if the call is under way?"""
    return or_(*(and_(call == k, worker == w, there) for k, (there, w) in enumerate(zip(under_way, at, strict=True))))
