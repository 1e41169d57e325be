"""The ranks of workers: the violations of each edition, a violation of each property, and torch's own function.

Rule: the function and the stores are torch's; they are compared with the model step by step.
"""

from __future__ import annotations

from typing import Any

import pytest
from torch.distributed.elastic.agent.server.api import SimpleElasticAgent

from trystate.impl.agent.exchange import Exchange
from trystate.model.agent.ranks import Ours, Ranks
from trystate.model.agent.vocabulary import Assignment
from trystate.model.language import Expr, SymbolicState, any_, count
from trystate.property_tests.adapters.torch_agent.conformance import RANKS, compare_ranks
from trystate.property_tests.support.mutants import Mutant, rewritten, survives, wrong
from trystate.property_tests.support.nightly import NIGHTLY, by_verify
from trystate.property_tests.support.pinned import Asked, model_tests, of_plan

S = SymbolicState
SEED, TORCH, TRYSTATE = Assignment
ONE, TWO = "node=2 kind=4 round=1", "node=2 kind=4 round=2"
LIVES = ("crash", "newcomer")
ASKED = (
    *of_plan(Ranks),
    Asked(Ranks, SEED, ONE, 137),
    Asked(Ranks, TORCH, ONE, 169),
    Asked(Ranks, TRYSTATE, ONE, 169),
)


def _its_own(self: Any, s: S, r: Expr, node: Expr, role: bool) -> Any:
    return sum(count(s.member[r, j] & (s.told[r, node] >= k) for j in s.node) for k in (1, 2))


def _keeps_the_keys(self: Any, s: S, round: Expr) -> None:
    before = s.fork()
    Ours.begin_round.body(self, s, round)
    s.assigned[round] = any_(before.assigned[k] for k in s.round)
    for j in s.node:
        for name in ("told", "base_of", "world_of", "role_base_of", "role_world_of"):
            kept, now = getattr(before, name), getattr(s, name)
            now[round, j] = sum(count(kept[k, j] >= least for k in s.round) for least in range(1, 5))


# The store has no prefix for each round.
KEEPS = wrong("KeepsTheKeys", Ours, begin_round=_keeps_the_keys)
# A wait of the exchange times out and ends the agent (A17), or never ends.
DEAD = wrong("WaitsForTheDead", Ours, leave_exchange=None, wait_times_out=Ranks.wait_times_out,
             error_closed=Ranks.error_closed)  # fmt: skip
FOR_EVER = wrong("WaitsForEver", Ours, leave_exchange=None)
# fmt: off
MUTANTS = (
    ("ranks_are_in_the_world", wrong(
        "CountsNodes", Ours, total=lambda self, s, r, node, role: count(s.member[r, j] for j in s.node)), ONE, ()),
    ("members_agree_on_the_world", wrong("MultipliesItsOwn", Ours, total=_its_own), ONE, ()),
    ("no_rank_is_missing", wrong(
        "LeavesARankOut", Ours, total=lambda self, s, r, node, role: Ours.total(self, s, r, node, role) + 1), ONE, ()),
    ("ranks_are_distinct", KEEPS, TWO, LIVES),
    ("a_death_ends_nobody", DEAD, TWO, LIVES),
    ("the_exchange_ends", FOR_EVER, TWO, LIVES),
    ("deadlock_freedom", FOR_EVER, TWO, LIVES),
    ("the_waiting_are_answered", wrong("RunsOn", Ours, restart_workers=None), TWO, LIVES),
)
# fmt: on

TestModel = model_tests(ASKED, MUTANTS, [a for a in ASKED if a.states < 170])


# ---- torch's function, and ours


@by_verify
def test_the_function_does_what_the_model_says_step_by_step() -> None:
    outcome = compare_ranks(RANKS, lambda _: None, edges_max=None if NIGHTLY else 600)
    assert not outcome.disagreements
    assert outcome.of == 13_980
    assert outcome.compared >= (13_980 if NIGHTLY else 2_500)


ASSIGN: Any = SimpleElasticAgent._assign_worker_ranks
BROKEN: dict[str, Mutant] = {
    "the base is not advanced": rewritten(ASSIGN, "base_global_rank += role_info.local_world_size", "pass"),
    "our exchange does not check the round": rewritten(Exchange._try, "self._look()", "pass"),
    "our exchange gives up": rewritten(Exchange._try, "except dist.DistError:", "except ZeroDivisionError:"),
    "our exchange reads before all have written": rewritten(
        Exchange.multi_get,
        "self._try(partial(self._store.wait, wanted, timedelta(seconds=self._poll_seconds)))",
        "pass",
    ),
}


@pytest.mark.parametrize("name", BROKEN)
def test_another_function_is_a_disagreement(name: str) -> None:
    def agrees() -> None:
        assert not compare_ranks(RANKS, lambda _: None, edges_max=400).disagreements

    assert not survives(BROKEN[name], agrees)
