"""The releases of torch that the model describes, and the output of the commands for each of them."""

from __future__ import annotations

import re
import runpy
import tempfile
import tomllib
from collections.abc import Callable
from functools import cache
from importlib import metadata
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from trystate import registry
from trystate.commands import doctor
from trystate.exits import Exit
from trystate.impl import torch_release
from trystate.model import agent, releases, rendezvous
from trystate.model.checker.expectations import Finding
from trystate.property_tests.adapters import versions
from trystate.property_tests.tests.command_line.setting import FINDING, Command, says

OLD = Finding("two-inside", "R1", "Two nodes are inside at once.", since="2.5", until="2.12")
YOUNG = Finding("two-inside", "R1", "Two nodes are inside at once.", since="2.13")


def test_the_rows_are_consecutive_and_each_was_tried_in_its_own_release() -> None:
    numbers = [row.series for row in releases.RELEASES]
    assert numbers == [(2, minor) for minor in range(6, 6 + len(numbers))]
    assert all(row.tried.startswith(f"{row.name}.") for row in releases.RELEASES)
    assert (releases.OLDEST.name, releases.NEWEST.name) == (torch_release.OLDEST, torch_release.NEWEST)


def test_the_editions_of_a_row_are_those_whose_findings_it_has() -> None:
    """The older editions exist for R16 and A16."""
    asserts, closes = registry.finding_named("R16"), registry.finding_named("A16")
    for row in releases.RELEASES:
        assert releases.has(row.tried, asserts) is (row.rendezvous is rendezvous.Edition.TORCH_2_12)
        assert releases.has(row.tried, closes) is (row.agent is agent.Edition.TORCH_2_7)


@pytest.mark.parametrize("version", ["2.13.0", "2.13.0+cpu", "2.13.2", "2.13.0a0+git1234", "2.13"])
def test_patch_releases_and_builds_are_their_minor_release(version: str) -> None:
    assert releases.has(version, YOUNG) and not releases.has(version, OLD)


def test_a_release_after_the_newest_is_newer() -> None:
    assert releases.is_newer("2.99.0") and releases.is_newer("3.0.0") and not releases.is_newer(releases.NEWEST.tried)


@pytest.mark.parametrize(
    ("version", "finding", "said"),
    [
        ("2.12.1", OLD, ""),
        ("2.13.0+cpu", OLD, "R1 is not in torch 2.13.0: fixed in 2.13.0"),
        ("2.15.0", OLD, "R1 is not in torch 2.15.0: fixed in 2.13.0"),
        ("2.12.1", YOUNG, "R1 is not in torch 2.12.1: it came with 2.13"),
        ("2.13.0", YOUNG, ""),
        ("2.13.0", Finding("x", "S1", "", since="1.9", until="1.9"), "S1 is not in torch 2.13.0: last seen in 1.9"),
        ("2.6.0", Finding("x", "S1", ""), ""),
    ],
)
def test_a_release_has_a_finding_or_the_sentence_says_why_not(version: str, finding: Finding, said: str) -> None:
    assert releases.absence(version, finding) == said
    assert releases.has(version, finding) is (not said)


Installed = Callable[[str], None]


@pytest.fixture
def installed(monkeypatch: pytest.MonkeyPatch) -> Installed:
    """Pretend that this torch is installed."""

    def pretend(version: str) -> None:
        def of(package: str) -> str:
            return version if package == "torch" else metadata.version(package)

        for module in ("replay", "doctor"):
            monkeypatch.setattr(f"trystate.commands.{module}.version", of, raising=False)
        monkeypatch.setattr(versions, "version", of)

    return pretend


def test_a_release_newer_than_the_model_is_compared_and_marked(installed: Installed) -> None:
    installed("2.99.0")
    assert versions.torch_problem() is None
    line = versions.findings_line([OLD, YOUNG, FINDING])
    newer = f"torch 2.99.0 (taken for {releases.NEWEST.name}, the newest that the model knows)"
    assert line == f"{newer} has 2 of the 3 findings: all but R1"


def test_a_release_that_is_too_old_is_refused_with_the_remedy(installed: Installed) -> None:
    installed("2.5.1")
    assert versions.torch_problem() == "torch 2.5.1 is too old: pip install 'torch>=2.6'"


@pytest.mark.parametrize("reproduced", [False, True])
def test_replay_shows_that_a_release_has_a_finding_no_more(
    command: Command, script: Callable[[bool], None], monkeypatch: pytest.MonkeyPatch, installed: Installed,
    reproduced: bool,
) -> None:  # fmt: skip
    installed("2.13.0")
    monkeypatch.setattr(registry, "findings", lambda: {OLD.name: OLD})
    script(reproduced)
    out = says(command, Exit.FAILED if reproduced else Exit.OK, "replay", "r1")
    assert "R1 is not in torch 2.13.0: fixed in 2.13.0" in out and "  both enter" in out
    last = "reproduced: unexpected for this release" if reproduced else "not reproduced, as expected of this release"
    assert out.rstrip().endswith(last)


def test_replay_runs_nothing_where_torch_lacks_what_a_finding_is_about(
    command: Command, monkeypatch: pytest.MonkeyPatch, installed: Installed
) -> None:
    installed("2.12.1")
    monkeypatch.setattr(registry, "findings", lambda: {YOUNG.name: YOUNG})
    answer, out, _ = command("replay", "r1")
    assert answer == Exit.OK and out.rstrip().endswith("R1 is not in torch 2.12.1: it came with 2.13")


# ---- the script that tries them


TOOL = Path(__file__).resolve().parents[3] / "tools" / "releases.py"
IS_CLONE = pytest.mark.skipif(not TOOL.is_file(), reason="needs a clone: a wheel holds packages only")


@cache
def tool() -> Any:
    return SimpleNamespace(**runpy.run_path(str(TOOL)))


@IS_CLONE
def test_the_page_is_what_the_results_and_the_table_say() -> None:
    assert tool().PAGE.read_text(encoding="utf-8") == tool().page(tool().Kept(tool().RESULTS).all)


@IS_CLONE
def test_an_environment_is_removed_unless_it_is_kept(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setattr(tempfile, "gettempdir", lambda: str(tmp_path))
    for keep in (False, True):
        with tool().environment(releases.OLDEST, None, keep) as place:
            place.folder.mkdir()
        assert place.folder.exists() is keep


@IS_CLONE
def test_a_command_that_does_not_end_is_ended_with_all_that_it_started(tmp_path: Path) -> None:
    code, said = tool().Place(releases.OLDEST, tmp_path).run("bash", "-c", "sleep 60 & sleep 60", seconds=0.3)
    assert (code, said) == (124, "not done after 0.3 s")


# ---- the range that was tried, which pages and packages name

CHECKOUT = Path(__file__).resolve().parents[3]
NAMED = re.compile(r"torch (\d\.\d+ to \d\.\d+)")


def test_the_extra_leaves_every_torch_of_the_range_alone() -> None:
    """The extra allows every later torch too."""
    project = tomllib.loads((CHECKOUT / "pyproject.toml").read_text(encoding="utf-8"))["project"]
    (torch,) = (one for one in project["optional-dependencies"]["torch"] if one.startswith("torch"))
    assert torch == f"torch>={torch_release.OLDEST}"


@pytest.mark.parametrize("page", ["README.md", "CONTRIBUTING.md", "docs/deploy.md", "docs/releases.md"])
def test_the_pages_name_the_range(page: str) -> None:
    named = NAMED.findall((CHECKOUT / page).read_text(encoding="utf-8"))
    assert named
    assert set(named) == {torch_release.TESTED}


def test_no_other_module_of_the_runtime_asks_which_torch_is_installed() -> None:
    """Only `doctor` and `replay` print the release as text, for people."""
    asking = re.compile(r"torch\.__version__|version\(\"torch\"\)")
    found = {path for path in (CHECKOUT / "impl").rglob("*.py") if asking.search(path.read_text(encoding="utf-8"))}
    assert found == {CHECKOUT / "impl" / "torch_release.py"}


@pytest.mark.parametrize(
    ("release", "works", "said"),
    [
        ("", "no", "torch is not installed: pip install"),
        ("2.5.1+cu124", "no", "torch 2.5.1+cu124 is too old: pip install 'torch>=2.6'; tested with torch"),
        ("1.13.0", "no", "torch 1.13.0 is too old"),
        ("2.6.0", "yes", "torch 2.6.0; tested with torch 2.6 to"),
        ("2.15.3+cpu", "yes", "torch 2.15.3+cpu; tested with torch 2.6 to"),
        ("2.16.0a0+git1", "yes", "torch 2.16.0a0+git1 is newer, and is used like 2.15; tested with torch 2.6 to"),
        ("3.0.0", "yes", "torch 3.0.0 is newer, and is used like 2.15"),
    ],
)
def test_doctor_says_whether_a_release_was_tested(release: str, works: str, said: str) -> None:
    _, available, how = doctor._runtime(release)
    assert (available, how.startswith(said)) == (works, True), how
