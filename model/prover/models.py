"""A solver's model of a question as a state: a counterexample to induction, as far as it can be written down.

The members of an index are listed in their order. The state need not be reachable: it satisfies the assumptions of the
proof, and no more.
"""

from __future__ import annotations

from collections.abc import Iterator
from itertools import product
from typing import Any

from ..language import System
from ..language.expressions import const
from ..language.fields import Slot
from . import sizes
from .formulas import Formulas
from .induction import Question

MEMBERS = 8  # of an index: a model with more is cut short


def state_lines(system: System, question: Question) -> Iterator[str]:
    """The state of a model, a line for each field that the question reads, and the indices of the step."""
    model = question.model
    formulas = Formulas((), frozenset())
    used = {d.name() for d in model.decls()}
    members = {sort.name: _members(formulas, model, sort) for sort in system.index_sorts.values()}
    for name in sizes.constants(system):
        yield f"{name}  {model.eval(formulas(sizes.size(name)), model_completion=True)}"
    for p in question.condition.params:
        where = _place(model.eval(formulas(p), model_completion=True), members[p.sort.name])
        yield f"{p.name}  {where}"
    for slot in system.slots.values():
        if slot.name in used and not sizes.is_counter(system, slot.name):
            yield f"{slot.name}  {' '.join(_values(formulas, model, slot, members))}"


def _members(formulas: Formulas, model: Any, sort: Any) -> list[Any]:
    """The members that the model has, in their order."""
    if sizes.is_fixed(sort):
        return [formulas(const(k, sort)) for k in range(sort.size)]
    found = [*(model.get_universe(formulas.sort(sort)) or ())]
    before = formulas.before(sort)
    rank = {
        str(x): sum(formulas.z3.is_true(model.eval(before(y, x), model_completion=True)) for y in found) for x in found
    }
    return sorted(found, key=lambda x: rank[str(x)])[:MEMBERS]


def _place(value: Any, members: list[Any]) -> str:
    return next((str(k) for k, x in enumerate(members) if x.eq(value)), "another")


def _values(formulas: Formulas, model: Any, slot: Slot, members: dict[str, list[Any]]) -> Iterator[str]:
    function = formulas.read(slot)
    for at in product(*(members[dim.name] for dim in slot.dims)):
        value = model.eval(function(*at) if at else function, model_completion=True)
        text = str(value)
        yield {"True": "yes", "False": "no"}.get(text, text.rsplit(".", 1)[-1])
