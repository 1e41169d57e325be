"""The end of a pass over any graph: each property can be violated, and the passes over given graphs refine it.

Each rule is broken once in the system, where a search finds a property violated; that it breaks the proof as well is in
`prover/test_systems.py`. A fault in a pass of torch breaks the refinement.
"""

from __future__ import annotations

import random
from typing import Any

import pytest

from trystate.model.autograd.backward import Backward, Ours, Torch
from trystate.model.autograd.engagement import Deficits, Engagements
from trystate.model.autograd.examples import GRAPHS, NUMBER, drawn_graph, small_graphs
from trystate.model.autograd.findings import ALL
from trystate.model.autograd.gradients import Gradients
from trystate.model.autograd.lemmas import Lemmas
from trystate.model.autograd.vocabulary import Edition, Mode
from trystate.model.checker.check import check
from trystate.model.language import System
from trystate.property_tests.adapters.refinements import pass_refinement
from trystate.property_tests.support.mutants import altered
from trystate.property_tests.support.nightly import NIGHTLY, a_third, by_night
from trystate.property_tests.support.pinned import Asked, model_tests, of_plan, violated

TRYSTATE, SMART = Edition.TRYSTATE, Mode.SMART
FAULTS = ("fail", "die", "lose", "again")
TWO = "worker=2 call=2"


def mutant(name: str, method: str, right: str, wrong: str) -> type[System]:
    return altered(name, Engagements, method, right, wrong)


# fmt: off
ROWS: tuple[tuple[str, type[System], str, tuple[str, ...]], ...] = (
    # The properties that are violated, a system that is wrong in one place, its sizes and its faults.
    # Calls.
    ("the_engaged_owe_one_answer the_root_returns_last",
     mutant("AnswersTheFirstAtOnce", "take", "Call.DONE, Call.HELD", "Call.DONE, Call.DONE"), TWO, ()),
    ("a_worker_at_rest_waits_for_nothing the_root_returns_last",
     mutant("AnswersBeforeItsChildren", "come_to_rest", ", ~self.waits(s, worker)", ""), TWO, ()),
    ("the_engaged_owe_one_answer deadlock_freedom",
     mutant("EngagesTheRoot", "take", "ite(s.engaged[worker],", "ite(s.engaged[worker] & ~s.root[worker],"), TWO, ()),
    ("nothing_begins_after_the_end",
     mutant("ShipsAtRest", "ship", "s.when(s.engaged[worker],", "s.when(s.outcome != Pass.AWAITED,"), TWO, ()),
    # The root.
    ("the_root_returns_last",
     mutant("ReturnsWhenItsWorkIsDone", "come_home", ", ~self.waits(s, worker)", ""), TWO, ()),
    ("deadlock_freedom",
     mutant("WaitsForTheLost", "hear_failed", "s.when(s.sent", "s.when(s.state[call] != Call.LOST, s.sent"), TWO,
     ("lose",)),
    ("after_an_error_nothing_is_left",
     mutant("TakesAfterFailing", "take", ", ~s.failed[worker]", ""), TWO, ("fail",)),
    ("after_an_error_nothing_is_left",
     mutant("RaisesBeforeTheyAnswer", "settle", "s.cancel[j] == Cancel.OVER", "s.cancel[j] == s.cancel[j]"), TWO,
     ("fail",)),
    ("after_an_error_nothing_is_left",  # a CANCEL that was given up counts as answered
     mutant("IsSureOfTheLost", "give_up_cancel", ", s.unsure = Cancel.OVER, True", " = Cancel.OVER"), TWO,
     ("fail", "lose")),
)
# fmt: on
MUTANTS = tuple((name, cls, sizes, faults) for names, cls, sizes, faults in ROWS for name in names.split())
TestModel = model_tests(of_plan(Engagements), MUTANTS, (Asked(Engagements, TRYSTATE, TWO, 89),))

# fmt: off
SENDS: dict[str, Any] = {"worker": 2, "call": 2, "send": 1}
NODES: dict[str, Any] = {"node": 3}
GRADIENTS: tuple[tuple[str, type[System], dict[str, Any]], ...] = (
    ("the_missing_are_counted unused_calls_are_an_error",
     altered("SaysNothingOfTheMissing", Deficits, "come_to_rest", "worker), s.owed[worker]", "worker), 0"), SENDS),
    ("the_missing_are_counted unused_calls_are_an_error",
     altered("ForgetsWhatAnswersCarry", Deficits, "hear", "ite(live, s.delta[call], 0)", "0"), SENDS),
    ("the_missing_are_counted unused_calls_are_an_error",
     altered("CountsBeforeItKnows", Deficits, "arrive", "as_int(s.gradient[send] == Send.MISSING)", "1"),
     SENDS | {"send": 2}),
    ("unused_calls_are_an_error",
     altered("ReturnsWithoutAGradient", Deficits, "come_home", ", s.owed[worker] == 0", ""), SENDS),
    ("nodes_run_on_whole_gradients",
     altered("RunsOnTheFirst", Gradients, "run", "self.is_ready(s, node)",
             "s.runs, ~s.ran[node], s.root[node] | (s.fed[node] > 0)"), NODES),
    ("nodes_run_on_whole_gradients gradients_are_right",
     altered("KeepsTheLast", Gradients, "arrive", "s.gradient[node] + s.gradient[source]", "s.gradient[source]"),
     NODES),
    ("inputs_are_counted",
     altered("RunsWhatIsNotCounted", Gradients, "run", "self.is_ready(s, node)",
             "s.runs, ~s.ran[node], s.fed[node] == self.waits_for(s, node)"), NODES),
)
# fmt: on


@pytest.mark.parametrize(("names", "cls", "sizes"), GRADIENTS, ids=lambda x: getattr(x, "__name__", ""))
def test_a_mistake_about_gradients_violates_its_properties(
    names: str, cls: type[System], sizes: dict[str, Any]
) -> None:
    assert violated(check(cls.__bases__[0](**sizes))) == set()
    assert {*names.split()} <= violated(check(cls(**sizes)))


# ---- the proof


def test_no_step_reads_a_history() -> None:
    """The lemmas' histories change neither the guard of a step nor its effects on the other fields."""
    sizes = {"worker": 3, "call": 2}
    plain, with_history = Engagements(faults=FAULTS, **sizes), Lemmas(faults=FAULTS, **sizes)
    histories = set(with_history.slots) - set(plain.slots)
    assert histories == {"above", "broke_off"}
    for one, other in zip(plain.transitions, with_history.transitions, strict=True):
        effects = {name: tree for name, tree in other.effects.items() if name not in histories}
        assert (one.name, one.guard, one.effects) == (other.name, other.guard, effects)


# ---- the passes over the graphs of the examples


def broken(cls: Any, edition: Edition | Mode, graph: str, faults: tuple[str, ...], attempts: int = 1) -> bool:
    """Does a pass take a step that no pass over any graph takes?"""
    fine = cls(edition=edition, faults=faults, graph=NUMBER[graph], attempt=attempts)
    return any(pass_refinement(fine, attempt).broken for attempt in range(attempts))


@pytest.mark.parametrize("edition", [TRYSTATE, SMART], ids=lambda edition: edition.name)
@pytest.mark.parametrize("graph", [graph.name for graph in a_third(GRAPHS)])
def test_a_pass_refines_that_over_any_graph(edition: Edition | Mode, graph: str) -> None:
    assert not broken(Backward, edition, graph, ())


@pytest.mark.parametrize("edition", [TRYSTATE, SMART], ids=lambda edition: edition.name)
def test_a_pass_over_a_small_graph_refines_that_over_any_graph(edition: Edition | Mode) -> None:
    for graph in [*small_graphs(2, 1)][:: 1 if NIGHTLY else 40]:
        assert not pass_refinement(Backward.over(graph)(edition=edition)).broken


@pytest.mark.parametrize("seed", range(by_night("drawn graphs", 1)))
def test_a_pass_over_a_drawn_graph_refines_that_over_any_graph(seed: int) -> None:
    graph = drawn_graph(f"drawn-{seed}", random.Random(seed).randrange)
    for edition in (TRYSTATE, SMART):
        assert not pass_refinement(Backward.over(graph)(edition=edition, faults=("late",))).broken


FAULTY: tuple[tuple[Edition | Mode, str, tuple[str, ...], int], ...] = (
    *((TRYSTATE, "joined", (fault,), 1) for fault in ALL),
    (SMART, "note", ("late",), 1), (TRYSTATE, "note", ("again",), 2), (TRYSTATE, "chain-2", ("late",), 2),
)  # fmt: skip


@pytest.mark.parametrize(("edition", "graph", "faults", "attempts"), FAULTY)
def test_a_pass_with_faults_refines_that_over_any_graph(
    edition: Edition | Mode, graph: str, faults: tuple[str, ...], attempts: int
) -> None:
    assert not broken(Backward, edition, graph, faults, attempts)


@pytest.mark.parametrize("fault", ALL)
def test_torchs_passes_refine_it_without_faults_and_not_with_one(fault: str) -> None:
    """With a fault, they raise before other workers have ended, or engage a worker of a failed pass again."""
    assert not broken(Torch, Edition.TORCH, "note", ())
    assert broken(Torch, Edition.TORCH, "note", (fault,))


def test_a_pass_with_every_fault_has_so_many_images() -> None:
    """A map that forgets more has fewer images and finds fewer mistakes."""
    seen = pass_refinement(Ours(faults=ALL, graph=NUMBER["note"]))
    assert (seen.fine_states, seen.coarse_states, seen.visible_steps, seen.broken) == (4288, 77, 201, ())
