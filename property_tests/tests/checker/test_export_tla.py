"""TLC counts the states of exported systems as our engines do, and its counterexamples are as long as ours."""

from __future__ import annotations

from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import pytest
from hypothesis import given, settings

from trystate import registry
from trystate.model.checker.check import check
from trystate.model.checker.export import tla as exporter
from trystate.model.checker.export.steps import Printer
from trystate.model.checker.export.tla import tla
from trystate.model.language import System
from trystate.property_tests.support.export.sample import Sample
from trystate.property_tests.support.export.tlc import Seen, differences, explore, tlc_jar
from trystate.property_tests.support.mutants import Mutant, planted, replaced, rewritten
from trystate.property_tests.support.nightly import NIGHTLY, NUMBERS, examples
from trystate.property_tests.support.systems.declarations import declared
from trystate.property_tests.support.systems.random_systems import Declaration, declarations, system
from trystate.search import plans

by_night = pytest.mark.skipif(not NIGHTLY, reason="each start of TLC takes seconds: HYPOTHESIS_PROFILE=nightly")


@pytest.fixture(scope="module")
def jar() -> Path:
    return tlc_jar()


def test_tlc_agrees_on_the_states_and_on_all_that_holds(tmp_path: Path, jar: Path) -> None:
    of = Sample(faults=["fall"])
    seen = explore(
        tla(of, ["the_numbers_add_up", "who_has_met_has_met", "deadlock_freedom"], "Exported"), tmp_path, jar
    )
    assert seen == Seen(check(of).exploration.distinct, "", None)


# No step writes a field, and there is only one state; both conditions are constantly true.
Still = declared(
    "up = flag(initial=True)\n@sometimes()\ndef there(self, s): 'Up.'; return s.up\n"
    "@always(witness='there')\ndef never_down(self, s): 'Up.'; return s.up\n@terminal\ndef rests(self, s): return s.up",
    System,
)


def test_tlc_agrees_on_a_system_without_steps_and_on_constants(tmp_path: Path, jar: Path) -> None:
    assert differences(Still(), tmp_path, jar) == []


def test_no_name_begins_like_a_condition_of_fairness() -> None:
    of = declared("SF_x = flag()\n@transition()\ndef go(self, s): 'Goes.'; s.SF_x = True", System)
    assert " SF_x" not in tla(of())[0]


@by_night
@pytest.mark.parametrize("faults", [(), ("fall",)], ids=str)
def test_tlc_agrees_on_the_sample(faults: tuple[str, ...], tmp_path: Path, jar: Path) -> None:
    assert differences(Sample(faults=faults), tmp_path, jar) == []


@by_night
def test_tlc_agrees_on_a_small_run_of_each_system(tmp_path: Path, jar: Path) -> None:
    cheapest: dict[type[System], Any] = {}
    for run in sorted(plans.small(registry.plan()), key=plans.cost):
        if plans.states()[run.label] <= NUMBERS["states of a run for TLC"]:
            cheapest.setdefault(run.system, run)
    assert len(cheapest) > 10
    found = {run.label: differences(run.build(), tmp_path, jar) for run in cheapest.values()}
    assert {label: said for label, said in found.items() if said} == {}


@by_night
@settings(max_examples=examples(1))
@given(declarations())
def test_tlc_agrees_on_random_systems(jar: Path, declared: Declaration) -> None:
    with TemporaryDirectory() as folder:
        assert differences(system(declared), Path(folder), jar) == []


MISTAKES: dict[str, Mutant] = {
    "less is more": replaced(exporter._Module, "signs", {**exporter._Module.signs, "lt": ">"}),
    "a sum is a difference": replaced(exporter._Module, "signs", {**exporter._Module.signs, "add": "-"}),
    "a dropped conjunct": rewritten(Printer._show, "map(show, operands)", "map(show, operands[op == 'and' :])"),
    "one member alone is changed": rewritten(exporter._except, "[*changed]", "[*changed][:1]"),
    "a bound that is too low": rewritten(exporter._set, "({sort.low})..{sort.high}", "(-1)..100"),
}


@by_night
@pytest.mark.parametrize("mistake", MISTAKES)
def test_a_mistake_of_the_exporter_is_noticed(mistake: str, tmp_path: Path, jar: Path) -> None:
    with planted(MISTAKES[mistake]):
        assert differences(Sample(faults=["fall"]), tmp_path, jar)
