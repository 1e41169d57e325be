"""Records for tests: those that are kept, those of simulated runs, and copies with one planted change."""

from __future__ import annotations

import base64
import gzip
import json
import pickle
from collections.abc import Callable, Iterable, Iterator
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from trystate.impl.rendezvous.encoding import encode
from trystate.monitor.record import Flaw, Line, parse
from trystate.monitor.rendezvous.follower import Follower
from trystate.monitor.rendezvous.runs import Runs

from ..adapters.simulator.monitors import Event

KEPT = Path(__file__).parent / "records"  # of real jobs, written by `trystate store serve --record`
SIMULATED = "trystate/simulated/state"
Fields = dict[str, Any]


def kept(name: str) -> list[Fields]:
    """The lines of a record that is kept."""
    with gzip.open(KEPT / f"{name}.jsonl.gz", "rt", encoding="utf-8") as stream:
        return [json.loads(text) for text in stream]


def explained(lines: Iterable[Fields | Line], *, judged: bool = True) -> Runs:
    """A record, followed to its end; with `judged`, promises that are open there are asked."""
    runs = Runs()
    for number, line in enumerate(lines, 1):
        runs.feed(line if isinstance(line, Line) else parsed(line, number))
    if judged:
        runs.finish()
    return runs


def parsed(fields: Fields, number: int) -> Line | Flaw:
    return parse(json.dumps(fields), "record", number)


def followed(lines: Iterable[Fields | Line], *, judged: bool = True) -> Follower:
    """The one rendezvous of a record."""
    (follower,) = explained(lines, judged=judged).followers.values()
    return follower


def harm(follower: Follower) -> list[str]:
    """The problems that make a record fail, in short."""
    return [f"{p.kind} {p.name or p.text} at {p.place}" for p in follower.problems if p.harm]


def simulated(log: Iterable[Event]) -> Iterator[Line]:
    """The record of a simulated run: a connection for each process."""
    connections: dict[str, int] = {}
    version = number = 0
    for event in log:
        connection = connections.setdefault(event.who, len(connections) + 1)
        if event.what == "died":
            number += 1
            yield Line("simulated", number, "close", event.at, connection, {"op": "close"})
        if event.state is None:
            continue
        number, version = number + 1, version + 1
        fields = {
            "op": "write", "t": event.at, "c": connection, "key": SIMULATED, "v": version, "from": version - 1,
            "value": encode(event.state).decode("latin-1"),
        }  # fmt: skip
        yield Line("simulated", number, "write", event.at, connection, fields)


def grown(nodes: int, beats: int) -> Iterator[Fields]:
    """A record of torch's own states: so many nodes join one round, which completes, and beat so many times."""
    from torch.distributed.elastic.rendezvous.dynamic_rendezvous import _NodeDesc, _RendezvousState

    key, state, version, now = "/torch.rendezvous.grown", _RendezvousState(), 0, 1_000.0
    descs = [_NodeDesc(f"host{k:04}", 100, 0) for k in range(nodes)]
    yield {"op": "header", "t": now, "c": 0, "format": 1, "by": "a test"}

    def line(node: int, op: str, **fields: Any) -> Fields:
        return {"op": op, "t": now, "c": node + 1, "key": key, **fields}

    def write(node: int) -> Fields:
        nonlocal version
        version += 1
        state.last_heartbeats[descs[node]] = datetime.fromtimestamp(now, UTC).replace(tzinfo=None)
        value = base64.b64encode(pickle.dumps(state)).decode()
        return line(node, "write", v=version, value=value, **{"from": version - 1})

    for node, desc in enumerate(descs):
        now += 0.001
        state.participants[desc] = 0
        if node == nodes - 1:
            state.complete = True
            state.participants = {one: rank for rank, one in enumerate(descs)}
        yield write(node)
    below = f"{key}.0/"
    for node in range(nodes):
        yield line(node, "read", v=version)
        yield line(node, "set" if node == 0 else "get") | {"key": f"{below}MASTER_ADDR"}
        yield line(node, "set") | {"key": f"{below}torchelastic/role_info/{node}"}
    for node in range(nodes):
        yield line(node, "get") | {"key": f"{below}torchelastic/assigned_ranks/{node}"}
    for _ in range(beats):
        now += 5.0
        for node in range(nodes):
            now += 0.001
            yield line(node, "read", v=version)
            yield write(node)


def planted(lines: list[Fields], at: int, change: Callable[[Fields], None]) -> list[Fields]:
    """A copy in which one line is another one."""
    changed = dict(lines[at])
    change(changed)
    return [*lines[:at], changed, *lines[at + 1 :]]
