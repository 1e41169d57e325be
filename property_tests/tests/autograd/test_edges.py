"""Containers and parts take every step of the model `Backward`, refuse what it forbids, and count as it does."""

from __future__ import annotations

from collections.abc import Iterable, Mapping

import pytest
from hypothesis import settings

from trystate.impl.autograd.container import Container
from trystate.impl.autograd.dependencies import DependencyCounts
from trystate.impl.autograd.local_pass import LocalPass
from trystate.model.autograd.backward import Backward
from trystate.model.autograd.examples import GRAPHS, small_graphs
from trystate.model.autograd.findings import ALL
from trystate.model.autograd.graphs import Graph
from trystate.model.autograd.vocabulary import Edition, Mode, NodeKind
from trystate.model.language.transitions import Rule
from trystate.property_tests.adapters.our_autograd.conformance import (
    LONG,
    PASS_CHECKS,
    SLICES,
    Slice,
    every_small,
    examples,
)
from trystate.property_tests.adapters.our_autograd.edges import Numbers, PassSteps
from trystate.property_tests.harness.paths import replay_every_edge
from trystate.property_tests.support import nightly
from trystate.property_tests.support.autograd import local_pass_mutants as mutants
from trystate.property_tests.support.marks import by_verify
from trystate.testing import state_machine

OURS = (Edition.TRYSTATE, Mode.SMART)


@by_verify
@pytest.mark.parametrize("check", PASS_CHECKS, ids=lambda check: check.name)
def test_containers_and_parts_do_what_the_model_says(check: object) -> None:
    outcome = check.run(lambda _: None)  # type: ignore[attr-defined]
    assert not outcome.disagreements
    assert outcome.compared > 100


@pytest.mark.skipif(not nightly.NIGHTLY, reason="millions of edges: under HYPOTHESIS_PROFILE=nightly")
@pytest.mark.parametrize("edition", OURS)
@pytest.mark.parametrize("one", LONG, ids=str)
def test_all_faults_together(one: Slice, edition: Edition | Mode) -> None:
    assert not examples(edition, [one], lambda _: None).disagreements


@pytest.mark.skipif(not nightly.NIGHTLY, reason="300 systems: under HYPOTHESIS_PROFILE=nightly")
@pytest.mark.parametrize("edition", OURS)
@pytest.mark.parametrize("size", [(2, 1), (3, 0)], ids=str)
def test_all_larger_graphs(size: tuple[int, int], edition: Edition | Mode) -> None:
    assert not every_small(edition, small_graphs(*size), lambda _: None).disagreements


def test_every_fault_of_the_model_is_in_a_slice() -> None:
    known = {rule.fault for rule in Backward.all_declarations().values() if isinstance(rule, Rule) and rule.fault}
    assert {fault for one in SLICES for fault in one.faults} == known


TWICE = Slice("crossed", ALL, 2).build(Mode.SMART)
TestSteps = state_machine(TWICE, lambda: PassSteps(TWICE)).TestCase
TestSteps.settings = settings(max_examples=nightly.examples(15), stateful_step_count=40)


# ---- dependency counts


def counted(graph: Graph, mode: Mode) -> list[int]:
    """The runtime's dependency count of each node; 0 for those that nobody counts on."""
    counts = [0] * len(graph.nodes)
    for worker in range(graph.workers):
        used = [s for s in graph.of(worker, NodeKind.SEND) if mode is Mode.FAST or graph.paths[s]]
        sources = [*graph.of(worker, NodeKind.ROOT), *used]
        work = DependencyCounts(Numbers(graph), [[(fed, 0) for fed in graph.nodes[k].feeds] for k in sources])
        for node, count in work.counts.items():
            counts[node] = count
        for send in used:
            counts[send] = 1  # a send waits for its recv
    return counts


@pytest.mark.parametrize("mode", Mode)
def test_dependency_counts_are_the_models(mode: Mode) -> None:
    graphs: Iterable[Graph] = (*GRAPHS, *small_graphs(2, 1), *small_graphs(3, 0))
    for graph in graphs:
        assert counted(graph, mode) == list(graph.counts(mode)), graph.name


# ---- what would be noticed


CHAIN = Slice("chain-3", ("die",))


def notices(container: type[Container], edition: Edition | Mode = Edition.TRYSTATE, one: Slice = CHAIN) -> bool:
    class Broken(PassSteps):
        container_class = container

    model = one.build(edition)
    replayed = replay_every_edge(model, Broken(model), refusals=True, repeats=False, stop_after=1)
    return bool(replayed.disagreements)


HIDDEN = (mutants.AnswersTwiceAlike,)  # the answer to a copy is no part of the model
PARTS = [local_pass for local_pass in (*mutants.PARTS, *mutants.UNSEEN) if local_pass not in HIDDEN]
SMART_ONLY = (mutants.MarksOnce, mutants.WaitsForAll)
# The slices that show mutants which a chain with a death does not show.
NESTED = Slice("nested")
SHOWN_BY: Mapping[type[LocalPass], Slice] = {
    mutants.TakesTwice: Slice("note", ("copy",), 2),
    mutants.KeepsGradients: Slice("note", ("die",), 2),
    mutants.EndsBeforeTheyAnswer: Slice("note", ("die",), 2),
    mutants.CountsOnlyItself: NESTED,
    mutants.DropsWhatAnAnswerCarries: NESTED,
    mutants.OwesNothing: NESTED,
    mutants.KeepsWhatItCannotCarry: Slice("served"),
    mutants.KeepsUntilItRests: Slice("parallel"),
}


@pytest.mark.parametrize("local_pass", PARTS, ids=lambda local_pass: local_pass.__name__)
def test_a_mutant_of_a_part_is_a_disagreement(local_pass: type[LocalPass]) -> None:
    edition = Mode.SMART if local_pass in SMART_ONLY else Edition.TRYSTATE
    assert notices(mutants.having(local_pass), edition, SHOWN_BY.get(local_pass, CHAIN))


def test_a_pass_that_begins_anew_is_a_disagreement() -> None:
    assert notices(mutants.NoFence)


def test_a_node_that_runs_on_its_first_gradient_is_a_disagreement(monkeypatch: pytest.MonkeyPatch) -> None:
    def spend(self: DependencyCounts, node: object, times: int = 1) -> None:
        self.counts[node] -= times
        self.ready[node] = None

    monkeypatch.setattr(DependencyCounts, "spend", spend)
    assert notices(Container, one=Slice("diamond"))


def test_an_edge_that_is_not_counted_is_a_disagreement(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(Numbers, "next_edges", lambda self, node: [(f, 0) for f in set(self._nodes[node].feeds)])
    note = GRAPHS[0]
    assert counted(note, Mode.FAST) != list(note.counts(Mode.FAST))
