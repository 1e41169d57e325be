"""A solver's model of a question, printed as a state: a counterexample to induction.

The members of an index are listed in their order. The state need not be reachable: it only satisfies the assumptions of
the proof.
"""

from __future__ import annotations

from collections.abc import Iterator
from itertools import product
from typing import Any

from ..language import Sort, System
from . import sizes
from .formulas import declared, load, own
from .induction import Question

MEMBERS = 8  # members of an index that are shown: a model with more is cut short


def state_lines(system: System, question: Question) -> Iterator[str]:
    """The state of a model, a line for each field that the question reads, and the indices of the step.

    The model belongs to a text with its own sorts and functions: they are found by their names.
    """
    model = question.model
    known = {d.name(): d for d in model.decls()}
    members = {sort.name(): _members(model, sort, known) for sort in model.sorts()}
    for name in sizes.constants(system):
        symbol = known.get(declared(name))
        yield f"{name}  {0 if symbol is None else _shown(model, symbol(), members)}"
    for p in question.condition.params:
        if own(p) in known:
            yield f"{p.name}  {_shown(model, known[own(p)](), members)}"
        elif (chosen := known.get(declared(f"{p.name}!"))) is not None:  # a set of members
            yield f"{p.name}  {' '.join(_shown(model, chosen(x), members) for x in members[chosen.domain(0).name()])}"
    for slot in system.slots.values():
        function, has = known.get(declared(slot.name)), known.get(f"{declared(slot.name)}has")
        places = function if function is not None else has
        if places is not None and not sizes.is_counter(system, slot.name):
            at = product(*(_values(dim, places.domain(k), members) for k, dim in enumerate(slot.dims)))
            yield f"{slot.name}  {' '.join(_value(model, function, has, place, members) for place in at)}"


def _members(model: Any, sort: Any, known: dict[str, Any]) -> list[Any]:
    """The members of an index in the model, in their order."""
    found, before = [*(model.get_universe(sort) or ())], known.get(f"{sort.name().removesuffix('!')}<")
    if before is None:
        return found[:MEMBERS]
    holds = load().is_true
    ahead = {str(x): sum(holds(model.eval(before(y, x), model_completion=True)) for y in found) for x in found}
    return sorted(found, key=lambda x: ahead[str(x)])[:MEMBERS]


def _values(dim: Sort, sort: Any, members: dict[str, list[Any]]) -> list[Any]:
    """The members of an index, or the values of another sort; an index of a fixed size has constructors."""
    if sort.name() in members:
        return members[sort.name()]
    if dim.kind == "bool":
        return [load().BoolVal(value) for value in (False, True)]
    if dim.kind == "int":
        return [load().IntVal(value) for value in range(dim.low, dim.high + 1)]
    return [sort.constructor(k)() for k in range(sort.num_constructors())]


def _value(model: Any, function: Any, has: Any, place: tuple[Any, ...], members: dict[str, list[Any]]) -> str:
    """The value of a field at a place; a question may read only whether it has a member."""
    if has is not None and not load().is_true(model.eval(has(*place), model_completion=True)):
        return "none"
    return "a member" if function is None else _shown(model, function(*place), members)


def _shown(model: Any, term: Any, members: dict[str, list[Any]]) -> str:
    value = model.eval(term, model_completion=True)
    for k, member in enumerate(members.get(value.sort().name(), ())):
        if value.eq(member):
            return str(k)
    text = str(value)
    return {"True": "yes", "False": "no"}.get(text, text.rsplit(".", 1)[-1])
