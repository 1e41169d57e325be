"""The tests of every scenario: the installed torch has the defect, and a benign schedule shows none."""

from __future__ import annotations

from collections.abc import Callable, Mapping

import pytest

from ..adapters.replays import Observation, Say, Scenario
from ..adapters.torch_release import NotInRelease


def scenario_tests(
    scenarios: Mapping[str, Scenario], controls: Mapping[str, Callable[[Say], Observation]]
) -> tuple[Callable[[str], None], Callable[[str], None]]:
    """Two tests, to be given names in a test file: of each scenario, and of each control."""

    @pytest.mark.parametrize("name", scenarios)
    def violates(name: str) -> None:
        observation = _observed(scenarios[name].run)
        assert observation.reproduced, observation
        assert observation.verdict.startswith("violated: ")

    @pytest.mark.parametrize("name", controls)
    def violates_nothing(name: str) -> None:
        observation = _observed(controls[name])
        assert not observation.reproduced, observation

    return violates, violates_nothing


def _observed(run: Callable[[Say], Observation]) -> Observation:
    """Run it; the test is skipped where the installed torch lacks what it is about."""
    try:
        return run(print)
    except NotInRelease as lacking:
        pytest.skip(str(lacking))
