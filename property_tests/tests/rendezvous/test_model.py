"""Our rendezvous holds every property in every planned size; its counts are pinned.

Rule: what takes longer than a few seconds is explored by `trystate verify`, and pinned in docs/verdicts.md; under
HYPOTHESIS_PROFILE=nightly here as well, with what is too large for that.
"""

from __future__ import annotations

import pytest

from trystate.model.checker.expectations import Run
from trystate.model.checker.walks import after
from trystate.model.errors import UsageError
from trystate.model.language.expressions import Expr
from trystate.model.language.transitions import Kind
from trystate.model.rendezvous import Edition, Rendezvous
from trystate.model.rendezvous.findings import CLOCKS, EVERY_FAULT, EVERY_FAULT_BUT_OTHER_MIN, PLAN
from trystate.model.rendezvous.holder import Holders
from trystate.model.rendezvous.vocabulary import Action, Raised
from trystate.property_tests.support.nightly import NIGHTLY
from trystate.property_tests.support.pinned import ONLY_NIGHTLY, Asked, assert_all_happens, assert_as_pinned, ours
from trystate.property_tests.support.runs import allowed

# Nodes, min, max, faults, states. Without `max_faults`, each fault happens as often as its own bound says.
# fmt: off
PLANNED = (
    ours(2, 1, 1, ("worker_failure", "crash", "restart", "stall"), 4_350),
    ours(2, 1, 2, ("worker_failure", "crash", "restart", "stall", "join_timeout", "job_end"), 184_674),
    ours(3, 2, 3, (), 1_096),
    ours(3, 2, 3, ("clock_skew", "clock_step"), 10_600),
    ours(3, 2, 2, ("crash", "join_timeout"), 9_168),
    ours(3, 1, 2, ("worker_failure",), 3_856),
    ours(3, 2, 3, ("rank_key", "worker_failure"), 21_784),
    ours(3, 2, 3, ("scale_up_interval", "worker_failure", "join_timeout"), 40_064),
    ours(3, 2, 3, ("health_check", "unhealthy", "worker_failure"), 62_876),
    ours(2, 1, 2, ("health_check", "unhealthy", "worker_failure", "crash", "restart", "stall", "job_end"), 615_630),
    ours(3, 1, 2, ("crash", "restart", "join_timeout"), 82_896),
    ours(3, 2, 4, ("other_min", "other_expiry", "join_timeout"), 13_928),
    ours(3, 2, 3, ("drain",), 12_520),
    ours(3, 1, 2, ("drain", "crash"), 98_180),
)
LONG = (
    ours(3, 2, 3, ("worker_failure", "crash", "restart", "stall"), 453_736),
    ours(3, 2, 3, EVERY_FAULT, 893_161, max_faults=2),
    ours(3, 2, 2, EVERY_FAULT_BUT_OTHER_MIN, 366_138, max_faults=2),
    ours(2, 2, 2, EVERY_FAULT_BUT_OTHER_MIN, 1_803_622),
    ours(4, 2, 3, ("crash", "stall"), 3_394_248),
)
# Of a long one: what every fault does, quickly.
A_PART = ours(3, 2, 3, EVERY_FAULT, 56_093, max_faults=1)
# fmt: on
LATER = (*LONG, *ONLY_NIGHTLY) if NIGHTLY else ()


@pytest.mark.parametrize("asked", [*PLANNED, A_PART, *LATER], ids=str)
def test_every_property_holds_and_the_counts_are_pinned(asked: Asked) -> None:
    assert_as_pinned(asked)


def test_what_is_pinned_is_what_is_planned_and_no_defect_is_declared() -> None:
    ours = [run for run in PLAN if run.edition is Edition.TRYSTATE and run.system is Rendezvous]
    assert [run.findings for run in ours] == [{}] * len(ours)
    pinned = (
        Run(Rendezvous, asked.numbers, asked.edition, asked.faults, max_faults=asked.together)
        for asked in (*PLANNED, *LONG)
    )
    assert {run.label for run in ours} == {run.label for run in pinned}


def test_everything_happens_that_our_protocol_declares() -> None:
    assert_all_happens([*PLANNED, A_PART])


def reads(expr: Expr) -> set[str]:
    """The fields that a tree reads."""
    inner = set[str]().union(*(reads(x) for x in expr.args if isinstance(x, Expr)))
    return inner | {expr.args[0]} if expr.op == "read" else inner


def test_no_step_and_no_property_reads_a_clock_so_that_clocks_cannot_matter() -> None:
    """But the faults themselves, which happen to a clock once: that is why no other run needs them."""
    system = Rendezvous(edition=Edition.TRYSTATE, faults=(*EVERY_FAULT, *CLOCKS))
    moves = {name: t.effects[name] for t in system.transitions for name in t.effects if t.fault not in CLOCKS}
    assert "clock_behind" not in moves
    steps = [e for t in system.transitions if t.fault not in CLOCKS for e in (t.guard, *t.effects.values())]
    asked = [e for p in system.properties for e in (*p.exprs, *(p.conditions or {}).values())]
    machines = [machine.control for machine in system.machines.values()]
    assert "clock_behind" not in set[str]().union(*map(reads, (*steps, *asked, *machines, system.terminal)))
    torchs = Rendezvous(edition=Edition.TORCH)
    assert "clock_behind" in set[str]().union(*(reads(t.guard) for t in torchs.transitions))


AGENT = {
    "start_workers", "restart_workers", "return_as_master", "return_with_cached_master", "return_to_connect", "connect",
    "assertion_error", "leave_unhealthy", "stand_by",
}  # fmt: skip


@pytest.mark.parametrize("edition", Edition)
def test_a_step_has_the_name_of_the_action_that_it_decides(edition: Edition) -> None:
    """Where several operators decide it, with the name of the exit or close operator before it."""
    decided = {one.name.lower().replace("mark_rendezvous_", "mark_") for one in (*Action, *Raised)}
    steps = {t.name for t in Rendezvous(edition=edition).transitions if t.kind is Kind.PROTOCOL} - AGENT
    assert {name.removeprefix("exit_").removeprefix("close_") for name in steps} <= decided


def test_the_finer_system_has_only_the_editions_that_it_takes_apart() -> None:
    with pytest.raises(UsageError, match="Holders has no edition 'TRYSTATE': it has SEED, TORCH"):
        Holders(edition="TRYSTATE")


# ---- a full round, and a node more

THREE = {e: Rendezvous(node=3, min_nodes=2, max_nodes=2, rounds=1, edition=e, faults=("crash", "join_timeout"))
         for e in (Edition.SEED, Edition.TORCH, Edition.TRYSTATE)}  # fmt: skip
FULL = "exit_finish(2) add_to_participants(2) exit_finish(1) add_to_participants(1) exit_finish(0)"
ONE_IS_GONE = "crash(1) heartbeat_ages(1) heartbeat_expires(1)"


def test_a_node_waits_unlisted_until_its_deadline_and_is_listed_when_a_member_is_gone_in_time() -> None:
    """elastic-node-change 1.2; 600 s in torch."""
    seed = THREE[Edition.SEED]
    assert not {"add_to_wait_list(0)", "error_timeout(0)"} & allowed(seed, after(seed, FULL))
    after(seed, f"{FULL} join_deadline_passes(0) error_timeout(0)")
    listed = after(seed, f"{FULL} {ONE_IS_GONE} add_to_wait_list(0)")
    assert "join_deadline_passes(0)" in allowed(seed, listed)


def test_a_spare_is_listed_at_once_and_moves_up_when_a_member_is_gone() -> None:
    """torch 2.13 and ours have a list for such nodes; ours knows no deadline of theirs."""
    torch, ours = THREE[Edition.TORCH], THREE[Edition.TRYSTATE]
    spare = f"{FULL} add_to_redundancy_list(0)"
    assert "join_deadline_passes(0)" in allowed(torch, after(torch, spare))
    after(torch, f"{spare} {ONE_IS_GONE} remove_from_redundancy_list(0) add_to_wait_list(0)")
    assert "join_deadline_passes(0)" not in allowed(ours, after(ours, spare)), "it stands by for as long as it takes"
    after(ours, f"{spare} {ONE_IS_GONE} expel(2)")
