"""The lines of a record for each connection and key, with versions, and the lines that a new file repeats.

Theory of operation. The server's service and the proxy report the events to a `Recorder` in their order: `say` adds a
line, `flush` ends the lines of one request. The recorder counts the versions of the recorded keys, and keeps the state
that the lines so far have led to: open connections, state keys with their values, blocked requests. When the file is
full or lines were lost, it repeats that state, so a reader can continue from there. Its lines go to a `Sink`.

Rule: nothing here decides or waits, and no peer can make it fail. Every table is bounded by the store's or by itself.
"""

from __future__ import annotations

from collections.abc import Sequence
from itertools import islice
from typing import Any

from ..wire import PROBE_KEY
from .format import BARRIER, KEYS_MAX, OURS, STATES_MAX, TORCH, VALUE_BYTES_MAX, Keys, is_state, text
from .writer import Sink, encoded

FORGOTTEN_MAX = 10_000  # deleted keys whose versions continue if they are set again


class Recorder:
    """The lines of one record."""

    def __init__(self, sink: Sink, bytes_max: int, keys: Keys = Keys.RENDEZVOUS, values: bool = False) -> None:
        """
        Args:
            sink: keeps the lines.
            bytes_max: the size of one file.
            keys: the keys whose requests are recorded.
            values: whether the values of keys other than state keys are recorded.
        """
        self.sink, self.bytes_max, self.all, self.values = sink, bytes_max, keys is Keys.ALL, values
        self.lines: list[dict[str, Any]] = []  # the lines that are not flushed yet
        self._size = 0  # bytes in this file, without the lines repeated from the previous file
        self._connections = 0
        self._open: dict[int, str] = {}
        self._versions: dict[bytes, int] = {}
        self._forgotten: dict[bytes, int] = {}
        self._states: dict[bytes, bytes] = {}
        self._waits: dict[int, dict[str, Any]] = {}

    def wants(self, key: bytes) -> bool:
        """Whether requests on this key are recorded."""
        return self.all or TORCH in key or BARRIER in key or (OURS in key and key != PROBE_KEY)

    def say(self, c: int, op: str, **fields: Any) -> dict[str, Any]:
        """Add a line. It may be changed until it is flushed."""
        line = {"c": c, "op": op, **fields}
        self.lines.append(line)
        return line

    def flush(self) -> None:
        """Pass the lines to the sink. After lost lines or a full file, repeat the state."""
        lines = [encoded(line) for line in self.lines]
        self.lines.clear()
        lost = self.sink.take_lost()
        if lost:  # the repeated state includes the changes of these lines
            lost += len(lines)
            lines = [encoded({"c": 0, "op": "lost", "lines": lost}), *self._again()]
        self._size += sum(map(len, lines))
        self.sink.put(lines, lost or 0)
        if self._size > self.bytes_max:
            left_out = len(self._states) + len(self._waits) - 2 * STATES_MAX
            self.sink.rotate({"left_out": left_out} if left_out > 0 else {})
            self.sink.put(self._again())
            self._size = 0

    def _again(self) -> list[bytes]:
        lines: list[dict[str, Any]] = [{"c": c, "op": "open", "peer": peer} for c, peer in self._open.items()]
        for key, value in islice(self._states.items(), STATES_MAX):
            v = self._versions[key]
            lines.append({"c": 0, "op": "write", "key": text(key), "v": v, "from": v, **shown(value)})
        lines += islice(self._waits.values(), STATES_MAX)
        return [encoded({**line, "again": True}) for line in lines]

    # Connections

    def opened(self, peer: str) -> int:
        """Record a new connection, and return its number."""
        self._connections += 1
        self._open[self._connections] = peer
        self.say(self._connections, "open", peer=peer)
        return self._connections

    def closed(self, c: int) -> None:
        """Record the end of a connection."""
        if self._open.pop(c, None) is not None:
            self.say(c, "close")

    # Versions

    def version(self, key: bytes) -> int:
        """How often a recorded key was written; 0 if it does not exist."""
        return self._versions.get(key, 0)

    def next_version(self, key: bytes) -> int:
        """The version that the next write makes."""
        return (self._versions.get(key) or self._forgotten.get(key, 0)) + 1

    def holds(self, key: bytes) -> bytes | None:
        """The last known value of a state key."""
        return self._states.get(key)

    def written(self, key: bytes, value: bytes) -> None:
        """Note that a recorded key has a new value."""
        self._versions[key] = self.next_version(key)
        self._forgotten.pop(key, None)
        if is_state(key):
            self._states[key] = value

    def deleted(self, key: bytes) -> None:
        """Note that a recorded key was deleted."""
        version = self._versions.pop(key, None)
        self._states.pop(key, None)
        if version is not None:
            if len(self._forgotten) >= FORGOTTEN_MAX:
                del self._forgotten[next(iter(self._forgotten))]
            self._forgotten[key] = version

    def begins_with(self, key: bytes, value: bytes) -> None:
        """Record a value that the store had before the first connection."""
        self.written(key, value)
        if is_state(key):
            v = self.version(key)
            self.say(0, "write", key=text(key), v=v, **{"from": v}, **shown(value), again=True)

    # Lines of several kinds of requests

    def write(self, c: int, key: bytes, value: bytes, **more: Any) -> dict[str, Any]:
        """Record that a state key gets a value. The caller calls `written` afterwards."""
        return self.say(
            c, "write", key=text(key), v=self.next_version(key), **{"from": self.version(key)}, **shown(value), **more
        )

    def compared(self, c: int, key: bytes, expected: bytes, desired: bytes, won: bool) -> None:
        """Record a compare_set of a key that is not a state key. The caller calls `written` afterwards."""
        v = self.next_version(key) if won else self.version(key)
        wanted = {"expected": text(expected)} if self.shows(key) and len(expected) <= VALUE_BYTES_MAX else {}
        self.say(c, "compare_set", key=text(key), **self.value(key, desired), **wanted, won=won, v=v)

    def waits(self, c: int, keys: Sequence[bytes], missing: Sequence[bytes]) -> None:
        """Record that a request blocks."""
        several = named(keys) if len(keys) > 1 else {}
        first = text(keys[0]) if keys else ""
        self._waits[c] = self.say(c, "wait", key=first, **several, missing=named(missing, several=True)["keys"])

    def ends(self, c: int, why: str = "") -> None:
        """Record that the blocked request of a connection, if it has one, ends for a reason, or else continues."""
        wait = self._waits.pop(c, None)
        if wait is not None:
            self.say(c, "stop" if why else "go", **_of(wait), **({"why": why} if why else {}))

    def waits_no_more(self, c: int) -> None:
        """Drop the blocked request of a connection without a line: it was refused."""
        self._waits.pop(c, None)

    def shows(self, key: bytes) -> bool:
        """Whether the values of this key are recorded."""
        return self.values or BARRIER in key

    def value(self, key: bytes, value: bytes) -> dict[str, Any]:
        """The size of a value, and the value if it is recorded."""
        return shown(value) if self.shows(key) else {"size": len(value)}


def shown(value: bytes) -> dict[str, Any]:
    """A value and its size. A value that is too large is left out."""
    size = len(value)
    return {"size": size, "value": text(value)} if size <= VALUE_BYTES_MAX else {"size": size}


def named(keys: Sequence[bytes], several: bool = False) -> dict[str, Any]:
    """The key or the keys of a request."""
    if len(keys) == 1 and not several:
        return {"key": text(keys[0])}
    found: dict[str, Any] = {"keys": [text(key) for key in keys[:KEYS_MAX]]}
    return found if len(keys) <= KEYS_MAX else {**found, "more": len(keys) - KEYS_MAX}


class RequestLines:
    """The lines of a recorded request that a server and a proxy have in common."""

    __slots__ = ("c", "keys", "kind", "recorder")

    def __init__(self, recorder: Recorder, c: int, kind: str, keys: list[bytes]) -> None:
        self.recorder, self.c, self.kind, self.keys = recorder, c, kind, keys

    def says(self, fields: list[Any], result: Any) -> None:
        """Record a request that is neither a read nor a compare_set, with its result (of append: the whole value)."""
        recorder, value = self.recorder, self.recorder.value
        match self.kind:
            case "set":
                self.say_write(fields[0], fields[1], **value(*fields[:2]))
            case "append":
                self.say_write(fields[0], result, **value(*fields[:2]))
            case "add":
                self.say_write(fields[0], b"%d" % result, amount=fields[1], result=result)
            case "multi_set":
                self.say_writes(fields[0])
            case "delete" | "take":
                kind = "delete" if is_state(fields[0]) else self.kind
                recorder.say(self.c, kind, key=text(fields[0]), found=result)
                self.effect(fields[0], None)
            case "check":
                recorder.say(self.c, self.kind, **named(self.keys, several=True), found=result)
            case "queue_push":
                self.say(**value(*fields[:2]), **({} if result is None else {"result": result}))
            case "num_keys" | "queue_len":
                self.say(result=result)
            case "list_keys":
                recorder.say(self.c, self.kind, key=text(fields[0] if fields else b""), result=len(result))
            case "barrier":
                self.say(world=fields[1])
            case "watch" | "unwatch":
                self.say()

    def effect(self, key: bytes, value: bytes | None) -> None:
        """Note the new value of a recorded key; None: the key does not exist."""
        if value is None:
            self.recorder.deleted(key)
        else:
            self.recorder.written(key, value)

    def say(self, **fields: Any) -> None:
        """Add a line with the keys of the request."""
        self.recorder.say(self.c, self.kind, **(named(self.keys) if self.keys else {}), **fields)

    def say_write(self, key: bytes, whole: bytes, **fields: Any) -> None:
        """Add the line of a key that gets a value. `fields` are for a key that is not a state key."""
        if is_state(key):
            self.recorder.write(self.c, key, whole, how=self.kind)
        else:
            self.say(**fields, v=self.recorder.next_version(key))
        self.effect(key, whole)

    def say_writes(self, pairs: Sequence[bytes]) -> None:
        """Add the lines of keys that get values. `pairs` has both in turn."""
        recorder, others = self.recorder, dict[bytes, dict[str, Any]]()
        latest = {key: value for key, value in zip(pairs[::2], pairs[1::2], strict=True) if recorder.wants(key)}
        for key, value in latest.items():
            if is_state(key):
                recorder.write(self.c, key, value, how=self.kind)
            else:
                others[key] = recorder.value(key, value)
        if others:
            few = [*others][:KEYS_MAX]
            values = {"values": [others[key].get("value") for key in few]} if any(map(recorder.shows, few)) else {}
            recorder.say(
                self.c, self.kind, **named([*others], several=True), sizes=[others[key]["size"] for key in few],
                **values, vs=[recorder.next_version(key) for key in few],
            )  # fmt: skip
        for key, value in latest.items():
            self.effect(key, value)

    def say_reads(self, versions: dict[bytes, int], **kept: Any) -> None:
        """Add the line of a read, with the versions of keys that are not state keys."""
        if len(self.keys) == 1 and versions:
            self.say(v=versions[self.keys[0]], **kept)
        elif versions:
            vs = [*versions.values()][:KEYS_MAX]
            self.recorder.say(self.c, self.kind, **named([*versions], several=True), vs=vs, **kept)


def _of(wait: dict[str, Any]) -> dict[str, Any]:
    return {name: wait[name] for name in ("key", "keys", "more") if name in wait}
