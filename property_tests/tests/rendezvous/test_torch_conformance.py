"""The model and the installed torch agree in every context of an operator and along every edge."""

from __future__ import annotations

from pathlib import Path

import pytest

from trystate.model.rendezvous.differences import seed_differences
from trystate.model.rendezvous.holder import Holders
from trystate.model.rendezvous.operators import OPERATORS
from trystate.model.rendezvous.vocabulary import Action, Edition, Membership
from trystate.property_tests.adapters.torch_rendezvous.conformance import CHECKS, gaps
from trystate.property_tests.adapters.torch_rendezvous.contexts import Compared, Context, Observed, compare
from trystate.property_tests.adapters.torch_rendezvous.executors import TorchHolders
from trystate.property_tests.harness.checks import Check
from trystate.property_tests.harness.paths import replay_every_edge
from trystate.property_tests.support.nightly import NIGHTLY, by_verify

TORCH = OPERATORS[Edition.TORCH]
PAGE = Path(__file__).parents[3] / "docs" / "editions.md"

COMPARED = {  # each check, by its name
    "join operator": (327_680, "contexts"),
    "exit operator": (327_680, "contexts"),
    "close operator": (327_680, "contexts"),
    "keep-alive operator": (327_680, "contexts"),
    "state holders and executors": (14_364, "edges"),
    "calls other than heartbeats": (15_693, "edges"),
    "jobs at one endpoint": (32, "edges"),
}


@by_verify
@pytest.mark.parametrize(("check", "name"), [*zip(CHECKS, COMPARED, strict=True)], ids=[*COMPARED])
def test_torch_does_what_the_model_says(check: Check, name: str) -> None:
    assert check.name == name
    outcome = check.run(lambda _: None)
    assert not outcome.disagreements
    assert (outcome.compared, outcome.unit) == COMPARED[name]


# Every action changes a copy in the first row; a round may fall below min in the next two.
EDGES = [(1, 1, "worker_failure")]
if NIGHTLY:
    EDGES += [(2, 2, "crash"), (2, 2, "join_timeout")]
    EDGES += [(1, 2, "job_end"), (1, 2, "join_timeout"), (1, 2, "crash"), (2, 2, "worker_failure")]
# A sample by day: each mutant of an executor that shows under this fault does so within the first 3,807 edges.
EDGES_MAX = None if NIGHTLY else 20_000


@pytest.mark.parametrize(("low", "high", "fault"), EDGES)
def test_torch_takes_every_edge_under_a_fault(low: int, high: int, fault: str) -> None:
    system = Holders(node=2, min_nodes=low, max_nodes=high, rounds=2, edition="torch", faults=[fault])
    with TorchHolders(system) as subject:
        seen = replay_every_edge(system, subject, refusals=False, repeats=False, edges_max=EDGES_MAX)
    assert not seen.disagreements
    assert seen.edges >= 20_000


# ---- the text of a comparison

CONTEXT = Context((Membership.OUTSIDE,) * 4, "fresh", False, True, "no last call", "in time", (2, 3))


def test_a_context_that_was_declared_impossible_is_a_disagreement() -> None:
    table = TORCH["join"]
    atoms = tuple(a.name for a in table.atoms)
    seen = Observed(atoms, 1, {tuple(name in ("participant", "waiting") for name in atoms): {Action.SYNC: CONTEXT}})
    (said,) = compare(table, seen).disagreements
    assert said.startswith("join: declared impossible, but reached: nodes [OUTSIDE")


def test_a_step_that_was_never_compared_is_a_disagreement() -> None:
    compared = compare(TORCH["close"], Observed(("closed", "late"), 1, {(True, False): {Action.FINISH: CONTEXT}}))
    assert compared == Compared(1, 1, (1, 0, 0), ((False, False), (False, True), (True, True)), ())
    assert gaps("close", compared) == [
        "close: row 2 was never compared",
        "close: row 3 was never compared",
        "close: 3 valuations that the table allows were never compared",
    ]


# ---- the editions


@pytest.mark.skipif(not PAGE.is_file(), reason="needs a clone: a wheel holds packages only")
def test_the_differences_of_the_editions_are_these() -> None:
    _, _, *rows = (line for line in PAGE.read_text(encoding="utf-8").splitlines() if line.startswith("| "))
    found = [line.replace("\\|", "|").strip("| ").replace("`", "").split(" | ") for line in rows]
    said = [str(d).split(": ") for d in seed_differences()]
    assert [f"SEED {seed}, TORCH {torch}" for _, _, seed, torch in found] == [pair for _, _, pair in said]
    assert [(operator, when) for operator, when, _, _ in found] == [(operator, when) for operator, when, _ in said]
