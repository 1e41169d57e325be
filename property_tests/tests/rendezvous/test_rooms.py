"""Rooms take every step of the model `Rooms`, and random runs (adapters/rooms/worlds.py) keep every property.

Each mistake of a room violates a property, or is a disagreement. The last tests are of the part of a node in a room.

No random run shows this mistake soon: a join returns while a request waits to be sent (see test_rooms_member.py).
"""

from __future__ import annotations

import contextlib
import math
import os
import socket
from collections.abc import Iterator, Mapping
from datetime import timedelta
from typing import Any

import pytest
from torch._C._distributed_c10d import TCPStore as TorchStore
from torch.distributed.elastic.agent.server.api import WorkerState

from trystate.impl.agent import core
from trystate.impl.agent.core import Order
from trystate.impl.agent.watchdog import LeaseWatch
from trystate.impl.rendezvous.changes import Table
from trystate.impl.rendezvous.engine import Standing
from trystate.impl.rendezvous.errors import RendezvousStateError
from trystate.impl.rendezvous.events import Recorder
from trystate.impl.rendezvous.handler import DynamicRendezvousHandler
from trystate.impl.rendezvous.intents import change_of
from trystate.impl.rendezvous.rooms import messages
from trystate.impl.rendezvous.rooms import room as rooms
from trystate.impl.rendezvous.rooms.member import Member
from trystate.impl.rendezvous.rooms.part import RoomPart
from trystate.impl.rendezvous.rooms.room import Room
from trystate.impl.store.client.rooms import UNACKNOWLEDGED_SECONDS, RoomConnection
from trystate.model.rendezvous import Edition
from trystate.model.rendezvous.rooms import Rooms
from trystate.property_tests.adapters.campaigns.simulated import told
from trystate.property_tests.adapters.our_rendezvous.parts import participant, settings
from trystate.property_tests.adapters.rooms.edges import RoomSteps
from trystate.property_tests.adapters.rooms.servers import Server
from trystate.property_tests.adapters.rooms.worlds import KINDS, ROOMS
from trystate.property_tests.adapters.simulator import schedule
from trystate.property_tests.adapters.simulator.swarm import run, shrink, sweep
from trystate.property_tests.harness.paths import Replayed, replay_every_edge
from trystate.property_tests.support.mutants import Mutant, planted, replaced, rewritten, together, wrapped
from trystate.property_tests.support.nightly import NIGHTLY, by_night, examples
from trystate.store import TCPStore, TCPStoreServer

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
CLOSES_LATE: Mutant = rewritten(
    Table.withdraw, "self._unlist(me.token)", "self._unlist(me.token)\n    self._fail(me, 'too late')")
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
    "one_group_in_the_job": (together(
        replaced(LeaseWatch, "over", lambda self, now: False),  # else the watchdog kills the workers
        wrapped(core, "decide", lambda decide: lambda view:
            Order.GO_ON if view.standing is Standing.LAPSED else decide(view))), 36),
    "what_returned_stays_written": (rewritten(Table.expel, "if member:", "if False:"), 4),
    "leases_end_first": (rewritten(
        Room.begin_again, "(p.node.token, 0.0)", "(p.node.token, -t.settings.expiry_seconds)"), 7),
    "live_nodes_stay": (replaced(rooms, "BLIND_INTERVALS", 1e9), 5),
    "departures_are_noticed": (rewritten(Room._beats, "if me is not None:", "if False:"), 12),
    "an_ended_join_stays_ended": (replaced(Room, "_has_ended", lambda self, token, join: False), 0),
    "a_request_replaces_one_round": (rewritten(
        change_of, "intent.of == (t.life, t.round)", "intent.of is not None"), 126),
    "members_are_checked_again": (rewritten(Table.replace_round, " and not checked_first:", ":"), 6),
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
    "a_restart_is_a_new_round": (together(
        rewritten(Member._return, "s.round <= of[1]", "s.round < of[1]"),
        rewritten(change_of, "intent.of == (t.life, t.round)", "False")), 7),
    "coming_spends_nothing": (CLOSES_LATE, 0),
    "closing_is_earned": (CLOSES_LATE, 47),
    "closing_says_why": (rewritten(Table._fail, ', "failed"', ""), 0),
    "restarts_left_are_used": (replaced(
        Table, "restarts_left", property(lambda self: self.settings.max_restarts < 0)), 6),
    "one_verdict": (replaced(core, "ending", lambda closed: WorkerState.SUCCEEDED), 0),
    "everybody_ends": (rewritten(
        Table.mark_done, "self.done.keys() >= self.participants.keys()",
        "False"), 18),
    "signals_are_obeyed": (rewritten(core.decide, "if view.signalled:", "if False:"), 7),
    "outages_are_survived": (rewritten(core._after_success, " and view.cut_off", ""), 71),
    "full_rounds_come_to_rest": (rewritten(core._after_success, "else Order.REPORT", "else Order.GO_ON"), 18),
}
# fmt: on


@pytest.mark.parametrize("name", MISTAKES)
def test_each_property_is_violated_by_a_mistake(name: str) -> None:
    mutant, seed = MISTAKES[name]
    with planted(mutant):
        assert run(ROOMS.draw(seed, None), ROOMS).fails == name


# ---- every edge of the model `Rooms`

# Nodes with min and max, and what may happen once: the number of edges.
BY_DAY = {
    "2 1:2": 3_818, "2 2:2 cut": 1_898, "2 2:2 server_restart lost_tail": 3_251, "2 1:1 drain": 4_164,
    "2 1:1 partition": 5_946, "2 1:1 outage": 3_900, "2 1:1 crash restart": 3_810, "2 1:1 job_end": 1_166,
    "2 2:2 departure comes_again": 3_600, "2 2:2 join_timeout": 1_684, "2 2:2 worker_failure": 2_118,
}  # fmt: skip
BY_NIGHT = {
    "2 2:2 cut worker_failure": 7_882, "2 1:2 cut": 13_398, "2 1:2 drain": 23_898, "2 2:2 cut drain": 36_694,
    "2 1:2 crash restart": 27_712, "2 1:2 server_restart": 9_569, "2 1:2 outage": 25_382, "2 2:2 stall": 8_472,
    "3 2:3": 113_829,
}  # fmt: skip
CASES = BY_DAY | BY_NIGHT if NIGHTLY else BY_DAY


def replay(case: str, **options: Any) -> Replayed:
    nodes, span, *faults = case.split()
    low, high = span.split(":")
    sizes = {"node": int(nodes), "min_nodes": int(low), "max_nodes": int(high), "rounds": 1}
    model = Rooms(edition=Edition.TRYSTATE, faults=tuple(faults), **sizes)
    return replay_every_edge(model, RoomSteps(model), repeats=False, **options)


@pytest.mark.parametrize("case", CASES)
def test_a_room_does_what_the_model_says(case: str) -> None:
    found = replay(case)
    assert not found.disagreements
    assert found.edges == found.edges_of_all == CASES[case]


# fmt: off
MUTANTS: dict[str, tuple[str, Mutant]] = {
    "it returns without a lease": ("2 1:1 partition", rewritten(Member._return, "self.lease.holds(now)", "True")),
    "it sends no heartbeat while its lease holds": ("2 1:1 job_end", rewritten(
        Member._next_beat, "min(self._first_beat, self.lease.last_beat)", "math.inf")),
    "it returns while a request is under way": ("2 1:2", rewritten(
        Member._return, "self._request is None and not self._wanted", "True")),
    "a change is not on disk": ("2 2:2 server_restart lost_tail", rewritten(
        Room._change, "self._record(messages.record(name, t.version, (me, *plain)))",
        "name == 'add_to_participants' or self._record(messages.record(name, t.version, (me, *plain)))")),
    "an earlier connection is not refused": ("2 2:2 cut", rewritten(
        Room._attach, "number < (last or self._numbers.get(token, 0))", "False")),
    "the server counts the time in which it stood still": ("2 1:1 outage", rewritten(
        Room._watched_at, "min(max(0.0, gap), BLIND_INTERVALS * t.settings.keep_alive_interval)", "gap")),
}
# fmt: on


@pytest.mark.parametrize("mistake", MUTANTS)
def test_a_mistake_is_a_disagreement(mistake: str) -> None:
    case, mutant = MUTANTS[mistake]
    with planted(mutant):
        assert replay(case, stop_after=1).disagreements


# ---- the part of a node in a room


@pytest.fixture
def store() -> Iterator[TCPStore]:
    with TCPStoreServer() as server, TCPStore("127.0.0.1", server.port) as client:
        yield client


def part_of(store: TCPStore) -> RoomPart:
    me = participant(0)
    return RoomPart(me, settings(1, 2, last_call_timeout=0.0), store, "job", Recorder("job", me.node))


def test_a_mistake_in_the_program_is_no_outage(store: TCPStore, monkeypatch: pytest.MonkeyPatch) -> None:
    part = part_of(store)
    monkeypatch.setattr(Member, "heard", lambda self, data, notice, now: 1 // 0)
    with pytest.raises(ZeroDivisionError):
        part.look(20.0)
    with pytest.raises(ZeroDivisionError):
        part.join(20.0, 1)
    part.end()


def test_the_end_of_a_join_by_the_clock_wakes_the_thread_that_joins(
    store: TCPStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    part, woken = part_of(store), []
    part.core.connected(0.0)
    part.core.join(0.0, 1e9)

    def ends(now: float) -> bool:
        part.core.joining = False
        return False

    monkeypatch.setattr(part.core, "woke", ends)
    monkeypatch.setattr(part.core, "take", lambda now: None)
    monkeypatch.setattr(part.core, "wakes", lambda now: 0.0)
    monkeypatch.setattr(part._condition, "notify_all", lambda: woken.append(True))
    with contextlib.closing(RoomConnection.open(store, "job", 20.0)) as opened:
        part._serve(opened)
    assert woken == [True]
    part.end()


def test_a_node_with_another_client_is_refused_with_a_sentence(store: TCPStore) -> None:
    with DynamicRendezvousHandler.from_store("job", store, 1, 2, last_call_timeout=0) as ours:
        ours.next_rendezvous()
        plain = TorchStore(store.host, store.port, is_master=False, timeout=timedelta(seconds=20), use_libuv=False)
        with (
            DynamicRendezvousHandler.from_store("job", plain, 1, 2, last_call_timeout=0) as other,
            pytest.raises(RendezvousStateError, match=r"has another client; give it a trystate\.store\.TCPStore"),
        ):
            other.next_rendezvous()


def test_a_dead_path_to_a_room_is_noticed_before_a_lease_ends(store: TCPStore) -> None:
    with contextlib.closing(RoomConnection.open(store, "job", 20.0)) as opened:
        found = socket.socket(fileno=os.dup(opened.fileno()))
        assert found.getsockopt(socket.IPPROTO_TCP, socket.TCP_USER_TIMEOUT) == 1000 * UNACKNOWLEDGED_SECONDS
        found.close()
    assert settings().lease_seconds > UNACKNOWLEDGED_SECONDS
