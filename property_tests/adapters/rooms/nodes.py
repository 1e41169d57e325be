"""Requests of nodes, rooms that some have joined, and members that meet in a room."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import Any

from trystate.impl.rendezvous.command import Command
from trystate.impl.rendezvous.encoding import encode_settings
from trystate.impl.rendezvous.rooms import messages
from trystate.impl.rendezvous.rooms.member import Member
from trystate.impl.rendezvous.rooms.messages import JOIN, LEASED, Intent
from trystate.impl.rendezvous.rooms.room import Room
from trystate.impl.rendezvous.state import Settings

from ..our_rendezvous.parts import participant, settings


def sent(k: int, kind: int, agreed: Settings, program: str = "", **fields: Any) -> bytes:
    """A request of node k, on its first connection and in its first join if the fields have no others."""
    blob = encode_settings(replace(agreed, command=Command(program)))
    if kind == JOIN:
        fields = {"me": participant(k), "digest": messages.digest(blob), "settings": blob, "flags": LEASED, **fields}
    return Intent(kind, f"token-{k}", **{"connection": 1, "join": 1, **fields}).encode()


def begun(low: int, high: int, record: Callable[[bytes], None] = lambda data: None, **options: Any) -> Room:
    """A room in which `high` nodes are in a complete round; the connection of node k is f"c{k}"."""
    lives = iter(f"life-{k}" for k in range(1, 9))
    room = Room(lambda: next(lives), record, **options)
    for k in range(high):
        room.request(f"c{k}", sent(k, JOIN, settings(low, high)), 0.0)
    room.notices.clear()
    room.decisions.clear()
    return room


class Meeting:
    """A room and members on a network without delays. A member in `away` sends and receives nothing."""

    def __init__(self, room: Room, agreed: Settings, nodes: int) -> None:
        self.room, self.members = room, [Member(participant(k), agreed) for k in range(nodes)]
        self.now, self.away = 0.0, set[int]()
        self.requests: list[int] = []  # the kinds that were sent
        for member in self.members:
            member.connected(0.0)

    def settle(self, seconds: float = 0.0) -> None:
        """Let this time pass, and all messages arrive."""
        ends = self.now + seconds
        while True:
            while sum(self._turn(k) for k in range(len(self.members)) if k not in self.away):
                pass
            here = [m.wakes(self.now) for k, m in enumerate(self.members) if k not in self.away]
            self.now = max(self.now, min([ends, self.room.due, *here]))
            if self.now >= self.room.due:
                self.room.tick(self.now)
            elif self.now >= ends:
                return
            for k, m in enumerate(self.members):
                if k not in self.away:
                    m.woke(self.now)

    def _turn(self, k: int) -> bool:
        member = self.members[k]
        data = member.take(self.now)
        if data is not None:
            self.requests.append(data[0])
            member.heard(self.room.request(k, data, self.now), False, self.now)
        notices, self.room.notices = self.room.notices, []
        for to, notice in notices:
            if to not in self.away:
                self.members[int(str(to))].heard(notice, True, self.now)
        return data is not None or bool(notices)

    def joined(self, seconds: float = 600.0) -> Meeting:
        """All members have joined a round, or the join has ended with an error."""
        for member in self.members:
            member.join(self.now, seconds)
        self.settle()
        return self
