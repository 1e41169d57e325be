"""The edition SEED and the program of torch 1.10 agree in every context of an operator and along every edge."""

from __future__ import annotations

from typing import Any

import pytest

from trystate.model.checker.interpret import Interpreter
from trystate.model.checker.walks import Walk
from trystate.model.rendezvous.examples import SCALE_UP, WALKS
from trystate.model.rendezvous.holder import Holders
from trystate.property_tests.adapters.seed_rendezvous import engine
from trystate.property_tests.adapters.seed_rendezvous.conformance import CHECKS
from trystate.property_tests.adapters.seed_rendezvous.executors import SeedHolders, Versions
from trystate.property_tests.harness.paths import replay_every_edge
from trystate.property_tests.harness.side_by_side import SideBySide
from trystate.property_tests.harness.subjects import Disagreement
from trystate.property_tests.support.marks import by_verify
from trystate.property_tests.support.mutants import planted, rewritten
from trystate.property_tests.support.nightly import NIGHTLY
from trystate.property_tests.support.runs import replay

COMPARED = {
    "torch 1.10's operators": (414_720 if NIGHTLY else 103_680, "contexts"),
    "torch 1.10's state holders and executors": (14_364 if NIGHTLY else 500, "edges"),
    "torch 1.10's calls other than heartbeats": (15_693 if NIGHTLY else 500, "edges"),
}


@by_verify
@pytest.mark.parametrize("check", CHECKS, ids=lambda check: check.name)
def test_the_program_does_what_the_edition_says(check: Any) -> None:
    outcome = check.run(lambda _: None, sample=not NIGHTLY)
    assert not outcome.disagreements
    assert (outcome.compared, outcome.unit) == COMPARED[check.name]


# With a quorum of one participant, only the first edges are compared: MISSED has differences of later ones.
EDGES: list[tuple[int, str, int | None]] = [(2, "worker_failure", 3_000)]
if NIGHTLY:
    EDGES += [(2, "worker_failure", None), (2, "crash", None), (2, "job_end", None)]
    EDGES += [(1, fault, 20_000) for fault in ("worker_failure", "join_timeout", "crash")]


def holders(low: int, *faults: str) -> Holders:
    return Holders(node=2, min_nodes=low, max_nodes=2, rounds=2, edition="seed", faults=faults)


@pytest.mark.parametrize(("low", "fault", "edges_max"), EDGES)
def test_the_program_takes_every_edge_under_a_fault(low: int, fault: str, edges_max: int | None) -> None:
    system = holders(low, fault)
    seen = replay_every_edge(system, SeedHolders(system), refusals=False, repeats=False, edges_max=edges_max)
    assert not seen.disagreements
    assert seen.edges >= (20_000 if edges_max is None else edges_max)


# The model counts writes. The article's backend compares bytes, and does not notice two writes that restore them.
MISSED: dict[str, tuple[str, str, str]] = {
    "a write that lost is told as won": ("worker_failure", r"^told_won\[0\]: model no, subject yes", """
        begin(0) read(0) decide(0) conclude(0) begin_from_cache(0) decide(0) act_add_to_participants(0) write_wins(0)
        decide(0) last_call_passes() read(0) decide(0) act_mark_complete(0)
        begin(1) read(1) decide(1) conclude(1) begin_from_cache(1) decide(1) act_add_to_participants(1) write_wins(1)
        decide(1) conclude(1) worker_fails(1) begin(1) read(1) decide(1) act_remove_from_participants(1) write_wins(1)
        decide(1) write_loses(0)"""),
    "an old token is good again": ("join_timeout", r"^token\[0\]: model OLD, subject GOOD", """
        begin(0) read(0) decide(0) conclude(0) begin_from_cache(0) decide(0) act_add_to_participants(0) write_wins(0)
        decide(0) last_call_passes() read(0) decide(0) act_mark_complete(0) write_wins(0) decide(0) conclude(0)
        begin(1) read(1) decide(1) conclude(1) begin(1) read(1) decide(1) act_add_to_wait_list(1) begin(0) read(0)
        write_wins(1) decide(1) join_deadline_passes(1)
        read(1) decide(1) act_remove_from_wait_list(1) write_wins(1)"""),
}  # fmt: skip


@pytest.mark.parametrize("name", MISSED)
def test_where_the_model_is_coarser_than_the_program_is_known(name: str) -> None:
    fault, said, steps = MISSED[name]
    system = holders(1, fault)
    interpreter = Interpreter(system)
    instances = {instance.label: instance for instance in interpreter.kernel.instances}
    both = SideBySide(interpreter, SeedHolders(system))
    both.reset()
    state = system.initial_states[0]
    *before, last = (step.removesuffix("()") for step in steps.split())
    for label in before:
        state = interpreter.step(instances[label], state) or pytest.fail(f"no step {label}")
        both.take(instances[label])
        both.compare(state)
    state = interpreter.step(instances[last], state) or pytest.fail(f"no step {last}")
    both.take(instances[last])
    with pytest.raises(Disagreement, match=said):
        both.compare(state)


@pytest.mark.parametrize("walk", WALKS, ids=lambda walk: walk.name)
def test_the_steps_of_the_articles_pictures_are_those_of_the_program(walk: Walk) -> None:
    assert replay(walk, SeedHolders) > len(walk.steps)


def test_a_program_that_lists_no_newcomer_differs_from_the_article() -> None:
    with (
        planted(rewritten(engine.Join.__call__, "and at.node not in state.wait_list", "and False")),
        pytest.raises(Disagreement),
    ):
        replay(SCALE_UP, SeedHolders)


# ---- the token of the program


def test_two_writes_that_restore_a_state_let_an_old_token_win() -> None:
    """The token is the text: a node that has read it before the two writes does not notice them."""
    store = Versions()
    one, other = engine.Backend(store), engine.Backend(store)
    _, token, _ = one.set_state(b"first", None) or pytest.fail()
    _, later, _ = other.set_state(b"second", token) or pytest.fail()
    other.set_state(b"first", later)
    assert store.version == 3
    assert one.set_state(b"third", token) == (b"third", b"dGhpcmQ=", True)
