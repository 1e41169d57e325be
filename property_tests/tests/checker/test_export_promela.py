"""Spin counts the states of exported systems as our engines do, and comes to the same verdicts after as many steps."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from pathlib import Path
from tempfile import TemporaryDirectory
from types import SimpleNamespace
from typing import Any

import pytest
from hypothesis import given, settings

from trystate import registry
from trystate.model.checker.check import check
from trystate.model.checker.expectations import Run
from trystate.model.checker.export import promela as exporter
from trystate.model.checker.export.promela import promela
from trystate.model.checker.interpret import Interpreter
from trystate.model.errors import UsageError
from trystate.model.language import Expr, SymbolicState, System, integer, transition
from trystate.property_tests.support.export.sample import Sample
from trystate.property_tests.support.export.spin import differences, require_spin, shown, verify
from trystate.property_tests.support.nightly import NIGHTLY, NUMBERS, examples
from trystate.property_tests.support.systems.random_systems import Declaration, declarations, system
from trystate.search import plans

Show = Callable[[Expr], str]
STATES = "states of a run for Spin"
BY_DAY = (
    "Rendezvous(node=2, min_nodes=2, max_nodes=2, rounds=1) TORCH with clock_skew",
    "Waits(client=1, key=1, value=1, torch_clients=1, deletes=0, compares=1) SEED",
    "Groups(process=3, group=2, outsiders=1) SEED with skip",
)


@pytest.fixture(autouse=True, scope="module")
def spin() -> None:
    require_spin()


def exported() -> list[Run]:
    """The runs of the small plan that Spin judges: by night all that are small enough."""
    runs = plans.small(registry.plan())
    return [run for run in runs if (plans.states()[run.label] <= NUMBERS[STATES] if NIGHTLY else run.label in BY_DAY)]


@pytest.mark.parametrize("run", exported(), ids=lambda run: run.label)
def test_spin_agrees_on_states_verdicts_and_depths(run: Run, tmp_path: Path) -> None:
    of = run.build()
    assert differences(check(of), verify(promela(of), tmp_path)) == []


@given(declarations())
@settings(max_examples=examples(1))
def test_spin_agrees_on_random_systems(declared: Declaration) -> None:
    of = system(declared)
    with TemporaryDirectory() as folder:
        assert differences(check(of, engine="interpret"), verify(promela(of), Path(folder))) == []


def test_spin_replays_a_counterexample_of_an_exported_system_step_by_step(tmp_path: Path) -> None:
    of = Sample(faults=["fall"])
    labels = shown(promela(of, ["levels_change_by_one"]), tmp_path)
    assert labels[-1] in ("jump(1)", "exchange")
    assert len(labels) == len(check(of).verdict("levels_change_by_one").run.path.steps)  # type: ignore[union-attr]
    interpreter = Interpreter(of)
    instances = {i.label: i for i in interpreter.kernel.instances}
    (state,) = of.initial_states
    for label in labels:
        after = interpreter.step(instances[label], state)
        assert after is not None
        state = after


# ---- planted mistakes


def _printing(op: str, wrong: Callable[[Expr, Show], str]) -> Any:
    """The expressions of the exporter, with another text for one operator."""
    right = exporter._Model._show
    return lambda self, expr, show: wrong(expr, show) if expr.op == op else right(self, expr, show)


def _swapped(expr: Expr, show: Show) -> str:
    condition, then, otherwise = map(show, expr.args)
    return f"({condition} -> {otherwise} : {then})"


def _too_low(self: Any, k: int, value: Expr, text: str) -> str:
    return IN_RANGE(self, k, value, text).replace("<= 3)", "<= 1)")


IN_RANGE = exporter._Model._in_range
MISTAKES: Mapping[str, tuple[Any, str, Any]] = {
    "less is at most": (exporter, "_SIGNS", {**exporter._SIGNS, "lt": "<="}),
    "effects one after the other": (exporter, "reads", lambda tree: set()),
    "a dropped conjunct": (exporter._Model, "_show", _printing("and", lambda expr, show: show(expr.args[0]))),
    "a bound that is too low": (exporter._Model, "_in_range", _too_low),
    "a sum is a difference": (exporter, "_SIGNS", {**exporter._SIGNS, "add": "-"}),
    "a choice the wrong way round": (exporter._Model, "_show", _printing("ite", _swapped)),
    "a negation that is lost": (exporter, "_not", lambda inner, show: show(inner)),
    "a type that is too small": (exporter, "TYPES", {"byte": (-1000, 1000)}),
    "no rest": (exporter._Model, "_rest", lambda self: iter(())),
    "faults count as progress": (exporter, "Kind", SimpleNamespace(FAULT=None)),
}


@pytest.mark.parametrize("mistake", [*MISTAKES][: None if NIGHTLY else 4])
def test_a_mistake_of_the_exporter_is_noticed(mistake: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    of = Sample(faults=["fall"])
    report = check(of, engine="interpret")
    owner, name, wrong = MISTAKES[mistake]
    with monkeypatch.context() as patch:
        patch.setattr(owner, name, wrong)
        model = promela(of)
    assert differences(report, verify(model, tmp_path))


def test_the_sample_itself_agrees(tmp_path: Path) -> None:
    of = Sample(faults=["fall"])
    assert differences(check(of), verify(promela(of), tmp_path)) == []


class Wide(System):
    """A number that no int of Spin's holds."""

    much = integer(0, 1 << 40)

    @transition()
    def grow(self, s: SymbolicState) -> None:
        """It grows."""
        s.when(s.much < 3)
        s.much += 1


def test_a_range_that_is_too_large_is_refused_by_name() -> None:
    with pytest.raises(UsageError, match=r"much goes from 0 to 1099511627776, .* make the sizes smaller"):
        promela(Wide())
