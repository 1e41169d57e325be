"""The agent's decisions take every step of the model `Agents` and refuse the others; mutants are detected."""

from __future__ import annotations

from collections.abc import Iterable
from functools import cache

import pytest
from hypothesis import settings

from trystate.impl.rendezvous import intents
from trystate.impl.rendezvous.changes import Table
from trystate.impl.rendezvous.engine import Engine
from trystate.model.agent import Agents, Edition
from trystate.model.checker.explicit.graph import Explored
from trystate.model.checker.interpret import Interpreter
from trystate.property_tests.adapters.our_agent.conformance import CHECKS, FAULTS, FEW, LONG, Slice, compare
from trystate.property_tests.adapters.our_agent.edges import AgentSteps
from trystate.property_tests.harness.checks import Check
from trystate.property_tests.harness.paths import explore_graph, replay_every_edge
from trystate.property_tests.support.mutants import rewritten, survivors
from trystate.property_tests.support.nightly import NIGHTLY, by_verify, examples
from trystate.testing import state_machine

FEWEST = CHECKS[1]  # with two faults; by day the other checks take a sample


@by_verify
@pytest.mark.parametrize("check", CHECKS, ids=lambda check: check.name)
def test_the_agent_does_what_the_model_says(check: Check) -> None:
    outcome = check.run(lambda _: None, sample=not NIGHTLY and check is not FEWEST)
    assert not outcome.disagreements
    assert outcome.compared > (5_000 if NIGHTLY or check is FEWEST else 150)


@pytest.mark.skipif(not NIGHTLY, reason="700,000 edges: under HYPOTHESIS_PROFILE=nightly")
@pytest.mark.parametrize("one", LONG, ids=str)
def test_so_it_does_in_larger_ones(one: Slice) -> None:
    assert not compare((one,), lambda _: None).disagreements


def test_every_step_is_taken_and_every_decision_is_refused_once() -> None:
    taken: set[str] = set()
    for one in (*LOOKED_AT, *FEW):
        instances = Interpreter(one.build()).kernel.instances
        taken |= {instances[number].transition.name for number in set(graph(one).graph.number.tolist())}
    assert taken == {t.name for t in Agents(edition=Edition.TRYSTATE, faults=FAULTS).transitions}


ALL = Slice("2 1:2", FAULTS)
TestSteps = state_machine(ALL.build(), lambda: AgentSteps(ALL.build())).TestCase
TestSteps.settings = settings(max_examples=examples(15), stateful_step_count=30)


# ---- mutants

LOOKED_AT = (
    Slice("2 1:2", ("worker_failure",)), Slice("2 2:2", ("outage", "deaf")), Slice("2 2:2", ("signal",)),
    Slice("2 2:2", ("stall",)), Slice("2 2:2", ("final_failure",)), Slice("2 1:1", ("freeze", "deaf")),
    Slice("2 1:2", ("freeze", "deaf")),
)  # fmt: skip


@cache
def graph(one: Slice) -> Explored:
    return explore_graph(one.build())


def agrees(slices: Iterable[Slice] = LOOKED_AT) -> None:
    """Raises at the first disagreement, or the subject's own exception."""
    for one in slices:
        model = one.build()
        found = replay_every_edge(
            model, AgentSteps(model), refusals=True, repeats=False, stop_after=1, explored=graph(one)
        ).disagreements
        assert not found


ENGINES = {
    "a member that is done replaces the round when it leaves": rewritten(
        intents.change_of, "token not in t.done and kind == NOTICE", "kind == NOTICE"
    ),
    "a final failure spends a restart": rewritten(
        intents.change_of, "kind == JOIN and failed and intent.reason", "False"
    ),
    "a final failure closes without a verdict": rewritten(Table.fail_for_good, '"failed"', '""'),
    "a closed round is current": rewritten(Engine.standing, "return Standing.CLOSED", "pass"),
    "a replaced round is current": rewritten(Engine.standing, "return Standing.REPLACED", "pass"),
}


def test_every_mutant_of_what_the_engine_adds_is_a_disagreement() -> None:
    """The mutants of the decisions are in test_core.py."""
    assert survivors(ENGINES, agrees) == []


RARE = {
    "a failure without a lease spends": (rewritten(intents.exit_flags, "failed and leased", "failed"), FEW[0]),
    "a success is discarded for a node that waits": (
        rewritten(Engine._has_room, " and not state.done", ""),
        Slice("3 2:3"),
    ),
}


@pytest.mark.parametrize("name", RARE)
def test_so_is_one_that_takes_two_faults_or_three_nodes(name: str) -> None:
    mutant, one = RARE[name]
    assert survivors({name: mutant}, lambda: agrees((one,))) == []
