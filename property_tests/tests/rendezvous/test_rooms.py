"""Random runs of rooms keep sixteen properties (adapters/rooms/worlds.py), and detect eight mistakes.

The ninth, a join that returns while a request is under way, is seen in one run of some thousands: test_rooms_orders.py
finds it in the orders of messages of two nodes.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping

import pytest

from trystate.impl.rendezvous import intents, observer
from trystate.impl.rendezvous.rooms import room as rooms
from trystate.impl.rendezvous.rooms.room import Room
from trystate.property_tests.adapters.rooms import worlds
from trystate.property_tests.adapters.rooms.worlds import Broken, Server
from trystate.property_tests.adapters.simulator.moments import Endless
from trystate.property_tests.adapters.simulator.swarm import tidily
from trystate.property_tests.support.mutants import Mutant, planted, replaced, rewritten, together
from trystate.property_tests.support.nightly import by_night, examples

RUNS = 500

# Events of the runs of a day: a property that no event could have violated proves nothing.
SOMETIMES = (*worlds.FAULTS, "joined", "expulsions", "spent", "spares", "closed", "succeeded", "lost tails",
             "impatient", "REPLACED", "EXPELLED", "LAPSED", "CLOSED", "RendezvousDrained", "RendezvousTimeoutError",
             "RendezvousClosedError")  # fmt: skip


def test_random_runs_keep_all_properties() -> None:
    counts: Counter[str] = Counter()
    for seed in tidily(range(by_night("runs of rooms", examples(RUNS)))):
        counts += worlds.run(seed).counts
    assert [name for name in SOMETIMES if not counts[name]] == []


# fmt: off
# Each mistake, with the first seed that shows it, which is tried first.
MISTAKES: Mapping[str, tuple[Mutant, int]] = {
    "a node ignores the end of its lease": (
        replaced(observer.Lease, "holds", lambda self, now: self._confirmed is not None), 15),
    "a round is complete while members are expected": (
        rewritten(Room._set_due, "t.calling and not t.expected", "t.calling"), 5),
    "an intent about an earlier round is applied": (
        rewritten(intents.change_of, "intent.of == (t.life, t.round)", "intent.of is not None"), 6),
    "a late copy of a request is applied": (together(
        rewritten(Room._attach, "if number < (last or self._numbers.get(token, 0)):", "if False:"),
        replaced(Server, "closes_replaced", False)), 1),
    "an answer does not wait for the disk": (replaced(Server, "waits_for_disk", False), 194),
    "the time when the server stood still counts": (replaced(rooms, "BLIND_INTERVALS", 1e9), 3),
    "windows do not begin again after a restart": (
        rewritten(Room.begin_again, "(p.node.token, 0.0)", "(p.node.token, -t.settings.expiry_seconds)"), 0),
    "a join that has ended is applied again": (replaced(Room, "_has_ended", lambda self, token, join: False), 0),
}
# fmt: on


@pytest.mark.parametrize("name", MISTAKES)
def test_random_runs_detect_a_mistake(name: str) -> None:
    mutant, first = MISTAKES[name]
    with planted(mutant), pytest.raises((Broken, Endless)):
        for seed in (first, *range(RUNS)):
            worlds.run(seed)
