"""Decision tables: an operator as ordered rows over named atoms; the first matching row wins."""

from __future__ import annotations

import enum
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from contextvars import ContextVar
from dataclasses import dataclass
from itertools import product
from typing import Any

from . import source
from .expressions import FALSE, TRUE, Expr, and_, lift, named, not_, or_


@dataclass(frozen=True, slots=True)
class Atom:
    """One condition that a table looks at. `label` is what a picture shows."""

    name: str
    label: str
    doc: str = ""


@dataclass(frozen=True, slots=True)
class Row:
    """Where the named atoms have these values, the outcome is `then`; an atom that is not named does not matter."""

    when: Mapping[str, bool]
    then: enum.Enum
    cite: str = ""

    def matches(self, valuation: Mapping[str, bool]) -> bool:
        return all(valuation[name] is value for name, value in self.when.items())


def row(then: enum.Enum, cite: str = "", /, **when: bool) -> Row:
    """Write a row as `row(Action.FINISH, complete=True, participant=True)`."""
    return Row(when, then, cite)


@dataclass(frozen=True, slots=True)
class Audit:
    """The result of enumerating every valuation of a table's atoms."""

    valuations: int
    hits: tuple[int, ...]
    order_dependent: tuple[tuple[int, int], ...]


@dataclass(frozen=True, slots=True)
class Decision:
    """The meaning of a condition from a table: the table decides this outcome, with these expressions for its atoms."""

    table: DecisionTable
    outcome: enum.Enum
    atoms: Mapping[str, Expr]


_noted: ContextVar[dict[Expr, Decision] | None] = ContextVar("noted", default=None)


@contextmanager
def noting() -> Iterator[dict[Expr, Decision]]:
    """The decisions that enter trees within the block: a named condition -> its meaning.

    Build one system in a block: equal conditions of two systems are one tree, and may differ in their atoms.
    """
    noted: dict[Expr, Decision] = {}
    before = _noted.set(noted)
    try:
        yield noted
    finally:
        _noted.reset(before)


class DecisionTable:
    """Ordered rows over atoms, audited when built.

    Raises:
        DeclarationError: a row names an unknown atom, a valuation has no row (a hole), or a row can
            never win (dead). `impossible` lists the partial valuations that cannot occur.
    """

    def __init__(
        self, name: str, *, atoms: tuple[Atom, ...], rows: tuple[Row, ...],
        impossible: tuple[Mapping[str, bool], ...] = (), cite: str = "", doc: str = "",
    ) -> None:  # fmt: skip
        self.name, self.atoms, self.rows, self.impossible = name, atoms, rows, impossible
        self.cite, self.doc, self.at = cite, doc, source.line()
        known = {atom.name for atom in atoms}
        for number, cube in enumerate((*(r.when for r in rows), *impossible), 1):
            unknown = sorted(set(cube) - known)
            if unknown:
                source.refuse(f"table {name}, row {number}: unknown atom {unknown[0]!r}", at=self.at)
        self.audit = self._audit()

    def valuations(self) -> Iterator[dict[str, bool]]:
        """Every combination of the atoms that is not declared impossible."""
        names = [atom.name for atom in self.atoms]
        for bits in product((False, True), repeat=len(names)):
            valuation = dict(zip(names, bits, strict=True))
            if not any(all(valuation[k] is v for k, v in cube.items()) for cube in self.impossible):
                yield valuation

    def winner(self, valuation: Mapping[str, bool]) -> int:
        """The index of the row that decides.

        Raises:
            LookupError: no row matches; the audit rules this out for possible valuations.
        """
        for k, r in enumerate(self.rows):
            if r.matches(valuation):
                return k
        raise LookupError(f"{self.name}: no row for {dict(valuation)}")

    def decide(self, valuation: Mapping[str, bool]) -> enum.Enum:
        return self.rows[self.winner(valuation)].then

    def outcomes(self) -> tuple[enum.Enum, ...]:
        return tuple(dict.fromkeys(r.then for r in self.rows))

    def when(self, outcome: enum.Enum, atoms: Mapping[str, Any]) -> Expr:
        """The condition under which this table decides `outcome`, with expressions for its atoms."""
        missing = sorted({a.name for a in self.atoms} - set(atoms))
        if missing:
            source.refuse(f"table {self.name}: no expression for the atom {missing[0]!r}")
        wins, above = FALSE, TRUE
        for r in self.rows:
            cube = and_(*(lift(atoms[k]) if v else not_(lift(atoms[k])) for k, v in r.when.items()))
            if r.then is outcome:
                wins = or_(wins, and_(above, cube))
            above = and_(above, not_(cube))
        condition = named(f"{self.name} → {outcome.name}", wins)
        noted = _noted.get()
        if noted is not None and condition.op == "named":
            noted[condition] = Decision(self, outcome, {a.name: lift(atoms[a.name]) for a in self.atoms})
        return condition

    def _audit(self) -> Audit:
        hits = [0] * len(self.rows)
        pairs: set[tuple[int, int]] = set()
        total = 0
        for valuation in self.valuations():
            total += 1
            matching = [k for k, r in enumerate(self.rows) if r.matches(valuation)]
            if not matching:
                held = ", ".join(k for k, v in valuation.items() if v) or "none"
                source.refuse(f"table {self.name} has a hole: no row for these true atoms: {held}", at=self.at)
            hits[matching[0]] += 1
            first = self.rows[matching[0]].then
            pairs |= {(matching[0], k) for k in matching[1:] if self.rows[k].then is not first}
        for k, n in enumerate(hits):
            if n == 0:
                source.refuse(f"table {self.name}, row {k + 1} is dead: rows above it match first", at=self.at)
        return Audit(total, tuple(hits), tuple(sorted(pairs)))
