"""The engine takes every step of the model, and refuses what the model forbids."""

from __future__ import annotations

from contextlib import nullcontext
from itertools import combinations

import pytest
from hypothesis import settings
from torch._C._distributed_c10d import HashStore
from torch.distributed.elastic.rendezvous.c10d_rendezvous_backend import C10dRendezvousBackend
from torch.distributed.elastic.rendezvous.dynamic_rendezvous import DynamicRendezvousHandler

from trystate.impl.rendezvous import operators, state
from trystate.impl.rendezvous.changes import Table
from trystate.impl.rendezvous.engine import Engine
from trystate.impl.rendezvous.errors import RendezvousSettingsError
from trystate.impl.rendezvous.operators import View
from trystate.impl.rendezvous.state import Settings
from trystate.model.checker.check import check
from trystate.model.rendezvous import Edition, Rendezvous
from trystate.model.rendezvous.findings import EVERY_FAULT, EVERY_FAULT_BUT_OTHER_MIN
from trystate.model.rendezvous.vocabulary import Action
from trystate.property_tests.adapters.simulator.conformance import CHECKS, SLICES, replay, system
from trystate.property_tests.adapters.simulator.edges import EngineSteps, engine
from trystate.property_tests.harness.checks import Check
from trystate.property_tests.harness.paths import replay_every_edge
from trystate.property_tests.support.mutants import Mutant, planted, replaced, rewritten
from trystate.property_tests.support.nightly import NIGHTLY, by_verify, examples
from trystate.property_tests.support.pinned import violated
from trystate.testing import state_machine


@by_verify
@pytest.mark.parametrize("check", CHECKS, ids=lambda check: check.name)
def test_the_engine_does_what_the_model_says(check: Check) -> None:
    outcome = check.run(lambda _: None)
    assert not outcome.disagreements
    assert outcome.compared > (500 if check is CHECKS[-1] else 2_000)


@pytest.mark.skipif(not NIGHTLY, reason="two hundred thousand edges: under HYPOTHESIS_PROFILE=nightly")
@pytest.mark.parametrize("size", ["3 1:2", "3 2:3"])
def test_a_drained_node_beside_two_others(size: str) -> None:
    assert not replay(((size, ("drain",)),), lambda _: None).disagreements


@pytest.mark.skipif(not NIGHTLY, reason="a million edges: under HYPOTHESIS_PROFILE=nightly")
@pytest.mark.parametrize("faults", [*combinations(EVERY_FAULT_BUT_OTHER_MIN, 3)], ids=" ".join)
def test_any_three_faults_together(faults: tuple[str, ...]) -> None:
    assert not replay((("2 2:2", faults),), lambda _: None).disagreements


def ours(low: int, high: int) -> None:
    engine(0, 0, Settings(low, high))


def torchs(low: int, high: int) -> None:
    backend = C10dRendezvousBackend(HashStore(), "job")
    DynamicRendezvousHandler.from_backend("job", HashStore(), backend, low, high)


STARTS = {Edition.TRYSTATE: ours, Edition.TORCH: torchs}


@pytest.mark.parametrize("edition", STARTS)
@pytest.mark.parametrize(("low", "high"), [(1, 2), (1, 1), (2, 2)])
def test_a_min_above_max_is_refused_where_a_node_starts(low: int, high: int, edition: Edition) -> None:
    """With min = max, nodes with min + 1 would complete a full round below the min that they agree on."""
    report = check(
        Rendezvous(node=2, min_nodes=low, max_nodes=high, edition=edition, faults={"other_min": 2}), engine="explicit"
    )
    assert "at_least_min" not in violated(report)
    accepted = low < high
    assert ("start_with_other_min" not in report.never_fired) is accepted
    with nullcontext() if accepted else pytest.raises(ValueError):
        STARTS[edition](low + 1, high)


@pytest.mark.parametrize(("low", "high"), [(3, 2), (0, 2), (1, 0), (-1, -2)])
def test_settings_without_a_possible_round_are_refused_with_the_remedy(low: int, high: int) -> None:
    with pytest.raises(RendezvousSettingsError, match=f"--nnodes={low}:{high}: .* give .* 1 <= MIN <= MAX"):
        ours(low, high)


def test_every_fault_has_a_slice() -> None:
    assert {fault for _, faults in SLICES["two nodes"] for fault in faults} >= set(EVERY_FAULT)


TestSteps = state_machine(
    system("2 1:2", EVERY_FAULT),
    lambda: EngineSteps(system("2 1:2", EVERY_FAULT)),
).TestCase
TestSteps.settings = settings(max_examples=examples(15), stateful_step_count=30)


# ---- mutants


# A mutant, and the size and the faults at which it shows.
# fmt: off
MUTANTS: dict[str, tuple[Mutant, str, tuple[str, ...]]] = {
    "completes while a node is expected": (
        rewritten(operators._join_in_time, " and not state.expected", ""), "2 1:2", ("worker_failure",)),
    "a waiting node never becomes a spare": (
        rewritten(operators._join_in_time, "membership is not REDUNDANT", "membership is OUTSIDE"), "3 1:2", ()),
    "does not leave the round that it restarts from": (
        replaced(operators, "exit_", lambda view: Action.FINISH), "2 1:2", ("worker_failure",)),
    "expels no node": (replaced(operators, "expel", lambda view: Action.FINISH), "2 1:2", ("crash",)),
    "settings are not compared": (replaced(View, "agrees", True), "2 1:2", ("other_min",)),
    "newcomers are taken in at once": (
        replaced(Engine, "_is_ripe", lambda self, joined, now: True), "2 1:2", ("scale_up_interval",)),
    "ranks ignore the keys": (
        rewritten(Table._complete, "self._orders.__getitem__", "lambda token: self.participants[token].node.order"),
        "2 2:2", ("rank_key",)),
    "keys are sorted as texts": (replaced(state, "natural", lambda text: text.encode()), "2 2:2", ("rank_key",)),
    "nobody moves up": (replaced(Table, "_promote", lambda self: None), "3 1:2", ("worker_failure",)),
    "no new call": (rewritten(Table._committed, "self.calling and not calling", "False"), "3 2:3", ("join_timeout",)),
    "always beats": (rewritten(operators.keep_alive, "view.beat_due and ", ""), "2 1:2", ()),
    "anybody closes": (
        replaced(operators, "close", lambda view: Action.MARK_RENDEZVOUS_CLOSED), "2 1:2", ("job_end",)),
    "a drained node joins": (replaced(View, "drained", False), "2 1:2", ("drain",)),
    "a drained node is off the lists at once": (
        rewritten(Table.drain, "self.draining[token] = None", "self._unlist(token)"), "2 1:2", ("drain",)),
}
# fmt: on


@pytest.mark.parametrize("name", MUTANTS)
def test_a_mutant_is_a_disagreement(name: str) -> None:
    mutant, size, faults = MUTANTS[name]
    model = system(size, faults)
    with planted(mutant):
        found = replay_every_edge(model, EngineSteps(model), refusals=True, repeats=False, stop_after=1)
    assert found.disagreements
