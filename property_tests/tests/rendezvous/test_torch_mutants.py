"""Mutants of torch's executors are caught by the edges, and every wrong row of a table by torch's operators."""

from __future__ import annotations

from functools import cache
from typing import Any

import pytest
import torch.distributed.elastic.rendezvous.dynamic_rendezvous as dr

from trystate.model.checker.explicit.graph import Explored
from trystate.model.rendezvous.holder import Holders
from trystate.model.rendezvous.operators import OPERATORS
from trystate.model.rendezvous.vocabulary import Edition
from trystate.property_tests.adapters.torch_rendezvous.conformance import gaps
from trystate.property_tests.adapters.torch_rendezvous.contexts import Observed, compare, observe
from trystate.property_tests.adapters.torch_rendezvous.executors import TorchHolders
from trystate.property_tests.harness.paths import explore_graph, replay_every_edge
from trystate.property_tests.support.mutants import planted, rewritten
from trystate.property_tests.support.rendezvous.tables import unnoticed

TORCH = Edition.TORCH
TABLES = OPERATORS[TORCH]


# ---- executors and state holders, by the edges

EXECUTOR, HOLDER = dr._DistributedRendezvousOpExecutor, dr._BackendRendezvousStateHolder
# fmt: off
EXECUTOR_MUTANTS: dict[str, tuple[Any, ...]] = {
    "ranks in reverse": (EXECUTOR._mark_rendezvous_complete, "sorted(state.participants)",
        "sorted(state.participants, reverse=True)"),
    "a beat is not written": (
        EXECUTOR._keep_alive, "self._state.last_heartbeats[self._node] = datetime.now(timezone.utc)", "pass"),
    "a change is not marked dirty": (EXECUTOR.run, "self._state_holder.mark_dirty()", "pass"),
    "polling does not wait": (EXECUTOR.run, "_delay(seconds=1)", "pass"),
    "a lost write is told as won": (HOLDER.sync, "state_bits, token, has_set = set_response",
        "state_bits, token, _ = set_response; has_set = True"),
    "a token is kept": (HOLDER.sync, "self._token = token", "self._token = self._token or token"),
    "the cache is never used": (HOLDER.sync, "if self._cache_duration > 0:", "if False:"),
    "the dead are not dropped": (HOLDER._sanitize, "if last_heartbeat < expire_time", "if False", 2, ("crash",)),
    "dropping the dead forgets the epilogue": (HOLDER._sanitize, "if participant_removed:", "if False:", 1, ("crash",)),
    "an emptied round is not replaced": (dr._remove_participant_epilogue, "state.round += 1",
        "pass", 2, ("worker_failure",)),
    "closing does nothing": (EXECUTOR._mark_rendezvous_closed, "self._state.closed = True", "pass", 2, ("job_end",)),
}
# fmt: on


@cache
def explored(min_nodes: int = 2, faults: tuple[str, ...] = ()) -> tuple[Holders, Explored]:
    """The unchanged system and its graph."""
    system = Holders(node=2, min_nodes=min_nodes, max_nodes=2, rounds=2, edition=TORCH, faults=faults)
    return system, explore_graph(system)


@pytest.mark.parametrize("name", EXECUTOR_MUTANTS)
def test_a_mutant_of_an_executor_is_caught_by_the_edges(name: str) -> None:
    function, right, wrong, *where = EXECUTOR_MUTANTS[name]
    system, graph = explored(*where)
    with planted(rewritten(function, right, wrong)), TorchHolders(system) as subject:
        found = replay_every_edge(
            system, subject, refusals=True, repeats=False, stop_after=1, edges_max=20_000, explored=graph
        )
    assert found.disagreements


# ---- the tables, by their audit or by the contexts


@cache
def answers() -> dict[str, Observed]:
    """The answers in the fewest contexts that have every valuation."""
    found = observe(TABLES, settings=((1, 1), (2, 3), (3, 1)), nodes=3)
    assert not any(gaps(name, compare(TABLES[name], found[name])) for name in found)
    return found


@pytest.mark.parametrize("name", TABLES)
def test_every_row_that_is_wrong_is_noticed(name: str) -> None:
    assert unnoticed(TABLES[name], answers()[name]) == []
