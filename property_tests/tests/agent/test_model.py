"""The elastic agent: what each edition violates, and which repair of ours keeps which property.

Each ablation undoes one of our repairs: what breaks then is exactly what it is there for.
"""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from trystate.model.agent import Agents, Edition, Ending, Loop, Ours, Stopping, Torch, Verdict, WorkerState
from trystate.model.agent.environment import Environment
from trystate.model.agent.findings import EVERY_FAULT, FINDINGS, PLAN
from trystate.model.agent.seed import Seed
from trystate.model.checker.check import check
from trystate.model.checker.expectations import Finding
from trystate.model.checker.kernel import Kernel
from trystate.model.checker.verdicts import Status
from trystate.model.checker.walks import after
from trystate.model.language import Expr, SymbolicState, System, environment, ite, may, transition
from trystate.model.language.sorts import ordinal
from trystate.model.rendezvous.vocabulary import Membership
from trystate.property_tests.support.nightly import NIGHTLY
from trystate.property_tests.support.pinned import (
    Asked,
    assert_all_happens,
    assert_as_pinned,
    assert_engines_agree,
    bare,
    claims,
    is_planned,
    report,
    violated,
)
from trystate.property_tests.support.runs import allowed
from trystate.property_tests.tests.checker.test_random_systems import AVAILABLE
from trystate.search.plans import showcase

S = SymbolicState
SEED, TORCH, TORCH_2_7, TRYSTATE = Edition.SEED, Edition.TORCH, Edition.TORCH_2_7, Edition.TRYSTATE
EVERY_FAULT_BUT_FREEZE = tuple(fault for fault in EVERY_FAULT if fault != "freeze")


def run(
    edition: Edition,
    nodes: int,
    min_nodes: int,
    max_nodes: int,
    faults: tuple[str, ...],
    states: int = 0,
    *,
    ends: int = 1,
    max_restarts: int = 1,
    counted: int = 2,
    max_faults: int | None = None,
    violated: tuple[str, ...] = (),
) -> Asked:
    """One exploration: its edition, size and faults, how many states it has, and exactly what it violates."""
    sizes = (
        f"node={nodes} min_nodes={min_nodes} max_nodes={max_nodes} ends={ends} max_restarts={max_restarts} "
        f"counted={counted}"
    )
    return Asked(Agents, edition, sizes, states, " ".join(violated), faults, max_faults)


# Violated by a wait without a time-out (A18).
UNENDING = ("stopped_workers_end", "everybody_ends", "joins_end", "the_waiting_are_answered")

# Edition, nodes, min, max, faults, states.
# fmt: off
ASKED = (
    run(TORCH, 2, 2, 2, (), 59, violated=("closing_says_why", "success_is_everybodys")),
    run(TORCH, 2, 2, 2, ("worker_failure",), 528,
        violated=("restarts_left_are_used", "closing_says_why", "one_verdict", "success_is_everybodys",
                  "restarts_are_limited")),
    run(TORCH, 2, 2, 2, ("crash", "newcomer"), 607,
        violated=("restarts_left_are_used", "closing_says_why", "one_verdict", "success_is_everybodys",
                  "one_group_in_the_job", "one_group_on_a_node")),
    run(TORCH, 2, 1, 2, ("stall",), 1206,
        violated=("restarts_left_are_used", "closing_says_why", "one_verdict", "success_is_everybodys",
                  "one_group_in_the_job")),
    run(TORCH, 2, 1, 2, ("freeze",), 1206,
        violated=("restarts_left_are_used", "closing_says_why", "one_verdict", "success_is_everybodys",
                  "one_group_in_the_job")),
    run(TORCH, 2, 1, 2, ("crash",), 229, ends=0, violated=("one_group_in_the_job", "departures_are_noticed")),
    run(TORCH, 2, 2, 2, ("worker_failure",), 168, ends=0,
        violated=("restarts_left_are_used", "closing_says_why", "restarts_are_limited",
                  "the_verdict_reaches_everybody")),
    run(TORCH, 3, 2, 2, (), 755,
        violated=("restarts_left_are_used", "closing_says_why", "one_verdict", "success_is_everybodys",
                  "everybody_gets_an_answer")),
    run(TORCH, 3, 2, 2, ("worker_failure",), 27749,
        violated=("restarts_left_are_used", "closing_says_why", "one_verdict", "success_is_everybodys",
                  "restarts_are_limited", "everybody_gets_an_answer", "everybody_ends", "joins_end",
                  "the_waiting_are_answered")),
    run(TORCH, 3, 2, 3, ("signal",), 8244,
        violated=("restarts_left_are_used", "closing_says_why", "one_verdict", "success_is_everybodys",
                  "signals_are_obeyed")),
    run(TORCH, 3, 2, 3, ("outage",), 46529,
        violated=("restarts_left_are_used", "closing_says_why", "one_verdict", "success_is_everybodys",
                  "outages_are_survived")),
    run(TORCH, 2, 2, 2, ("worker_failure",), 144, max_restarts=0,
        violated=("restarts_left_are_used", "closing_says_why", "one_verdict", "success_is_everybodys")),
    run(TORCH, 2, 1, 2, ("deaf",), 370,
        violated=("restarts_left_are_used", "closing_says_why", "one_verdict", "success_is_everybodys")),
    run(TORCH, 2, 2, 2, ("worker_failure", "deaf"), 1680,
        violated=("restarts_left_are_used", "closing_says_why", "one_verdict", "success_is_everybodys",
                  "restarts_are_limited")),
    run(TORCH, 3, 1, 4, (), 654, ends=0),
    run(TORCH_2_7, 2, 2, 2, ("signal",), 257,
        violated=("restarts_left_are_used", "closing_says_why", "success_is_everybodys", "signals_are_obeyed")),
    run(TORCH_2_7, 2, 1, 2, ("deaf",), 370,
        violated=("restarts_left_are_used", "closing_says_why", "one_verdict", "success_is_everybodys")),
    run(TORCH_2_7, 2, 2, 2, ("worker_failure", "crash"), 1826,
        violated=("restarts_left_are_used", "closing_says_why", "one_verdict", "success_is_everybodys",
                  "restarts_are_limited")),
    run(TORCH_2_7, 2, 1, 2, ("outage", "stall", "worker_failure", "signal"), 22347, max_faults=2,
        violated=("restarts_left_are_used", "closing_says_why", "one_verdict", "success_is_everybodys",
                  "signals_are_obeyed", "restarts_are_limited", "one_group_in_the_job", "outages_are_survived")),
    run(SEED, 2, 2, 2, ("signal",), 267,
        violated=("restarts_left_are_used", "closing_says_why", "success_is_everybodys", "signals_are_obeyed")),
    run(SEED, 2, 2, 2, ("worker_failure",), 149, max_restarts=0,
        violated=("closing_says_why", "one_verdict", "success_is_everybodys")),
    run(SEED, 2, 1, 2, ("deaf",), 370,
        violated=("restarts_left_are_used", "closing_says_why", "one_verdict", "success_is_everybodys", *UNENDING)),
    run(SEED, 2, 2, 2, ("worker_failure", "deaf"), 1684,
        violated=("restarts_left_are_used", "closing_says_why", "one_verdict", "success_is_everybodys",
                  "restarts_are_limited", "the_verdict_reaches_everybody", *UNENDING)),
    run(SEED, 2, 2, 2, ("worker_failure", "crash", "newcomer"), 7283,
        violated=("restarts_left_are_used", "closing_says_why", "one_verdict", "success_is_everybodys",
                  "restarts_are_limited", "one_group_on_a_node", "one_group_in_the_job")),
    run(SEED, 2, 1, 2, ("outage", "stall", "worker_failure", "signal"), 22439, max_faults=2,
        violated=("restarts_left_are_used", "closing_says_why", "one_verdict", "success_is_everybodys",
                  "signals_are_obeyed", "restarts_are_limited", "one_group_in_the_job", "outages_are_survived")),
    run(SEED, 3, 2, 2, (), 725,
        violated=("restarts_left_are_used", "closing_says_why", "one_verdict", "success_is_everybodys")),
    run(SEED, 3, 1, 4, (), 654, ends=0),
    run(TRYSTATE, 2, 2, 2, (), 36),
    run(TRYSTATE, 2, 1, 2, (), 108),
    run(TRYSTATE, 2, 2, 2, EVERY_FAULT, 623369),
    run(TRYSTATE, 2, 2, 2, EVERY_FAULT_BUT_FREEZE, 91173, max_restarts=0),
    run(TRYSTATE, 2, 1, 2, EVERY_FAULT_BUT_FREEZE, 374272, max_restarts=2, counted=3),
    run(TRYSTATE, 2, 1, 2, EVERY_FAULT_BUT_FREEZE, 189944, ends=0),
    run(TRYSTATE, 2, 2, 2, ("worker_failure", "crash", "newcomer"), 608, max_restarts=0),
    run(TRYSTATE, 2, 2, 2, ("final_failure",), 74),
    run(TRYSTATE, 2, 2, 2, ("worker_failure", "final_failure", "crash", "newcomer"), 3526),
    run(TRYSTATE, 2, 1, 2, ("worker_failure", "crash", "newcomer", "stall", "deaf"), 73757),
    run(TRYSTATE, 2, 2, 2, ("stall", "outage", "signal", "deaf"), 16803),
    run(TRYSTATE, 3, 2, 3, ("worker_failure", "deaf"), 23743),
    run(TRYSTATE, 3, 1, 4, (), 594, ends=0),
    run(TRYSTATE, 3, 2, 2, ("worker_failure", "crash", "newcomer"), 20184),
    run(TRYSTATE, 3, 2, 3, ("worker_failure", "stall"), 105135),
    run(TRYSTATE, 3, 2, 3, ("worker_failure", "signal"), 41728),
)
# fmt: on


@pytest.mark.parametrize("asked", ASKED, ids=str)
def test_an_edition_violates_exactly_what_is_known(asked: Asked) -> None:
    assert_as_pinned(asked)


@pytest.mark.parametrize("edition", Edition)
def test_every_step_is_taken_and_every_claimed_move_is_made(edition: Edition) -> None:
    assert_all_happens(a for a in ASKED if a.edition is edition)


SMALL = tuple(
    a
    for a in ASKED
    if a.states < 1000 and (NIGHTLY or (a.states < 700 and a.numbers["node"] == 2 and "deaf" not in a.faults))
)


@pytest.mark.parametrize("engine", [e for e in AVAILABLE if e != "explicit"])
@pytest.mark.parametrize("asked", SMALL, ids=str)
def test_the_engines_agree(asked: Asked, engine: str) -> None:
    assert_engines_agree(asked, engine)


def test_a_planned_run_is_one_of_which_the_same_is_known() -> None:
    asked = ASKED[0]
    assert is_planned(asked)
    assert not is_planned(replace(asked, states=60))
    assert not is_planned(replace(asked, violated=""))
    assert not is_planned(replace(asked, faults=("signal",)))
    assert not is_planned(replace(asked, together=1))
    assert not is_planned(replace(asked, sizes=asked.sizes.replace("counted=2", "counted=3")))


def test_our_edition_has_no_findings() -> None:
    assert not any(run.findings for run in PLAN if run.edition is TRYSTATE)


def test_every_finding_is_shown_by_a_run_of_torchs_editions() -> None:
    shown = {name for run in PLAN for names in run.findings.values() for name in names}
    assert set(FINDINGS) <= shown


def test_a_signal_closes_up_to_2_7_what_it_leaves_open_later() -> None:
    """A16: the same run, in both editions."""
    asked = (run(edition, 2, 2, 2, ("signal",)) for edition in (TORCH, TORCH_2_7))
    later, before = (report(one).verdict("restarts_left_are_used").status for one in asked)
    assert (later, before) == (Status.HOLDS, Status.VIOLATED)


def test_one_that_fails_waits_for_the_others_in_1_10_which_pass_the_barrier_with_success() -> None:
    """The exit barrier after a failure (elastic-node-change 3.3): both have come, one ends so and the other so."""
    ends = """start_agent(0) start_agent(1) join(0) join(1) return_with_a_round(0) return_with_a_round(1)
        start_workers(0) start_workers(1) worker_fails(0) find_failure(0) workers_succeed(1) enter_barrier(1)
        pass_barrier(1)"""
    system = run(SEED, 2, 2, 2, ("worker_failure",), max_restarts=0).build()
    state = after(system, f"{ends} pass_barrier(0)")
    assert cells(system, state, "ending") == [ordinal(Ending.FAILED), ordinal(Ending.SUCCEEDED)]
    later = run(TORCH, 2, 2, 2, ("worker_failure",), max_restarts=0).build()
    waits = after(later, ends.removesuffix("pass_barrier(1)"))
    assert "pass_barrier(1)" not in allowed(later, waits)


class Kills(Seed):
    """The time-out of the wait, which torch 1.10 has."""

    kill_workers = Environment.kill_workers  # type: ignore[assignment]


def test_only_the_agent_of_1_9_waits_without_end_for_a_worker_that_it_stops() -> None:
    """A18: the same run in three editions, and in 1.9's with the time-out that 1.10 has."""
    asked = run(SEED, 2, 1, 2, ("deaf",))
    assert {*UNENDING} <= violated(report(asked))
    for later in (replace(asked, edition=TORCH_2_7), replace(asked, edition=TORCH), replace(asked, system=bare(Kills))):
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
def test_a_third_node_comes_to_two_of_four_that_run_and_three_run_in_one_round_which_spends_nothing(
    edition: Edition,
) -> None:
    """The example of elastic-node-change 2.1: --nnodes=1:4."""
    system = run(edition, 3, 1, 4, (), ends=0).build()
    two = after(system, TWO_RUN)
    assert cells(system, two, "current") == [1, 1, 0]
    came = f"{TWO_RUN} {A_THIRD_COMES[edition]}"
    begun = " ".join(f"return_with_a_round({k}) start_workers({k})" for k in range(3))
    three = after(system, f"{came} {begun}")
    assert cells(system, three, "current") == [1, 1, 1]
    assert cells(system, three, "workers") == [ordinal(WorkerState.HEALTHY)] * 3
    assert cells(system, three, "spent") == [0]
    assert not allowed(system, three), "all of them run on"


@pytest.mark.parametrize("edition", [TORCH, TRYSTATE])
def test_without_restarts_the_first_failure_ends_the_agent_and_nothing_is_restarted(edition: Edition) -> None:
    """The scheduler may start the job again (elastic-node-change 1.1)."""
    found = report(run(edition, 2, 2, 2, ("worker_failure",), max_restarts=0))
    assert found.verdict("a_round_is_replaced").status is not Status.HOLDS
    assert found.verdict("restarts_are_limited").status is Status.HOLDS
    some = report(run(edition, 2, 2, 2, ("worker_failure",)))
    assert some.verdict("a_round_is_replaced").status is Status.HOLDS


# ---- ablations: our repairs, undone one by one


class LeavingCloses(Ours):
    """An agent that withdraws closes the rendezvous, and does not say why (A2)."""

    @transition(each="node")
    def withdraw(self, s: S, node: Expr) -> None:
        """Closes."""
        Ours.withdraw.body(self, s, node)
        s.verdict = ite(self.is_open(s), Verdict.UNSAID, s.verdict)


class WaitsInTheBarrier(Ours):
    """An agent that waits in the exit barrier looks at nothing but the verdict (A2)."""

    @transition(each="node")
    def restart_workers(self, s: S, node: Expr) -> None:
        """Looks only while it monitors."""
        s.when(s.loop[node] != Loop.BARRIER)
        Ours.restart_workers.body(self, s, node)


class EndsTheBarrierByTime(Ours):
    """The exit barrier ends after a while as if all had succeeded (A13)."""

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


class LeavesSparesWithoutAnAnswer(Ours):
    """A spare gets no verdict (A7)."""

    @transition(each="node")
    def error_closed(self, s: S, node: Expr) -> None:
        """Spares return nothing."""
        Ours.error_closed.body(self, s, node)
        s.ending[node] = ite(s.member[node] == Membership.REDUNDANT, Ending.NOTHING, s.ending[node])


class SignalsWaitForTheBarrier(Ours):
    """A signal in the exit barrier is only remembered (A11)."""

    def remember(self, s: S, node: Expr) -> None:
        """Remembers."""
        before = s.fork()
        Ours.receive_signal.body(self, s, node)
        blocked = before.loop[node] == Loop.BARRIER
        s.loop[node] = ite(blocked, Loop.BARRIER, s.loop[node])

    receive_signal = replace(Ours.receive_signal, body=remember)


class WorkersOutlive(Ours):
    """Workers have no parent-death signal (A12)."""

    def workers_die_with_their_agent(self) -> bool:
        return False


class RestartsWithoutEnd(Ours):
    """Nobody looks how many restarts are left (A14)."""

    def spend(self, s: S, when: Any) -> Any:
        s.spent = ite(when & (s.spent < self.counted), s.spent + 1, s.spent)
        return when


class ComingSpends(Ours):
    """A restart for a node that waits is spent like any other."""

    @transition(each="node")
    def replace_round(self, s: S, node: Expr) -> None:
        """Spends."""
        Ours.replace_round.body(self, s, node)
        s.spent = ite(s.spent < self.max_restarts, s.spent + 1, s.spent)


class LossesAreFree(Ours):
    """Departures spend nothing: who rejoins quickly restarts the job for ever."""

    @transition(each="node")
    def expel(self, s: S, node: Expr) -> None:
        """Spends nothing."""
        before = s.fork()
        Ours.expel.body(self, s, node)
        s.spent = before.spent


class FailsAtOnce(Ours):
    """The first failure closes the job, whatever is left."""

    def spend(self, s: S, when: Any) -> Any:
        s.verdict = ite(when, Verdict.FAILED, s.verdict)
        return when & (s.spent < 0)


class RestartsWhatIsFinal(Ours):
    """Nobody looks at exit codes."""

    @transition(each="node")
    def exit_round(self, s: S, node: Expr) -> None:
        """Spends a restart."""
        s.final[node] = False
        Ours.exit_round.body(self, s, node)


class FinalFailuresSpend(Ours):
    """A failure that is not restarted spends a restart as well."""

    @transition(each="node")
    def exit_round(self, s: S, node: Expr) -> None:
        """Spends."""
        before = s.fork()
        Ours.exit_round.body(self, s, node)
        s.spent = ite(s.failed_for_good & (before.spent < self.max_restarts), before.spent + 1, s.spent)


class NobodyIsExpelled(Ours):
    """Nobody looks at heartbeats."""

    expel = None  # type: ignore[assignment]


class NobodyGivesUp(Ours):
    """A join has no deadline."""

    error_timeout = None  # type: ignore[assignment]


class GoesOnWithoutALease(Ours):
    """A node that comes back goes on as if nothing had happened."""

    resume = Torch.resume


class WaitsOnWhenItComesBack(Ours):
    """A node that comes back, and is on no list, waits on for a worker that does not end at SIGTERM."""

    @environment(each="node", fair=True)
    def resume(self, s: S, node: Expr) -> None:
        """SIGTERM is all that the worker gets."""
        before = s.stopping[node]
        Ours.resume.body(self, s, node)
        s.stopping[node] = ite(before == Stopping.ASKED, before, s.stopping[node])


class WatchesNobody(Ours):
    """Nothing outside of the agent ends its workers (A15)."""

    watchdog_kills = None  # type: ignore[assignment]

    def is_leased(self, s: S, node: Expr) -> Any:
        return s.spent < 0


class ExpelsBeforeTheLeaseEnds(Ours):
    """The window is shorter than the lease."""

    def is_leased(self, s: S, node: Expr) -> Any:
        return s.spent < 0

    @environment(each="node")
    def watchdog_kills(self, s: S, node: Expr) -> None:
        """Kills, once that is too late as well."""
        s.when(Ours.is_leased(self, s, node))
        s.workers[node] = WorkerState.STOPPED


class CompletesWithoutTheExpected(Ours):
    """A round completes while members of the one before have not come."""

    @transition(each="node")
    def mark_complete(self, s: S, node: Expr) -> None:
        """Does not wait for the expected."""
        self.acts(s, node, Loop.JOINING)
        s.when(
            self.is_open(s), ~s.complete, s.member[node] == Membership.PARTICIPANT, self.members(s) >= self.min_nodes
        )
        self.settle(s, True)


class MovesUpInTheSeatsOfTheExpected(Ours):
    """Where a round is replaced, no seat is kept for the members of the old one."""

    def move_up(self, s: S, when: Any) -> None:
        """Fills all seats that no member has."""
        expected = s.fork()
        for j in s.node:
            gone = when & (s.member[j] == Membership.EXPECTED)
            s.member[j] = ite(gone, Membership.OUTSIDE, s.member[j])
        Ours.move_up(self, s, when)
        for j in s.node:
            kept = when & (expected.member[j] == Membership.EXPECTED)
            s.member[j] = ite(kept, Membership.EXPECTED, s.member[j])


class JoinsInTheSeatOfTheExpected(Ours):
    """A node that joins takes any seat that no member has."""

    @transition(each="node")
    def join(self, s: S, node: Expr) -> None:
        """Looks at the members alone."""
        self.acts(s, node, Loop.JOINING)
        comes = ~s.complete & (self.members(s) < self.max_nodes)
        listed = ite(comes, Membership.PARTICIPANT, ite(self.seats(s), Membership.WAITING, Membership.REDUNDANT))
        s.when(self.is_open(s), s.member[node] != Membership.PARTICIPANT, s.member[node] != listed)
        s.member[node] = listed
        self.settle(s, self.is_full(s))


class ExpelsTheSurvivorsToo(Ours):
    """Where a member is lost, its whole round is taken off the lists: nobody waits until the others have stopped."""

    @transition(each="node", moves=[*may(Verdict.NONE, Verdict.FAILED)])
    def expel(self, s: S, node: Expr) -> None:
        """Leaves nobody expected."""
        before = s.fork()
        Ours.expel.body(self, s, node)
        for j in s.node:
            lost = before.complete & ~s.complete & (s.member[j] == Membership.EXPECTED)
            s.member[j] = ite(lost, Membership.OUTSIDE, s.member[j])


class JoinsItsRoundAgain(Ours):
    """A member that restarts does not replace its round."""

    @transition(each="node")
    def exit_round(self, s: S, node: Expr) -> None:
        """Just joins."""
        self.acts(s, node, Loop.RESTARTING)
        s.workers[node] = WorkerState.STOPPED
        s.loop[node] = Loop.JOINING


class HearsOnlyWhenItWaits(Ours):
    """An agent whose workers run does not look whether the rendezvous is closed."""

    @transition(each="node")
    def error_closed(self, s: S, node: Expr) -> None:
        """Not while it monitors."""
        s.when(s.loop[node] != Loop.MONITORING)
        Ours.error_closed.body(self, s, node)


class OverlooksWhoWaits(Ours):
    """An agent looks only whether its round still stands."""

    replace_round = None  # type: ignore[assignment]


class SucceedsForAll(Ours):
    """The first success closes the rendezvous."""

    @transition(each="node")
    def mark_done(self, s: S, node: Expr) -> None:
        """Closes as succeeded."""
        Ours.mark_done.body(self, s, node)
        s.verdict = Verdict.SUCCEEDED


class SucceedsAfterTheEnd(Ours):
    """A success is reported into a rendezvous that is closed."""

    @transition(each="node")
    def mark_done(self, s: S, node: Expr) -> None:
        """Overwrites the verdict."""
        self.acts(s, node, Loop.MONITORING)
        s.when(s.workers[node] == WorkerState.SUCCEEDED, s.current[node])
        s.succeeded[node] = True
        s.loop[node] = Loop.BARRIER
        s.verdict = ite(
            (s.verdict == Verdict.NONE) & (s.succeeded.count() < self.members(s)), Verdict.NONE, Verdict.SUCCEEDED
        )


class LeavesWhileTheyRun(Ours):
    """An agent waits for no worker that it stops."""

    def has_stopped(self, s: S, node: Expr) -> None:
        pass


class WithdrawsWhileTheyRun(Ours):
    """An agent that got a signal withdraws before its workers have ended."""

    @transition(each="node")
    def withdraw(self, s: S, node: Expr) -> None:
        """Says so at once."""
        waits = s.stopping[node]
        s.stopping[node] = Stopping.PROMPT
        Ours.withdraw.body(self, s, node)
        s.stopping[node] = waits


class NeverKills(Ours):
    """The wait for a worker has no time-out."""

    kill_workers = None  # type: ignore[assignment]


# fmt: off
ABLATIONS = (
    (LeavesWhileTheyRun, run(TRYSTATE, 2, 1, 2, ("deaf",)), ("one_group_in_the_job", "one_group_on_a_node")),
    (WithdrawsWhileTheyRun, run(TRYSTATE, 2, 1, 2, ("signal", "deaf")), ("one_group_in_the_job",)),
    (NeverKills, run(TRYSTATE, 2, 1, 2, ("deaf",)), ("everybody_ends", "joins_end", "stopped_workers_end")),
    (LeavingCloses, run(TRYSTATE, 2, 1, 2, ("signal",)), ("closing_says_why", "restarts_left_are_used")),
    (WaitsInTheBarrier, run(TRYSTATE, 2, 2, 2, ("worker_failure",)),
     ("deadlock_freedom", "everybody_ends", "joins_end")),
    (EndsTheBarrierByTime, run(TRYSTATE, 2, 2, 2, ("worker_failure",)), ("one_verdict", "success_is_everybodys")),
    (EndsWithoutTheStore, run(TRYSTATE, 2, 2, 2, ("outage",)), ("outages_are_survived",)),
    (LeavesSparesWithoutAnAnswer, run(TRYSTATE, 3, 2, 2, ()), ("everybody_gets_an_answer",)),
    (SignalsWaitForTheBarrier, run(TRYSTATE, 2, 2, 2, ("signal",)), ("signals_are_obeyed",)),
    (WorkersOutlive, run(TRYSTATE, 2, 2, 2, ("crash", "newcomer")), ("one_group_in_the_job", "one_group_on_a_node")),
    (RestartsWithoutEnd, run(TRYSTATE, 2, 2, 2, ("worker_failure",)), ("restarts_are_limited",)),
    (ComingSpends, run(TRYSTATE, 2, 1, 2, ()), ("coming_spends_nothing",)),
    (LossesAreFree, run(TRYSTATE, 2, 1, 2, ("crash",)), ("losses_spend",)),
    (RestartsWhatIsFinal, run(TRYSTATE, 2, 2, 2, ("final_failure",)),
     ("some_failures_end_the_job",)),
    (FinalFailuresSpend, run(TRYSTATE, 2, 2, 2, ("final_failure",)),
     ("some_failures_end_the_job",)),
    (FailsAtOnce, run(TRYSTATE, 2, 2, 2, ("worker_failure",)), ("restarts_left_are_used",)),
    (NobodyIsExpelled, run(TRYSTATE, 2, 1, 2, ("crash",)),
     ("deadlock_freedom", "everybody_ends", "joins_end", "the_waiting_are_answered")),
    (NobodyIsExpelled, run(TRYSTATE, 2, 1, 2, ("crash",), ends=0),
     ("deadlock_freedom", "departures_are_noticed", "joins_end", "the_waiting_are_answered")),
    (NobodyGivesUp, run(TRYSTATE, 2, 2, 2, ("crash",)), ("deadlock_freedom", "everybody_ends", "joins_end")),
    (GoesOnWithoutALease, run(TRYSTATE, 2, 1, 2, ("freeze",)), ("one_group_in_the_job",)),
    (WaitsOnWhenItComesBack, run(TRYSTATE, 2, 1, 2, ("freeze", "deaf")), ("one_group_in_the_job",)),
    (WatchesNobody, run(TRYSTATE, 2, 1, 2, ("stall",)), ("one_group_in_the_job",)),
    (ExpelsBeforeTheLeaseEnds, run(TRYSTATE, 2, 1, 2, ("stall",)), ("one_group_in_the_job",)),
    (CompletesWithoutTheExpected, run(TRYSTATE, 2, 1, 2, ("worker_failure",)), ("one_group_in_the_job",)),
    (MovesUpInTheSeatsOfTheExpected, run(TRYSTATE, 3, 2, 2, ("worker_failure",)), ("one_group_in_the_job",)),
    (JoinsInTheSeatOfTheExpected, run(TRYSTATE, 3, 2, 2, ("worker_failure",)), ("one_group_in_the_job",)),
    (ExpelsTheSurvivorsToo, run(TRYSTATE, 2, 1, 2, ("crash", "newcomer")), ("one_group_in_the_job",)),
    (JoinsItsRoundAgain, run(TRYSTATE, 2, 2, 2, ("worker_failure",)), ("a_restart_is_a_new_round",)),
    (HearsOnlyWhenItWaits, run(TRYSTATE, 2, 2, 2, ("worker_failure",), ends=0), ("the_verdict_reaches_everybody",)),
    (OverlooksWhoWaits, run(TRYSTATE, 2, 1, 2, (), ends=0),
     ("deadlock_freedom", "joins_end", "the_waiting_are_answered")),
    (SucceedsForAll, run(TRYSTATE, 2, 2, 2, ()), ("success_is_everybodys",)),
    (SucceedsAfterTheEnd, run(TRYSTATE, 2, 2, 2, ("worker_failure",)),
     ("one_verdict", "success_is_everybodys", "the_verdict_is_final")),
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


# ---- what the documents say


PAGE = Path(__file__).resolve().parents[3] / "docs" / "agent.md"


@pytest.mark.skipif(not PAGE.is_file(), reason="needs a clone: a wheel holds packages only")
@pytest.mark.parametrize("finding", FINDINGS.values(), ids=lambda f: f.name)
def test_the_page_shows_the_shortest_run_of_each_finding(finding: Finding) -> None:
    found = showcase(finding, PLAN)
    assert found is not None
    run, name = found
    verdict = check(run.build()).verdict(name)
    assert verdict.run is not None
    instances = Kernel(run.build()).instances
    steps = " → ".join(instances[k].label for k in verdict.run.path.steps)
    words = " ".join(PAGE.read_text(encoding="utf-8").split())
    assert f"`{name}`" in words
    assert steps in words


# ---- torch's three steps: SIGTERM, the wait, SIGKILL


class TorchLeavesWhileTheyRun(Torch):
    """An agent waits for no worker that it stops."""

    def has_stopped(self, s: S, node: Expr) -> None:
        pass


class TorchNeverKills(Torch):
    """The wait for a worker has no time-out."""

    kill_workers = None  # type: ignore[assignment]


@pytest.mark.parametrize(
    ("cls", "broken"),
    [
        (TorchLeavesWhileTheyRun, {"one_group_in_the_job", "one_group_on_a_node"}),
        (TorchNeverKills, {"everybody_ends", "joins_end", "stopped_workers_end", "the_waiting_are_answered"}),
    ],
    ids=lambda x: getattr(x, "__name__", None),
)
def test_of_three_steps_torch_needs_each(cls: type[System], broken: set[str]) -> None:
    """elastic-node-change 2.3.3.3; what is known of torch's edition is violated all the same."""
    asked = run(TORCH, 2, 1, 2, ("deaf",))
    assert violated(report(replace(asked, system=bare(cls)))) - violated(report(asked)) == broken
