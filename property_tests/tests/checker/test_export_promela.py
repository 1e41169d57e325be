"""Spin counts the states of exported systems as our engines do; its verdicts and depths are the same."""

from __future__ import annotations

from pathlib import Path
from tempfile import TemporaryDirectory
from types import SimpleNamespace

import pytest
from hypothesis import given, settings

from trystate import registry
from trystate.model.checker.check import check
from trystate.model.checker.expectations import Run
from trystate.model.checker.export import promela as exporter
from trystate.model.checker.export.promela import promela
from trystate.model.checker.export.steps import Printer
from trystate.model.checker.interpret import Interpreter
from trystate.model.errors import UsageError
from trystate.model.language import System
from trystate.property_tests.support.export.sample import Sample
from trystate.property_tests.support.export.spin import differences, require_spin, shown, verify
from trystate.property_tests.support.mutants import Mutant, planted, replaced, rewritten
from trystate.property_tests.support.nightly import NIGHTLY, NUMBERS, examples
from trystate.property_tests.support.systems.declarations import declared
from trystate.property_tests.support.systems.random_systems import Declaration, declarations, system
from trystate.search import plans

STATES = "states of a run for Spin"
TEXT_MAX = 2_000_000  # characters of a model: gcc takes more than five minutes for seven millions
BY_DAY = (
    "Rendezvous(node=2, min_nodes=2, max_nodes=2, rounds=1) TORCH with clock_skew",
    "Waits(client=1, key=1, value=1, torch_clients=1, deletes=0, compares=1) SEED",
    "Groups(process=3, group=2, outsiders=1) SEED with skip",
)


@pytest.fixture(autouse=True, scope="module")
def spin() -> None:
    require_spin()


def exported() -> list[Run]:
    """The runs of the small plan that Spin checks; by night all that are small enough."""
    runs = plans.small(registry.plan())
    return [run for run in runs if (plans.states()[run.label] <= NUMBERS[STATES] if NIGHTLY else run.label in BY_DAY)]


@pytest.mark.parametrize("run", exported(), ids=lambda run: run.label)
def test_spin_agrees_on_states_verdicts_and_depths(run: Run, tmp_path: Path) -> None:
    of = run.build()
    text = promela(of)
    if len(text) > TEXT_MAX:
        pytest.skip(f"a model of {len(text):,} characters: gcc takes minutes")
    assert differences(check(of), verify(text, tmp_path)) == []


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


Model = exporter._Model
MISTAKES: dict[str, Mutant] = {
    "less is at most": replaced(Model, "signs", {**Model.signs, "lt": "<="}),
    "effects one after the other": replaced(exporter, "reads", lambda tree: set()),
    "a dropped conjunct": rewritten(Printer._show, "map(show, operands)", "map(show, operands[op == 'and' :])"),
    "a bound that is too low": rewritten(Model._in_range, "{sort.high})", "{sort.high - 2})"),
    "a sum is a difference": replaced(Model, "signs", {**Model.signs, "add": "-"}),
    "a choice the wrong way round": replaced(Model, "forms", {**Model.forms, "ite": "({0} -> {2} : {1})"}),
    "a negation that is lost": replaced(Model, "forms", {**Model.forms, "not": "{}"}),
    "a type that is too small": replaced(exporter, "TYPES", {"byte": (-1000, 1000)}),
    "no rest": replaced(Model, "_rest", lambda self: iter(())),
    "faults count as progress": replaced(exporter, "Kind", SimpleNamespace(FAULT=None)),
}


@pytest.mark.parametrize("mistake", [*MISTAKES][: None if NIGHTLY else 4])
def test_a_mistake_of_the_exporter_is_noticed(mistake: str, tmp_path: Path) -> None:
    of = Sample(faults=["fall"])
    report = check(of, engine="interpret")
    with planted(MISTAKES[mistake]):
        model = promela(of)
    assert differences(report, verify(model, tmp_path))


def test_the_sample_itself_agrees(tmp_path: Path) -> None:
    of = Sample(faults=["fall"])
    assert differences(check(of), verify(promela(of), tmp_path)) == []


C = "asm auto case const default double errno linux register static stderr stdin stdout switch typeof uint union unix"


def test_fields_may_have_the_names_of_c(tmp_path: Path) -> None:
    fields = "".join(f"{name} = flag()\n" for name in C.split())
    of = declared(f"{fields}@transition()\ndef step(self, s): 'On.'; {'; '.join(f's.{c} = True' for c in C.split())}\n"
                  "@terminal\ndef rests(self, s): return s.switch", System)()  # fmt: skip
    assert differences(check(of), verify(promela(of), tmp_path)) == []


def test_a_range_that_is_too_large_is_refused_by_name() -> None:
    with pytest.raises(UsageError, match=r"much goes from 0 to 1099511627776, .* make the sizes smaller"):
        promela(
            declared("much = integer(0, 1 << 40)\n@transition()\ndef grow(self, s): 'Grows.'; s.much += 1", System)()
        )
