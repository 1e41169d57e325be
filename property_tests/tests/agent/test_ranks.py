"""The ranks of workers: what each edition violates, that each property can be violated, and torch's own function.

Rule: the function and the stores are torch's; what the model says is compared with them step by step, and the ranks of
every small job once more with torch's server and a thread for each agent.
"""

from __future__ import annotations

import threading
from collections.abc import Iterable
from datetime import timedelta
from itertools import product
from typing import Any

import pytest

pytest.importorskip("torch", reason="the function is torch's")

import torch.distributed as dist
from torch.distributed.elastic.agent.server.api import SimpleElasticAgent, Worker, WorkerSpec

from trystate.impl.agent.exchange import Exchange
from trystate.model.agent import ranks
from trystate.model.agent.ranks import Ranks
from trystate.model.agent.vocabulary import Assignment
from trystate.model.language import Expr, SymbolicState, any_, count, ord_, transition
from trystate.property_tests.adapters.torch_agent.conformance import RANKS, compare_ranks
from trystate.property_tests.adapters.torch_agent.ranks import Assign, assign_as_seed, assign_as_torch
from trystate.property_tests.support.marks import by_verify
from trystate.property_tests.support.mutants import Mutant, rewritten, survives
from trystate.property_tests.support.nightly import NIGHTLY
from trystate.property_tests.support.pinned import Asked, model_tests

C10d: Any = dist  # torch's stub knows no stores
S = SymbolicState
SEED, TORCH, TRYSTATE = Assignment
ONE, TWO, TRIO = "node=2 kind=4 round=1", "node=2 kind=4 round=2", "node=3 kind=4 round=1"
LIVES, ENDED = ("crash", "newcomer"), "a_death_ends_nobody"
# fmt: off
ASKED = (
    Asked(Ranks, SEED, ONE, 137),
    Asked(Ranks, SEED, TRIO, 1085),
    Asked(Ranks, SEED, TWO, 3449, ENDED, LIVES),
    Asked(Ranks, TORCH, ONE, 169),
    Asked(Ranks, TORCH, TRIO, 1213),
    Asked(Ranks, TORCH, ONE, 689, ENDED, ("crash",)),
    Asked(Ranks, TORCH, TWO, 4569, ENDED, LIVES),
    Asked(Ranks, TRYSTATE, ONE, 169),
    Asked(Ranks, TRYSTATE, TRIO, 1213),
    Asked(Ranks, TRYSTATE, TWO, 13817, "", LIVES),
    Asked(Ranks, TRYSTATE, "node=3 kind=2 round=2", 5121, "", ("crash",)),
)
# fmt: on


class CountsNodes(ranks.Ours):
    """The size of the world is the number of nodes."""

    def total(self, s: S, r: Expr, node: Expr, role: bool) -> Any:
        return count(s.member[r, j] for j in s.node)


class TakesAllForAlike(ranks.Ours):
    """The first rank is the node's rank times its own workers: TORCH_ELASTIC_WORKER_IDENTICAL."""

    def before(self, s: S, r: Expr, node: Expr, role: bool) -> Any:
        return sum(
            count(s.member[r, j] & (ord_(j) < ord_(node)) & (s.told[r, node] >= k) for j in s.node) for k in (1, 2)
        )


class MultipliesItsOwn(ranks.Ours):
    """The size of the world is the number of nodes times a node's own workers, as there."""

    def total(self, s: S, r: Expr, node: Expr, role: bool) -> Any:
        return sum(count(s.member[r, j] & (s.told[r, node] >= k) for j in s.node) for k in (1, 2))


class LeavesARankOut(ranks.Ours):
    """The world has one worker more than there are."""

    def total(self, s: S, r: Expr, node: Expr, role: bool) -> Any:
        return super().total(s, r, node, role) + 1


class MixesRoles(ranks.Ours):
    """The size of a role is that of all of them."""

    def total(self, s: S, r: Expr, node: Expr, role: bool) -> Any:
        return super().total(s, r, node, False)


class KeepsTheKeys(ranks.Ours):
    """The second round has the keys of the first: that of a store without a prefix for each round."""

    @transition(each="round")
    def begin_round(self, s: S, round: Expr) -> None:
        """Begins with what was told and assigned."""
        before = s.fork()
        ranks.Ours.begin_round.body(self, s, round)
        s.assigned[round] = any_(before.assigned[k] for k in s.round)
        for j in s.node:
            for name in ("told", "base_of", "world_of", "role_base_of", "role_world_of"):
                kept, now = getattr(before, name), getattr(s, name)
                now[round, j] = sum(count(kept[k, j] >= least for k in s.round) for least in range(1, 5))


class WaitsForTheDead(ranks.Ours):
    """A wait of the exchange ends by time, and the agent with it (A17)."""

    leave_exchange = None  # type: ignore[assignment]
    wait_times_out = Ranks.wait_times_out  # type: ignore[assignment]
    error_closed = Ranks.error_closed  # type: ignore[assignment]


class WaitsForEver(ranks.Ours):
    """A wait of the exchange does not end."""

    leave_exchange = None  # type: ignore[assignment]


class RunsOn(ranks.Ours):
    """Workers that run are not stopped for an agent that waits."""

    restart_workers = None  # type: ignore[assignment]


# fmt: off
MUTANTS = (
    ("ranks_are_in_the_world", CountsNodes, ONE, ()),
    ("ranks_are_distinct", TakesAllForAlike, ONE, ()),
    ("members_agree_on_the_world", MultipliesItsOwn, ONE, ()),
    ("no_rank_is_missing", LeavesARankOut, ONE, ()),
    ("no_rank_is_missing", MixesRoles, ONE, ()),
    ("ranks_are_distinct", KeepsTheKeys, TWO, LIVES),
    ("no_rank_is_missing", KeepsTheKeys, TWO, LIVES),
    ("a_death_ends_nobody", WaitsForTheDead, TWO, LIVES),
    ("the_exchange_ends", WaitsForEver, TWO, LIVES),
    ("deadlock_freedom", WaitsForEver, TWO, LIVES),
    ("the_waiting_are_answered", RunsOn, TWO, LIVES),
)
# fmt: on

(
    test_an_edition_violates_what_is_known_of_it_and_no_more,
    test_every_step_is_taken_and_every_claimed_move_is_made,
    test_the_engines_agree,
    test_a_mutant_is_caught_by_the_property_that_is_about_it,
    test_every_property_is_violated_by_a_mutant,
) = model_tests(ASKED, MUTANTS, [a for a in ASKED if a.states < 170])


# ---- torch's function, and ours


@by_verify
def test_the_function_does_what_the_model_says_step_by_step() -> None:
    outcome = compare_ranks(RANKS, lambda _: None, edges_max=None if NIGHTLY else 600)
    assert not outcome.disagreements
    assert outcome.of == 16_564
    assert outcome.compared >= (16_564 if NIGHTLY else 4_000)


ASSIGN: Any = SimpleElasticAgent._assign_worker_ranks
BROKEN: dict[str, Mutant] = {
    "the base is not moved on": rewritten(ASSIGN, "base_global_rank += role_info.local_world_size", "pass"),
    "the base of a role is not moved on": rewritten(
        ASSIGN, "role_ranks[role_info.role] += role_info.local_world_size", "pass"
    ),
    "all roles are one": rewritten(
        ASSIGN, "role_sizes[role_info.role] += role_info.local_world_size", "role_sizes[role_info.role] = global_size"
    ),
    "the first reads too few": rewritten(
        ASSIGN, '[f"torchelastic/role_info/{i}" for i in range(group_world_size)]', '["torchelastic/role_info/0"]'
    ),
    "the second assigns": rewritten(ASSIGN, "if group_rank == 0:", "if group_rank == group_world_size - 1:"),
    "it reads the ranks of the first": rewritten(
        ASSIGN,
        'json.loads(store.get(f"{ASSIGNED_RANKS_PREFIX}{group_rank}"))',
        'json.loads(store.get(f"{ASSIGNED_RANKS_PREFIX}0"))',
    ),
    "our exchange does not look": rewritten(Exchange._try, "self._look()", "pass"),
    "our exchange gives up": rewritten(Exchange._try, "except dist.DistError:", "except ZeroDivisionError:"),
    "our exchange reads before all have told": rewritten(
        Exchange.multi_get, "self._try(lambda: self._store.wait(wanted, soon))", "pass"
    ),
}


@pytest.mark.parametrize("name", BROKEN)
def test_another_function_is_a_disagreement(name: str) -> None:
    def agrees() -> None:
        assert not compare_ranks(RANKS, lambda _: None, edges_max=400).disagreements

    assert not survives(BROKEN[name], agrees)


# ---- torch's server, a thread for each agent


def assigned(store: Any, assign: Assign, kinds: Iterable[tuple[str, int]]) -> list[list[Worker]]:
    """The workers of each node, whose agents all run at once; `kinds` are their roles and numbers of workers."""
    kinds = [*kinds]
    found: list[Any] = [None] * len(kinds)

    def agent(rank: int, role: str, workers: int) -> None:
        spec = WorkerSpec(role, workers, rdzv_handler=None, entrypoint="true")  # type: ignore[arg-type]
        found[rank] = assign(store(), rank, len(kinds), spec)

    threads = [threading.Thread(target=agent, args=(rank, *kind)) for rank, kind in enumerate(kinds)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(30)
    assert all(found), "an agent got no ranks"
    return found


def assert_ranks_are_right(found: list[list[Worker]], kinds: Iterable[tuple[str, int]]) -> None:
    kinds = [*kinds]
    assert [len(workers) for workers in found] == [workers for _, workers in kinds]
    every = [worker for workers in found for worker in workers]
    assert [worker.global_rank for worker in every] == [*range(len(every))]
    assert {worker.world_size for worker in every} == {len(every)}
    assert [worker.local_rank for worker in every] == [k for _, workers in kinds for k in range(workers)]
    for role in {role for role, _ in kinds}:
        alike = [
            worker for workers, (other, _) in zip(found, kinds, strict=True) if other == role for worker in workers
        ]
        assert [worker.role_rank for worker in alike] == [*range(len(alike))]
        assert {worker.role_world_size for worker in alike} == {len(alike)}


@pytest.mark.parametrize("how", ["torch", "seed", "ours"])
def test_the_agents_of_every_small_job_get_ranks_from_torchs_server(how: str) -> None:
    """Up to three nodes of one to three workers and two roles, one job after the other on one server."""
    server: Any = C10d.TCPStore("127.0.0.1", 0, is_master=True, wait_for_workers=False)
    jobs = [job for nodes in (1, 2, 3) for job in product(product("ab", (1, 3)), repeat=nodes)]
    for number, kinds in enumerate(jobs):

        def store(number: int = number) -> Any:
            client = C10d.TCPStore("127.0.0.1", server.port, wait_for_workers=False, timeout=timedelta(seconds=20))
            below = C10d.PrefixStore(f"round{number}", client)
            return Exchange(below, lambda: None) if how == "ours" else below

        assign = assign_as_seed if how == "seed" else assign_as_torch
        assert_ranks_are_right(assigned(store, assign, kinds), kinds)


def test_two_rounds_with_the_keys_of_one_mix_and_torchs_prefix_keeps_them_apart() -> None:
    """A node comes again with two workers where it had one: without a prefix it reads the ranks of the round before."""
    below = C10d.HashStore()
    first, second = [("a", 1), ("a", 1)], [("a", 2), ("a", 1)]
    assert_ranks_are_right(assigned(lambda: C10d.PrefixStore("round0", below), assign_as_torch, first), first)
    assert_ranks_are_right(assigned(lambda: C10d.PrefixStore("round1", below), assign_as_torch, second), second)
    # One thread after the other, so that it is always the same: node 1 is first.
    spec = WorkerSpec("a", 1, rdzv_handler=None, entrypoint="true")  # type: ignore[arg-type]
    stale = assign_as_torch(C10d.PrefixStore("round0", below), 1, 2, spec)
    assert [(worker.global_rank, worker.world_size) for worker in stale] == [(1, 2)]
    with pytest.raises(AssertionError):
        assert_ranks_are_right([[*stale], [*stale]], second)
