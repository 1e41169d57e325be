"""Records of a store in the tests: lines without files, and the store that they describe.

Every record that a test writes is judged as `trystate explain` judges it; `judged` has the answers that it calls wrong.

Rule: `Replayed` knows nothing of a store but the lines.
"""

from __future__ import annotations

import json
import re
import signal
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any, Self

from trystate.impl.store.record.format import Keys
from trystate.impl.store.record.recorder import Recorder
from trystate.monitor import record
from trystate.monitor.histories import Histories, check

Line = dict[str, Any]


_wrong: list[str] = []  # in the records that were judged
_judges: list[Histories] = []  # of the records that may not be over
JUDGES_MAX = 100


def judged() -> list[str]:
    """The answers that `explain` calls wrong, in all records since this was asked."""
    while _judges:
        _finish(_judges.pop())
    wrong = [*_wrong]
    _wrong.clear()
    return wrong


def _finish(histories: Histories) -> None:
    histories.feed("the end", {"c": 0, "op": "end", "t": 0.0})
    histories.finish()
    _wrong.extend(f"{each.check}: {each}" for each in histories.wrong)


class Lines:
    """A sink that keeps all lines in memory, and judges them; `lost` and `files` are the tests'."""

    def __init__(self, **header: Any) -> None:
        self.lines: list[Line] = []
        self._judge, self._number = Histories(), 0
        self._judge.feed(0, {"c": 0, "op": "header", "t": 0.0, **header})
        _judges.append(self._judge)
        if len(_judges) > JUDGES_MAX:
            _finish(_judges.pop(0))
        self.lost: int | None = 0
        self.files = 0

    def put(self, lines: Sequence[bytes], lost: int = 0) -> None:
        for line in map(json.loads, lines):
            self._take(line)

    def rotate(self, fields: Line) -> None:
        self.files += 1
        self._take({"c": 0, "op": "header", "continues": self.files, **fields})

    def _take(self, line: Line) -> None:
        self.lines.append(line)
        self._number += 1
        self._judge.feed(self._number, {"t": 0.0, **line})

    def take_lost(self) -> int | None:
        lost, self.lost = self.lost, 0
        return lost

    def take(self) -> list[Line]:
        """The lines since this was asked."""
        lines, self.lines = self.lines, []
        return lines


def recorder(
    keys: Keys = Keys.ALL, values: bool = True, bytes_max: int = 1 << 30, by: str = "store serve"
) -> tuple[Lines, Recorder]:
    """A recorder, and where its lines are; `by`: the command whose lines it writes."""
    sink = Lines(keys=keys.value, by=by)
    return sink, Recorder(sink, bytes_max, keys, values)


class Replayed:
    """The contents of a store, its connections and blocked requests, by its record."""

    def __init__(self) -> None:
        self.values: dict[bytes, bytes] = {}
        self.versions: dict[bytes, int] = {}
        self.queues: dict[bytes, list[bytes]] = {}
        self.reserved: dict[tuple[bytes, int], tuple[int, bytes]] = {}
        self.returned: dict[bytes, list[int]] = {}
        self.open: set[int] = set()
        self.blocked: dict[int, list[str]] = {}

    def take(self, line: Line) -> None:
        """Follow one line. Raises AssertionError if it contradicts those before it."""
        if "error" in line:
            return
        c, op = line["c"], line["op"]
        key = line.get("key", "").encode("latin-1")
        value = (line.get("value") or "").encode("latin-1")
        match op:
            case "open":
                self.open.add(c)
            case "close":
                assert c not in self.blocked
                self.open.remove(c)
            case "write" if line.get("again"):
                assert self.versions.get(key, 0) <= line["v"]
                self.values[key], self.versions[key] = value, line["v"]
            case "write":
                assert line["from"] == self.versions.get(key, 0)
                self._write(key, value, line["v"])
            case "set":
                self._write(key, value, line["v"])
            case "append":
                self._write(key, self.values.get(key, b"") + value, line["v"])
            case "add":
                assert int(self.values.get(key, b"0")) + line["amount"] == line["result"]
                self._write(key, b"%d" % line["result"], line["v"])
            case "compare_set" if line["won"]:
                assert self.values.get(key, b"") == line["expected"].encode("latin-1")
                self._write(key, value, line["v"])
            case "compare_set" | "refused":
                assert line["v"] == self.versions.get(key, 0)
            case "multi_set":
                for name, each, v in zip(line["keys"], line["values"], line["vs"], strict=True):
                    self._write(name.encode("latin-1"), each.encode("latin-1"), v)
            case "delete" | "take":
                assert line["found"] == (key in self.values)
                self.values.pop(key, None)
                self.versions.pop(key, None)
            case "queue_push":
                self.queues.setdefault(key, []).append(value)
                assert line["result"] == len(self.queues[key])
            case "queue_pop" | "reserve" | "put_back":
                self._queue(line, key, value)
            case "wait":
                assert c in self.open and c not in self.blocked and set(line["missing"]) <= set(names(line))
                self.blocked[c] = names(line)
            case "go" | "stop":
                assert self.blocked.pop(c) == names(line)
            case "check":
                there = [each.encode("latin-1") for each in line["keys"]]
                assert line["found"] == all(each in self.values or each in self.queues for each in there)

    def _write(self, key: bytes, value: bytes, v: int) -> None:
        assert v == self.versions.get(key, v - 1) + 1
        self.values[key] = value
        self.versions[key] = v

    def _queue(self, line: Line, key: bytes, value: bytes) -> None:
        queue, c = self.queues.setdefault(key, []), line["c"]
        if line["op"] == "reserve":
            self.reserved[key, c] = line["serial"], queue.pop(0)
            if key in self.returned:
                assert self.returned[key].pop(0) == line["serial"]
        elif line["op"] == "put_back":
            serial, element = self.reserved.pop((key, c))
            assert serial == line["serial"]
            serials = self.returned.setdefault(key, [])
            place = sum(each < serial for each in serials)
            serials.insert(place, serial)
            queue.insert(place, element)
        elif (key, c) in self.reserved:
            assert self.reserved.pop((key, c))[1] == value and line["result"] == len(queue) + 1
        elif line["result"]:
            assert line["result"] == len(queue) and queue.pop(0) == value
            if self.returned.get(key):
                self.returned[key].pop(0)
        if not queue:
            del self.queues[key]
        if not self.returned.get(key, True):
            del self.returned[key]


def names(line: Line) -> list[str]:
    """The keys of a line."""
    return list(line["keys"]) if "keys" in line else [line["key"]]


def read(path: Path) -> list[Line]:
    """The lines of a record in files, of which none is wrong; the last of a file may be cut off."""
    found = [*record.lines([path])]
    assert [each for each in found if isinstance(each, record.Flaw) and not each.cut] == []
    lines = [{**each.fields} for each in found if isinstance(each, record.Line)]
    _wrong.extend(f"{path}: {each.check}: {each}" for each in check(lines))
    return lines


class Command:
    """`trystate store ...` in a process, recorded to a file: its port, its record, and its end."""

    def __init__(self, record: Path, *options: str) -> None:
        argv = [sys.executable, "-m", "trystate", "store", *options, "--port", "0", "--record", str(record)]
        self.record = record
        self.process = subprocess.Popen(argv, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
        assert self.process.stdout is not None
        found = re.search(r"listening on \S+:(\d+)", self.process.stdout.readline())
        if found is None:
            raise AssertionError(self.process.communicate()[1])
        self.port = int(found[1])

    def end(self) -> list[Line]:
        """Stop it in order; its record."""
        self.process.send_signal(signal.SIGTERM)
        said = self.process.communicate(timeout=20)[1]
        assert (self.process.returncode, said) == (0, "")
        return read(self.record)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.process.kill()
        self.process.communicate()
