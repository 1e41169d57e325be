"""What is pinned of a model: the size of its graph, what each edition violates, that everything in it happens.

Rule: the counts stand in the tests; here is only how a run of a model is described, and what is asked of it.
"""

from __future__ import annotations

import enum
from collections.abc import Iterable
from dataclasses import dataclass, replace
from functools import cache
from typing import Any

from trystate.model.checker.check import check
from trystate.model.checker.expectations import gaps
from trystate.model.checker.verdicts import Report, Status
from trystate.model.language import Form, System
from trystate.model.language.machines import View
from trystate.model.language.transitions import Rule


@dataclass(frozen=True)
class Asked:
    """One exploration: its size and faults, how many states it has, and exactly what it violates."""

    system: type[System]
    edition: enum.Enum
    sizes: str
    states: int
    violated: str = ""
    faults: tuple[str, ...] = ()
    together: int | None = None  # at most so many of the faults in a run

    def __str__(self) -> str:
        bound = "" if self.together is None else f"any {self.together} of "
        return f"{self.system.__name__} {self.edition.name} {self.sizes} {bound}{' '.join(self.faults)}".strip()

    def build(self) -> System:
        sizes = {name: int(size) for name, size in (one.split("=") for one in self.sizes.split())}
        return self.system(edition=self.edition, faults=self.faults, max_faults=self.together, **sizes)


@cache
def report(asked: Asked) -> Report:
    return check(asked.build(), engine="explicit")


def violated(found: Report) -> set[str]:
    """The properties that do not hold; a state that is not reached is none of them."""
    return {
        v.property.name for v in found.verdicts if v.status is Status.VIOLATED and v.property.form is not Form.SOMETIMES
    }


def assert_as_pinned(asked: Asked) -> None:
    """It has so many states, and violates exactly what is known."""
    found = report(asked)
    assert not found.undecided
    assert violated(found) == set(asked.violated.split())
    assert found.exploration.distinct == asked.states


def claims(system: System) -> set[str]:
    """The properties that a mutant could violate."""
    return {p.name for p in system.properties if p.form is not Form.SOMETIMES} | {"deadlock_freedom"}


def assert_all_happens(asked: Iterable[Asked], but: Iterable[str] = ()) -> None:
    """Together the runs take every step, make every claimed move, and reach all that is to be reached, `but` some."""
    reports = [report(a) for a in asked]
    assert gaps(report.coverage for report in reports) == ([], [])
    reached = {v.property.name for r in reports for v in r.verdicts if v.status is Status.HOLDS}
    wanted = {p.name for r in reports for p in r.system.properties if p.form is Form.SOMETIMES}
    assert wanted - reached == set(but)


def assert_engines_agree(asked: Asked, engine: str) -> None:
    """Another engine sees as many states, and decides alike."""
    one, other = report(asked), check(asked.build(), engine=engine)
    assert other.exploration.distinct == one.exploration.distinct
    assert [(v.property.name, v.status) for v in other.verdicts] == [(v.property.name, v.status) for v in one.verdicts]


def bare(cls: type[System]) -> type[System]:
    """The system without its machines and their claims, so that a wrong step violates a property or nothing."""

    class Bare(cls):  # type: ignore[valid-type, misc]
        @classmethod
        def declarations(cls) -> dict[str, Any]:
            body = super().declarations()
            rules = {name: replace(value, arcs=()) for name, value in body.items() if isinstance(value, Rule)}
            return {**body, **rules, **{k: None for k, v in body.items() if isinstance(v, View)}}

    Bare.__name__ = cls.__name__
    return Bare
