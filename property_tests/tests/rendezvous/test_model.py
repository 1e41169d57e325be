"""Our rendezvous holds every property in every planned size; its counts are pinned.

Rule: `trystate verify` decides the planned sizes and pins their counts; the largest are not explored here.
"""

from __future__ import annotations

import pytest

from trystate.model.checker.expectations import covered_with
from trystate.model.checker.walks import after
from trystate.model.errors import UsageError
from trystate.model.language.expressions import Expr
from trystate.model.rendezvous import Edition, Ours, Rendezvous
from trystate.model.rendezvous.detail import OursInDetail
from trystate.model.rendezvous.findings import CLOCKS, EVERY_FAULT
from trystate.model.rendezvous.holder import Holders
from trystate.property_tests.support.mutants import wrong
from trystate.property_tests.support.nightly import NIGHTLY
from trystate.property_tests.support.pinned import (
    ONLY_NIGHTLY,
    PLAN,
    Asked,
    assert_as_pinned,
    of_plan,
    ours,
    pinned_tests,
    report,
    violated,
)
from trystate.property_tests.support.runs import allowed

PLANNED = [asked for asked in of_plan(Rendezvous) if asked.edition is Edition.TRYSTATE]
# A quick part of what is explored by night: every fault, at most one in a run.
A_PART = ours(3, 2, 3, EVERY_FAULT, 56_093, max_faults=1)

TestOurs = pinned_tests(
    [*PLANNED, A_PART, *(ONLY_NIGHTLY if NIGHTLY else ())], [a for a in PLANNED if a.states < 2_000]
)


def test_no_defect_of_ours_is_declared() -> None:
    """Neither of the rendezvous and its rooms, nor of agents, stores and passes; process groups are torch's."""
    assert {run.system.__name__ for run in PLAN if run.edition.name == "TRYSTATE" and run.findings} == {"Groups"}


def reads(expr: Expr) -> set[str]:
    """The fields that an expression reads."""
    inner = set[str]().union(*(reads(x) for x in expr.args if isinstance(x, Expr)))
    return inner | {expr.args[0]} if expr.op == "read" else inner


def test_no_step_and_no_property_reads_a_clock() -> None:
    """Only the steps of clock faults read a clock, once for each clock: no other run needs these faults."""
    system = Rendezvous(edition=Edition.TRYSTATE, faults=(*EVERY_FAULT, *CLOCKS))
    moves = {name: t.effects[name] for t in system.transitions for name in t.effects if t.fault not in CLOCKS}
    assert "clock_behind" not in moves
    steps = [e for t in system.transitions if t.fault not in CLOCKS for e in (t.guard, *t.effects.values())]
    asked = [e for p in system.properties for e in (*p.exprs, *(p.conditions or {}).values())]
    machines = [machine.control for machine in system.machines.values()]
    assert "clock_behind" not in set[str]().union(*map(reads, (*steps, *asked, *machines, system.terminal)))
    torchs = Rendezvous(edition=Edition.TORCH)
    assert "clock_behind" in set[str]().union(*(reads(t.guard) for t in torchs.transitions))


def test_the_finer_system_has_only_the_editions_that_it_takes_apart() -> None:
    with pytest.raises(UsageError, match="Holders has no edition 'TRYSTATE': it has SEED, TORCH"):
        Holders(edition="TRYSTATE")


# ---- a full round and one more node

THREE = {e: Rendezvous(node=3, min_nodes=2, max_nodes=2, rounds=1, edition=e, faults=("crash", "join_timeout"))
         for e in (Edition.SEED, Edition.TORCH, Edition.TRYSTATE)}  # fmt: skip
FULL = "exit_finish(2) add_to_participants(2) exit_finish(1) add_to_participants(1) exit_finish(0)"
ONE_IS_GONE = "crash(1) heartbeat_ages(1) heartbeat_expires(1)"


def test_a_node_waits_unlisted_until_a_member_leaves_or_its_deadline() -> None:
    """elastic-node-change 1.2; the deadline is 600 s in torch."""
    seed = THREE[Edition.SEED]
    assert not {"add_to_wait_list(0)", "error_timeout(0)"} & allowed(seed, after(seed, FULL))
    after(seed, f"{FULL} join_deadline_passes(0) error_timeout(0)")
    assert "join_deadline_passes(0)" in allowed(seed, after(seed, f"{FULL} {ONE_IS_GONE} add_to_wait_list(0)"))


def test_a_spare_is_listed_at_once_and_moves_up_when_a_member_is_gone() -> None:
    """torch 2.13 and ours have a list of such nodes. In ours they have no deadline."""
    torch, ours = THREE[Edition.TORCH], THREE[Edition.TRYSTATE]
    spare = f"{FULL} add_to_redundancy_list(0)"
    assert "join_deadline_passes(0)" in allowed(torch, after(torch, spare))
    after(torch, f"{spare} {ONE_IS_GONE} remove_from_redundancy_list(0) add_to_wait_list(0)")
    assert "join_deadline_passes(0)" not in allowed(ours, after(ours, spare)), "it stands by for as long as it takes"
    after(ours, f"{spare} {ONE_IS_GONE} expel(2)")


# ---- the steps that our edition leaves out: they keep every property, and each of them happens

DETAILS = {*OursInDetail.declarations()} - {*Ours.declarations()}
IN_DETAIL = of_plan(OursInDetail)


@pytest.mark.parametrize("one", IN_DETAIL, ids=str)
def test_every_property_holds_in_detail_and_the_counts_are_pinned(one: Asked) -> None:
    assert_as_pinned(one)


def test_each_detail_happens_and_makes_every_move_that_it_claims() -> None:
    """The inherited steps are covered by the runs of the edition with which its coverage is counted."""
    found = report(max(IN_DETAIL, key=lambda asked: asked.numbers["node"]))
    assert covered_with(found.system) == "Rendezvous"
    assert not DETAILS & {*found.never_fired}
    assert not DETAILS & {step for step, _ in found.unreached}


def test_a_change_that_leaves_a_complete_round_as_it_is_is_found() -> None:
    forgetful = wrong("Forgetful", OursInDetail, begin_new_round=lambda self, s, replaced: None)
    found = violated(report(Asked(forgetful, Edition.TRYSTATE, "node=2 min_nodes=1 max_nodes=2 rounds=2", 0)))
    assert {"what_returned_stays_written", "ranks_are_dense"} & found
