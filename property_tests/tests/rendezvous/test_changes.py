"""Changes of the shared state, in words. The model's edges and the simulator's swarm make all other claims about them.

Each mutant of a change is detected by one of the three.
"""

from __future__ import annotations

from dataclasses import replace
from functools import cache
from typing import Any

import pytest

from trystate.impl.rendezvous import changes
from trystate.impl.rendezvous.encoding import decode, encode
from trystate.impl.rendezvous.state import REASON_LENGTH_MAX, Closed, Participant, Settings, State
from trystate.property_tests.adapters.our_rendezvous.parts import participant, settings, tokens
from trystate.property_tests.adapters.simulator.conformance import system
from trystate.property_tests.adapters.simulator.edges import EngineSteps
from trystate.property_tests.adapters.simulator.schedule import draw
from trystate.property_tests.adapters.simulator.swarm import run
from trystate.property_tests.harness.paths import explore_graph, replay_every_edge
from trystate.property_tests.support.mutants import generated, survives
from trystate.property_tests.support.nightly import a_third


def complete(*ks: int, agreed: Settings | None = None) -> State:
    """A complete round of these nodes."""
    state: State | None = None
    for k in ks:
        state = changes.add_to_participants(state, participant(k), agreed or settings(2, 3), "life")
    assert state is not None
    return state if state.complete else changes.mark_complete(state, participant(ks[0]))


def test_a_long_reason_is_cut_so_that_everybody_can_read_the_state() -> None:
    state = changes.mark_closed(complete(0, 1), participant(0), "x" * 5000, settings(), "life")
    assert state.closed is not None and state.closed.reason == "x" * REASON_LENGTH_MAX
    assert decode(encode(state)) == state


def test_a_cause_names_some_nodes_and_counts_the_others() -> None:
    state = complete(*range(9), agreed=settings(1, 9))
    lost = [f"token-{k}" for k in range(1, 9)]
    assert changes.expel(state, participant(0), lost).cause == (
        "node0_100_0 expelled node1_101_0, node2_102_0, node3_103_0, node4_104_0, node5_105_0 and 3 more: "
        "no heartbeat for 15 s"
    )
    long = replace(participant(0), node=replace(participant(0).node, address="x" * 1024))
    assert len(changes.replace_round(state, long).cause) == REASON_LENGTH_MAX
    wordy = replace(state, settings=settings(1, 9, max_restarts=0), participants=(long, *state.participants[1:]))
    closed = changes.expel(wordy, participant(1), ["token-0"]).closed
    assert closed is not None and len(closed.reason) == REASON_LENGTH_MAX


def test_the_order_of_ranks_counts_as_people_do_and_takes_any_address() -> None:
    def at(address: str, pid: int = 1) -> Participant:
        return replace(participant(0), node=replace(participant(0).node, address=address, pid=pid))

    names = ["", "10.0.0.2", "10.0.0.10", "node", "node2", "node2a", "node10", "²", "²²"]
    everybody: list[Any] = [at(name) for name in reversed(names)]
    assert [p.node.address for p in sorted(everybody, key=lambda p: p.node.order)] == [
        "", "node", "node2", "node2a", "node10", "²", "²²", "10.0.0.2", "10.0.0.10",
    ]  # fmt: skip
    assert sorted([at("a", 2), at("a", 1)], key=lambda p: p.node.order)[0].node.pid == 1


def causes_and_ends() -> None:
    """Each replaced round has its cause; without a restart left, the loss of a member closes the rendezvous."""
    state, me = complete(0, 1), participant(0)
    for after, why in (
        (changes.replace_round(state, me), "its agent restarts the workers"),
        (changes.replace_round(state, me, leased=False), "it comes back after the end of its lease"),
        (changes.replace_round(state, me, failed=True), "its workers failed"),
        (changes.give_notice(state, me, leaving=True), "it is about to leave"),
    ):
        assert after.cause == f"node0_100_0: {why}"
    assert changes.give_notice(state, me, leaving=False).cause.endswith("waited for a seat")
    last = complete(0, 1, agreed=settings(2, 3, max_restarts=0))
    for after, why in (
        (changes.withdraw(last, me), "a member left"),
        (changes.give_notice(last, me, leaving=True), "a member left"),
        (changes.replace_round(last, me, failed=True), "its workers failed"),
        (changes.expel(last, me, ["token-1"]), "no heartbeat of node1_101_0 for 15 s"),
    ):
        assert after.closed == Closed("node0_100_0", f"{why}, and no restart is left", "failed")
    for after in (
        changes.replace_round(last, me),
        changes.give_notice(last, me, leaving=False),
        changes.expel(changes.add_to_wait_list(last, participant(2)), me, ["token-2"]),
        changes.withdraw(state, me),
    ):
        assert after.closed is None
    done = changes.mark_done(last, me)
    assert (done.closed, done.revision) == (None, last.revision)
    assert changes.mark_done(done, participant(1)).done == ("token-0", "token-1")
    assert changes.mark_closed(None, me, "over", settings(), "life").closed is not None


def seats_and_restarts() -> None:
    """A waiting node that leaves moves no other into a complete round; other settings begin with all restarts."""
    waiting = changes.add_to_wait_list(complete(0, 1, agreed=settings(2, 4)), participant(2))
    left = changes.withdraw(changes.add_to_wait_list(waiting, participant(3)), participant(2))
    assert (tokens(left.participants), tokens(left.waiting)) == (["token-0", "token-1"], ["token-3"])
    empty = State("life", settings(1, 2, max_restarts=3), spent=2)
    for agreed, spent in ((empty.settings, 2), (settings(1, 2, max_restarts=4), 0)):
        assert changes.add_to_participants(empty, participant(0), agreed, "life").spent == spent


WORDS = (causes_and_ends, seats_and_restarts)


@pytest.mark.parametrize("claim", WORDS, ids=lambda claim: claim.__name__)
def test_a_change_does_what_is_said_of_it(claim: Any) -> None:
    claim()


# ---- every mutant is noticed

# Slices of the model whose edges take the changes, the smallest first.
SLICES = (
    ("2 2:2", ("worker_failure",)), ("2 1:1", ("drain",)), ("2 2:2", ("rank_key",)), ("2 1:2", ("other_min",)),
    ("2 1:2", ("crash",)), ("2 1:2", ("job_end",)), ("2 1:2", ("join_timeout",)), ("3 2:3", ()), ("2 1:2", ("drain",)),
    ("2 1:2", ("health_check", "unhealthy", "worker_failure")),
)  # fmt: skip


@cache
def explored() -> list[Any]:
    return [(model := system(*one), explore_graph(model)) for one in SLICES]


def changes_are_as_said() -> None:
    for claim in WORDS:
        claim()
    assert not any(run(draw(seed)).fails for seed in range(20))
    for model, graph in explored():
        found = replay_every_edge(
            model, EngineSteps(model), refusals=False, repeats=False, stop_after=1, explored=graph
        )
        assert not found.disagreements


FUNCTIONS = [made for made in vars(changes).values() if getattr(made, "__module__", "") == changes.__name__]
MUTANTS = {name: mutant for function in FUNCTIONS for name, mutant in generated(function).items()}
# A rendezvous without any restarts is closed before one is spent.
SURVIVES = "_with_restart_spent: state.settings.max_restarts >= 0 -> state.settings.max_restarts > 0"


@pytest.mark.parametrize("name", a_third([*MUTANTS]))
def test_every_mutant_of_a_change_is_noticed(name: str) -> None:
    assert survives(MUTANTS[name], changes_are_as_said) is (name == SURVIVES)
