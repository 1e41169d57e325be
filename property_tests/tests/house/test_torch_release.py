"""The range of torch releases that was tested has one home, and everything that names it says the same."""

from __future__ import annotations

import re
import subprocess
import sys
import tomllib
from pathlib import Path

import pytest

from trystate.commands import doctor
from trystate.impl import torch_release
from trystate.property_tests.adapters.versions import torch_problem

CHECKOUT = Path(__file__).resolve().parents[3]
NAMED = re.compile(r"torch (\d\.\d+ to \d\.\d+)")


def test_the_extra_leaves_every_torch_of_the_range_alone() -> None:
    """And every later one."""
    project = tomllib.loads((CHECKOUT / "pyproject.toml").read_text(encoding="utf-8"))["project"]
    (torch,) = (one for one in project["optional-dependencies"]["torch"] if one.startswith("torch"))
    assert torch == f"torch>={torch_release.OLDEST}"


@pytest.mark.parametrize("page", ["README.md", "CONTRIBUTING.md", "docs/deploy.md"])
def test_the_pages_name_the_range(page: str) -> None:
    named = NAMED.findall((CHECKOUT / page).read_text(encoding="utf-8"))
    assert named
    assert set(named) == {torch_release.TESTED}


def test_no_other_module_of_the_runtime_asks_which_torch_is_installed() -> None:
    """The release as a text is for people, in `doctor` and `replay`."""
    asking = re.compile(r"torch\.__version__|version\(\"torch\"\)")
    found = {path for path in (CHECKOUT / "impl").rglob("*.py") if asking.search(path.read_text(encoding="utf-8"))}
    assert found == {CHECKOUT / "impl" / "torch_release.py"}


def test_asking_for_the_range_imports_no_torch() -> None:
    program = "import sys, trystate.impl.torch_release as r; print(r.TESTED, 'torch' in sys.modules)"
    said = subprocess.check_output([sys.executable, "-c", program], text=True)
    assert said == f"{torch_release.TESTED} False\n"


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


def test_a_torch_that_is_too_old_is_compared_with_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("trystate.property_tests.adapters.versions.version", lambda package: "2.5.1")
    assert torch_problem() == "torch 2.5.1 is too old: pip install 'torch>=2.6'"
