"""The repairs of our rendezvous, undone one by one.

Each class below undoes one repair and nothing else. `ABLATIONS` has, for each class, the finding of torch that comes
back, a small system that shows it, the properties that fail there, and the length of the shortest run of the first.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Any

from trystate.model.language import Expr, SymbolicState, ite, ord_
from trystate.model.language.transitions import Rule
from trystate.model.rendezvous import Ours, Rendezvous
from trystate.model.rendezvous.vocabulary import (
    AgentPhase,
    Deadline,
    Edition,
    Heartbeat,
    Membership,
)

from ..mutants import altered, wrong
from ..pinned import Asked, bare

S = SymbolicState


def only_where(name: str, condition: Callable[[S, Expr], Any]) -> Callable[[Any, S, Expr], None]:
    """The body of the step of this name, in fewer states."""
    rule: Rule = getattr(Ours, name)

    def body(self: Ours, s: S, node: Expr) -> None:
        s.when(condition(s, node))
        rule.body(self, s, node)

    body.__doc__ = rule.body.__doc__
    return body


def deciding(name: str, atoms: Callable[[S, Expr], dict[str, Any]], base: type[Any] = Ours) -> type[Any]:
    """An ablation whose operators see other values of some atoms."""

    def seen(self: Any, s: S, operator: str, node: Expr) -> dict[str, Any]:
        return {**base.atoms(self, s, operator, node), **atoms(s, node)}

    return wrong(name, base, atoms=seen)


def replacing(name: str, where: Callable[[Any], bool]) -> type[Any]:
    """An ablation that begins a new round only if `where` accepts the condition `replaced`."""

    def only(method: Callable[..., None]) -> Callable[..., None]:
        return lambda self, s, replaced: method(self, s, replaced) if where(replaced) else None

    return wrong(name, Ours, begin_new_round=only(Ours.begin_new_round), move_up=only(Ours.move_up))


def silent_where(name: str, condition: Callable[[S, Expr], Any], **attributes: Any) -> type[Any]:
    """An ablation whose nodes are also silent where this holds."""

    def falls_silent(self: Any, s: S, node: Expr) -> Any:
        return Ours.falls_silent(self, s, node) | condition(s, node)

    return wrong(name, Ours, falls_silent=falls_silent, **attributes)


def beats_unless(name: str, condition: Callable[[S, Expr], Any]) -> type[Any]:
    """An ablation whose nodes do not beat where this holds."""
    return silent_where(name, condition, keep_alive=only_where("keep_alive", lambda s, node: ~condition(s, node)))


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


class LeavesAlone(replacing("ReplacesForOthers", lambda replaced: replaced is not True)):  # type: ignore[misc]
    """A member that restarts takes itself out of the complete round, which continues without it."""

    def returns_if(self, s: S, node: Expr, full: Any) -> None:
        super().returns_if(s, node, full)
        leaves = (s.phase[node] == AgentPhase.JOINING) & s.complete
        s.member[node] = ite(leaves, Membership.OUTSIDE, s.member[node])
        s.rank[node] = ite(leaves, 0, s.rank[node])
        s.heartbeat_age[node] = ite(leaves, Heartbeat.NONE, s.heartbeat_age[node])


# A member that is expelled is dropped from the complete round, which continues without it.
DropsTheSilent = replacing("DropsTheSilent", lambda replaced: replaced is True)


# A member checks only whether a node waits, and not whether its round still exists.
LooksAtTheWaitListAlone = wrong("LooksAtTheWaitListAlone", Ours, restart_workers=only_where(
    "restart_workers", lambda s, node: s.member.count(Membership.WAITING) > 0))  # fmt: skip


# A round completes although members of the one before it may still run.
CountsNoneOut = deciding("CountsNoneOut", lambda s, node: {"ready": s.deadline == Deadline.PASSED})


# The seats of expected nodes are given to other nodes.
GivesSeatsAway = wrong("GivesSeatsAway", Ours, taken=lambda self, s: self.participants(s))


# A node that returned from a round takes the next round for the same one.
TellsNoRoundsApart = wrong("TellsNoRoundsApart", Ours, forget_returns=lambda self, s, replaced: None)


# An observer compares a time stamp with its own clock.
ComparesClocks = altered(
    "ComparesClocks",
    Ours,
    "silent_to",
    "return ",
    "return ((s.heartbeat_age[node] != Heartbeat.NONE) & s.clock_behind[node] & ~s.clock_behind[observer]) | ",
)


# A wall clock that goes back stops its node's heartbeats.
BeatsByTheWallClock = beats_unless("BeatsByTheWallClock", lambda s, node: s.clock_behind[node])


class ComesBackRunning(Ours):
    """A node that was stalled continues with its workers, whatever happened meanwhile."""

    def restart(self, s: S, node: Expr, when: Any = True) -> None:
        if when is True:
            super().restart(s, node)


# A node that is cut off from the store lets its workers run.
RunsOnWhenCutOff = silent_where(
    "RunsOnWhenCutOff", lambda s, node: s.partitioned[node] & ~s.store_down, lose_lease=None
)


# A member that finds its round complete returns, though the others may take it for dead.
ReturnsWithoutALease = deciding("ReturnsWithoutALease", lambda s, node: {"lease": True})


# A member that has returned, and has not met its group yet, does not beat.
BeatsOnceItRuns = beats_unless("BeatsOnceItRuns", lambda s, node: s.phase[node] == AgentPhase.RETURNING)


# A node whose workers are done does not beat.
BeatsUntilItIsDone = beats_unless("BeatsUntilItIsDone", lambda s, node: s.phase[node] == AgentPhase.DONE)


# An observer counts the time in which it could not reach the store.
CountsOutages = silent_where("CountsOutages", lambda s, node: s.store_down)


# A waiting node that finds no seat keeps waiting.
WaitsForEver = wrong("WaitsForEver", Ours, add_to_redundancy_list=only_where(
    "add_to_redundancy_list", lambda s, node: s.member[node] != Membership.WAITING))  # fmt: skip


# A waiting node has to arrive in time for the next round.
MovesNobodyUp = wrong("MovesNobodyUp", Ours, move_up=lambda self, s, replaced: None)


# A node that writes puts its own settings into the state.
LastWriterSets = deciding(
    "LastWriterSets",
    lambda s, node: {"agrees": True},
    altered(
        "WritesItsMin", Ours, "enlist", "ite(first, s.larger_min[node], s.agreed_larger_min)", "s.larger_min[node]"
    ),
)


# An observer expels by its own window, which is shorter than the interval of the other nodes.
JudgesByItsOwn = deciding(
    "JudgesByItsOwn",
    lambda s, node: {"agrees": True},
    altered(
        "IsHasty",
        Ours,
        "silent_to",
        "return ",
        "return (s.shorter_window[observer] & (observer != node) & (s.heartbeat_age[node] == Heartbeat.DUE)) | ",
    ),
)


# A node that could not join closes the rendezvous.
def closes(self: Ours, s: S, node: Expr) -> None:
    self.enters(s, node, AgentPhase.FAILED, AgentPhase.DONE)
    s.when(~s.closed)
    s.closed = True


ClosesAsItFails = wrong("ClosesAsItFails", Ours, mark_closed=closes)


# A late member takes itself off the list of a complete round.
WithdrawsFromTheComplete = altered("WithdrawsFromTheComplete", Ours, "atoms",
    '"complete": s.complete', '"complete": s.complete & (s.join_deadline[node] != JoinDeadline.ROLLBACK)')  # fmt: skip


# A new process beats for the one before it, which is listed under its address.
BeatsForTheDead = altered("BeatsForTheDead", altered(
    "BeatsAtOnce", Ours, "keep_alive", ", ~s.predecessor_listed[node])", ")"),
    "falls_silent", " | s.predecessor_listed[node]", "")  # fmt: skip


# Ranks follow the names alone.
IgnoresTheKeys = wrong("IgnoresTheKeys", Ours, sorts_before=lambda self, s, one, other: ord_(one) < ord_(other))


# A member restarts for a node that waits, however young its round is.
TakesNewcomersAtOnce = wrong("TakesNewcomersAtOnce", Ours, takes_newcomers=lambda self, s, node: ~s.crashed[node])


# The join deadline of a node runs while it is held back.
CountsTheTimeHeldBack = wrong("CountsTheTimeHeldBack", Ours,
    guard_join_deadline=lambda self, s, node: s.when(s.member[node] != Membership.REDUNDANT))  # fmt: skip


# A member is a participant of the next round while its health command runs.
JoinsBeforeItsCheck = wrong("JoinsBeforeItsCheck", Ours, listed_as=lambda self, s, node: Membership.PARTICIPANT)


# A node whose health command failed does not step back.
StaysExpected = wrong("StaysExpected", Ours, stand_by=None)


class LeavesTheRoundOfTheDrained(Ours):
    """The mark alone is written, and the node leaves when it joins the next time."""

    def drains(self, s: S, node: Expr) -> None:
        s.when(~s.store_down, ~s.closed, s.member[node] != Membership.OUTSIDE, ~s.drained[node])
        s.drained[node] = True

    drain = replace(Ours.drain, body=drains)

    def atoms(self, s: S, operator: str, node: Expr) -> dict[str, Any]:
        found = super().atoms(s, operator, node)
        return {**found, "complete": found["complete"] & ~s.drained[node]} if operator == "exit" else found


# A seat of an open round stays free when a silent node is taken off the lists.
KeepsASeatFree = altered(
    "KeepsASeatFree", Ours, "removes_silent", "self.move_up(s, ~s.complete)", "self.move_up(s, lost)"
)


# A drained node that waits moves up like every other node.
TakesInTheDrained = altered("TakesInTheDrained", Ours, "move_up", " & ~before.drained[j] & (place", " & (place")


@dataclass(frozen=True)
class Ablation:
    """A repair that is undone, the findings that come back, the system that shows it, and the shortest violation."""

    cls: type[Rendezvous]
    findings: tuple[str, ...]
    sizes: str  # nodes, min_nodes and max_nodes
    faults: tuple[str, ...]
    steps: int
    violated: tuple[str, ...]

    def __str__(self) -> str:
        return f"{self.cls.__name__} {self.sizes} {' '.join(self.faults)}".strip()

    def asked(self, cls: type[Rendezvous]) -> Asked:
        """The exploration of this small system with the steps of a class."""
        return small(cls, self.sizes, self.faults)


def small(cls: type[Rendezvous], sizes: str, faults: tuple[str, ...], together: int | None = None) -> Asked:
    """The exploration of a system of this class without its machines."""
    named = "node={} min_nodes={} max_nodes={}".format(*sizes.split())
    return Asked(bare(cls), Edition.TRYSTATE, named, 0, "", faults, together)


UNFIT = ("health_check", "unhealthy", "worker_failure")
# Class, findings, nodes with min and max, faults, steps of the shortest run of the first property, properties.
# fmt: off
ABLATIONS = (
    Ablation(KeepsItsMaster, ("R1", "R2", "R16"), "3 2 3", (), 15, ("agree_on_master",)),
    Ablation(LeavesAlone, ("R3",), "2 2 2", ("worker_failure",), 8,
           ("agree_on_world", "ranks_are_dense", "at_least_min", "the_waiting_are_answered",
            "what_returned_stays_written")),
    Ablation(WithdrawsFromTheComplete, ("R3",), "3 2 3", ("join_timeout",), 9,
           ("agree_on_world", "agree_on_master", "ranks_are_dense", "at_least_min", "what_returned_stays_written")),
    Ablation(DropsTheSilent, ("R4", "R14"), "3 2 3", ("crash",), 11,
           ("agree_on_world", "agree_on_master", "ranks_are_dense", "at_least_min", "departures_are_noticed",
            "what_returned_stays_written")),
    Ablation(CountsNoneOut, ("R6",), "3 2 3", (), 16,
           ("never_two_groups", "agree_on_world", "agree_on_master", "ranks_are_ordered",
            "what_returned_stays_written", "the_complete_expect_nobody")),
    Ablation(GivesSeatsAway, (), "3 2 2", ("worker_failure",), 10,
           ("at_most_max", "never_two_groups", "agree_on_world", "agree_on_master", "ranks_are_ordered",
            "what_returned_stays_written", "the_complete_expect_nobody", "seats_are_kept")),
    Ablation(TellsNoRoundsApart, (), "3 2 3", ("worker_failure",), 12,
           ("agree_on_world", "what_returned_stays_written", "a_round_ends_for_all")),
    Ablation(LooksAtTheWaitListAlone, ("R6",), "2 2 2", ("worker_failure",), 13,
           ("the_removed_are_told", "the_expected_come_or_go")),
    Ablation(ComesBackRunning, ("R6",), "3 2 3", ("stall",), 17,
           ("never_two_groups", "who_runs_has_a_lease", "the_replaced_are_expected")),
    Ablation(RunsOnWhenCutOff, ("R6",), "3 2 3", ("partition",), 16,
           ("never_two_groups", "who_runs_has_a_lease", "the_replaced_are_expected")),
    Ablation(ReturnsWithoutALease, ("R6",), "3 2 3", ("stall",), 18,
           ("never_two_groups", "who_runs_has_a_lease", "the_replaced_are_expected")),
    Ablation(CountsOutages, ("R7",), "2 1 2", ("outage",), 14,
           ("never_two_groups", "who_runs_has_a_lease", "the_replaced_are_expected")),
    Ablation(ComparesClocks, ("R5",), "2 2 2", ("clock_skew",), 4,
           ("live_nodes_stay", "who_runs_has_a_lease", "the_replaced_are_expected")),
    Ablation(BeatsByTheWallClock, ("R13",), "2 2 2", ("clock_step",), 6,
           ("live_nodes_stay", "who_runs_has_a_lease", "the_replaced_are_expected")),
    Ablation(JudgesByItsOwn, ("R12",), "2 2 2", ("other_expiry",), 5,
           ("live_nodes_stay", "who_runs_has_a_lease", "the_replaced_are_expected", "the_listed_agree")),
    Ablation(LastWriterSets, ("R9",), "3 2 3", ("other_min",), 9, ("at_least_min", "the_listed_agree")),
    Ablation(BeatsOnceItRuns, ("R15",), "2 2 2", (), 7,
           ("live_nodes_stay", "who_runs_has_a_lease", "the_replaced_are_expected")),
    Ablation(BeatsUntilItIsDone, ("R19",), "2 2 2", ("job_end",), 9, ("live_nodes_stay",)),
    Ablation(WaitsForEver, ("R8",), "3 1 2", (), 23, ("full_rounds_come_to_rest", "the_waiting_are_answered")),
    Ablation(MovesNobodyUp, ("R8",), "3 2 3", (), 22, ("the_waiting_are_answered",)),
    Ablation(IgnoresTheKeys, (), "2 2 2", ("rank_key",), 5, ("ranks_are_ordered", "who_sorts_first_is_the_master")),
    Ablation(TakesNewcomersAtOnce, (), "2 1 2", ("scale_up_interval",), 9, ("newcomers_wait_for_the_interval",)),
    Ablation(CountsTheTimeHeldBack, (), "2 1 2", ("scale_up_interval", "join_timeout"), 8,
           ("the_held_back_have_time",)),
    Ablation(JoinsBeforeItsCheck, (), "2 1 2", UNFIT, 8,
           ("members_are_checked_again", "the_unfit_take_no_part", "ranks_are_dense", "what_returned_stays_written")),
    Ablation(StaysExpected, (), "2 1 2", UNFIT, 20,
           ("the_unfit_are_not_awaited", "the_expected_come_or_go", "enough_nodes_complete_a_round")),
    Ablation(LeavesTheRoundOfTheDrained, (), "2 1 2", ("drain",), 6,
           ("a_drain_spends_no_restart", "the_drained_take_no_seat", "the_drained_leave", "ranks_are_dense",
            "at_least_min", "the_waiting_are_answered", "what_returned_stays_written")),
    Ablation(TakesInTheDrained, (), "2 1 2", ("drain",), 8,
           ("the_drained_take_no_seat", "a_drain_spends_no_restart", "ranks_are_dense", "what_returned_stays_written")),
    Ablation(KeepsASeatFree, (), "3 1 2", ("crash", "worker_failure"), 13, ("free_seats_are_taken",)),
    Ablation(ClosesAsItFails, ("R10",), "2 1 2", ("join_timeout",), 9, ("closing_is_earned",)),
)
# fmt: on
