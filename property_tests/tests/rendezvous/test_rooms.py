"""Random runs of rooms keep every property (adapters/rooms/worlds.py), and each mistake of a room violates one.

A mistake that no random run shows soon, a join that returns while a request is under way, is in test_rooms_member.py.
"""

from __future__ import annotations

import math
from collections.abc import Mapping

import pytest

from trystate.impl.rendezvous.changes import Table
from trystate.impl.rendezvous.intents import change_of
from trystate.impl.rendezvous.rooms import messages
from trystate.impl.rendezvous.rooms import room as rooms
from trystate.impl.rendezvous.rooms.member import Member
from trystate.impl.rendezvous.rooms.room import Room
from trystate.property_tests.adapters.campaigns.simulated import told
from trystate.property_tests.adapters.rooms.servers import Server
from trystate.property_tests.adapters.rooms.worlds import KINDS, ROOMS
from trystate.property_tests.adapters.simulator import schedule
from trystate.property_tests.adapters.simulator.swarm import run, shrink, sweep
from trystate.property_tests.support.mutants import Mutant, planted, replaced, rewritten, together
from trystate.property_tests.support.nightly import by_night, examples
from trystate.property_tests.support.simulator.engine_mutants import MUTANTS as AGENTS

RUNS = 500
SAMPLE = 40  # runs in which all events occur
EVENTS = ("returns: round 3", "complete", "waiting", "spare", "expected", "died", "left", "has succeeded", "closed",
          "ends with success", "ends with a failure", "SettingsError", "TimeoutError", "RendezvousDrained",
          "ClosedError", "has a watchdog that kills its workers")  # fmt: skip


def test_random_runs_keep_all_properties() -> None:
    for one in sweep(range(by_night("runs of rooms", examples(RUNS))), ROOMS):
        assert not one.fails, "\n".join(told(shrink(one), None))


def test_the_runs_have_every_fault_and_event() -> None:
    found = [run(ROOMS.draw(seed, None), ROOMS) for seed in range(SAMPLE)]
    faults = {event.fault.kind for one in found for event in one.log if event.fault is not None}
    assert faults == {*schedule.KINDS, *schedule.STOPS, *KINDS} - {"flee"}
    said = "\n".join(str(event) for one in found for event in one.log)
    assert [words for words in EVENTS if words not in said] == []


# fmt: off
# The properties that a run checks, each with a mistake that violates it in the run of a seed.
MISTAKES: Mapping[str, tuple[Mutant, int]] = {
    "agree_on_world": (rewritten(Room._answer, "t.ranks.get(token, -1)", "0"), 0),
    "agree_on_master": (rewritten(
        messages.body, "next(iter(t.participants.values()))", "[*t.participants.values()][-1]"), 0),
    "ranks_are_ordered": (rewritten(
        Table._complete, "sorted(self.participants, key=self._orders.__getitem__)", "sorted(self.participants)"), 0),
    "at_least_min": (replaced(
        Table, "calling", property(lambda self: not self.complete and len(self.participants) > 0)), 1),
    "seats_are_kept": (replaced(
        Table, "seats", property(lambda self: self.settings.max_nodes - len(self.participants))), 2),
    "lists_are_disjoint": (rewritten(Table._enlist, "self._unlist(me.node.token)", "pass"), 7),
    "the_complete_expect_nobody": (rewritten(Room._set_due, "t.calling and not t.expected", "t.calling"), 4),
    "one_group_in_the_job": (AGENTS["goes on without a lease"], 36),
    "what_returned_stays_written": (rewritten(Table.expel, "if member:", "if False:"), 4),
    "leases_end_first": (rewritten(
        Room.begin_again, "(p.node.token, 0.0)", "(p.node.token, -t.settings.expiry_seconds)"), 7),
    "live_nodes_stay": (replaced(rooms, "BLIND_INTERVALS", 1e9), 5),
    "departures_are_noticed": (rewritten(Room._beats, "if me is not None:", "if False:"), 12),
    "an_ended_join_stays_ended": (replaced(Room, "_has_ended", lambda self, token, join: False), 0),
    "an_ended_join_stays_ended, though its request is late": (together(
        rewritten(Room._attach, "if number < (last or self._numbers.get(token, 0)):", "if False:"),
        replaced(Server, "closes_replaced", False)), 44),
    "a_request_replaces_one_round": (rewritten(
        change_of, "intent.of == (t.life, t.round)", "intent.of is not None"), 126),
    "members_are_checked_again": (rewritten(Table.replace_round, "if not checked_first:", "if True:"), 6),
    "the_listed_agree": (rewritten(Room._agreed, "intent.digest == self._digest", "True"), 4),
    "the_waiting_are_answered": (rewritten(Room._beat, "self._makers[token] = None", "pass"), 4),
    "newcomers_wait_for_the_interval": (rewritten(
        Room._set_due, "self._completed + t.settings.scale_up_interval", "self._completed"), 11),
    "losses_spend": (replaced(Table, "_spend", lambda self: None), 6),
    "restarts_are_limited": (replaced(Table, "restarts_left", True), 10),
    "success_is_everybodys": (rewritten(
        Table.mark_done, "self.done.keys() >= self.participants.keys()",
        "True"), 18),
    "the_verdict_is_final": (rewritten(
        Table.withdraw, "self._unlist(me.token)", "self.closed = None\n    self._unlist(me.token)"), 10),
    "the_verdict_reaches_everybody": (rewritten(Member.standing, "s.closed is not None", "False"), 18),
    "a_restart_has_the_records": (rewritten(
        vars(Table)["of"].__func__, "for name in LISTS:", "for name in [*LISTS][:2]:"), 7),
    "answers_are_kept": (replaced(Server, "waits_for_disk", False), 7),
    "enough_nodes_complete_a_round": (replaced(Room, "_call_ends", lambda self, t: math.inf), 4),
}
# fmt: on


@pytest.mark.parametrize("name", MISTAKES)
def test_each_property_is_violated_by_a_mistake(name: str) -> None:
    mutant, seed = MISTAKES[name]
    with planted(mutant):
        assert run(ROOMS.draw(seed, None), ROOMS).fails == name.partition(",")[0]
