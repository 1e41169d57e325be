"""Rooms and members take every step of the model `Rooms`, and refuse what the model forbids."""

from __future__ import annotations

from typing import Any

import pytest

from trystate.impl.rendezvous.intents import change_of
from trystate.impl.rendezvous.rooms.member import Member
from trystate.impl.rendezvous.rooms.room import Room
from trystate.model.rendezvous import Edition
from trystate.model.rendezvous.rooms import Rooms
from trystate.property_tests.adapters.rooms.edges import RoomSteps
from trystate.property_tests.harness.paths import Replayed, replay_every_edge
from trystate.property_tests.support.mutants import Mutant, planted, replaced, rewritten
from trystate.property_tests.support.nightly import NIGHTLY

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
    "a round is complete although a node is expected": ("2 1:2", rewritten(
        Room._set_due, "t.calling and not t.expected", "t.calling")),
    "a request ends another round": ("2 2:2 cut worker_failure", rewritten(
        change_of, "intent.of == (t.life, t.round)", "intent.of")),
    "a change is not on disk": ("2 2:2 server_restart lost_tail", rewritten(
        Room._change, "self._record(messages.record(name, t.version, (me, *plain)))",
        "name == 'add_to_participants' or self._record(messages.record(name, t.version, (me, *plain)))")),
    "an earlier connection is not refused": ("2 2:2 cut", rewritten(
        Room._attach, "number < (last or self._numbers.get(token, 0))", "False")),
    "the server counts the time in which it stood still": ("2 1:1 outage", rewritten(
        Room._watched_at, "min(max(0.0, gap), BLIND_INTERVALS * t.settings.keep_alive_interval)", "gap")),
    "windows go on while the server is away": ("2 2:2 server_restart lost_tail", rewritten(
        Room.begin_again, "(p.node.token, 0.0)", "(p.node.token, -now)")),
    "a join that has ended is forgotten": ("2 1:1 drain", replaced(
        Room, "_has_ended", lambda self, token, join: False)),
}
# fmt: on


@pytest.mark.parametrize("mistake", MUTANTS)
def test_a_mistake_is_a_disagreement(mistake: str) -> None:
    case, mutant = MUTANTS[mistake]
    with planted(mutant):
        assert replay(case, stop_after=1).disagreements
