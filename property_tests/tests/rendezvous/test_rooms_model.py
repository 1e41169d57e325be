"""Rooms keep every property, refine the served rendezvous, and each rule of a room is needed.

Rule: `trystate verify --all` decides the planned runs. Here are the mutants, one for each rule of `rooms.py` and for
each of the server's own steps; a search finds each with its shortest run, and some have no proof.
"""

from __future__ import annotations

import pytest

from trystate.model.checker.expectations import covered_with, gaps
from trystate.model.language import *
from trystate.model.language.expressions import FALSE
from trystate.model.rendezvous import Edition
from trystate.model.rendezvous.detail import OursInDetail
from trystate.model.rendezvous.rooms import Request, Rooms
from trystate.model.rendezvous.served import Served
from trystate.model.rendezvous.vocabulary import Deadline, Heartbeat, Membership
from trystate.property_tests.adapters.refinements import rooms_refine
from trystate.property_tests.support.mutants import altered, wrong
from trystate.property_tests.support.nightly import NIGHTLY, a_third
from trystate.property_tests.support.pinned import (
    Asked,
    Mutant,
    assert_as_pinned,
    bare,
    of_plan,
    report,
)

PLANNED = of_plan(Served, Rooms, most=None if NIGHTLY else 60_000)


LARGER = (Asked(Rooms, Edition.TRYSTATE, "node=3 min_nodes=1 max_nodes=2 rounds=1", 61_131, "", ("worker_failure",)),)
OWN: dict[type[System], set[str]] = {
    Served: {*Served.declarations()} - {*OursInDetail.declarations()},
    Rooms: {*Rooms.declarations()} - {*Served.declarations()},
}


@pytest.mark.parametrize("one", [*PLANNED, *(LARGER if NIGHTLY else ())], ids=str)
def test_every_property_of_a_room_holds_and_the_counts_are_pinned(one: Asked) -> None:
    assert_as_pinned(one)


@pytest.mark.skipif(not NIGHTLY, reason="needs all planned runs: under HYPOTHESIS_PROFILE=nightly")
@pytest.mark.parametrize("system", (Served, Rooms))
def test_each_step_of_a_room_happens_and_makes_every_move_that_it_claims(system: type[System]) -> None:
    """The inherited steps are covered by the runs of the edition with which the coverage is counted."""
    runs = [report(asked) for asked in PLANNED if asked.system is system]
    never, unreached = gaps(found.coverage for found in runs)
    assert {covered_with(found.system) for found in runs} == {"Rendezvous"}
    assert not OWN[system] & {*never}
    assert not OWN[system] & {step for step, _ in unreached}


# ---- mistakes in the server's own steps


def drops_the_expected(self: Served, s: SymbolicState) -> None:
    """The server makes room by dropping the members that are expected."""
    Served.server_makes_room.body(self, s)
    for j in s.node:
        dropped = s.member[j] == Membership.EXPECTED
        s.member[j] = ite(dropped, Membership.OUTSIDE, s.member[j])
        s.heartbeat_age[j] = ite(dropped, Heartbeat.NONE, s.heartbeat_age[j])


EXPECTS = ", s.member.count(Membership.EXPECTED) == 0"
LEASE = "s.heartbeat_age[node].isin(LIVING)"
CompletesTooEarly = altered("CompletesTooEarly", Served, "server_completes", EXPECTS, "")
HurriesForNewcomers = wrong("HurriesForNewcomers", Served, server_makes_room=drops_the_expected)
ExpelsInPassing = altered("ExpelsInPassing", Served, "removes_silent", "self.begin_new_round(s, lost)", "pass")
TakesAStaleNotice = altered("TakesAStaleNotice", Served, "receives", f"s.when({LEASE})", "pass")

# ---- mistakes in the rules of a room


def keeps_of(self: Rooms, s: SymbolicState, replaced: Condition) -> None:
    """A request about a replaced round counts for the next one too."""
    before = s.fork()
    Rooms.begin_new_round(self, s, replaced)
    for j in s.node:
        for c in s.connection:
            s.of[j, c] = before.of[j, c]


class AnswersBeforeTheDisk(Rooms):
    """The last change is not on the disk when its answer and notices are sent."""

    disk_complete = flag()
    disk_deadline = choice(Deadline)
    disk_member = choice(Membership, per="node")
    disk_rank = integer(0, "node", per="node")

    def arrives(self, s: SymbolicState, node: Expr, connection: Expr, request: Request) -> None:
        """The disk has the state before the change."""
        super().arrives(s, node, connection, request)
        s.disk_complete, s.disk_deadline = s.complete, s.deadline
        for j in s.node:
            s.disk_member[j], s.disk_rank[j] = s.member[j], s.rank[j]

    @fault("server_restart")
    def server_restarts(self, s: SymbolicState) -> None:
        """The server comes back with the state on its disk."""
        s.complete, s.deadline = s.disk_complete, s.disk_deadline
        for j in s.node:
            s.member[j], s.rank[j] = s.disk_member[j], s.disk_rank[j]
            listed = s.member[j] != Membership.OUTSIDE
            s.heartbeat_age[j] = ite(listed, Heartbeat.FRESH, Heartbeat.NONE)
        self.lose_connections(s)


def windows_go_on(self: Rooms, s: SymbolicState) -> None:
    """The time that the server was away counts as the silence of the nodes."""
    Rooms.server_restarts.body(self, s)
    for j in s.node:
        s.heartbeat_age[j] = ite(s.heartbeat_age[j] == Heartbeat.NONE, Heartbeat.NONE, Heartbeat.EXPIRED)


Hasty = wrong("Hasty", Rooms, receives=Served.receives)
Stale = wrong("Stale", Rooms, begin_new_round=keeps_of)
Unfenced = wrong("Unfenced", Rooms, refused=lambda self, s, node, connection: FALSE)
Twice = wrong("Twice", Rooms, has_ended=lambda self, s, node: FALSE)
Early = altered("Early", Rooms, "server_completes", EXPECTS, "")
Leaseless = wrong(
    "Leaseless", Rooms, falls_silent=lambda self, s, node: Rooms.falls_silent(self, s, node) | s.partitioned[node]
)
Blind = wrong("Blind", Rooms, falls_silent=lambda self, s, node: Rooms.falls_silent(self, s, node) | s.store_down)
WindowsGoOn = wrong("WindowsGoOn", Rooms, server_restarts=windows_go_on)

# ---- each mistake is found

# The mutant, faults, the violated property, and the steps of the shortest run that violates it.
MUTANTS: tuple[tuple[type[System], tuple[str, ...], str, int], ...] = (
    (CompletesTooEarly, ("worker_failure",), "the_complete_expect_nobody", 9),
    (CompletesTooEarly, ("worker_failure",), "never_two_groups", 12),
    (HurriesForNewcomers, (), "never_two_groups", 13),
    (ExpelsInPassing, ("crash",), "ranks_are_dense", 8),
    (TakesAStaleNotice, ("partition",), "never_two_groups", 15),
    (Hasty, (), "who_acts_is_at_rest", 6),
    (Hasty, (), "never_two_groups", 16),
    (Stale, ("cut", "worker_failure"), "a_request_ends_its_own_round", 15),
    (Unfenced, ("cut",), "never_two_groups", 17),
    (Twice, ("cut", "drain"), "an_ended_join_stays_ended", 9),
    (AnswersBeforeTheDisk, ("server_restart",), "what_returned_stays_written", 8),
    (AnswersBeforeTheDisk, ("server_restart",), "never_two_groups", 23),
    (Early, (), "never_two_groups", 17),
    (Leaseless, ("partition",), "never_two_groups", 20),
    (Blind, ("outage",), "never_two_groups", 21),
    (WindowsGoOn, ("server_restart",), "the_server_expels_the_silent", 5),
    (WindowsGoOn, ("server_restart",), "never_two_groups", 17),
)


def of(system: type[System]) -> tuple[Mutant, ...]:
    """The mutants of a system for proofs; a mutant of `Rooms` is not one of `Served`.

    The mutant with fields of its own is left to the search.
    """
    wanted = [one for one in MUTANTS if system is (Rooms if issubclass(one[0], Rooms) else Served)]
    return tuple((name, cls, "", faults) for cls, faults, name, _ in wanted if cls is not AnswersBeforeTheDisk)


@pytest.mark.parametrize(("cls", "faults", "name", "steps"), a_third(MUTANTS), ids=lambda x: getattr(x, "__name__", ""))
def test_a_search_finds_each_mistake_with_its_shortest_run(
    cls: type[System], faults: tuple[str, ...], name: str, steps: int
) -> None:
    sizes = "node=2 min_nodes=1 max_nodes=2 rounds=1"
    found = report(Asked(bare(cls), Edition.TRYSTATE, sizes, 0, "", faults)).verdict(name)
    assert found.run is not None
    assert len(found.run.path.steps) == steps


def test_a_room_that_breaks_a_rule_of_requests_refines_nothing() -> None:
    """This mistake is in no step of `Served`, so only what is under way shows it."""
    sizes = {"node": 1, "min_nodes": 1, "max_nodes": 1, "rounds": 1}
    assert rooms_refine(Twice(faults=("cut", "drain"), **sizes)).broken
    assert not rooms_refine(Rooms(faults=("cut", "drain"), **sizes)).broken
