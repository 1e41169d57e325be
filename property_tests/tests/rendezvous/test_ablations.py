"""Why our rendezvous needs each of its repairs: without it, a property fails that holds with it.

Each class below undoes one repair, and nothing else. Beside it stands the finding of torch that comes back, a small
system in which that shows, the properties that fail there, and the length of the shortest run of the first of them.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from functools import cache
from typing import Any

import pytest

from trystate.model.checker.check import check
from trystate.model.checker.verdicts import Report
from trystate.model.language import Expr, Form, SymbolicState, any_, count, ite, ord_
from trystate.model.language.transitions import Rule
from trystate.model.rendezvous import Ours, Rendezvous, Torch213
from trystate.model.rendezvous.findings import EVERY_FAULT, FINDINGS
from trystate.model.rendezvous.torch import Torch
from trystate.model.rendezvous.vocabulary import (
    Action,
    AgentPhase,
    Deadline,
    Edition,
    Heartbeat,
    JoinDeadline,
    Membership,
)
from trystate.property_tests.support.nightly import a_third
from trystate.property_tests.support.pinned import bare, violated

S = SymbolicState


def only_where(name: str, condition: Callable[[S, Expr], Any]) -> Rule:
    """The step of this name, in fewer states."""
    rule: Rule = getattr(Ours, name)

    def body(self: Ours, s: S, node: Expr) -> None:
        s.when(condition(s, node))
        rule.body(self, s, node)

    body.__doc__ = rule.body.__doc__
    return replace(rule, body=body)


class KeepsItsMaster(Ours):
    """A member uses the master of an earlier round."""

    def returns_if(self, s: S, node: Expr, full: Any) -> None:
        before = s.fork()
        super().returns_if(s, node, full)
        s.master[node] = ite(before.master[node] == 0, s.master[node], before.master[node])

    def restart(self, s: S, node: Expr, when: Any = True) -> None:
        before = s.fork()
        super().restart(s, node, when)
        s.master[node] = before.master[node]


class LeavesAlone(Ours):
    """A member that restarts takes itself out of the complete round, which goes on without it."""

    def begin_new_round(self, s: S, replaced: Any) -> None:
        if replaced is not True:
            super().begin_new_round(s, replaced)

    def move_up(self, s: S, replaced: Any) -> None:
        if replaced is not True:
            super().move_up(s, replaced)

    def returns_if(self, s: S, node: Expr, full: Any) -> None:
        super().returns_if(s, node, full)
        leaves = (s.phase[node] == AgentPhase.JOINING) & s.complete
        s.member[node] = ite(leaves, Membership.OUTSIDE, s.member[node])
        s.rank[node] = ite(leaves, 0, s.rank[node])
        s.heartbeat_age[node] = ite(leaves, Heartbeat.NONE, s.heartbeat_age[node])


class DropsTheSilent(Ours):
    """A member that is expelled is dropped from the complete round, which goes on without it."""

    def begin_new_round(self, s: S, replaced: Any) -> None:
        if replaced is True:
            super().begin_new_round(s, replaced)

    def move_up(self, s: S, replaced: Any) -> None:
        if replaced is True:
            super().move_up(s, replaced)


class LooksAtTheWaitListAlone(Ours):
    """A member looks only whether somebody waits, and not whether its round is still there."""

    restart_workers = only_where("restart_workers", lambda s, node: s.member.count(Membership.WAITING) > 0)


class CountsNoneOut(Ours):
    """A round completes although members of the one before it may still run."""

    def atoms(self, s: S, operator: str, node: Expr) -> dict[str, Any]:
        return {**super().atoms(s, operator, node), "ready": s.deadline == Deadline.PASSED}


class GivesSeatsAway(Ours):
    """The seats of those who are expected are given to others."""

    def taken(self, s: S) -> Any:
        return self.participants(s)


class TellsNoRoundsApart(Ours):
    """A node that returned from a round takes the next one for the same."""

    def forget_returns(self, s: S, replaced: Any) -> None:
        pass


class ComparesClocks(Ours):
    """An observer compares a time stamp with its own clock."""

    def silent_to(self, s: S, observer: Expr, node: Expr) -> Any:
        behind = (s.heartbeat_age[node] != Heartbeat.NONE) & s.clock_behind[node] & ~s.clock_behind[observer]
        return super().silent_to(s, observer, node) | behind


class BeatsByTheWallClock(Ours):
    """A wall clock that goes back stops its node's heartbeats."""

    keep_alive = only_where("keep_alive", lambda s, node: ~s.clock_behind[node])

    def falls_silent(self, s: S, node: Expr) -> Any:
        return super().falls_silent(s, node) | s.clock_behind[node]


class ComesBackRunning(Ours):
    """A node that was stalled goes on with its workers, whatever happened meanwhile."""

    def restart(self, s: S, node: Expr, when: Any = True) -> None:
        if when is True:
            super().restart(s, node)


class RunsOnWhenCutOff(Ours):
    """A node that is cut off from the store lets its workers run."""

    lose_lease = None  # type: ignore[assignment]

    def falls_silent(self, s: S, node: Expr) -> Any:
        return super().falls_silent(s, node) | (s.partitioned[node] & ~s.store_down)


class ReturnsWithoutALease(Ours):
    """A member that finds its round complete returns, though the others may take it for dead."""

    def atoms(self, s: S, operator: str, node: Expr) -> dict[str, Any]:
        return {**super().atoms(s, operator, node), "lease": True}


class BeatsOnceItRuns(Ours):
    """A member that has returned, and is not yet where its group meets, does not beat."""

    keep_alive = only_where("keep_alive", lambda s, node: s.phase[node] != AgentPhase.RETURNING)

    def falls_silent(self, s: S, node: Expr) -> Any:
        return super().falls_silent(s, node) | (s.phase[node] == AgentPhase.RETURNING)


class BeatsUntilItIsDone(Ours):
    """A node whose workers are done does not beat."""

    keep_alive = only_where("keep_alive", lambda s, node: s.phase[node] != AgentPhase.DONE)

    def falls_silent(self, s: S, node: Expr) -> Any:
        return super().falls_silent(s, node) | (s.phase[node] == AgentPhase.DONE)


class TwoClients(Torch213):
    """torch's, where the heartbeats have a client of their own."""

    is_blocked = Torch.is_blocked
    falls_silent = Torch.falls_silent


class CountsOutages(Ours):
    """An observer counts the time in which it could not reach the store."""

    def falls_silent(self, s: S, node: Expr) -> Any:
        return super().falls_silent(s, node) | s.store_down


class WaitsForEver(Ours):
    """A waiting node that finds no seat goes on waiting."""

    add_to_redundancy_list = only_where("add_to_redundancy_list", lambda s, node: s.member[node] != Membership.WAITING)


class MovesNobodyUp(Ours):
    """A node that waits has to be there in time for the next round."""

    def move_up(self, s: S, replaced: Any) -> None:
        pass


class LastWriterSets(Ours):
    """Each node writes by its own settings."""

    def atoms(self, s: S, operator: str, node: Expr) -> dict[str, Any]:
        return {**super().atoms(s, operator, node), "agrees": True}

    def enlist(self, s: S, node: Expr, member: Membership) -> None:
        super().enlist(s, node, member)
        s.agreed_larger_min = s.larger_min[node]


class JudgesByItsOwn(Ours):
    """An observer expels by its own window, which is shorter than the interval of the others."""

    def atoms(self, s: S, operator: str, node: Expr) -> dict[str, Any]:
        return {**super().atoms(s, operator, node), "agrees": True}

    def silent_to(self, s: S, observer: Expr, node: Expr) -> Any:
        hasty = s.shorter_window[observer] & (observer != node) & (s.heartbeat_age[node] == Heartbeat.DUE)
        return super().silent_to(s, observer, node) | hasty


class ClosesAsItFails(Ours):
    """A node that could not join closes the rendezvous."""

    def closes(self, s: S, node: Expr) -> None:
        self.enters(s, node, AgentPhase.FAILED, AgentPhase.DONE)
        s.when(~s.closed)
        s.closed = True

    mark_closed = replace(Ours.mark_closed, body=closes)


class WithdrawsFromTheComplete(Ours):
    """A late member takes itself off the list of a complete round."""

    def atoms(self, s: S, operator: str, node: Expr) -> dict[str, Any]:
        before = super().atoms(s, operator, node)
        late = s.join_deadline[node] == JoinDeadline.ROLLBACK
        return {**before, "complete": before["complete"] & ~late}


class BeatsForTheDead(Ours):
    """A new process beats for the one before it, which is listed under its address."""

    def beats(self, s: S, node: Expr) -> None:
        self.enters(
            s, node, AgentPhase.EXITING, AgentPhase.JOINING, AgentPhase.RETURNING, AgentPhase.RUNNING, AgentPhase.DONE
        )
        s.when(self.decides(s, "keep-alive", Action.KEEP_ALIVE, node))
        self.stamp(s, node)

    keep_alive = replace(Ours.keep_alive, body=beats)

    def falls_silent(self, s: S, node: Expr) -> Any:
        return super().falls_silent(s, node) & ~s.predecessor_listed[node]


class IgnoresTheKeys(Ours):
    """Ranks follow the names alone."""

    def sorts_before(self, s: S, one: Expr, other: Expr) -> Any:
        return ord_(one) < ord_(other)


class LedByTheFirstName(Ours):
    """The master is the member whose name sorts first."""

    def first(self, s: S) -> Any:
        below = count(
            ~any_((s.member[k] == Membership.PARTICIPANT) & (ord_(k) <= ord_(j)) for k in s.node) for j in s.node
        )
        return ite(self.participants(s) > 0, below + 1, 0)


class TakesNewcomersAtOnce(Ours):
    """A member restarts for a node that waits, however young its round is."""

    def takes_newcomers(self, s: S, node: Expr) -> Any:
        return ~s.crashed[node]


class CountsWhatItWrote(Ours):
    """Only the member that completes the round counts the interval."""

    def returns(self, s: S, node: Expr) -> None:
        Ours.finish.body(self, s, node)
        s.rests[node] = False

    finish = replace(Ours.finish, body=returns)


class NeverGrowsUp(Ours):
    """A member holds newcomers back for ever."""

    own_interval_passes = None  # type: ignore[assignment]


class CountsTheTimeHeldBack(Ours):
    """The join deadline of a node runs while it is held back."""

    def guard_join_deadline(self, s: S, node: Expr) -> None:
        s.when(s.member[node] != Membership.REDUNDANT)


class JoinsBeforeItsCheck(Ours):
    """A member is a participant of the next round while its health command runs."""

    def listed_as(self, s: S, node: Expr) -> Any:
        return Membership.PARTICIPANT


class JoinsUnfit(Ours):
    """A node joins though its health command failed."""

    def goes_on_to_join(self, s: S, node: Expr) -> None:
        self.enters(s, node, AgentPhase.EXITING)
        s.when(self.decides(s, "exit", Action.FINISH, node), ~s.predecessor_listed[node] | s.closed)
        s.phase[node] = AgentPhase.JOINING

    exit_finish = replace(Ours.exit_finish, body=goes_on_to_join)


class StaysExpected(Ours):
    """A node whose health command failed does not step back."""

    stand_by = None  # type: ignore[assignment]


class LeavesWithoutAWord(Ours):
    """A late node does not take itself off the list."""

    def goes(self, s: S, node: Expr) -> None:
        self.fails(s, node, Action.WITHDRAW)

    withdraw = replace(Ours.withdraw, body=goes)


class DrainsAtOnce(Ours):
    """A drained member is off the lists before its workers are stopped."""

    def drains(self, s: S, node: Expr) -> None:
        s.when(~s.store_down, ~s.closed, s.member[node] != Membership.OUTSIDE, ~s.drained[node])
        lost = s.complete & (s.member[node] == Membership.PARTICIPANT)
        self.begin_new_round(s, lost)
        self.unlist(s, node)
        s.drained[node] = False
        self.move_up(s, lost)
        self.settle(s)

    drain = replace(Ours.drain, body=drains)


class LeavesTheRoundOfTheDrained(Ours):
    """The mark alone is written, and the node leaves when it joins the next time."""

    def drains(self, s: S, node: Expr) -> None:
        s.when(~s.store_down, ~s.closed, s.member[node] != Membership.OUTSIDE, ~s.drained[node])
        s.drained[node] = True

    drain = replace(Ours.drain, body=drains)

    def atoms(self, s: S, operator: str, node: Expr) -> dict[str, Any]:
        found = super().atoms(s, operator, node)
        return {**found, "complete": found["complete"] & ~s.drained[node]} if operator == "exit" else found


class JoinsThoughItIsDrained(Ours):
    """A drained node does not look at its mark."""

    def atoms(self, s: S, operator: str, node: Expr) -> dict[str, Any]:
        return {**super().atoms(s, operator, node), "drained": False}


class TakesInTheDrained(Ours):
    """A drained node that waits moves up as all others do."""

    def moves_up(self, s: S, node: Expr) -> None:
        s.when(~s.store_down, ~s.closed, s.member[node] != Membership.OUTSIDE, ~s.drained[node])
        seated = s.member[node] == Membership.PARTICIPANT
        lost = s.complete & seated
        s.drained[node] = True
        self.begin_new_round(s, lost)
        s.member[node] = ite(seated, Membership.EXPECTED, s.member[node])
        for j in s.node:
            waits = s.member[j].isin((Membership.WAITING, Membership.REDUNDANT)) & (self.taken(s) < self.max_nodes)
            s.member[j] = ite(lost & waits, Membership.PARTICIPANT, s.member[j])
        self.settle(s)

    drain = replace(Ours.drain, body=moves_up)


@dataclass(frozen=True)
class Ablation:
    """A repair that is undone, the finding that comes back, where that shows, what fails, and in how many steps."""

    cls: type[Rendezvous]
    findings: tuple[str, ...]
    nodes: int
    min_nodes: int
    max_nodes: int
    faults: tuple[str, ...]
    steps: int
    violated: tuple[str, ...]

    def __str__(self) -> str:
        return f"{self.cls.__name__} {self.nodes} {self.min_nodes} {self.max_nodes} {' '.join(self.faults)}".strip()

    def report(self) -> Report:
        return explored(self.cls, self.nodes, self.min_nodes, self.max_nodes, self.faults)

    def report_with_the_repair(self) -> Report:
        return with_all_repairs(self.nodes, self.min_nodes, self.max_nodes, self.faults)


def explored(cls: type[Rendezvous], nodes: int, min_nodes: int, max_nodes: int, faults: tuple[str, ...]) -> Report:
    system = bare(cls)(edition=Edition.TRYSTATE, faults=faults, node=nodes, min_nodes=min_nodes, max_nodes=max_nodes)
    return check(system, engine="explicit")


@cache
def with_all_repairs(nodes: int, min_nodes: int, max_nodes: int, faults: tuple[str, ...]) -> Report:
    return explored(Rendezvous, nodes, min_nodes, max_nodes, faults)


UNFIT = ("health_check", "unhealthy", "worker_failure")
# Class, findings, nodes, min, max, faults, steps of the shortest run of the first property, properties.
# fmt: off
ABLATIONS = (
    Ablation(KeepsItsMaster, ("R1", "R2", "R16"), 3, 2, 3, (), 15, ("agree_on_master",)),
    Ablation(LeavesAlone, ("R3",), 2, 2, 2, ("worker_failure",), 8,
           ("agree_on_world", "ranks_are_dense", "at_least_min", "the_waiting_are_answered",
            "what_returned_stays_written")),
    Ablation(WithdrawsFromTheComplete, ("R3",), 3, 2, 3, ("join_timeout",), 9,
           ("agree_on_world", "agree_on_master", "ranks_are_dense", "at_least_min", "what_returned_stays_written")),
    Ablation(DropsTheSilent, ("R4", "R14"), 3, 2, 3, ("crash",), 11,
           ("agree_on_world", "agree_on_master", "ranks_are_dense", "at_least_min", "departures_are_noticed",
            "what_returned_stays_written")),
    Ablation(CountsNoneOut, ("R6",), 3, 2, 3, (), 16,
           ("never_two_groups", "agree_on_world", "agree_on_master", "ranks_are_ordered",
            "what_returned_stays_written", "the_complete_expect_nobody")),
    Ablation(GivesSeatsAway, (), 3, 2, 2, ("worker_failure",), 10,
           ("at_most_max", "never_two_groups", "agree_on_world", "agree_on_master", "ranks_are_ordered",
            "what_returned_stays_written", "the_complete_expect_nobody", "seats_are_kept")),
    Ablation(TellsNoRoundsApart, (), 3, 2, 3, ("worker_failure",), 12,
           ("agree_on_world", "what_returned_stays_written", "a_round_ends_for_all")),
    Ablation(LooksAtTheWaitListAlone, ("R6",), 2, 2, 2, ("worker_failure",), 13,
           ("the_removed_are_told", "the_expected_come_or_go")),
    Ablation(ComesBackRunning, ("R6",), 3, 2, 3, ("stall",), 17,
           ("never_two_groups", "who_runs_has_a_lease", "the_replaced_are_expected")),
    Ablation(RunsOnWhenCutOff, ("R6",), 3, 2, 3, ("partition",), 16,
           ("never_two_groups", "who_runs_has_a_lease", "the_replaced_are_expected")),
    Ablation(ReturnsWithoutALease, ("R6",), 3, 2, 3, ("stall",), 18,
           ("never_two_groups", "who_runs_has_a_lease", "the_replaced_are_expected")),
    Ablation(CountsOutages, ("R7",), 2, 1, 2, ("outage",), 14,
           ("never_two_groups", "who_runs_has_a_lease", "the_replaced_are_expected")),
    Ablation(ComparesClocks, ("R5",), 2, 2, 2, ("clock_skew",), 4,
           ("live_nodes_stay", "who_runs_has_a_lease", "the_replaced_are_expected")),
    Ablation(BeatsByTheWallClock, ("R13",), 2, 2, 2, ("clock_step",), 6,
           ("live_nodes_stay", "who_runs_has_a_lease", "the_replaced_are_expected")),
    Ablation(JudgesByItsOwn, ("R12",), 2, 2, 2, ("other_expiry",), 5,
           ("live_nodes_stay", "who_runs_has_a_lease", "the_replaced_are_expected", "the_listed_agree")),
    Ablation(LastWriterSets, ("R9",), 3, 2, 3, ("other_min",), 9, ("at_least_min", "the_listed_agree")),
    Ablation(BeatsOnceItRuns, ("R15",), 2, 2, 2, (), 7,
           ("live_nodes_stay", "who_runs_has_a_lease", "the_replaced_are_expected")),
    Ablation(BeatsUntilItIsDone, ("R19",), 2, 2, 2, ("job_end",), 9, ("live_nodes_stay",)),
    Ablation(WaitsForEver, ("R8",), 3, 1, 2, (), 23, ("full_rounds_come_to_rest", "the_waiting_are_answered")),
    Ablation(MovesNobodyUp, ("R8",), 3, 2, 3, (), 22, ("the_waiting_are_answered",)),
    Ablation(IgnoresTheKeys, (), 2, 2, 2, ("rank_key",), 5, ("ranks_are_ordered", "who_sorts_first_is_the_master")),
    Ablation(LedByTheFirstName, (), 2, 2, 2, ("rank_key",), 5, ("who_sorts_first_is_the_master",)),
    Ablation(TakesNewcomersAtOnce, (), 2, 1, 2, ("scale_up_interval",), 9, ("newcomers_wait_for_the_interval",)),
    Ablation(CountsWhatItWrote, (), 3, 2, 3, ("scale_up_interval",), 12, ("newcomers_wait_for_the_interval",)),
    Ablation(NeverGrowsUp, (), 2, 1, 2, ("scale_up_interval",), 15, ("the_waiting_are_answered",)),
    Ablation(CountsTheTimeHeldBack, (), 2, 1, 2, ("scale_up_interval", "join_timeout"), 8,
           ("the_held_back_have_time",)),
    Ablation(JoinsBeforeItsCheck, (), 2, 1, 2, UNFIT, 8,
           ("members_are_checked_again", "the_unfit_take_no_part", "ranks_are_dense", "what_returned_stays_written")),
    Ablation(JoinsUnfit, (), 2, 1, 2, UNFIT, 4,
           ("the_unfit_take_no_part", "agree_on_world", "at_least_min", "ranks_are_dense", "the_waiting_are_answered",
            "what_returned_stays_written")),
    Ablation(StaysExpected, (), 2, 1, 2, UNFIT, 20,
           ("the_unfit_are_not_awaited", "the_expected_come_or_go", "enough_nodes_complete_a_round")),
    Ablation(DrainsAtOnce, (), 2, 1, 2, ("drain",), 10,
           ("never_two_groups", "who_runs_has_a_lease", "the_replaced_are_expected")),
    Ablation(LeavesTheRoundOfTheDrained, (), 2, 1, 2, ("drain",), 6,
           ("a_drain_spends_no_restart", "the_drained_take_no_seat", "the_drained_leave", "ranks_are_dense",
            "at_least_min", "the_waiting_are_answered", "what_returned_stays_written")),
    Ablation(JoinsThoughItIsDrained, (), 2, 1, 2, ("drain",), 20,
           ("the_drained_leave", "the_drained_take_no_seat", "the_waiting_are_answered")),
    Ablation(TakesInTheDrained, (), 2, 1, 2, ("drain",), 8, ("the_drained_take_no_seat",)),
    Ablation(ClosesAsItFails, ("R10",), 2, 1, 2, ("join_timeout",), 9, ("closing_is_earned",)),
)
# fmt: on


def report_of(cls: type[Rendezvous], faults: tuple[str, ...], max_faults: int, max_nodes: int = 3) -> Report:
    """Three nodes, and at most so many of the faults in a run."""
    sizes = {"node": 3, "min_nodes": 2, "max_nodes": max_nodes}
    system = bare(cls)(edition=Edition.TRYSTATE, faults=faults, max_faults=max_faults, **sizes)
    return check(system, engine="explicit")


@pytest.mark.parametrize("ablation", a_third(ABLATIONS), ids=str)
def test_an_ablation_violates_a_property_that_holds_with_the_repair(ablation: Ablation) -> None:
    assert violated(ablation.report_with_the_repair()) == set()
    found = ablation.report()
    assert violated(found) == set(ablation.violated)
    shortest = found.verdict(ablation.violated[0]).run
    assert shortest is not None
    assert len(shortest.path.steps) == ablation.steps


def test_what_takes_two_different_faults_is_missed_by_any_one_and_found_by_any_two() -> None:
    assert violated(report_of(BeatsForTheDead, EVERY_FAULT, 1)) == set()
    for alone in ("crash", "restart"):
        assert violated(report_of(BeatsForTheDead, (alone,), 2)) == set()
    found = report_of(BeatsForTheDead, ("crash", "restart"), 2)
    assert violated(found) == {"enough_nodes_complete_a_round", "the_expected_come_or_go"}
    run = found.verdict("the_expected_come_or_go").run
    assert run is not None
    assert len(run.path.steps) == 29


@pytest.mark.parametrize("max_nodes", [2, 3])
def test_a_late_node_may_leave_without_a_word(max_nodes: int) -> None:
    """Its withdrawal spares the others the time until they expel it, and no property asks for that."""
    found = report_of(LeavesWithoutAWord, ("join_timeout", "crash", "worker_failure"), 2, max_nodes)
    assert violated(found) == set()
    assert "withdraw" not in found.never_fired


WAITS = {
    "a member that is stopped": ("stall", {"live_nodes_stay", "deadlock_freedom"}, (734, 628)),
    "a member that is done": ("job_end", {"live_nodes_stay"}, (223, 163)),
}


@pytest.mark.parametrize(("fault", "more", "states"), WAITS.values(), ids=WAITS)
def test_torchs_node_that_waits_at_the_store_is_expelled_for_want_of_a_client(
    fault: str, more: set[str], states: tuple[int, int]
) -> None:
    """R15 and R19: not where the heartbeats have a client of their own."""
    shared, two = (
        check(cls(node=2, min_nodes=2, max_nodes=2, edition=Edition.TORCH, faults=[fault]), engine="explicit")
        for cls in (Rendezvous, TwoClients)
    )
    assert violated(shared) - violated(two) == more
    assert (shared.exploration.distinct, two.exploration.distinct) == states


def test_every_finding_of_the_rendezvous_has_a_repair_that_keeps_it_away() -> None:
    """But R11 and R17: a write is one step here; the runtime's carries its writer and version, and pauses first.

    R18 and R20 are findings of `Deadlines` and `SharedEndpoints`, whose mutants undo the repairs: see test_deadlines
    and test_hosting.
    """
    removed = {number for ablation in ABLATIONS for number in ablation.findings}
    assert removed == {finding.number for finding in FINDINGS.values()} - {"R11", "R17", "R18", "R20"}


def test_every_property_that_is_ours_alone_can_fail() -> None:
    ours, torchs = (
        {p.name for p in Rendezvous(edition=edition).properties if p.form is not Form.SOMETIMES}
        for edition in (Edition.TRYSTATE, Edition.TORCH)
    )
    assert ours - torchs <= {name for ablation in ABLATIONS for name in ablation.violated}
