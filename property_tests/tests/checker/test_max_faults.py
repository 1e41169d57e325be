"""A bound on all faults of a run together; the kinds of faults and their numbers are free."""

from __future__ import annotations

from typing import Any

import pytest

from trystate.diagrams.moves import effect_parts, guard_parts
from trystate.model.checker.check import check
from trystate.model.checker.story import tell
from trystate.model.errors import DeclarationError, UsageError
from trystate.model.language import System
from trystate.property_tests.support.runs import AVAILABLE
from trystate.property_tests.support.systems.declarations import declared

House = declared(
    """
lamp = index(3)
dark = flag(per="lamp")
slams = integer(0, 9)
home = flag()
@fault("outage", each="lamp")
def go_out(self, s, lamp): 'A lamp goes out, once by default.'; s.when(~s.dark[lamp]); s.dark[lamp] = True
@fault("draught", bound=2)
def slam(self, s): 'A door slams, twice by default.'; s.when(s.slams < 9); s.slams = s.slams + 1
@environment(switch="visit")
def come(self, s): 'A guest comes home: not a fault, but switched like one.'; s.when(~s.home); s.home = True
@terminal
def at_rest(self, s): return s.slams <= 9
@sometimes()
def it_is_dark(self, s): 'No lamp is on.'; return all_(s.dark)
@always(witness="it_is_dark")
def quiet_in_the_dark(self, s): 'No door slams in the dark: takes two kinds.'; return ~(s.dark[0] & (s.slams > 0))
""",
    System,
    name="House",
)
BOTH = ("outage", "draught")


@pytest.mark.parametrize("engine", AVAILABLE)
@pytest.mark.parametrize(("most", "states"), [(1, 1 + 3 + 1), (2, 1 + 4 + 3 + 3 + 1), (3, 20)])
def test_any_faults_happen_but_no_more_than_the_bound(engine: str, most: int, states: int) -> None:
    found = check(House(faults=BOTH, max_faults=most), engine=engine)
    assert found.exploration.distinct == states
    assert [v.property.name for v in found.violated] == {
        1: ["it_is_dark"], 2: ["it_is_dark", "quiet_in_the_dark"], 3: ["quiet_in_the_dark"],
    }[most]  # fmt: skip


def test_the_bound_takes_the_place_of_the_bounds_of_the_kinds() -> None:
    system = House(faults=BOTH, max_faults=3)
    assert [name for name in system.slots if name.endswith("_left")] == ["faults_left"]
    assert system.slots["faults_left"].initial == (3,)
    assert system.faults == {"outage": 3, "draught": 3}
    assert system.label == "House(lamp=3) with any 3 of outage, draught"
    assert check(House(faults=["visit", "outage"], max_faults=1)).exploration.distinct == 5
    often = check(House(faults=["draught"], max_faults=9))
    assert often.exploration.distinct == 10  # two without this fault


def test_pictures_leave_the_counter_out_and_full_stories_have_it() -> None:
    few = "@constraint\ndef few_slams(self, s): return s.slams < 9"
    system = declared(few, House)(faults=BOTH, max_faults=2)
    slam = system.transition("slam")
    assert any("few_slams" in text for text in guard_parts(slam, budget=False))
    assert not any(
        "faults_left" in text for text in (*guard_parts(slam, budget=False), *effect_parts(slam, budget=False))
    )
    assert any("faults_left" in text for text in effect_parts(slam))
    run = check(system, engine="explicit").verdict("quiet_in_the_dark").run
    assert run is not None
    counted = [
        {change.cell for step in tell(system, run, budget=b).steps for change in step.changes} for b in (True, False)
    ]
    assert counted == [{"dark[0]", "slams", "faults_left"}, {"dark[0]", "slams"}]


@pytest.mark.parametrize(
    ("faults", "most", "said"),
    [
        (BOTH, 0, "max_faults is 0; give a whole number of at least 1"),
        (BOTH, True, "max_faults is True; give a whole number"),
        ((), 2, "max_faults=2 without faults; name some faults, or leave it out"),
        ({"outage": 2}, 2, "max_faults bounds all faults together; give their names, without bounds"),
        (("rain",), 2, "House has no fault 'rain'"),
    ],
)
def test_a_bound_without_meaning_is_refused(faults: Any, most: int, said: str) -> None:
    with pytest.raises(UsageError, match=said):
        House(faults=faults, max_faults=most)


def test_a_system_that_counts_a_kind_itself_is_refused_with_the_remedy() -> None:
    counting = declared("@sometimes()\ndef last(self, s): 'No door slams any more.'; return s.draught_left == 0", House)
    counting(faults=BOTH)
    with pytest.raises(DeclarationError, match="'draught_left', which max_faults replaces: give each fault a bound"):
        counting(faults=BOTH, max_faults=2)
