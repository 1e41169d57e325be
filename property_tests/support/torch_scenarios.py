"""The tests of every scenario: the installed torch has the defect if its release has; a benign schedule shows none."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from importlib.metadata import version

import pytest
from trystate.model import releases
from trystate.model.checker.expectations import Finding

from ..adapters.replays import Observation, Say, Scenario


def scenario_tests(
    scenarios: Mapping[str, Scenario],
    controls: Mapping[str, Callable[[Say], Observation]],
    findings: Mapping[str, Finding],
) -> tuple[Callable[[str], None], Callable[[str], None]]:
    """Two tests, to be given names in a test file: of each scenario, and of each control."""

    @pytest.mark.parametrize("name", scenarios)
    def violates_if_its_release_does(name: str) -> None:
        observation = scenarios[name].run(print)
        has = releases.has(version("torch"), findings[name])
        assert observation.reproduced is has, observation
        assert observation.verdict.startswith("violated: " if has else "held in this run: ")

    @pytest.mark.parametrize("name", controls)
    def violates_nothing(name: str) -> None:
        observation = controls[name](print)
        assert not observation.reproduced, observation

    return violates_if_its_release_does, violates_nothing
