"""Records of simulated runs, which the monitor follows on the model: the writes of real engines are a run of it."""

from __future__ import annotations

from collections.abc import Iterable, Iterator

from trystate.impl.rendezvous.encoding import encode
from trystate.monitor.record import Flaw, Line
from trystate.monitor.rendezvous.follower import Follower
from trystate.monitor.rendezvous.runs import Runs

from .monitors import BEATS, Event

SIMULATED = "trystate/simulated/state"


def simulated(log: Iterable[Event]) -> Iterator[Line]:
    """The record of a simulated run: a connection for each process."""
    connections: dict[str, int] = {}
    version = number = 0
    for event in log:
        connection = connections.setdefault(event.who, len(connections) + 1)
        if event.what == "died":
            number += 1
            yield Line("simulated", number, "close", event.at, connection, {"op": "close"})
        if event.what == BEATS:
            number += 1
            fields = {"op": "add", "t": event.at, "c": connection, "key": f"trystate/simulated/beat/{event.who}"}
            yield Line("simulated", number, "add", event.at, connection, fields)
        if event.state is None:
            continue
        number, version = number + 1, version + 1
        fields = {
            "op": "write", "t": event.at, "c": connection, "key": SIMULATED, "v": version, "from": version - 1,
            "value": encode(event.state).decode("latin-1"),
        }  # fmt: skip
        yield Line("simulated", number, "write", event.at, connection, fields)


def followed(record: Iterable[Line | Flaw], *, judged: bool = True) -> Follower:
    """The one rendezvous of a record, followed to its end; with `judged`, open promises are judged there."""
    runs = Runs()
    for line in record:
        runs.feed(line)
    if judged:
        runs.finish()
    (follower,) = runs.followers.values()
    return follower


def harm(follower: Follower) -> list[str]:
    """The problems that make a record fail, in short."""
    return [f"{p.kind} {p.name or p.text} at {p.place}" for p in follower.problems if p.harm]
