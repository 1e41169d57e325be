"""The lines of a record: of each connection and key, with versions, and those that a new file repeats.

Theory of operation. The server's service and the proxy tell a `Recorder` what happened, in its order: `say` for a line,
`flush` when the lines of one request are complete. It counts the versions of the recorded keys, and has what the lines
so far have left: open connections, state keys with their values, blocked requests. When the file has its size, or
lines were lost, these are repeated, so that a reader can go on from there. Its lines go to a `Sink`.

Rule: nothing here decides, waits or fails for a reason of a peer's; every table is bounded by the store's or by itself.
"""

from __future__ import annotations

from collections.abc import Sequence
from itertools import islice
from typing import Any

from ..wire import PROBE_KEY
from .format import KEYS_MAX, OURS, STATES_MAX, TORCH, VALUE_BYTES_MAX, Keys, is_state, text
from .writer import Sink, encoded

FORGOTTEN_MAX = 10_000  # deleted keys whose versions go on when they come again


class Recorder:
    """The lines of one record."""

    def __init__(self, sink: Sink, bytes_max: int, keys: Keys = Keys.RENDEZVOUS, values: bool = False) -> None:
        """
        Args:
            sink: keeps the lines.
            bytes_max: of one file.
            keys: whose requests are recorded.
            values: whether those of other than state keys are.
        """
        self.sink, self.bytes_max, self.all, self.values = sink, bytes_max, keys is Keys.ALL, values
        self.lines: list[dict[str, Any]] = []  # said, and not flushed
        self._size = 0  # of the file so far, beside what it repeats
        self._connections = 0
        self._open: dict[int, str] = {}
        self._versions: dict[bytes, int] = {}
        self._forgotten: dict[bytes, int] = {}
        self._states: dict[bytes, bytes] = {}
        self._waits: dict[int, dict[str, Any]] = {}

    def wants(self, key: bytes) -> bool:
        """Whether requests on this key are recorded."""
        return self.all or TORCH in key or (OURS in key and key != PROBE_KEY)

    def say(self, c: int, op: str, **fields: Any) -> dict[str, Any]:
        """Add a line, which may be changed until it is flushed."""
        line = {"c": c, "op": op, **fields}
        self.lines.append(line)
        return line

    def flush(self) -> None:
        """Give the lines to the sink, and what is to be repeated after them."""
        lines = [encoded(line) for line in self.lines]
        self.lines.clear()
        lost = self.sink.take_lost()
        if lost:  # the repetition has the changes of these lines too
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
        """A connection; its number."""
        self._connections += 1
        self._open[self._connections] = peer
        self.say(self._connections, "open", peer=peer)
        return self._connections

    def closed(self, c: int) -> None:
        """It is gone."""
        if self._open.pop(c, None) is not None:
            self.say(c, "close")

    # Versions

    def version(self, key: bytes) -> int:
        """How often a recorded key was written; 0: it does not exist."""
        return self._versions.get(key, 0)

    def next_version(self, key: bytes) -> int:
        """The version that the next write makes."""
        return (self._versions.get(key) or self._forgotten.get(key, 0)) + 1

    def holds(self, key: bytes) -> bytes | None:
        """The value of a state key, as far as it is known."""
        return self._states.get(key)

    def written(self, key: bytes, value: bytes) -> None:
        """A recorded key has another value."""
        self._versions[key] = self.next_version(key)
        self._forgotten.pop(key, None)
        if is_state(key):
            self._states[key] = value

    def deleted(self, key: bytes) -> None:
        """A recorded key has no value any more."""
        version = self._versions.pop(key, None)
        self._states.pop(key, None)
        if version is not None:
            if len(self._forgotten) >= FORGOTTEN_MAX:
                del self._forgotten[next(iter(self._forgotten))]
            self._forgotten[key] = version

    def begins_with(self, key: bytes, value: bytes) -> None:
        """The store had a value before anybody came."""
        self.written(key, value)
        if is_state(key):
            v = self.version(key)
            self.say(0, "write", key=text(key), v=v, **{"from": v}, **shown(value), again=True)

    # Lines of several kinds of requests

    def write(self, c: int, key: bytes, value: bytes, **more: Any) -> dict[str, Any]:
        """A state key gets a value; the caller tells `written` when it has."""
        return self.say(
            c, "write", key=text(key), v=self.next_version(key), **{"from": self.version(key)}, **shown(value), **more
        )

    def compared(self, c: int, key: bytes, expected: bytes, desired: bytes, won: bool, v: int) -> None:
        """A compare_set of a key that has no state."""
        wanted = {"expected": text(expected)} if self.values and len(expected) <= VALUE_BYTES_MAX else {}
        self.say(c, "compare_set", key=text(key), **self.value(desired), **wanted, won=won, v=v)

    def waits(self, c: int, keys: Sequence[bytes], missing: Sequence[bytes]) -> None:
        """A request blocks."""
        several = named(keys) if len(keys) > 1 else {}
        first = text(keys[0]) if keys else ""
        self._waits[c] = self.say(c, "wait", key=first, **several, missing=named(missing, several=True)["keys"])

    def goes(self, c: int) -> bool:
        """The blocked request of a connection goes on, if it has one."""
        wait = self._waits.pop(c, None)
        if wait is not None:
            self.say(c, "go", **_of(wait))
        return wait is not None

    def stops(self, c: int, why: str) -> None:
        """The blocked request of a connection ends, if it has one."""
        wait = self._waits.pop(c, None)
        if wait is not None:
            self.say(c, "stop", **_of(wait), why=why)

    def waits_no_more(self, c: int) -> None:
        """The blocked request of a connection was refused, and nothing is to be said of it."""
        self._waits.pop(c, None)

    def value(self, value: bytes) -> dict[str, Any]:
        """The size of a value, and the value if values are recorded."""
        return shown(value) if self.values else {"size": len(value)}


def shown(value: bytes) -> dict[str, Any]:
    """A value and its size; a value that is too large is left out."""
    size = len(value)
    return {"size": size, "value": text(value)} if size <= VALUE_BYTES_MAX else {"size": size}


def named(keys: Sequence[bytes], several: bool = False) -> dict[str, Any]:
    """The key or the keys of a request."""
    if len(keys) == 1 and not several:
        return {"key": text(keys[0])}
    found: dict[str, Any] = {"keys": [text(key) for key in keys[:KEYS_MAX]]}
    return found if len(keys) <= KEYS_MAX else {**found, "more": len(keys) - KEYS_MAX}


def _of(wait: dict[str, Any]) -> dict[str, Any]:
    return {name: wait[name] for name in ("key", "keys", "more") if name in wait}
