"""The forms that are traced to the core: every engine, export and the page agree on a small system with each."""

from __future__ import annotations

import enum
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from trystate.model.checker.check import check
from trystate.model.checker.export.promela import promela
from trystate.model.errors import DeclarationError, UsageError
from trystate.model.language import *
from trystate.model.prover.sizes import any_size
from trystate.page.contents import Choice
from trystate.property_tests.support.nightly import NIGHTLY
from trystate.property_tests.support.page import bundled, exported, needed
from trystate.property_tests.support.proofs import proved
from trystate.property_tests.support.systems.declarations import assert_refused, declared
from trystate.property_tests.support.systems.every_engine import (
    assert_engines_agree,
    assert_exports_agree,
    assert_page_agrees,
)

S = SymbolicState


class Colour(enum.Enum):
    RED = "stop"
    AMBER = "wait"
    GREEN = "go"


class Beginnings(System):
    """Each form of initial=, and a condition on the initial states."""

    node = index(3)
    number = integer(0, 5, per="node", initial=lambda node: (node, 5))
    colour = choice(Colour, initial=ANY)
    lit = flag(per="node", initial=(True, False))
    left = integer(0, 3, initial={3, 1})

    @initial
    def one_is_lit(self, s: S) -> Any:
        """One node is lit, and red goes with one left."""
        return (count(s.lit) == 1) & ((s.colour == Colour.RED) == (s.left == 1))

    @initial
    def last_is_low(self, s: S) -> Any:
        """The last number is not 5."""
        return s.number[2] != 5

    @transition()
    def darken(self, s: S, node: Expr) -> None:
        """A node becomes dark."""
        s.when(s.lit[node], s.left > 0)
        s.lit[node], s.left = False, s.left - 1

    @sometimes()
    def all_are_dark(self, s: S) -> Any:
        """No node is lit."""
        return ~any_(s.lit)

    @always(witness="all_are_dark")
    def at_most_one(self, s: S) -> Any:
        """At most one node is lit."""
        return count(s.lit) <= 1


FORMS: list[type[System]] = [Beginnings]
COUNTS: dict[type[System], tuple[int, int]] = {Beginnings: (48, 36)}  # states, initial states


@pytest.fixture(scope="module")
def engine(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Path]:
    if missing := needed():
        pytest.skip(missing)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("trystate.page.export.chart", lambda machine: None)
        yield bundled(tmp_path_factory.mktemp("engine") / "engine.mjs")


@pytest.mark.parametrize("cls", FORMS)
def test_a_form_means_the_same_in_every_engine(cls: type[System]) -> None:
    report = assert_engines_agree(cls())
    assert (report.exploration.distinct, len(report.system.initial_states)) == COUNTS[cls]
    assert not [v.property.name for v in report.violated if v.property.name != "deadlock_freedom"]


@pytest.mark.parametrize("cls", FORMS)
def test_a_form_means_the_same_on_the_page(cls: type[System], engine: Path) -> None:
    assert_page_agrees(cls(), engine)


@pytest.mark.parametrize("cls", FORMS if NIGHTLY else FORMS[:1])
def test_a_form_means_the_same_in_spin_and_tlc(cls: type[System], tmp_path: Path) -> None:
    assert_exports_agree(cls(), tmp_path)


REFUSED = {
    "n = integer(0, 3, per='node', initial=lambda: 1)": "n: initial(0) raises TypeError",
    "n = integer(0, 3, per='node', initial=lambda node: node + 3)": "n: initial value 4 is outside 0..3",
    "n = integer(0, 3, initial=())": "n has no initial value: give at least one",
    "@initial\ndef first(self, s): 'First.'; return s.level": "the initial condition first is level, which",
    "@initial()\ndef first(self, s): 'First.'; return s.level == 0": "@initial() has parentheses: write @initial",
}


@pytest.mark.parametrize("text", REFUSED)
def test_a_misuse_of_a_form_is_refused_with_its_line(text: str) -> None:
    assert_refused(text, REFUSED[text])


def test_conditions_that_no_state_satisfies_are_refused() -> None:
    text = "@initial\ndef first(self, s): 'First.'; return s.level > 0"
    with pytest.raises(DeclarationError, match="has no initial state: no values of initial= satisfy the conditions of"):
        declared(text)()


def test_initial_states_of_distinct_members_exclude_symmetry() -> None:
    with pytest.raises(UsageError, match="the members of number begin with different values; explore without"):
        check(Beginnings(), engine="explicit", symmetry=True)


def test_exports_refuse_more_initial_states_than_they_list(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("trystate.model.checker.export.promela.STATES_MAX", 35)
    with pytest.raises(UsageError, match="@initial allows more than 35 states, which Promela lists: export TLA"):
        promela(Beginnings())
    monkeypatch.setattr("trystate.page.export.BEGINS_MAX", 35)
    with pytest.raises(UsageError, match="has more than 35 initial states, which a page lists: allow fewer"):
        exported([Choice.of(Beginnings(), "named")])


class Switch(System):
    """A lamp that never goes out."""

    node = index(2)
    lit = flag(per="node", initial=ANY)

    @initial
    def one_is_lit(self, s: S) -> Any:
        """A lamp is lit."""
        return any_(s.lit)

    @transition()
    def light(self, s: S, node: Expr) -> None:
        """A lamp is lit."""
        s.lit[node] = True

    @sometimes()
    def all_are_lit(self, s: S) -> Any:
        """Each lamp is lit."""
        return all_(s.lit)

    @always(witness="all_are_lit")
    def one_stays_lit(self, s: S) -> Any:
        """A lamp is lit."""
        return any_(s.lit)


class Dark(Switch):
    """The mutant: without the condition, all lamps may be dark at first."""

    one_is_lit: Any = None


def test_a_proof_assumes_the_condition_on_initial_states() -> None:
    assert [proved(any_size(cls)).complete for cls in (Switch, Dark)] == [True, False]
