"""A bound on all faults of a run together: which of them happen, and how often each, is then free."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from trystate.__main__ import main
from trystate.diagrams.moves import effect_parts, guard_parts
from trystate.model.checker.check import check
from trystate.model.checker.expectations import Run, adopt
from trystate.model.checker.story import tell
from trystate.model.errors import DeclarationError, UsageError
from trystate.model.language import System, all_, always, environment, fault, flag, index, integer, sometimes, terminal
from trystate.property_tests.support.systems.lock import Edition, Lock
from trystate.property_tests.tests.checker.test_random_systems import AVAILABLE


class House(System):
    """Lamps go out and doors slam; somebody may come home."""

    lamp = index(3)
    dark = flag(per="lamp")
    slams = integer(0, 9)
    home = flag()

    @fault("outage", each="lamp")
    def go_out(self, s: Any, lamp: Any) -> None:
        """A lamp goes out, once by default."""
        s.when(~s.dark[lamp])
        s.dark[lamp] = True

    @fault("draught", bound=2)
    def slam(self, s: Any) -> None:
        """A door slams, twice by default."""
        s.when(s.slams < 9)
        s.slams = s.slams + 1

    @environment(switch="visit")
    def come(self, s: Any) -> None:
        """Somebody comes home: not a fault, but switched like one."""
        s.when(~s.home)
        s.home = True

    @terminal
    def at_rest(self, s: Any) -> Any:
        """Always."""
        return s.slams <= 9

    @sometimes()
    def it_is_dark(self, s: Any) -> Any:
        """No lamp is on."""
        return all_(x == True for x in s.dark)  # noqa: E712

    @always(witness="it_is_dark")
    def quiet_in_the_dark(self, s: Any) -> Any:
        """No door slams in the dark: takes two kinds of faults."""
        return ~(s.dark[0] & (s.slams > 0))


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
    often = check(House(faults=["draught"], max_faults=9))
    assert often.exploration.distinct == 10  # two without it


def test_what_is_switched_like_a_fault_counts_as_one() -> None:
    assert check(House(faults=["visit", "outage"], max_faults=1)).exploration.distinct == 5


def test_pictures_leave_the_counter_out_and_full_stories_have_it() -> None:
    system = House(faults=BOTH, max_faults=2)
    slam = system.transition("slam")
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


def test_the_label_says_it() -> None:
    assert House(faults=BOTH, max_faults=2).label == "House(lamp=3) with any 2 of outage, draught"


@pytest.mark.parametrize(
    ("faults", "most", "said"),
    [
        (BOTH, 0, "max_faults is 0; give a whole number of at least 1"),
        (BOTH, True, "max_faults is True; give a whole number"),
        ((), 2, "max_faults=2 without faults; switch some on, or leave it out"),
        ({"outage": 2}, 2, "max_faults bounds all faults together; give their names, without bounds"),
        (("rain",), 2, "House has no fault 'rain'"),
    ],
)
def test_what_makes_no_sense_is_refused(faults: Any, most: int, said: str) -> None:
    with pytest.raises(UsageError, match=said):
        House(faults=faults, max_faults=most)


def test_a_system_that_counts_a_kind_itself_is_refused_with_the_remedy() -> None:
    class Counting(House):
        """Looks at how often a fault may still happen."""

        @sometimes()
        def the_last_door_has_slammed(self, s: Any) -> Any:
            """No door will slam any more."""
            return s.draught_left == 0

    Counting(faults=BOTH)
    with pytest.raises(DeclarationError, match="'draught_left', which max_faults replaces: give each fault a bound"):
        Counting(faults=BOTH, max_faults=2)


def test_a_run_of_the_plan_may_have_it_and_what_is_asked_for_inherits_its_findings() -> None:
    run = Run(Lock, {"node": 2}, Edition.BROKEN, ("relapse",), {"one_at_a_time": ("x",)}, max_faults=2)
    system = run.build()
    assert (system.max_faults, system.faults) == (2, {"relapse": 2})
    adopted = adopt(system, [run])
    assert (adopted.max_faults, adopted.findings) == (2, run.findings)


def test_the_command_line_has_it_and_every_report_shows_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    verify = ("verify", f"{Lock.__module__}:Lock", "--edition", "MENDED", "--max-faults", "2")
    assert main([*verify, "--fault", "relapse", "--json", "run.json"]) == 0
    assert "any 2 of" in capsys.readouterr().out
    assert "any 2 of relapse" in Path("trystate-report/report.md").read_text()
    (run,) = json.loads(Path("run.json").read_text())["runs"]
    assert (run["faults"], run["max_faults"]) == ({"relapse": 2}, 2)
    for wrong, said in (((), "without faults"), (("--fault", "relapse=1"), "without bounds")):
        assert main([*verify, *wrong]) == 2
        assert said in capsys.readouterr().err
