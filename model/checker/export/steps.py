"""The parts of every export: the steps of a closed kernel, the properties that are asked, and names.

*Theory of operation.* An export prints the trees that `kernel` closes: no quantifier is left, and each index is a
number. A step is taken where its guard holds and it changes something, since a step that changes nothing is none. The
effects are trees over the state before; how a language assigns them all at once is its own module's affair. Constants
that a guard fixes are put into the rest of the step, and that is all that is simplified: an outside judge is to see the
trees, and not what another engine made of them.

Two things can go wrong: a property is not of the system, or its form cannot be exported (`UsageError`).
"""

from __future__ import annotations

import re
from collections.abc import Collection, Iterable, Iterator
from dataclasses import dataclass

from ...errors import UsageError
from ...language.expressions import FALSE, TRUE, Expr, and_, equal, not_, or_, substitute
from ...language.properties import Form, Property
from ...language.sorts import Sort
from ...language.systems import System
from ..check import DEADLOCK_FREEDOM
from ..kernel import Instance, Kernel


@dataclass(frozen=True, slots=True)
class Step:
    """One instance: `condition` is its guard, and that it changes something; `effects` has position -> new value.

    `claims` has what a step property asks of it: property -> closed condition over the state before.
    """

    instance: Instance
    guard: Expr
    condition: Expr
    effects: dict[int, Expr]
    claims: dict[str, Expr]


def steps(kernel: Kernel, asked: Collection[Property]) -> Iterator[Step]:
    """Every instance that some state might take, in the order of the declarations."""
    for i in kernel.instances:
        guard = kernel.guard(i)
        facts = fixed(guard)
        effects: dict[int, Expr] = {}
        for k, value in kernel.effects(i).items():
            then = substitute(value, facts)
            if equal(_now(kernel, k, facts), then) is not TRUE:
                effects[k] = then
        changes = or_(*(not_(equal(_now(kernel, k, facts), then)) for k, then in effects.items()))
        condition = and_(guard, changes)
        if condition is FALSE:
            continue
        claims = {}
        for p in asked:
            claim = (p.conditions or {}).get(i.transition.name, TRUE)
            closed = substitute(kernel.closed(claim, i.binding), facts)
            if closed is not TRUE:
                claims[p.name] = closed
        yield Step(i, guard, condition, effects, claims)


def _now(kernel: Kernel, k: int, facts: dict[Expr, Expr]) -> Expr:
    cell = kernel.cell_read(*kernel.cells[k].key)
    return facts.get(cell, cell)


def fixed(guard: Expr) -> dict[Expr, Expr]:
    """The cells that a condition fixes -> their values."""
    facts = {}
    for part in guard.args if guard.op == "and" else (guard,):
        if part.op == "read":
            facts[part] = TRUE
        elif part.op == "not" and part.args[0].op == "read":
            facts[part.args[0]] = FALSE
        elif part.op == "eq" and part.args[0].op == "read" and part.args[1].op == "const":
            facts[part.args[0]] = part.args[1]
    return facts


def safety(system: System, names: Collection[str] | None) -> list[Property]:
    """The properties to export: those of these names, or without names all but liveness.

    Raises:
        UsageError: the system has no such property, or it is one of liveness.
    """
    known = {p.name: p for p in (*system.properties, DEADLOCK_FREEDOM)}
    for name in names or ():
        if name not in known:
            raise UsageError(f"no property {name!r}: {system.name} has {', '.join(known)}")
        if known[name].form is Form.LEADS_TO:
            raise UsageError(
                f"{name} is a property of liveness, which is not exported: its fairness is of single steps, and other "
                "tools have that of processes; `trystate verify` decides it"
            )
    wanted = known if names is None else dict.fromkeys(names)
    return [known[name] for name in wanted if known[name].form is not Form.LEADS_TO]


class Names:
    """Identifiers of the other language: none twice, and none of its own words."""

    def __init__(self, reserved: Collection[str]) -> None:
        self._taken = set(reserved)

    def new(self, wanted: str) -> str:
        """`wanted`, made an identifier, with a number behind it if it is taken."""
        base = re.sub(r"\W", "_", wanted, flags=re.ASCII)
        name, number = base, 1
        while name in self._taken:
            number += 1
            name = f"{base}_{number}"
        self._taken.add(name)
        return name


class Labels:
    """The named values of enums, as far as they are printed."""

    def __init__(self, names: Names) -> None:
        self._names = names
        self._found: dict[tuple[Sort, int], str] = {}

    def name(self, sort: Sort, value: int) -> str:
        key = sort, value
        if key not in self._found:
            self._found[key] = self._names.new(f"{sort.name.rpartition('.')[2]}_{sort.labels[value]}")
        return self._found[key]

    def listed(self) -> list[tuple[int, str]]:
        """Each value that was printed, and its name; those of an enum together."""
        ordered = sorted(self._found.items(), key=lambda item: (item[0][0].name, item[0][1]))
        return [(value, name) for (_, value), name in ordered]


def words(text: str) -> frozenset[str]:
    return frozenset(text.split())


def reads(expr: Expr) -> set[Expr]:
    """The cells that a closed tree reads."""
    found: set[Expr] = set()
    seen: set[Expr] = set()
    todo = [expr]
    while todo:
        here = todo.pop()
        if here.op == "read":
            found.add(here)
        elif here not in seen:
            seen.add(here)
            todo += [x for x in here.args if isinstance(x, Expr)]
    return found


def shared(trees: Iterable[Expr], early: Iterable[Expr] = ()) -> list[Expr]:
    """The parts that stand in several places, and the trees that must be computed `early`; smaller parts go first."""
    uses: dict[Expr, int] = {}

    def visit(expr: Expr) -> None:
        if expr.op in ("const", "read"):
            return
        if expr not in uses:
            uses[expr] = 0
            for part in expr.args:
                if isinstance(part, Expr):
                    visit(part)
            uses[expr] = uses.pop(expr)  # after its parts
        uses[expr] += 1

    for tree in trees:
        visit(tree)
    wanted = dict.fromkeys(early)
    several = [e for e, n in uses.items() if e in wanted or (n > 1 and not (e.op == "not" and e.args[0].op == "read"))]
    return [*several, *(e for e in wanted if e.op == "read")]
