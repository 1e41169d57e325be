"""The tests of every scenario: the installed torch has the defect, and a benign schedule shows none."""

from __future__ import annotations

from collections.abc import Callable, Mapping

import pytest

from ..adapters.replays import Observation, Say, Scenario


def scenario_tests(
    scenarios: Mapping[str, Scenario], controls: Mapping[str, Callable[[Say], Observation]]
) -> tuple[Callable[[str], None], Callable[[str], None]]:
    """Two tests, to be given names in a test file: of each scenario, and of each control."""

    @pytest.mark.parametrize("name", scenarios)
    def violates(name: str) -> None:
        observation = scenarios[name].run(print)
        assert observation.reproduced, observation
        assert observation.verdict.startswith("violated: ")

    @pytest.mark.parametrize("name", controls)
    def violates_nothing(name: str) -> None:
        observation = controls[name](print)
        assert not observation.reproduced, observation

    return violates, violates_nothing
