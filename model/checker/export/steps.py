"""The parts that all exports share: the steps of a ground kernel, the exported properties, and names.

*Theory of operation.* An export prints the trees that `kernel` closes: no quantifier is left, and each index is a
number. A step is taken where its guard holds and it changes something, since a step that changes nothing is not a step.
The effects are trees over the state before; the module of each language assigns them all at once in its own way.
Constants that a guard fixes are substituted in the rest of the step. Nothing else is simplified: an independent checker
should see the original trees, and not the result of another engine.

Failures: a property does not belong to the system, or its form cannot be exported (`UsageError`).
"""

from __future__ import annotations

import re
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping
from dataclasses import dataclass
from functools import partial

from ...errors import UsageError
from ...language.expressions import FALSE, TRUE, Expr, and_, equal, fixed, not_, or_, parts, substitute
from ...language.properties import Form, Property
from ...language.sorts import Sort
from ...language.systems import System
from ..check import decided
from ..kernel import Instance, Kernel


@dataclass(frozen=True, slots=True)
class Step:
    """One instance: `condition` requires its guard, and that it changes something; `effects` has position -> new value.

    `claims` has the step properties: property -> ground condition over the state before.
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
            ground = substitute(kernel.ground(claim, i.binding), facts)
            if ground is not TRUE:
                claims[p.name] = ground
        yield Step(i, guard, condition, effects, claims)


def _now(kernel: Kernel, k: int, facts: dict[Expr, Expr]) -> Expr:
    cell = kernel.cell_read(*kernel.cells[k].key)
    return facts.get(cell, cell)


SEARCHED = {Form.REFINES: "refinement", Form.SCENARIO: "scenario"}


def exported(system: System, names: Collection[str] | None, *, live: bool = False) -> list[Property]:
    """The properties to export: those with these names, or all but the `SEARCHED`.

    Without `live`, a property of liveness is not exported; a property with a bound never is.

    Raises:
        UsageError: the system has no such property, or it is not exported.
    """
    known = {p.name: p for p in decided(system)}
    for name in names or ():
        if name not in known:
            raise UsageError(f"no property {name!r}: {system.name} has {', '.join(known)}")
        if known[name].form in SEARCHED:
            what = SEARCHED[known[name].form]
            raise UsageError(f"{name} is a {what}, which is not exported: `trystate verify` decides it")
        if known[name].within:
            raise UsageError(f"{name} has a bound within=, which is not exported: let `trystate verify` decide it")
        if known[name].form.live and not live:
            raise UsageError(
                f"{name} is a liveness property, which is not exported: its fairness is for single steps, but in Spin "
                "for processes; give --to tla, or let `trystate verify` decide it"
            )
    wanted = [known[name] for name in (known if names is None else dict.fromkeys(names))]
    return [p for p in wanted if p.form not in SEARCHED and not p.within and (live or not p.form.live)]


class Names:
    """Unique identifiers in the other language, which are not words of that language."""

    def __init__(self, reserved: Collection[str]) -> None:
        self._taken = set(reserved)

    def new(self, wanted: str) -> str:
        """`wanted` as an identifier, with a number at the end if it is taken."""
        base = re.sub(r"\W", "_", wanted, flags=re.ASCII)
        base = re.sub("^(?=[WS]F_)", "x", base)  # no identifier of TLA+ begins so
        name, number = base, 1
        while name in self._taken:
            number += 1
            name = f"{base}_{number}"
        self._taken.add(name)
        return name


class Labels:
    """The names of the enum values that are printed."""

    def __init__(self, names: Names) -> None:
        self._names = names
        self._found: dict[tuple[Sort, int], str] = {}

    def name(self, sort: Sort, value: int) -> str:
        key = sort, value
        if key not in self._found:
            self._found[key] = self._names.new(f"{sort.name.rpartition('.')[2]}_{sort.labels[value]}")
        return self._found[key]

    def listed(self) -> list[tuple[int, str]]:
        """Each value that was printed, with its name; the values of an enum are together."""
        ordered = sorted(self._found.items(), key=lambda item: (item[0][0].name, item[0][1]))
        return [(value, name) for (_, value), name in ordered]


class Printer:
    """Prints ground trees in the other language.

    signs: the sign between the operands of an operator; `not eq` is the sign of a negated `eq`, if there is one.
    forms: each other operator, with `{}` for an operand.
    """

    signs: Mapping[str, str]
    forms: Mapping[str, str]

    def show(self, expr: Expr, texts: dict[Expr, str]) -> str:
        """The tree as text; `texts` has the trees that have been printed or have a name."""
        found = texts.get(expr)
        if found is None:
            found = texts[expr] = self._show(expr, partial(self.show, texts=texts))
        return found

    def _show(self, expr: Expr, show: Callable[[Expr], str]) -> str:
        """The text of a tree; `show` prints its parts."""
        op, operands = expr.op, expr.args
        if op == "const":
            return self._const(expr)
        if op == "read":
            return self._read(operands[0], tuple(i.value for i in operands[1:]))
        if op == "not" and f"not {operands[0].op}" in self.signs:
            (inner,) = operands
            op, operands = f"not {inner.op}", tuple(map(not_, inner.args)) if inner.op == "and" else inner.args
        shown = map(show, operands)
        return f"({f' {self.signs[op]} '.join(shown)})" if op in self.signs else self.forms[op].format(*shown)

    def _const(self, expr: Expr) -> str:
        raise NotImplementedError

    def _read(self, field: str, indices: tuple[int, ...]) -> str:
        raise NotImplementedError


def words(text: str) -> frozenset[str]:
    return frozenset(text.split())


def reads(expr: Expr) -> set[Expr]:
    """The cells that a ground tree reads."""
    return {part for part in parts(expr) if part.op == "read"}


def shared(trees: Iterable[Expr], early: Iterable[Expr] = ()) -> list[Expr]:
    """The parts that occur several times, and the trees that must be computed `early`; smaller parts come first."""
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
