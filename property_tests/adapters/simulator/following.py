"""Records of simulated runs, which the monitor follows on the model: the writes of our handlers are a run of it."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import replace
from functools import partial
from typing import Any

from trystate.monitor.record import Flaw, Line
from trystate.monitor.rendezvous.follower import Follower
from trystate.monitor.rendezvous.known import Options
from trystate.monitor.rendezvous.runs import Runs

from .handlers import OUR_SIDE, OURS, Handlers
from .moments import Time
from .servers import Answer, Reply, Server
from .swarm import Run, run
from .threads import Process


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
        at, connection = self.time.now, self._connections[who]
        fields = {"op": what, "t": at, "c": connection, **fields}
        self._record.append(Line("simulated", len(self._record) + 1, what, at, connection, fields))


def recorded(seed: int, nodes: int | None = None) -> tuple[Run, list[Line]]:
    """A run of our handlers, and its record, without the ends of the processes that outlive it."""
    record: list[Line] = []
    side = replace(OUR_SIDE, server=partial(Recorder, record))
    done = run(OURS.draw(seed, nodes), replace(OURS, world=partial(Handlers, side)))
    return done, [line for line in record if line.time < done.seconds]


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
