"""Every mutant of torch and of the model is caught, by the check that each case names."""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import replace
from functools import cache
from typing import Any

import pytest
import torch.distributed.elastic.rendezvous.dynamic_rendezvous as dr

from trystate.model.checker.explicit.graph import Explored
from trystate.model.checker.verdicts import Status
from trystate.model.errors import DeclarationError
from trystate.model.language import Expr
from trystate.model.rendezvous.holder import Holders
from trystate.model.rendezvous.operators import OPERATORS
from trystate.model.rendezvous.properties import Rendezvous
from trystate.model.rendezvous.torch import Torch
from trystate.model.rendezvous.vocabulary import Edition
from trystate.property_tests.adapters.torch_rendezvous import simulation as sim
from trystate.property_tests.adapters.torch_rendezvous.conformance import gaps
from trystate.property_tests.adapters.torch_rendezvous.contexts import TORCH_OPERATORS, Observed, compare, observe
from trystate.property_tests.adapters.torch_rendezvous.executors import TorchHolders
from trystate.property_tests.harness.paths import explore_graph, replay_every_edge
from trystate.property_tests.support.mutants import altered, planted, rewritten, wrong
from trystate.property_tests.support.pinned import Asked, report
from trystate.property_tests.support.rendezvous.tables import unnoticed

SEED, TORCH = Edition.SEED, Edition.TORCH
TABLES = OPERATORS[TORCH]


def seen(names: Collection[str], settings: tuple[tuple[int, int], ...]) -> dict[str, Observed]:
    """The answers of torch's operators for three nodes with these settings."""
    return observe(TABLES, {name: TORCH_OPERATORS[name] for name in names}, settings=settings, nodes=3)


# ---- operators, by the contexts

JOIN, EXIT, CLOSE, BEAT = (
    cls.__call__
    for cls in (dr._RendezvousJoinOp, dr._RendezvousExitOp, dr._RendezvousCloseOp, dr._RendezvousKeepAliveOp)
)
# fmt: off
OPERATOR_MUTANTS: dict[str, tuple[Any, str, str]] = {
    "join ignores closed": (JOIN, "if state.closed:", "if False:"),
    "join wants more than a quorum": (JOIN, ">= ctx.settings.min_nodes", "> ctx.settings.min_nodes"),
    "join takes nothing back": (JOIN, "rollback_period = 5", "rollback_period = -1"),
    "join stands by twice": (JOIN, "and ctx.node not in state.wait_list", ""),
    "join ends the last call too early": (JOIN, "state.deadline < datetime", "state.deadline <= datetime"),
    "join finishes as an outsider": (JOIN, "if state.complete and is_participant:", "if state.complete:"),
    "exit ignores its deadline": (EXIT, "if time.monotonic() > deadline:", "if False:"),
    "exit does not look at who takes part": (EXIT, "if ctx.node in ctx.state.participants:", "if True:"),
    "close closes twice": (CLOSE, "if ctx.state.closed:", "if False:"),
    "keep-alive ignores its deadline": (BEAT, "if time.monotonic() > deadline:", "if False:"),
    "a heartbeat is due too late": (dr._should_keep_alive, "last_heartbeat <= ", "last_heartbeat < "),
}
# fmt: on


@pytest.mark.parametrize("name", OPERATOR_MUTANTS)
def test_a_mutant_of_an_operator_is_caught_by_the_contexts(name: str) -> None:
    mutated = name.split()[0]
    with planted(rewritten(*OPERATOR_MUTANTS[name])):
        found = seen([mutated] if mutated in TABLES else TABLES, ((1, 1),))
    assert any(compare(TABLES[name], answers).disagreements for name, answers in found.items())


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
    "every write wins": (sim.Backend.set_state, "if (token or 0) == self.version:", "if True:"),
}
# fmt: on


def holders(cls: type[Holders], min_nodes: int = 2, faults: tuple[str, ...] = ()) -> Holders:
    return cls(node=2, min_nodes=min_nodes, max_nodes=2, rounds=2, edition=TORCH, faults=faults)


@cache
def explored(min_nodes: int = 2, faults: tuple[str, ...] = ()) -> tuple[Holders, Explored]:
    """The unchanged system and its graph."""
    system = holders(Holders, min_nodes, faults)
    return system, explore_graph(system)


def edges_disagree(system: Holders, graph: Explored | None = None) -> bool:
    with TorchHolders(system) as subject:
        found = replay_every_edge(
            system, subject, refusals=True, repeats=False, stop_after=1, edges_max=20_000, explored=graph
        )
    return bool(found.disagreements)


@pytest.mark.parametrize("name", EXECUTOR_MUTANTS)
def test_a_mutant_of_an_executor_is_caught_by_the_edges(name: str) -> None:
    function, right, wrong, *where = EXECUTOR_MUTANTS[name]
    with planted(rewritten(function, right, wrong)):
        assert edges_disagree(*explored(*where))


# ---- the tables, by their audit or by the contexts


@cache
def answers() -> dict[str, Observed]:
    """The answers in the fewest contexts that have every valuation."""
    found = seen(TABLES, ((1, 1), (2, 3), (3, 1)))
    assert not any(gaps(name, compare(TABLES[name], found[name])) for name in found)
    return found


@pytest.mark.parametrize("name", TABLES)
def test_every_row_that_is_wrong_is_noticed(name: str) -> None:
    assert unnoticed(TABLES[name], answers()[name]) == []


# ---- the coarser system, by a property, or by the moves that its steps claim


CLAIMS = "claims"


def epilogue(self: Torch, s: Any, node: Expr, removed: Any) -> None:
    """Removing the dead does not change the round."""
    if removed is True:
        Torch.removal_epilogue(self, s, node, removed)


# fmt: off
def reopens(self: Torch, s: Any, node: Expr) -> None:
    Torch.stamp(self, s, node)
    s.closed = False


NoLastCall = altered("NoLastCall", Torch, "min_of", "return ", "return 1 + ")
RENDEZVOUS_MUTANTS = (
    (wrong("WithoutEpilogue", Torch, removal_epilogue=epilogue), TORCH, "2 1 2", "at_least_min", ("crash",)),
    (NoLastCall, TORCH, "2 1 2", "enough_nodes_complete_a_round", ("crash",)),
    (NoLastCall, TORCH, "3 2 3", "deadline_iff_last_call", ()),
    (wrong("ForgetsNothing", Torch, forget_returns=lambda self, s, replaced: None), SEED, "3 2 2", "agree_on_master",
     ("worker_failure",)),
    (wrong("OneRank", Torch, count_below=lambda self, s, node: 0), TORCH, "2 2 2", "ranks_are_ordered", ()),
    (wrong("Reopens", Torch, stamp=reopens), TORCH, "2 2 2", CLAIMS, ("job_end",)),
    (wrong("NobodyBeats", Torch, beat_due=lambda self, s, node: s.round != s.round), TORCH, "2 2 2",
     "deadlock_freedom", ()),
)
# fmt: on


@pytest.mark.parametrize(("cls", "edition", "size", "caught_by", "faults"), RENDEZVOUS_MUTANTS)
def test_a_mutant_in_the_coarser_system_is_caught_by_the_checker(
    cls: type[Rendezvous], edition: Edition, size: str, caught_by: str, faults: tuple[str, ...]
) -> None:
    """By a property, or because a step moves a machine in a way that the step does not claim."""
    nodes, low, high = size.split()
    asked = Asked(cls, edition, f"node={nodes} min_nodes={low} max_nodes={high}", 0, "", faults)
    if caught_by == CLAIMS:
        with pytest.raises(DeclarationError, match="in a way that it does not claim"):
            report(asked)
    else:
        assert report(replace(asked, system=Rendezvous)).verdict(caught_by).status is Status.HOLDS
        assert report(asked).verdict(caught_by).status is Status.VIOLATED
