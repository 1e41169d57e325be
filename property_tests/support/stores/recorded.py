"""Records of a store in the tests: lines without files, and the store that the lines describe.

The monitor judges every record that a test writes, as in `trystate explain`. `judged` returns the wrong answers.

Rule: `Replayed` uses only the lines of a record, and does not judge answers.
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


_wrong: list[str] = []  # wrong answers in the judged records
_judges: list[Histories] = []  # judges of records that may continue
JUDGES_MAX = 100


def judged() -> list[str]:
    """The wrong answers in all records since the last call."""
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
    """A sink that keeps all lines in memory and judges them. Each line has a later time than the one before it."""

    def __init__(self, **header: Any) -> None:
        self.lines: list[Line] = []
        self._judge, self._number = Histories(), 0
        self._judge.feed(0, {"c": 0, "op": "header", "t": 0.0, **header})
        _judges.append(self._judge)
        if len(_judges) > JUDGES_MAX:
            _finish(_judges.pop(0))
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
        self._judge.feed(self._number, {"t": self._number / 1e6, **line})

    def take_lost(self) -> int:
        return 0

    def take(self) -> list[Line]:
        """The lines since the last call."""
        lines, self.lines = self.lines, []
        return lines


def recorder(
    keys: Keys = Keys.ALL, values: bool = True, bytes_max: int = 1 << 30, by: str = "store serve"
) -> tuple[Lines, Recorder]:
    """A recorder and its sink. `by`: the command whose lines it writes."""
    sink = Lines(keys=keys.value, by=by)
    return sink, Recorder(sink, bytes_max, keys, values)


class Replayed:
    """The values, the connections and the blocked requests of a store, according to its record."""

    def __init__(self) -> None:
        self.values: dict[bytes, bytes] = {}
        self.versions: dict[bytes, int] = {}
        self.open: set[int] = set()
        self.blocked: set[int] = set()

    def take(self, line: Line) -> None:
        """Apply one line. Raises AssertionError if its version is not the next version."""
        if "error" in line:
            return
        c, op = line["c"], line["op"]
        key, value = (str(line.get(name) or "").encode("latin-1") for name in ("key", "value"))
        match op:
            case "open":
                self.open.add(c)
            case "close":
                self.open.remove(c)
            case "wait":
                self.blocked.add(c)
            case "go" | "stop":
                self.blocked.remove(c)
            case "delete" | "take":
                self.values.pop(key, None)
                self.versions.pop(key, None)
            case "multi_set":
                for name, each, v in zip(line["keys"], line["values"], line["vs"], strict=True):
                    self._write(name.encode("latin-1"), each.encode("latin-1"), v)
            case "add":
                self._write(key, b"%d" % line["result"], line["v"])
            case "append":
                self._write(key, self.values.get(key, b"") + value, line["v"])
            case "compare_set" if not line["won"]:
                pass
            case "write" | "set" | "compare_set":
                self._write(key, value, line["v"], bool(line.get("again")))

    def _write(self, key: bytes, value: bytes, v: int, again: bool = False) -> None:
        assert again or v == self.versions.get(key, v - 1) + 1
        self.values[key], self.versions[key] = value, v


def read(path: Path) -> list[Line]:
    """The lines of a record in files. No line may be wrong; the last line of a file may be cut off."""
    found = [*record.lines([path])]
    assert [each for each in found if isinstance(each, record.Flaw) and not each.cut] == []
    lines = [{**each.fields} for each in found if isinstance(each, record.Line)]
    _wrong.extend(f"{path}: {each.check}: {each}" for each in check(lines))
    return lines


class Command:
    """`trystate store ...` in a process, after the words of `under`: its first line of output, and its port."""

    def __init__(self, *options: str, under: Sequence[str] = ()) -> None:
        argv = [*under, sys.executable, "-m", "trystate", "store", *options, "--port", "0"]
        self.process = subprocess.Popen(argv, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
        self.port = self.listens()

    def listens(self) -> int:
        """Wait until the command listens; returns the port."""
        assert self.process.stdout is not None
        self.line = self.process.stdout.readline()
        found = re.search(r"listening on \S+:(\d+)", self.line)
        if found is None:
            raise AssertionError(self.process.communicate()[1])
        return int(found[1])

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.process.kill()
        self.process.communicate()


class Recorded(Command):
    """A command with a record in a file."""

    def __init__(self, record: Path, *options: str) -> None:
        self.record = record
        super().__init__(*options, "--record", str(record))

    def end(self) -> list[Line]:
        """Stop the command in order; returns its record."""
        self.process.send_signal(signal.SIGTERM)
        said = self.process.communicate(timeout=20)[1]
        assert (self.process.returncode, said) == (0, "")
        return read(self.record)
