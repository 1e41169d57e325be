"""The elastic agent: what each edition violates, and which repair of ours keeps which property.

Each ablation undoes one of our repairs, and exactly the properties that need it break.
"""

from __future__ import annotations

from dataclasses import replace

import pytest

from trystate.model.agent import Agents, Edition, Ending, Loop, Ours, Torch, Verdict, WorkerState
from trystate.model.agent.environment import Environment
from trystate.model.agent.findings import EVERY_FAULT, FINDINGS, PLAN
from trystate.model.agent.seed import Seed
from trystate.model.checker.verdicts import Status
from trystate.model.checker.walks import after
from trystate.model.language import Expr, SymbolicState, System, environment, ite, transition
from trystate.model.language.sorts import ordinal
from trystate.property_tests.support.mutants import altered, wrong
from trystate.property_tests.support.nightly import NIGHTLY
from trystate.property_tests.support.pinned import (
    Asked,
    bare,
    claims,
    is_planned,
    of_plan,
    pinned_tests,
    report,
    violated,
)
from trystate.property_tests.support.runs import allowed

S = SymbolicState
SEED, TORCH, TORCH_2_7, TRYSTATE = Edition.SEED, Edition.TORCH, Edition.TORCH_2_7, Edition.TRYSTATE
EVERY_FAULT_BUT_FREEZE = tuple(fault for fault in EVERY_FAULT if fault != "freeze")


def run(
    edition: Edition, nodes: int, min_nodes: int, max_nodes: int, faults: tuple[str, ...], states: int = 0, *,
    ends: int = 1, max_restarts: int = 1, counted: int = 2,
) -> Asked:  # fmt: skip
    """An exploration of this edition, size and faults, with its number of states; no property is violated."""
    sizes = (
        f"node={nodes} min_nodes={min_nodes} max_nodes={max_nodes} ends={ends} max_restarts={max_restarts} "
        f"counted={counted}"
    )
    return Asked(Agents, edition, sizes, states, faults=faults)


# Violated by a wait without a time-out (A18).
UNENDING = ("stopped_workers_end", "everybody_ends", "joins_end", "the_waiting_are_answered")

ASKED = (
    *of_plan(Agents),
    run(TRYSTATE, 2, 2, 2, EVERY_FAULT_BUT_FREEZE, 91173, max_restarts=0),
    run(TRYSTATE, 2, 1, 2, EVERY_FAULT_BUT_FREEZE, 374272, max_restarts=2, counted=3),
)
SMALL = tuple(
    a
    for a in ASKED
    if a.states < 1000 and (NIGHTLY or (a.states < 700 and a.numbers["node"] == 2 and "deaf" not in a.faults))
)

TestPinned = pinned_tests(ASKED, SMALL)


def test_a_planned_run_is_one_of_which_the_same_is_known() -> None:
    asked = ASKED[0]
    assert is_planned(asked)
    assert not is_planned(replace(asked, states=60))
    assert not is_planned(replace(asked, violated=""))
    assert not is_planned(replace(asked, faults=("signal",)))
    assert not is_planned(replace(asked, together=1))
    assert not is_planned(replace(asked, sizes=f"{asked.sizes} counted=3"))


def test_every_finding_is_shown_by_a_run_of_torchs_editions() -> None:
    assert set(FINDINGS) <= {name for run in PLAN for names in run.findings.values() for name in names}


def test_a_signal_closes_up_to_2_7_what_it_leaves_open_later() -> None:
    """A16: one run in both editions."""
    asked = (run(edition, 2, 2, 2, ("signal",)) for edition in (TORCH, TORCH_2_7))
    later, before = (report(one).verdict("restarts_left_are_used").status for one in asked)
    assert (later, before) == (Status.HOLDS, Status.VIOLATED)


def test_a_failed_agent_of_1_10_waits_for_those_that_pass_the_barrier() -> None:
    """The exit barrier after a failure (elastic-node-change 3.3): both nodes pass it, one failed and one successful."""
    ends = """start_agent(0) start_agent(1) join(0) join(1) return_with_a_round(0) return_with_a_round(1)
        start_workers(0) start_workers(1) worker_fails(0) find_failure(0) workers_succeed(1) enter_barrier(1)
        pass_barrier(1)"""
    system = run(SEED, 2, 2, 2, ("worker_failure",), max_restarts=0).build()
    state = after(system, f"{ends} pass_barrier(0)")
    assert cells(system, state, "ending") == [ordinal(Ending.FAILED), ordinal(Ending.SUCCEEDED)]
    later = run(TORCH, 2, 2, 2, ("worker_failure",), max_restarts=0).build()
    assert "pass_barrier(1)" not in allowed(later, after(later, ends.removesuffix("pass_barrier(1)")))


def test_only_the_agent_of_1_9_waits_forever_for_a_stopped_worker() -> None:
    """A18: one run in three editions, and in the edition of 1.9 with the time-out of 1.10."""
    asked, kills = run(SEED, 2, 1, 2, ("deaf",)), wrong("Kills", Seed, kill_workers=Environment.kill_workers)
    assert {*UNENDING} <= violated(report(asked))
    for later in (replace(asked, edition=TORCH_2_7), replace(asked, edition=TORCH), replace(asked, system=bare(kills))):
        assert not {*UNENDING} & violated(report(later))


# ---- the runs of the seed


TWO_RUN = """
    start_agent(0) start_agent(1) join(0) join(1) mark_complete(0) return_with_a_round(0) return_with_a_round(1)
    start_workers(0) start_workers(1)"""
A_THIRD_COMES = {
    TORCH: """start_agent(2) join(2) restart_workers(0) restart_workers(1) exit_round(0) exit_round(1) join(0) join(1)
        join(2) mark_complete(0)""",
    TRYSTATE: """start_agent(2) join(2) replace_round(0) restart_workers(0) restart_workers(1) exit_round(0)
        exit_round(1) join(0) join(1) mark_complete(0)""",
}


def cells(system: System, state: tuple[int, ...], name: str) -> list[int]:
    return [state[place] for cell, place in system.positions.items() if cell.partition("[")[0] == name]


@pytest.mark.parametrize("edition", A_THIRD_COMES)
def test_a_third_node_joins_two_that_run_without_spending_a_restart(
    edition: Edition,
) -> None:
    """The example of elastic-node-change 2.1: --nnodes=1:4."""
    system = run(edition, 3, 1, 4, (), ends=0).build()
    assert cells(system, after(system, TWO_RUN), "current") == [1, 1, 0]
    came = f"{TWO_RUN} {A_THIRD_COMES[edition]}"
    begun = " ".join(f"return_with_a_round({k}) start_workers({k})" for k in range(3))
    three = after(system, f"{came} {begun}")
    assert cells(system, three, "current") == [1, 1, 1]
    assert cells(system, three, "workers") == [ordinal(WorkerState.HEALTHY)] * 3
    assert cells(system, three, "spent") == [0]
    assert not allowed(system, three), "all three continue to run"


@pytest.mark.parametrize("edition", [TORCH, TRYSTATE])
def test_without_restarts_the_first_failure_ends_the_agent(edition: Edition) -> None:
    """The scheduler may start the job again (elastic-node-change 1.1)."""
    found = report(run(edition, 2, 2, 2, ("worker_failure",), max_restarts=0))
    assert found.verdict("a_round_is_replaced").status is not Status.HOLDS
    assert found.verdict("restarts_are_limited").status is Status.HOLDS
    assert report(run(edition, 2, 2, 2, ("worker_failure",))).verdict("a_round_is_replaced").status is Status.HOLDS


# ---- ablations: our repairs, undone one by one


class EndsTheBarrierByTime(Ours):
    """The exit barrier times out as if all had succeeded (A13)."""

    @environment(each="node")
    def run_out_of_time(self, s: S, node: Expr) -> None:
        """Ends with success."""
        self.goes(s, node, Loop.BARRIER)
        self.end(s, node, Ending.SUCCEEDED)


class EndsWithoutTheStore(Ours):
    """A monitor loop that cannot reach the store raises (A4)."""

    @transition(each="node")
    def raise_what_the_store_raises(self, s: S, node: Expr) -> None:
        """Ends."""
        self.goes(s, node, Loop.MONITORING)
        s.when(s.store_down)
        self.end(s, node, Ending.CUT_OFF)


def _just_joins(self: Ours, s: S, node: Expr) -> None:
    self.acts(s, node, Loop.RESTARTING)
    s.workers[node] = WorkerState.STOPPED
    s.loop[node] = Loop.JOINING


def _overwrites_the_verdict(self: Ours, s: S, node: Expr) -> None:
    self.acts(s, node, Loop.MONITORING)
    s.when(s.workers[node] == WorkerState.SUCCEEDED, s.current[node])
    s.succeeded[node] = True
    s.loop[node] = Loop.BARRIER
    some = (s.verdict == Verdict.NONE) & (s.succeeded.count() < self.members(s))
    s.verdict = ite(some, Verdict.NONE, Verdict.SUCCEEDED)


# fmt: off
ABLATIONS = (
    # An agent does not wait for a worker that it stops.
    (wrong("LeavesWhileTheyRun", Ours, has_stopped=lambda self, s, node: None), run(TRYSTATE, 2, 1, 2, ("deaf",)),
     ("one_group_in_the_job", "one_group_on_a_node")),
    # The wait for a worker has no time-out.
    (wrong("NeverKills", Ours, kill_workers=None), run(TRYSTATE, 2, 1, 2, ("deaf",)),
     ("everybody_ends", "joins_end", "stopped_workers_end")),
    # A2: an agent that withdraws closes the rendezvous without a reason.
    (altered("LeavingCloses", Ours, "withdraw", "self.end(s, node, Ending.SIGNALLED)",
     "self.end(s, node, Ending.SIGNALLED); s.verdict = ite(self.is_open(s), Verdict.UNSAID, s.verdict)"),
     run(TRYSTATE, 2, 1, 2, ("signal",)), ("closing_says_why", "restarts_left_are_used")),
    # A2: an agent that waits in the exit barrier only checks the verdict.
    (altered("WaitsInTheBarrier", Ours, "restart_workers", "node, Loop.MONITORING, Loop.BARRIER",
     "node, Loop.MONITORING"),
     run(TRYSTATE, 2, 2, 2, ("worker_failure",)), ("deadlock_freedom", "everybody_ends", "joins_end")),
    (EndsTheBarrierByTime, run(TRYSTATE, 2, 2, 2, ("worker_failure",)), ("one_verdict", "success_is_everybodys")),
    (EndsWithoutTheStore, run(TRYSTATE, 2, 2, 2, ("outage",)), ("outages_are_survived",)),
    (altered("LeavesSparesWithoutAnAnswer", Ours, "error_closed", "Ending.SUCCEEDED,",
     "ite(s.member[node] == Membership.REDUNDANT, Ending.NOTHING, Ending.SUCCEEDED),"),  # A7
     run(TRYSTATE, 3, 2, 2, ()), ("everybody_gets_an_answer",)),
    (altered("SignalsWaitForTheBarrier", Ours, "receive_signal", "= Loop.LEAVING",
     "= ite(s.loop[node] == Loop.BARRIER, Loop.BARRIER, Loop.LEAVING)"),  # A11
     run(TRYSTATE, 2, 2, 2, ("signal",)), ("signals_are_obeyed",)),
    # A12: workers have no parent-death signal.
    (wrong("WorkersOutlive", Ours, workers_die_with_their_agent=lambda self: False),
     run(TRYSTATE, 2, 2, 2, ("crash", "newcomer")), ("one_group_in_the_job", "one_group_on_a_node")),
    # A14: no node checks how many restarts are left.
    (altered("RestartsWithoutEnd", Ours, "spend", "self.max_restarts", "self.counted"),
     run(TRYSTATE, 2, 2, 2, ("worker_failure",)), ("restarts_are_limited",)),
    (altered("ComingSpends", Ours, "replace_round", "self.move_up(s, True)",
     "self.move_up(s, True); s.spent = ite(s.spent < self.max_restarts, s.spent + 1, s.spent)"),
     run(TRYSTATE, 2, 1, 2, ()), ("coming_spends_nothing",)),
    # A node that rejoins quickly restarts the job for ever.
    (altered("LossesAreFree", Ours, "expel", "replaced = self.spend(s, lost)",
     "replaced, s.spent = self.spend(s, lost), before.spent"), run(TRYSTATE, 2, 1, 2, ("crash",)), ("losses_spend",)),
    (altered("RestartsWhatIsFinal", Ours, "exit_round", "failed & s.final[node]", "failed & (s.spent < 0)"),
     run(TRYSTATE, 2, 2, 2, ("final_failure",)), ("some_failures_end_the_job",)),
    (altered("FailsAtOnce", Ours, "spend", "s.spent < self.max_restarts", "s.spent < 0"),
     run(TRYSTATE, 2, 2, 2, ("worker_failure",)), ("restarts_left_are_used",)),
    (wrong("NobodyIsExpelled", Ours, expel=None), run(TRYSTATE, 2, 1, 2, ("crash",), ends=0),
     ("deadlock_freedom", "departures_are_noticed", "joins_end", "the_waiting_are_answered")),
    # A node that comes back continues as if nothing had happened.
    (wrong("GoesOnWithoutALease", Ours, resume=Torch.resume.body), run(TRYSTATE, 2, 1, 2, ("freeze",)),
     ("one_group_in_the_job",)),
    # A15: no watchdog ends the workers.
    (wrong("WatchesNobody", Ours, is_leased=lambda self, s, node: s.spent < 0, watchdog_kills=None),
     run(TRYSTATE, 2, 1, 2, ("stall",)), ("one_group_in_the_job",)),
    # A round completes before the members of the previous round have joined.
    (altered("CompletesWithoutTheExpected", Ours, "mark_complete", ", s.member.count(Membership.EXPECTED) == 0", ""),
     run(TRYSTATE, 2, 1, 2, ("worker_failure",)), ("one_group_in_the_job",)),
    (wrong("JoinsItsRoundAgain", Ours, exit_round=_just_joins), run(TRYSTATE, 2, 2, 2, ("worker_failure",)),
     ("a_restart_is_a_new_round",)),
    (altered("HearsOnlyWhenItWaits", Ours, "error_closed", "node, Loop.JOINING, Loop.MONITORING",
     "node, Loop.JOINING"), run(TRYSTATE, 2, 2, 2, ("worker_failure",), ends=0), ("the_verdict_reaches_everybody",)),
    (altered("SucceedsForAll", Ours, "mark_done", "ite(everybody, Verdict.SUCCEEDED, s.verdict)", "Verdict.SUCCEEDED"),
     run(TRYSTATE, 2, 2, 2, ()), ("success_is_everybodys",)),
    (wrong("SucceedsAfterTheEnd", Ours, mark_done=_overwrites_the_verdict),
     run(TRYSTATE, 2, 2, 2, ("worker_failure",)), ("one_verdict", "success_is_everybodys", "the_verdict_is_final")),
)
# fmt: on


@pytest.mark.parametrize(("cls", "asked", "broken"), ABLATIONS, ids=lambda x: getattr(x, "__name__", None))
def test_an_ablation_breaks_what_the_repair_is_there_for(
    cls: type[System], asked: Asked, broken: tuple[str, ...]
) -> None:
    assert not violated(report(asked))
    assert violated(report(replace(asked, system=bare(cls)))) == set(broken)


def test_every_property_is_broken_by_an_ablation() -> None:
    asked = claims(Agents(edition=TRYSTATE, faults=(*EVERY_FAULT, "deaf", "final_failure")))
    assert asked == {name for *_, broken in ABLATIONS for name in broken}
