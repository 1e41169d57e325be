"""The model and the installed torch agree, in every context of an operator and along every edge."""

from __future__ import annotations

from collections.abc import Callable
from functools import cache
from itertools import product

import pytest

from trystate.model.checker.explicit.engine import ExplicitEngine
from trystate.model.checker.explicit.graph import Explored
from trystate.model.checker.kernel import Kernel, Limits
from trystate.model.errors import LimitReached, UsageError
from trystate.model.language import System
from trystate.model.rendezvous.differences import seed_differences
from trystate.model.rendezvous.holder import Holders
from trystate.model.rendezvous.operators import OPERATORS
from trystate.model.rendezvous.vocabulary import Action, Edition, Membership
from trystate.property_tests.adapters.torch_rendezvous.conformance import CHECKS, gaps
from trystate.property_tests.adapters.torch_rendezvous.contexts import Compared, Context, Observed, compare
from trystate.property_tests.adapters.torch_rendezvous.executors import TorchHolders
from trystate.property_tests.harness.paths import Walk, covering_walks, explore_graph, replay_every_edge
from trystate.property_tests.support.marks import by_verify
from trystate.property_tests.support.nightly import NIGHTLY
from trystate.property_tests.support.systems.jugs import Jugs
from trystate.property_tests.support.systems.two_phase_commit import TwoPhaseCommit

SEED, TORCH = OPERATORS[Edition.SEED], OPERATORS[Edition.TORCH]

COMPARED = {
    "join operator": (327_680, "contexts"),
    "exit operator": (327_680, "contexts"),
    "close operator": (327_680, "contexts"),
    "keep-alive operator": (327_680, "contexts"),
    "state holders and executors": (14_364, "edges"),
    "calls beside heartbeats": (15_693, "edges"),
    "rendezvous over etcd": (14_230, "edges"),
    "jobs at one endpoint": (32, "edges"),
}


@by_verify
@pytest.mark.parametrize("name", COMPARED)
def test_torch_does_what_the_model_says(name: str) -> None:
    check = next(check for check in CHECKS if check.name == name)
    outcome = check.run(lambda _: None)
    assert not outcome.disagreements
    assert (outcome.compared, outcome.unit) == COMPARED[name]


def test_every_check_is_pinned() -> None:
    assert [check.name for check in CHECKS] == list(COMPARED)


# The first takes every action of a copy; the two after it have a member that may die below min.
EDGES = [(1, 1, "worker_failure")]
if NIGHTLY:
    EDGES += [(2, 2, "crash"), (2, 2, "join_timeout")]
    EDGES += [(1, 2, "job_end"), (1, 2, "join_timeout"), (1, 2, "crash"), (2, 2, "worker_failure")]
# By day a sample: each mutant of an executor that shows under this fault does so within the first 3,807 edges.
EDGES_MAX = None if NIGHTLY else 20_000


@pytest.mark.parametrize(("low", "high", "fault"), EDGES)
def test_torch_takes_every_edge_under_a_fault(low: int, high: int, fault: str) -> None:
    system = Holders(node=2, min_nodes=low, max_nodes=high, rounds=2, edition="torch", faults=[fault])
    with TorchHolders(system) as subject:
        seen = replay_every_edge(system, subject, refusals=False, repeats=False, edges_max=EDGES_MAX)
    assert not seen.disagreements
    assert seen.edges >= 20_000


# ---- what a comparison says

CONTEXT = Context((Membership.OUTSIDE,) * 4, "fresh", False, True, "no last call", "in time", (2, 3))


def test_a_disagreement_names_the_context_and_both_answers() -> None:
    seen = Observed(("closed", "late"), 1, {(True, False): {Action.SYNC: CONTEXT, "raises KeyError": CONTEXT}})
    said = f"close: {CONTEXT}: row 1 says FINISH, "
    assert str(CONTEXT) == "nodes [OUTSIDE, OUTSIDE, OUTSIDE, OUTSIDE] of 2:3 closed; fresh; no last call; in time"
    assert compare(TORCH["close"], seen).disagreements == (f"{said}torch SYNC", f"{said}torch raises KeyError")


def test_a_context_that_was_declared_impossible_is_a_disagreement() -> None:
    table = TORCH["join"]
    atoms = tuple(a.name for a in table.atoms)
    seen = Observed(atoms, 1, {tuple(name in ("participant", "waiting") for name in atoms): {Action.SYNC: CONTEXT}})
    (said,) = compare(table, seen).disagreements
    assert said.startswith("join: declared impossible, but reached: nodes [OUTSIDE")


def test_what_was_never_compared_is_a_disagreement() -> None:
    seen = Observed(("closed", "late"), 1, {(True, False): {Action.FINISH: CONTEXT}})
    compared = compare(TORCH["close"], seen)
    assert compared == Compared(1, 1, (1, 0, 0), ((False, False), (False, True), (True, True)), ())
    assert gaps("close", compared) == [
        "close: row 2 was never compared",
        "close: row 3 was never compared",
        "close: 3 valuations that the table allows were never compared",
    ]


# ---- walks


SYSTEMS: dict[str, Callable[[], System]] = {
    "Jugs": Jugs,
    "TwoPhaseCommit": lambda: TwoPhaseCommit(rm=3),
    "Holders": lambda: Holders(node=2, min_nodes=2, max_nodes=2, rounds=2, edition="torch"),
}


@cache
def covered(name: str) -> tuple[Explored, list[Walk]]:
    explored = explore_graph(SYSTEMS[name]())
    return explored, [*covering_walks(explored)]


@pytest.mark.parametrize("name", SYSTEMS)
def test_the_walks_begin_at_the_beginning_and_together_take_every_edge(name: str) -> None:
    explored, walks = covered(name)
    graph = explored.graph
    edges = {
        (state, int(number), int(after))
        for state in range(graph.size)
        for after, number in zip(*graph.out(state), strict=True)
    }
    taken = set()
    for walk in walks:
        assert walk.start in explored.initial
        taken |= set(zip((walk.start, *walk.states), walk.steps, walk.states, strict=False))
    assert taken == edges
    assert len(edges) == len(graph.after)


def test_two_state_holders_take_fewer_than_five_steps_per_edge() -> None:
    explored, walks = covered("Holders")
    assert sum(len(walk.steps) for walk in walks) < 5 * len(explored.graph.after)


def test_a_state_has_a_number_and_only_a_reachable_one() -> None:
    system = Jugs()
    explored = explore_graph(system)
    assert [explored.number(explored.state(k)) for k in range(16)] == list(range(16))
    assert explored.initial == tuple(explored.number(s) for s in system.initial_states)
    with pytest.raises(UsageError, match=r"\(1, 1\) is not among the 16 reachable states"):
        explored.number((1, 1))


def test_only_a_complete_exploration_of_every_state_has_a_graph() -> None:
    with pytest.raises(LimitReached, match=r"Jugs.*stopped at .* a smaller system"):
        explore_graph(Jugs(), Limits(states=3))
    engine = ExplicitEngine(Kernel(Jugs()), Limits())
    with pytest.raises(UsageError, match="explore completely first"):
        engine.explored()
    reduced = ExplicitEngine(Kernel(TwoPhaseCommit(rm=3)), Limits(), symmetry=True)
    reduced.explore([])
    with pytest.raises(UsageError, match="under symmetry a state stands for several"):
        reduced.explored()


# ---- the editions


def test_the_differences_of_the_editions_are_these() -> None:
    said = [str(d).split(": ") for d in seed_differences()]
    assert "\n".join(f"{operator}: {pair}\n  {when}" for operator, when, pair in said) == DIFFERENCES.strip()


def test_the_differences_are_exactly_where_the_editions_decide_differently() -> None:
    found = seed_differences()
    for name, torch in TORCH.items():
        seed = SEED[name]
        atoms = list(dict.fromkeys(a.name for a in (*torch.atoms, *seed.atoms)))
        for bits in product((False, True), repeat=len(atoms)):
            held = dict(zip(atoms, bits, strict=True))
            if any(all(held[k] is v for k, v in cube.items()) for cube in (*seed.impossible, *torch.impossible)):
                continue
            decided = seed.decide(held), torch.decide(held)
            said = {
                (d.seed, d.torch)
                for d in found
                if d.operator == name and all(held[atom.name] is value for atom, value in d.when)
            }
            assert said == ({decided} if decided[0] is not decided[1] else set())


DIFFERENCES = """
join: SEED TYPE_ERROR, TORCH SYNC
  ¬(closed) ∧ ¬(complete) ∧ node ∈ P ∧ ¬(now > deadline) ∧ |P| ≥ min ∧ ¬(heartbeat due) ∧ ¬(last call set)
join: SEED TYPE_ERROR, TORCH KEEP_ALIVE
  ¬(closed) ∧ ¬(complete) ∧ node ∈ P ∧ ¬(now > deadline) ∧ |P| ≥ min ∧ heartbeat due ∧ ¬(last call set)
join: SEED MARK_RENDEZVOUS_COMPLETE, TORCH SYNC
  ¬(closed) ∧ ¬(complete) ∧ node ∈ P ∧ ¬(now > deadline) ∧ ¬(|P| ≤ max) ∧ |P| ≥ min ∧ last call over ∧ ¬(heartbeat due)
join: SEED MARK_RENDEZVOUS_COMPLETE, TORCH KEEP_ALIVE
  ¬(closed) ∧ ¬(complete) ∧ node ∈ P ∧ ¬(now > deadline) ∧ ¬(|P| ≤ max) ∧ |P| ≥ min ∧ last call over ∧ heartbeat due
join: SEED SYNC, TORCH ADD_TO_REDUNDANCY_LIST
  ¬(closed) ∧ ¬(node ∈ R) ∧ complete ∧ ¬(node ∈ P) ∧ ¬(now > deadline) ∧ ¬(node ∈ W) ∧ ¬(|P| < max) ∧ ¬(heartbeat due)
join: SEED KEEP_ALIVE, TORCH ADD_TO_REDUNDANCY_LIST
  ¬(closed) ∧ ¬(node ∈ R) ∧ complete ∧ ¬(node ∈ P) ∧ ¬(now > deadline) ∧ ¬(node ∈ W) ∧ ¬(|P| < max) ∧ heartbeat due
join: SEED ADD_TO_PARTICIPANTS, TORCH REMOVE_FROM_REDUNDANCY_LIST
  ¬(closed) ∧ node ∈ R ∧ ¬(complete) ∧ ¬(now > deadline) ∧ ¬(|P| ≤ max)
join: SEED ADD_TO_PARTICIPANTS, TORCH REMOVE_FROM_REDUNDANCY_LIST
  ¬(closed) ∧ node ∈ R ∧ ¬(complete) ∧ ¬(now > deadline) ∧ |P| < max
join: SEED ADD_TO_PARTICIPANTS, TORCH SYNC
  ¬(closed) ∧ node ∈ R ∧ ¬(complete) ∧ ¬(now > deadline) ∧ ¬(|P| < max) ∧ |P| ≤ max ∧ ¬(heartbeat due)
join: SEED ADD_TO_PARTICIPANTS, TORCH KEEP_ALIVE
  ¬(closed) ∧ node ∈ R ∧ ¬(complete) ∧ ¬(now > deadline) ∧ ¬(|P| < max) ∧ |P| ≤ max ∧ heartbeat due
join: SEED ERROR_TIMEOUT, TORCH REMOVE_FROM_REDUNDANCY_LIST
  ¬(closed) ∧ node ∈ R ∧ now > deadline ∧ ¬(|P| ≤ max)
join: SEED ERROR_TIMEOUT, TORCH REMOVE_FROM_REDUNDANCY_LIST
  ¬(closed) ∧ node ∈ R ∧ now > deadline ∧ |P| < max
join: SEED ERROR_TIMEOUT, TORCH SYNC
  ¬(closed) ∧ node ∈ R ∧ now > deadline ∧ ¬(|P| < max) ∧ |P| ≤ max ∧ ¬(heartbeat due)
join: SEED ERROR_TIMEOUT, TORCH KEEP_ALIVE
  ¬(closed) ∧ node ∈ R ∧ now > deadline ∧ ¬(|P| < max) ∧ |P| ≤ max ∧ heartbeat due
join: SEED SYNC, TORCH REMOVE_FROM_REDUNDANCY_LIST
  ¬(closed) ∧ node ∈ R ∧ complete ∧ ¬(now > deadline) ∧ ¬(|P| ≤ max) ∧ ¬(heartbeat due)
join: SEED KEEP_ALIVE, TORCH REMOVE_FROM_REDUNDANCY_LIST
  ¬(closed) ∧ node ∈ R ∧ complete ∧ ¬(now > deadline) ∧ ¬(|P| ≤ max) ∧ heartbeat due
join: SEED ADD_TO_WAIT_LIST, TORCH REMOVE_FROM_REDUNDANCY_LIST
  ¬(closed) ∧ node ∈ R ∧ complete ∧ ¬(now > deadline) ∧ |P| < max
join: SEED ERROR_CLOSED, TORCH GRACEFUL_EXIT
  closed ∧ node ∈ R
"""
