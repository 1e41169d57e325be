"""The searches that take minutes. By day their results belong to the present systems; by night they are repeated."""

from __future__ import annotations

import json
import runpy
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from trystate.model.checker.expectations import Run
from trystate.model.rendezvous.findings import LARGER
from trystate.property_tests.support.nightly import NIGHTLY

TOOL = Path(__file__).resolve().parents[3] / "docs" / "larger.py"

pytestmark = pytest.mark.skipif(not TOOL.is_file(), reason="needs a clone: a wheel has no docs")


def digest(run: Run) -> dict[str, str]:
    found: dict[str, str] = runpy.run_path(str(TOOL))["digest"](run)
    return found


def known() -> list[dict[str, Any]]:
    found: list[dict[str, Any]] = json.loads((TOOL.parent / "larger.json").read_text(encoding="utf-8"))
    return found


@pytest.mark.parametrize("number", range(len(LARGER)))
def test_a_larger_search_is_of_the_system_of_today(number: int) -> None:
    run, found = LARGER[number], known()[number]
    assert found["label"] == run.build().label
    assert found["digest"] == digest(run), "the model has changed: run python docs/larger.py"
    assert {each["status"] for each in found["properties"]} == {"holds"}


@pytest.mark.skipif(not NIGHTLY, reason="ten minutes of two cores: under HYPOTHESIS_PROFILE=nightly")
def test_the_larger_searches_find_the_same_again() -> None:
    done = subprocess.run([sys.executable, str(TOOL), "--check"], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout + done.stderr
