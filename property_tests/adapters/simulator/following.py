"""Records of simulated runs, which the monitor follows on the model: the writes of our handlers are a run of it."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import replace
from functools import partial
from typing import Any

from trystate.impl.rendezvous.encoding import encode
from trystate.impl.rendezvous.rooms.messages import sender
from trystate.impl.rendezvous.rooms.room import Room
from trystate.monitor.record import Flaw, Line
from trystate.monitor.rendezvous.follower import Follower
from trystate.monitor.rendezvous.known import Options
from trystate.monitor.rendezvous.runs import Runs

from .agents import RUN_ID
from .handlers import OUR_SIDE, OURS, ROOMS, ROOMS_SIDE, Handlers
from .machines import Machine
from .moments import Time
from .rooms import Opened, RoomServer
from .servers import Answer, Reply, Server
from .swarm import Run, run
from .threads import Process

ROOM = f"trystate/{RUN_ID}/state"
EPOCH = 1.7e9  # a time of 0 in a run, in seconds of the recorder's clock


class Recorder(Server):
    """A server that records its writes, reads and heartbeats, each with the process, and the ends of processes."""

    def __init__(self, record: list[Line], time: Time) -> None:
        super().__init__(time)
        self._record = record
        self._connections: dict[Process, int] = {}
        self._version = 0  # the number of the state
        self._who: Process  # the sender of the request that is carried out

    def ask(self, who: Process, keys: Sequence[str], request: Any, reply: Reply) -> None:
        if who not in self._connections:
            self._connections[who] = len(self._connections) + 1
            who.at_death.append(lambda: self._note(who, "close"))

        def noted(server: Server) -> Answer:
            self._who = who
            answer: Answer = request(server)
            return answer

        super().ask(who, keys, noted, reply)

    def add(self, key: str, amount: int) -> bytes:
        self._note(self._who, "add", key=key)
        return super().add(key, amount)

    def compare_set(self, key: str, expected: bytes, desired: bytes) -> bytes:
        found, won = super().compare_set(key, expected, desired), self.asked["won"]
        if won > self._version:
            self._version = won
            value = desired.decode("latin-1")
            self._note(self._who, "write", key=key, value=value, v=won, **{"from": won - 1})
        elif won:
            self._note(self._who, "read", key=key, v=won)
        return found

    def _note(self, who: Process, what: str, **fields: Any) -> None:
        _append(self._record, what, self.time.now, self._connections[who], fields)


class RoomRecorder(RoomServer):
    """A server that records the requests, changes and notices of its room."""

    def __init__(self, record: list[Line], time: Time, host: Machine | None = None) -> None:
        super().__init__(time, host)
        self.room = Room(lambda: "life", self._changed)
        self._record = record
        self._connections: dict[Opened | None, int] = {None: 0}  # a change in a tick has no connection
        self._who: Opened | None = None  # the sender of the request that is carried out

    def hears(self, peer: Opened, data: bytes) -> None:
        if self.busy_until <= self.time.now and not peer.over:
            self._who = peer
            self._connections.setdefault(peer, len(self._connections))
            self._note(peer, "room", key=ROOM, node=sender(data))
        super().hears(peer, data)
        self._who = None

    def gone(self, peer: Opened) -> None:
        super().gone(peer)
        if peer in self._connections:
            self._note(peer, "close")

    def _settles(self) -> None:
        for peer, _ in self.room.notices:
            self._note(peer, "notice", key=ROOM)
        super()._settles()

    def _changed(self, record: bytes) -> None:
        if (state := self.room.state) is not None and state.version:  # a new room has version 0
            value, v = encode(state).decode("latin-1"), state.version
            self._note(self._who, "write", key=ROOM, value=value, v=v, how="room", **{"from": v - 1})

    def _note(self, who: Opened | None, what: str, **fields: Any) -> None:
        _append(self._record, what, self.time.now, self._connections[who], fields)


def _append(record: list[Line], what: str, at: float, connection: int, fields: dict[str, Any]) -> None:
    fields = {"op": what, "t": EPOCH + at, "c": connection, **fields}
    record.append(Line("simulated", len(record) + 1, what, EPOCH + at, connection, fields))


def recorded(seed: int, nodes: int | None = None, *, room: bool = False) -> tuple[Run, list[Line]]:
    """A run of our handlers, and its record, without the ends of the processes that outlive it."""
    record: list[Line] = []
    server: Any = RoomRecorder if room else Recorder
    subject, side = (ROOMS, ROOMS_SIDE) if room else (OURS, OUR_SIDE)
    world = partial(Handlers, replace(side, server=partial(server, record)))
    done = run(subject.draw(seed, nodes), replace(subject, world=world))
    return done, [line for line in record if line.time < EPOCH + done.seconds]


def followed(record: Iterable[Line | Flaw], *, judged: bool = True, **options: Any) -> Follower:
    """The one rendezvous of a record, followed to its end; with `judged`, open promises are judged there."""
    runs = Runs(lambda protocol: Options(**options))
    for line in record:
        runs.feed(line)
    if judged:
        runs.finish()
    (follower,) = (one for one in runs.followers.values() if one.begun)  # an observer requests keys that do not exist
    return follower


def harm(follower: Follower) -> list[str]:
    """The problems that make a record fail, in short."""
    return [f"{p.kind} {p.name or p.text} at {p.place}" for p in follower.problems if p.harm]
