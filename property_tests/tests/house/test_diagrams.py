"""The pictures: each lifeline names what its system has, none is too wide, and one renderer alone draws them."""

import importlib.metadata
import importlib.util
import re
import shutil
from collections.abc import Iterable
from pathlib import Path
from typing import Any

import pytest

from trystate import diagrams
from trystate.diagrams.moves import initial_states
from trystate.model.checker.check import check
from trystate.model.checker.story import main_index
from trystate.model.checker.verdicts import Counterexample
from trystate.model.errors import UnavailableError, UsageError
from trystate.model.language import *
from trystate.model.language.lifelines import SHARED
from trystate.model.rendezvous import OPERATORS
from trystate.model.rendezvous import Edition as Torchs
from trystate.property_tests.support.systems.declarations import Mood, declared
from trystate.property_tests.support.systems.lock import Edition, Lock, Waltz
from trystate.registry import SYSTEMS, in_each_edition

LOCK, TABLE = Lock(edition=Edition.MENDED), OPERATORS[Torchs.TORCH]["join"]


@pytest.fixture(scope="module")
def lasso() -> Counterexample:
    run = check(Waltz(), engine="interpret").verdict("it_ends").run
    assert run is not None
    return run


def unplaced(system: System) -> set[str]:
    """The fields and steps that a picture draws at a lifeline which their system does not name."""
    lines, main = system.lifelines(), main_index(system)
    if lines.shared != SHARED or main is None:
        return set()
    sorts = {main.name, *lines.homes}
    found = {slot.name for slot in system.slots.values() if not sorts & {sort.name for sort in slot.dims}}
    found |= {t.name for t in system.transitions if not sorts & {p.sort.name for p in t.params}}
    return found - {*lines.places, *lines.here, *lines.messages, *map(system.fault_counter, system.faults)}


def test_systems_name_each_lifeline_that_their_pictures_have() -> None:
    shipped = in_each_edition(SYSTEMS.values())
    assert {system.label: unplaced(system) for system in shipped if unplaced(system)} == {}


def misplaced(systems: Iterable[System]) -> set[str]:
    """Names in the lifelines of a class that none of its systems has."""
    lines, known = [], set[str]()
    for system in systems:
        known |= {*system.slots, *system.sequences, *system.index_sorts, *(t.name for t in system.transitions)}
        lines.append(system.lifelines())
    named = {name for x in lines for part in (x.places, x.here, x.homes, x.messages, x.totals) for name in part}
    return named - known


def test_lifelines_name_fields_and_steps_that_their_systems_have() -> None:
    families: dict[Any, list[System]] = {}
    for system in in_each_edition(SYSTEMS.values()):
        families.setdefault(type(system).lifelines, []).append(system)
    assert {name for systems in families.values() for name in misplaced(systems)} == set()


WIDTH_MAX = 1400  # pixels; at 1,000 such a picture's text has 8 points


GENERATED = Path(diagrams.__file__).parent / "generated"


@pytest.mark.skipif(not GENERATED.is_dir(), reason="needs a clone: a wheel holds packages only")
def test_no_picture_is_wider_than_a_page() -> None:
    widths = {}
    for path in GENERATED.glob("*.svg"):
        size = re.search(r'<svg width="(\d+)pt"', path.read_text("utf-8"))
        assert size is not None, path
        widths[path.stem] = round(int(size[1]) * 96 / 72)
    assert {name: width for name, width in widths.items() if width > WIDTH_MAX} == {}


def test_a_chart_begins_where_any_member_may_begin() -> None:
    moody = declared(
        "node = index(40)\nmood = choice(Mood, per='node', initial=ANY)\nmoods = machine_of(mood, 'Mood.')\n@initial\n"
        "def calm(self, s): return (s.mood[0] == Mood.CALM) & all_(s.mood[j] != Mood.GONE for j in s.node)", System,
    )  # fmt: skip
    assert initial_states(moody().machines["moods"]) == [Mood.CALM, Mood.CROSS]


def pictures(run: Counterexample) -> list[str]:
    charts = [diagrams.state_chart_dot(m) for m in LOCK.machines.values()]
    return [*charts, diagrams.decision_table_dot(TABLE), diagrams.sequence_dot(Waltz(), run, 'a "title" <&>')]


@pytest.mark.parametrize("program", ["dot", "pygraphviz"])
def test_every_picture_renders_with_one_program_alone(
    program: str, tmp_path: Path, lasso: Counterexample, monkeypatch: pytest.MonkeyPatch
) -> None:
    if (shutil.which if program == "dot" else importlib.util.find_spec)(program) is None:
        pytest.skip(f"{program} is not installed")
    if program == "pygraphviz":
        monkeypatch.setenv("PATH", str(tmp_path))
    assert diagrams.renderer_name().startswith(f"{program} ")
    for dot in pictures(lasso):
        diagrams.render(dot, tmp_path / "picture.svg")
        assert "</svg>" in (tmp_path / "picture.svg").read_text(encoding="utf-8")
    diagrams.render(pictures(lasso)[0], tmp_path / "picture.png", "png")
    assert (tmp_path / "picture.png").read_bytes().startswith(b"\x89PNG")


def test_without_a_renderer_the_text_is_written_with_both_remedies(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("PATH", str(tmp_path))
    monkeypatch.setattr(importlib.util, "find_spec", lambda name: None)
    with pytest.raises(UnavailableError, match=r"pip install 'trystate\[diagrams\]'.*apt-get install graphviz"):
        diagrams.generate(tmp_path / "out", tables=[TABLE])
    assert (tmp_path / "out" / "join.dot").is_file()
    assert not (tmp_path / "out" / "join.svg").exists()


def test_an_unknown_format_is_refused_with_the_known_ones(tmp_path: Path) -> None:
    with pytest.raises(UsageError, match=r"'pdf': choose svg or png"):
        diagrams.render("digraph {}", tmp_path / "x.pdf", "pdf")  # type: ignore[arg-type]
