"""Published specifications, written with the forms of the language, have the published numbers of states."""

from __future__ import annotations

import pytest

from trystate.model.checker.check import check
from trystate.model.language import System
from trystate.property_tests.support.nightly import NIGHTLY
from trystate.property_tests.support.runs import AVAILABLE
from trystate.property_tests.support.systems.published_forms import (
    ChangRoberts,
    CoffeeCan,
    DiningPhilosophers,
    Ewd840,
    Ewd998,
    Prisoner,
    ReadersWriters,
)

COUNTED: list[tuple[System, int]] = [
    (CoffeeCan(), 5_150),
    (DiningPhilosophers(), 67),
    (ReadersWriters(), 21_527),
    (Prisoner(), 16),
    (Prisoner(unknown=1), 62),
    (ChangRoberts(), 137),
    (Ewd840(), 302),
    (Ewd840(node=4), 1_566),
    *([(Ewd998(), 1_520_618)] if NIGHTLY else []),
]
ENGINES = AVAILABLE if NIGHTLY else [engine for engine in AVAILABLE if engine != "interpret"]


@pytest.mark.parametrize("engine", ENGINES)
@pytest.mark.parametrize(("system", "states"), [pytest.param(*case, id=case[0].label) for case in COUNTED])
def test_a_published_specification_has_its_number_of_states(system: System, states: int, engine: str) -> None:
    if states > 1_000_000 and engine != "explicit":
        pytest.skip("only the engine explicit counts a million states in seconds")
    report = check(system, engine=engine)
    assert report.exploration.distinct == states
    assert not report.violated
    assert report.never_fired == []
