"""The owners of fields, computed from the steps that read and write them: no system has to declare them.

A *note* is read by no guard and no effect of another field: only properties read it. A field is a *member's* where
each protocol step writes it only at the member that takes the step, though others may read it. All other fields are
*shared*: a store, a channel.
"""

from __future__ import annotations

from collections.abc import Iterator

from trystate.model.checker.story import main_index
from trystate.model.language import Expr, Kind, Slot, Sort, System
from trystate.model.language.state import Write

Reads = Iterator[tuple[str, tuple[Expr, ...]]]


def owners(system: System) -> list[str]:
    """`member`, `shared`, `note` or `budget` for each slot, in their order."""
    main = main_index(system)
    budget = {system.fault_counter(fault) for fault in system.faults}
    live = _live(system)
    foreign = _foreign(system, main, live) if main is not None else set()
    return [_owner(slot, main, budget, live, foreign) for slot in system.slots.values()]


def _owner(slot: Slot, main: Sort | None, budget: set[str], live: set[str], foreign: set[str]) -> str:
    if slot.name in budget:
        return "budget"
    if slot.name not in live:
        return "note"
    return "member" if main is not None and main in slot.dims and slot.name not in foreign else "shared"


def reads(expr: Expr, seen: set[Expr] | None = None) -> Reads:
    """Each read of a tree once: its field and its indices."""
    seen = set() if seen is None else seen
    if expr in seen:
        return
    seen.add(expr)
    if expr.op == "read":
        yield expr.name, expr.args[1:]
    for part in expr.args:
        if isinstance(part, Expr):
            yield from reads(part, seen)


def _live(system: System) -> set[str]:
    """The fields that a guard, a machine or the terminal condition depends on."""
    roots = [c for t in system.transitions for c in t.conditions]
    roots += [system.terminal, *(m.control for m in system.machines.values())]
    live = {field for root in roots for field, _ in reads(root)}
    new = live
    while new:
        bodies = [t.effects[field] for t in system.transitions for field in new if field in t.effects]
        new = {field for body in bodies for field, _ in reads(body)} - live
        live = live | new
    return live


def _foreign(system: System, main: Sort, live: set[str]) -> set[str]:
    """The fields that a protocol step writes at another member than the one that takes it."""
    found: set[str] = set()
    for t in system.transitions:
        own = next((p for p in t.own if p.sort is main), None)
        if t.kind is Kind.PROTOCOL:
            found |= {w.field for w in t.writes if w.field in live and not _is_own(system, main, own, w)}
    return found


def _is_own(system: System, main: Sort, own: Expr | None, write: Write) -> bool:
    """Whether the step's own member owns the written cell; the first member of a pair is the owner."""
    dims = system.slots[write.field].dims
    return main not in dims or write.indices[dims.index(main)] is own
