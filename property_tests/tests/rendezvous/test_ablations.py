"""Why the repaired rendezvous needs each of its repairs: without it, a property fails that holds with it.

Each class below undoes one repair, and nothing else. Beside it stands the finding of torch that comes back, a small
system in which that shows, the properties that fail there, and the length of the shortest run of the first of them.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Any

import pytest
from trystate.model.checker.check import check
from trystate.model.checker.verdicts import Report
from trystate.model.language import Expr, Form, SymbolicState, ite
from trystate.model.language.transitions import Rule
from trystate.model.rendezvous import Rendezvous
from trystate.model.rendezvous.findings import FINDINGS
from trystate.model.rendezvous.steps import BEATING
from trystate.model.rendezvous.surroundings import Surroundings
from trystate.model.rendezvous.vocabulary import Action, Deadline, Edition, Heartbeat, Membership, Patience, Place
from trystate.property_tests.support.pinned import bare, violated
from trystate.property_tests.tests.rendezvous.test_model import EVERY

S = SymbolicState


def only_where(name: str, condition: Callable[[S, Expr], Any]) -> Rule:
    """The step of this name, in fewer states."""
    rule: Rule = getattr(Rendezvous, name)

    def body(self: Rendezvous, s: S, node: Expr) -> None:
        s.when(condition(s, node))
        rule.body(self, s, node)

    body.__doc__ = rule.body.__doc__
    return replace(rule, body=body)


class KeepsItsMaster(Rendezvous):
    """A member uses the master of an earlier round."""

    def returns_if(self, s: S, node: Expr, full: Any) -> None:
        before = s.fork()
        super().returns_if(s, node, full)
        s.master[node] = ite(before.master[node] == 0, s.master[node], before.master[node])

    def restart(self, s: S, node: Expr, when: Any = True) -> None:
        before = s.fork()
        super().restart(s, node, when)
        s.master[node] = before.master[node]


class LeavesAlone(Rendezvous):
    """A member that restarts takes itself out of the complete round, which goes on without it."""

    def replace_round(self, s: S, replaced: Any) -> None:
        if replaced is not True:
            super().replace_round(s, replaced)

    def move_up(self, s: S, replaced: Any) -> None:
        if replaced is not True:
            super().move_up(s, replaced)

    def returns_if(self, s: S, node: Expr, full: Any) -> None:
        super().returns_if(s, node, full)
        leaves = (s.place[node] == Place.JOINING) & s.complete
        s.member[node] = ite(leaves, Membership.OUTSIDE, s.member[node])
        s.rank[node] = ite(leaves, 0, s.rank[node])
        s.hb[node] = ite(leaves, Heartbeat.NONE, s.hb[node])


class DropsTheSilent(Rendezvous):
    """A member that is expelled is dropped from the complete round, which goes on without it."""

    def replace_round(self, s: S, replaced: Any) -> None:
        if replaced is True:
            super().replace_round(s, replaced)

    def move_up(self, s: S, replaced: Any) -> None:
        if replaced is True:
            super().move_up(s, replaced)


class LooksAtTheWaitListAlone(Rendezvous):
    """A member looks only whether somebody waits, and not whether its round is still there."""

    restart_for_a_change = only_where("restart_for_a_change", lambda s, node: s.member.count(Membership.WAITING) > 0)


class CountsNoneOut(Rendezvous):
    """A round completes although members of the one before it may still run."""

    def atoms(self, s: S, node: Expr) -> dict[str, Any]:
        return {**super().atoms(s, node), "ready": s.deadline == Deadline.PASSED}


class GivesSeatsAway(Rendezvous):
    """The seats of those who are expected are given to others."""

    def taken(self, s: S) -> Any:
        return self.participants(s)


class TellsNoRoundsApart(Rendezvous):
    """Whoever returned from a round takes the next one for the same."""

    def forget_returns(self, s: S, replaced: Any) -> None:
        pass


class ComparesClocks(Rendezvous):
    """An observer compares a time stamp with its own clock."""

    def silent_to(self, s: S, observer: Expr, node: Expr) -> Any:
        behind = (s.hb[node] != Heartbeat.NONE) & s.clock_low[node] & ~s.clock_low[observer]
        return super().silent_to(s, observer, node) | behind


class BeatsByTheWallClock(Rendezvous):
    """A wall clock that goes back stops its node's heartbeats."""

    beat = only_where("beat", lambda s, node: ~s.clock_low[node])

    def falls_silent(self, s: S, node: Expr) -> Any:
        return super().falls_silent(s, node) | s.clock_low[node]


class ComesBackRunning(Rendezvous):
    """A node that was stalled goes on with its workers, whatever happened meanwhile."""

    def restart(self, s: S, node: Expr, when: Any = True) -> None:
        if when is True:
            super().restart(s, node)


class RunsOnWhenCutOff(Rendezvous):
    """A node that is cut off from the store lets its workers run."""

    lose_the_lease = None  # type: ignore[assignment]

    def falls_silent(self, s: S, node: Expr) -> Any:
        return super().falls_silent(s, node) | (s.cut[node] & ~s.store_down)


class ReturnsWithoutALease(Rendezvous):
    """A member that finds its round complete returns, though the others may take it for dead."""

    def atoms(self, s: S, node: Expr) -> dict[str, Any]:
        return {**super().atoms(s, node), "lease": True}


class BeatsOnceItRuns(Rendezvous):
    """A member that has returned, and is not yet where its group meets, does not beat."""

    beat = only_where("beat", lambda s, node: s.place[node] != Place.RETURNING)

    def falls_silent(self, s: S, node: Expr) -> Any:
        return super().falls_silent(s, node) | (s.place[node] == Place.RETURNING)


class TwoClients(Rendezvous):
    """torch's, where the heartbeats have a client of their own."""

    falls_silent = Surroundings.falls_silent


class CountsOutages(Rendezvous):
    """An observer counts the time in which it could not reach the store."""

    def falls_silent(self, s: S, node: Expr) -> Any:
        return super().falls_silent(s, node) | s.store_down


class WaitsForEver(Rendezvous):
    """A waiting node that finds no seat goes on waiting."""

    become_spare = only_where("become_spare", lambda s, node: s.member[node] != Membership.WAITING)


class MovesNobodyUp(Rendezvous):
    """Whoever waits has to be there in time for the next round."""

    def move_up(self, s: S, replaced: Any) -> None:
        pass


class LastWriterSets(Rendezvous):
    """Each node writes by its own settings."""

    def atoms(self, s: S, node: Expr) -> dict[str, Any]:
        return {**super().atoms(s, node), "agrees": True}

    def enlist(self, s: S, node: Expr, member: Membership) -> None:
        super().enlist(s, node, member)
        s.agreed_stern = s.sterner[node]


class JudgesByItsOwn(Rendezvous):
    """An observer expels by its own window, which is shorter than the interval of the others."""

    def atoms(self, s: S, node: Expr) -> dict[str, Any]:
        return {**super().atoms(s, node), "agrees": True}

    def silent_to(self, s: S, observer: Expr, node: Expr) -> Any:
        hasty = s.impatient[observer] & (observer != node) & (s.hb[node] == Heartbeat.DUE)
        return super().silent_to(s, observer, node) | hasty


class ClosesAsItFails(Rendezvous):
    """A node that could not join closes the rendezvous."""

    def closes(self, s: S, node: Expr) -> None:
        self.enters(s, node, Place.FAILED, Place.DONE)
        s.when(~s.closed)
        s.closed = True

    close = replace(Rendezvous.close, body=closes)


class WithdrawsFromTheComplete(Rendezvous):
    """A late member takes itself off the list of a complete round."""

    def atoms(self, s: S, node: Expr) -> dict[str, Any]:
        before = super().atoms(s, node)
        late = s.patience[node] == Patience.ROLLBACK
        return {**before, "complete": before["complete"] & ~late}


class BeatsForTheDead(Rendezvous):
    """A new process beats for the one before it, which is listed under its address."""

    def beats(self, s: S, node: Expr) -> None:
        self.enters(s, node, Place.EXITING, Place.JOINING, Place.RETURNING, Place.RUNNING, Place.DONE)
        s.when(self.rules(s, "keep-alive", Action.KEEP_ALIVE, node))
        self.stamp(s, node)

    beat = replace(Rendezvous.beat, body=beats)

    def falls_silent(self, s: S, node: Expr) -> Any:
        return super().falls_silent(s, node) & ~s.ghost[node]


class LeavesWithoutAWord(Rendezvous):
    """A late node does not take itself off the list."""

    def goes(self, s: S, node: Expr) -> None:
        self.fails_by(s, node, Action.WITHDRAW)

    withdraw = replace(Rendezvous.withdraw, body=goes)


@dataclass(frozen=True)
class Undone:
    """A repair that is undone, the finding that comes back, where that shows, what fails, and in how many steps."""

    cls: type[Rendezvous]
    finding: str
    size: str
    faults: str
    violated: str
    steps: int

    def report(self, cls: type[Rendezvous]) -> Report:
        nodes, low, high = map(int, self.size.replace(":", " ").split())
        system = bare(cls)(
            node=nodes, min_nodes=low, max_nodes=high, edition=Edition.TRYSTATE, faults=self.faults.split()
        )
        return check(system, engine="explicit")


# fmt: off
REPAIRS = (
    Undone(KeepsItsMaster, "R1 R2", "3 2:3", "", "agree_on_master", 15),
    Undone(LeavesAlone, "R3", "2 2:2", "worker_failure",
           "agree_on_world ranks_are_dense at_least_min the_waiting_are_answered what_returned_stays_written", 8),
    Undone(WithdrawsFromTheComplete, "R3", "3 2:3", "join_timeout",
           "agree_on_world agree_on_master ranks_are_dense at_least_min what_returned_stays_written", 9),
    Undone(DropsTheSilent, "R4 R14", "3 2:3", "crash",
           "agree_on_world agree_on_master ranks_are_dense at_least_min departures_are_noticed "
           "what_returned_stays_written", 11),
    Undone(CountsNoneOut, "R6", "3 2:3", "",
           "never_two_groups agree_on_world agree_on_master ranks_are_ordered what_returned_stays_written "
           "the_complete_expect_nobody", 16),
    Undone(GivesSeatsAway, "", "3 2:2", "worker_failure",
           "at_most_max never_two_groups agree_on_world agree_on_master ranks_are_ordered what_returned_stays_written "
           "the_complete_expect_nobody seats_are_kept", 10),
    Undone(TellsNoRoundsApart, "", "3 2:3", "worker_failure",
           "agree_on_world what_returned_stays_written a_round_ends_for_all", 12),
    Undone(LooksAtTheWaitListAlone, "R6", "2 2:2", "worker_failure",
           "the_removed_are_told the_expected_come_or_go", 13),
    Undone(ComesBackRunning, "R6", "3 2:3", "stall",
           "never_two_groups who_runs_has_a_lease the_replaced_are_expected", 17),
    Undone(RunsOnWhenCutOff, "R6", "3 2:3", "partition",
           "never_two_groups who_runs_has_a_lease the_replaced_are_expected", 16),
    Undone(ReturnsWithoutALease, "R6", "3 2:3", "stall",
           "never_two_groups who_runs_has_a_lease the_replaced_are_expected", 18),
    Undone(CountsOutages, "R7", "2 1:2", "outage",
           "never_two_groups who_runs_has_a_lease the_replaced_are_expected", 14),
    Undone(ComparesClocks, "R5", "2 2:2", "clock_skew",
           "live_nodes_stay who_runs_has_a_lease the_replaced_are_expected", 4),
    Undone(BeatsByTheWallClock, "R13", "2 2:2", "clock_step",
           "live_nodes_stay who_runs_has_a_lease the_replaced_are_expected", 6),
    Undone(JudgesByItsOwn, "R12", "2 2:2", "other_expiry",
           "live_nodes_stay who_runs_has_a_lease the_replaced_are_expected the_listed_agree", 5),
    Undone(LastWriterSets, "R9", "3 2:3", "other_min", "at_least_min the_listed_agree", 9),
    Undone(BeatsOnceItRuns, "R15", "2 2:2", "",
           "live_nodes_stay who_runs_has_a_lease the_replaced_are_expected", 7),
    Undone(WaitsForEver, "R8", "3 1:2", "", "full_rounds_come_to_rest the_waiting_are_answered", 23),
    Undone(MovesNobodyUp, "R8", "3 2:3", "", "the_waiting_are_answered", 22),
    Undone(ClosesAsItFails, "R10", "2 1:2", "join_timeout", "closing_is_earned", 9),
)
# fmt: on


def report_of(cls: type[Rendezvous], faults: str, together: int, max_nodes: int = 3) -> Report:
    """Three nodes, and at most so many of the faults in a run."""
    sizes = {"node": 3, "min_nodes": 2, "max_nodes": max_nodes}
    system = bare(cls)(edition=Edition.TRYSTATE, faults=faults.split(), max_faults=together, **sizes)
    return check(system, engine="explicit")


@pytest.mark.parametrize("undone", REPAIRS, ids=lambda u: f"{u.cls.__name__} {u.size} {u.faults}".strip())
def test_an_ablation_violates_a_property_that_holds_with_the_repair(undone: Undone) -> None:
    assert violated(undone.report(Rendezvous)) == set()
    found = undone.report(undone.cls)
    assert violated(found) == set(undone.violated.split())
    shortest = found.verdict(undone.violated.split()[0]).run
    assert shortest is not None
    assert len(shortest.path.steps) == undone.steps


def test_what_takes_two_different_faults_is_missed_by_any_one_and_found_by_any_two() -> None:
    assert violated(report_of(BeatsForTheDead, EVERY, 1)) == set()
    for alone in ("crash", "restart"):
        assert violated(report_of(BeatsForTheDead, alone, 2)) == set()
    found = report_of(BeatsForTheDead, "crash restart", 2)
    assert violated(found) == {"enough_nodes_complete_a_round", "the_expected_come_or_go"}
    run = found.verdict("the_expected_come_or_go").run
    assert run is not None
    assert len(run.path.steps) == 29


@pytest.mark.parametrize("max_nodes", [2, 3])
def test_a_late_node_may_leave_without_a_word(max_nodes: int) -> None:
    """Its withdrawal spares the others the time until they expel it, and no property asks for that."""
    found = report_of(LeavesWithoutAWord, "join_timeout crash worker_failure", 2, max_nodes)
    assert violated(found) == set()
    assert "withdraw" not in found.never_fired


@pytest.mark.parametrize(("cls", "states", "more"), [(Rendezvous, 180, {"live_nodes_stay"}), (TwoClients, 176, set())])
def test_torchs_member_that_waits_for_its_master_is_expelled_for_want_of_a_client(
    cls: type[Rendezvous], states: int, more: set[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    """R15. Without a fault: an ordinary scale-up, whose newcomer nobody tells the master."""
    if cls is TwoClients:
        monkeypatch.setitem(BEATING, Edition.TORCH, BEATING[Edition.SEED])
    found = check(cls(node=2, min_nodes=1, max_nodes=2, edition=Edition.TORCH), engine="explicit")
    assert violated(found) == {"agree_on_master", "members_learn_the_master"} | more
    assert found.exploration.distinct == states


def test_every_finding_of_the_rendezvous_has_a_repair_that_keeps_it_away() -> None:
    """But R11: a write is one step here, and the runtime's carries its writer and version."""
    removed = {number for undone in REPAIRS for number in undone.finding.split()}
    assert removed == {finding.number for finding in FINDINGS.values()} - {"R11"}


def test_every_property_that_is_ours_alone_can_fail() -> None:
    ours, torchs = (
        {p.name for p in Rendezvous(edition=edition).properties if p.form is not Form.SOMETIMES}
        for edition in (Edition.TRYSTATE, Edition.TORCH)
    )
    assert ours - torchs <= {name for undone in REPAIRS for name in undone.violated.split()}
