"""Pinned facts of a model: the size of its graph, the violations of each edition, that everything in it happens.

Rule: each test has the counts of its model; this module describes a run of a model, and lets the checker explore it.
`trystate verify --all` decides the planned runs, and these tests decide all others.
"""

from __future__ import annotations

import enum
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cache
from pathlib import Path
from typing import Any

import pytest

from trystate.model.agent import findings as agent
from trystate.model.autograd import findings as autograd
from trystate.model.checker.check import check
from trystate.model.checker.expectations import Run, gaps
from trystate.model.checker.verdicts import Report, Status
from trystate.model.groups import findings as groups
from trystate.model.language import Form, System
from trystate.model.language.machines import View
from trystate.model.language.transitions import Rule
from trystate.model.nvrx import findings as nvrx
from trystate.model.rendezvous import Edition, Rendezvous
from trystate.model.rendezvous import findings as rendezvous
from trystate.model.store import findings as store
from trystate.model.torchft import findings as torchft
from trystate.search.plans import states

from ..harness.paths import Replayed
from .nightly import VERIFIED, by_night
from .runs import AVAILABLE, assert_is_a_fair_lasso, assert_is_a_run, refutes

PLAN = (
    *rendezvous.PLAN,
    *agent.PLAN,
    *store.PLAN,
    *autograd.PLAN,
    *groups.PLAN,
    *nvrx.PLAN,
    *torchft.PLAN,
)  # the runs of `trystate verify --all`
DOCS = Path(__file__).resolve().parents[2] / "docs"
STATES = states()  # label of a planned run -> how many states it has


@dataclass(frozen=True)
class Asked:
    """One exploration, done once: its size, its faults, its number of states, and exactly the violated properties."""

    system: type[System]
    edition: enum.Enum
    sizes: str
    states: int = field(compare=False)
    violated: str = field(default="", compare=False)
    faults: tuple[str, ...] = ()
    together: int | None = None  # the most faults in a run

    def __str__(self) -> str:
        bound = "" if self.together is None else f"any {self.together} of "
        return f"{self.system.__name__} {self.edition.name} {self.sizes} {bound}{' '.join(self.faults)}".strip()

    @property
    def numbers(self) -> dict[str, int]:
        """The sizes by name."""
        return {name: int(size) for name, size in (one.split("=") for one in self.sizes.split())}

    def build(self) -> System:
        return self.system(edition=self.edition, faults=self.faults, max_faults=self.together, **self.numbers)


def of_plan(*systems: type[System], most: int | None = None) -> tuple[Asked, ...]:
    """The planned runs of these systems, of at most `most` states. The plan has their violated properties."""
    return tuple(
        Asked(run.system, run.edition, " ".join(f"{name}={size}" for name, size in run.sizes.items()),
              STATES[run.label], " ".join(run.findings), run.faults, run.max_faults)
        for run in PLAN if run.system in systems and (most is None or STATES[run.label] <= most)
    )  # fmt: skip


def ours(
    nodes: int, min_nodes: int, max_nodes: int, faults: tuple[str, ...], states: int, *, max_faults: int | None = None
) -> Asked:
    """One exploration of our edition: its size and faults, its states, and the most faults that happen."""
    sizes = f"node={nodes} min_nodes={min_nodes} max_nodes={max_nodes} rounds=1"
    return Asked(Rendezvous, Edition.TRYSTATE, sizes, states, "", faults, max_faults)


# Runs of our rendezvous: nodes, min, max, faults, states. docs/rendezvous.md has a table of them.
# fmt: off
ONLY_NIGHTLY = (
    ours(2, 1, 2, rendezvous.EVERY_FAULT, 5_166_128),
    ours(3, 2, 3, rendezvous.EVERY_FAULT, 6_335_025, max_faults=3),
    ours(4, 2, 4, ("crash", "stall"), 3_040_556),
    ours(3, 2, 3, ("crash", "stall", "join_timeout", "job_end", "other_min", "other_expiry"), 3_249_081),
    ours(3, 2, 3, ("worker_failure", "crash", "restart", "stall", "outage", "partition"), 13_252_579),
    ours(3, 2, 3, ("worker_failure", "join_timeout", "job_end"), 98_444),
    ours(3, 2, 3, ("crash", "restart", "partition"), 168_138),
    ours(3, 2, 3, ("crash", "restart", "outage"), 170_420),
    ours(3, 2, 3, (*rendezvous.EVERY_FAULT, "drain"), 1_108_220, max_faults=2),
    ours(3, 2, 2, ("drain", "crash", "restart"), 88_072),
)
# fmt: on


@cache
def report(asked: Asked) -> Report:
    return check(asked.build(), engine="explicit")


def assert_in_table(page: str, seen: Replayed) -> None:
    """A comparison of every edge has no difference, and a table of the page has its counts."""
    assert seen.disagreements == () and seen.edges == seen.edges_of_all
    if (path := DOCS / page).is_file():  # a wheel has no documentation
        assert f"| {seen.edges:,} | {seen.refusals:,} | 0 |" in path.read_text(encoding="utf-8")


def violated(found: Report) -> set[str]:
    """The properties that do not hold, except those `sometimes` that no state satisfies."""
    return {
        v.property.name for v in found.verdicts if v.status is Status.VIOLATED and v.property.form is not Form.SOMETIMES
    }


def planned(system: type[System], edition: enum.Enum) -> list[Run]:
    """The runs of a system that `trystate verify` decides: it compares violations, states and steps."""
    return [run for run in PLAN if (run.system, run.edition) == (system, edition)]


def is_planned(asked: Asked) -> bool:
    """Whether the plan has such a run with the same known violations."""
    of = asked.system.all_declarations()
    return any(
        ({*run.faults}, run.max_faults) == ({*asked.faults}, asked.together)
        and all(run.sizes.get(k, of[k].default) == n for k, n in asked.numbers.items())
        and all(asked.numbers.get(k, of[k].default) == n for k, n in run.sizes.items())
        and ({*run.findings}, STATES[run.label]) == ({*asked.violated.split()}, asked.states)
        for run in planned(asked.system, asked.edition)
    )


def assert_as_pinned(asked: Asked) -> None:
    """The exploration has the pinned number of states and exactly the known violations."""
    if VERIFIED and is_planned(asked):
        pytest.skip("`trystate verify` decides it")
    found = report(asked)
    assert not found.undecided
    assert violated(found) == set(asked.violated.split())
    assert found.exploration.distinct == asked.states


def claims(system: System) -> set[str]:
    """The properties that a mutant could violate."""
    return {p.name for p in system.properties if p.form is not Form.SOMETIMES} | {"deadlock_freedom"}


def assert_all_happens(asked: Iterable[Asked], but: Iterable[str] = ()) -> None:
    """Together the runs take every step, make every claimed move, and reach every `sometimes`, except `but`."""
    asked = [*asked]
    runs = planned(asked[0].system, asked[0].edition)
    if VERIFIED and runs and {*runs[0].idle}.intersection(*(run.idle for run in runs)) == {*but}:
        pytest.skip("`trystate verify` has decided that all happens")
    reports = [report(a) for a in asked]
    assert gaps(report.coverage for report in reports) == ([], [])
    reached = {v.property.name for r in reports for v in r.verdicts if v.status is Status.HOLDS}
    wanted = {p.name for r in reports for p in r.system.properties if p.form is Form.SOMETIMES}
    assert wanted - reached == {*but}


def assert_engines_agree(asked: Asked, engine: str) -> None:
    """Another engine has the same number of states and the same verdicts; the runs of both are valid and refute."""
    one, other = report(asked), check(asked.build(), engine=engine)
    assert other.exploration.distinct == one.exploration.distinct
    assert [(v.property.name, v.status) for v in other.verdicts] == [(v.property.name, v.status) for v in one.verdicts]
    for verdict in (*one.violated, *other.violated):
        if (run := verdict.run) is not None and run.loop is None:
            assert_is_a_run(one.system, run.path)
        elif run is not None:
            assert_is_a_fair_lasso(one.system, run)
            assert refutes(one.system, run, verdict.property)


def _bare(cls: type[System]) -> type[System]:
    """The system without its machines and their claims: a wrong step violates a property or nothing."""

    class Bare(cls):  # type: ignore[valid-type, misc]
        @classmethod
        def declarations(cls) -> dict[str, Any]:
            body = super().declarations()
            rules = {name: replace(value, arcs=()) for name, value in body.items() if isinstance(value, Rule)}
            return {**body, **rules, **{k: None for k, v in body.items() if isinstance(v, View)}}

    Bare.__name__ = cls.__name__
    return Bare


bare: Callable[[Any], type[System]] = cache(_bare)  # the same class each time: a report is kept by its class


def pinned_tests(
    pinned: Sequence[Asked],
    compared: Sequence[Asked],
    *,
    unreached: Mapping[enum.Enum, Iterable[str]] | None = None,
) -> type[Any]:
    """The class of three tests of systems whose verdicts are known.

    The largest are for the night. The engines are compared on those `compared`. `unreached`: the witnesses that
    the pinned runs of an edition do not reach.
    """
    pinned = [asked for asked in pinned if asked.states <= by_night("states of a pinned run", 400_000)]
    editions = dict.fromkeys((asked.system, asked.edition) for asked in pinned)

    class Pinned:
        @pytest.mark.parametrize("asked", pinned, ids=str)
        def test_an_edition_violates_what_is_known_of_it_and_no_more(self, asked: Asked) -> None:
            assert_as_pinned(asked)

        @pytest.mark.parametrize(("system", "edition"), editions)
        def test_every_step_is_taken_and_every_claimed_move_is_made(
            self, system: type[System], edition: enum.Enum
        ) -> None:
            runs = [asked for asked in pinned if (asked.system, asked.edition) == (system, edition)]
            assert_all_happens(runs, (unreached or {}).get(edition, ()))

        @pytest.mark.parametrize("engine", [e for e in AVAILABLE if e != "explicit"])
        @pytest.mark.parametrize("asked", compared, ids=str)
        def test_the_engines_agree(self, asked: Asked, engine: str) -> None:
            assert_engines_agree(asked, engine)

    return Pinned


# The violated property, the system that is wrong in one place, its sizes and its faults.
Mutant = tuple[str, type[System], str, tuple[str, ...]]


def model_tests(
    pinned: Sequence[Asked],
    mutants: Sequence[Mutant],
    compared: Sequence[Asked],
    *,
    unreached: Mapping[enum.Enum, Iterable[str]] | None = None,
) -> type[Any]:
    """The class of five tests for systems whose properties can all be violated.

    Three are `pinned_tests`. A mutant is one change of a system that violates only its pinned properties.
    """
    editions = dict.fromkeys((asked.system, asked.edition) for asked in pinned)
    ids = [f"{cls.__name__}-{name}" for name, cls, _, _ in mutants]

    class Model(pinned_tests(pinned, compared, unreached=unreached)):  # type: ignore[misc]
        @pytest.mark.parametrize(("name", "cls", "sizes", "faults"), mutants, ids=ids)
        def test_a_mutant_is_caught_by_the_property_that_is_about_it(
            self, name: str, cls: type[System], sizes: str, faults: tuple[str, ...]
        ) -> None:
            edition = next(edition for system, edition in reversed(editions) if issubclass(cls, system))
            right = Asked(cls.__bases__[0], edition, sizes, 0, "", faults)
            alike = (a for a in pinned if (a.edition, a.sizes, a.faults) == (edition, sizes, faults))
            known = next((a.violated.split() for a in alike if issubclass(cls, a.system)), [])
            assert violated(report(right)) == {*known} - {name}
            assert name in violated(report(Asked(bare(cls), edition, sizes, 0, "", faults)))

        @pytest.mark.parametrize("system", dict.fromkeys(asked.system for asked in pinned))
        def test_every_property_is_violated_by_a_mutant(self, system: type[System]) -> None:
            edition = next(edition for known, edition in reversed(editions) if known is system)
            faults = {fault for _, cls, _, faults in mutants if issubclass(cls, system) for fault in faults}
            caught = {name for name, cls, _, _ in mutants if issubclass(cls, system)}
            assert claims(system(edition=edition, faults=tuple(sorted(faults)))) == caught

    return Model
