"""Records for tests: kept records, and copies with one planted change."""

from __future__ import annotations

import base64
import json
import pickle
import zipfile
from collections.abc import Callable, Iterable, Iterator
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from trystate.monitor.record import Flaw, Line, parse
from trystate.monitor.rendezvous.follower import Follower

from ..adapters.simulator import following

KEPT = Path(__file__).with_name("records.zip")  # records of real jobs, written by `trystate store serve --record`
Fields = dict[str, Any]


def unpacked(name: str) -> bytes:
    """A record that is kept."""
    with zipfile.ZipFile(KEPT) as records:
        return records.read(f"{name}.jsonl")


def kept(name: str) -> list[Fields]:
    """The lines of a record that is kept."""
    return [json.loads(text) for text in unpacked(name).splitlines()]


def parsed(fields: Fields, number: int) -> Line | Flaw:
    return parse(json.dumps(fields), "record", number)


def followed(lines: Iterable[Fields | Line], *, judged: bool = True, **options: Any) -> Follower:
    """The one rendezvous of a record of lines, or of their fields."""
    given = enumerate(lines, 1)
    record = (line if isinstance(line, Line) else parsed(line, number) for number, line in given)
    return following.followed(record, judged=judged, **options)


def grown(nodes: int) -> Iterator[Fields]:
    """A record of torch's own states: nodes join one round, which completes, and beat once."""
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
    now += 5.0
    for node in range(nodes):
        now += 0.001
        yield line(node, "read", v=version)
        yield write(node)


def planted(lines: list[Fields], at: int, change: Callable[[Fields], None]) -> list[Fields]:
    """A copy with one changed line."""
    changed = dict(lines[at])
    change(changed)
    return [*lines[:at], changed, *lines[at + 1 :]]
