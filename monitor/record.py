"""The lines of a record of a store's server: read one at a time, checked, and not kept.

Theory of operation. A record is a file with its later files (FILE, FILE.1, FILE.2 ...; `impl/store/record` writes
them). `lines` yields each line as a `Line`, or a `Flaw` with its place and its fault, and continues after a flaw. A
line without an end was cut off by a crash. Nothing of a line is executed.

Failures:

- The file cannot be read, is not a record, or has a later format. `lines` raises UsageError.
- A line is not a line of a record. `lines` yields a Flaw.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, BinaryIO

from trystate.impl.store.record.format import FORMAT, LINE_BYTES_MAX
from trystate.impl.store.record.writer import segments
from trystate.model.errors import UsageError

STRUCTURE_BYTES_MAX = 1 << 18  # limit of a line without its texts; parsed, it takes some thirty times as much memory
_TEXT = re.compile(rb'"[^"\\]*+(?:\\.[^"\\]*+)*+"', re.DOTALL)
NUMBER_MAX = (1 << 53) - 1
SHAPES: Mapping[str, Mapping[str, type]] = {  # the fields that a line needs in addition to `t` and `c`
    "header": {"format": int},
    "write": {"key": str, "v": int, "value": str},
    "refused": {"key": str, "v": int},
    "read": {"key": str, "v": int},
    "wait": {"missing": list},
    "lost": {"lines": int},
}
PART = re.compile(r"(?:^|/)torch\.rendezvous\.(?P<torch>.+?)\.(?P<round>\d+)/(?P<rest>.+)$")


@dataclass(frozen=True, slots=True)
class Place:
    """A line of a file; the file of a line that is read alone has no name."""

    file: str
    number: int

    @property
    def place(self) -> str:
        return f"{self.file}:{self.number}" if self.file else f"line {self.number}"


@dataclass(frozen=True, slots=True)
class Line(Place):
    """One line: the operation `what`, at `time` seconds of the recorder's clock, its connection, and its fields."""

    what: str
    time: float
    connection: int
    fields: Mapping[str, Any]

    @property
    def key(self) -> str:
        """The key of the request, or the first of several; empty: it has no key."""
        key, keys = self.fields.get("key"), self.fields.get("keys")
        if isinstance(keys, list) and keys:
            key = keys[0]
        return key if isinstance(key, str) else ""

    @property
    def value(self) -> bytes | None:
        """The value of a key as bytes; None: it was left out."""
        value = self.fields.get("value")
        try:
            return value.encode("latin-1") if isinstance(value, str) else None
        except UnicodeEncodeError:
            return None


@dataclass(frozen=True, slots=True)
class Flaw(Place):
    """A line that does not belong to a record, and the reason. `cut`: it is the last line, perhaps cut by a crash."""

    why: str
    cut: bool = False


def lines(paths: Iterable[Path]) -> Iterator[Line | Flaw]:
    """The lines of some files and of their later files, one after the other.

    Raises:
        UsageError: a file cannot be read, is not a record, or has a later format.
    """
    for path in all_files(paths):
        try:
            with path.open("rb") as stream:
                yield from of_stream(stream, str(path))
        except OSError as error:
            raise UsageError(f"{path} cannot be read: {error.strerror or error}; name a file of --record") from None


def all_files(paths: Iterable[Path]) -> list[Path]:
    """The files, each with its FILE.1, FILE.2 ... that exist and are not named themselves."""
    named = [*paths]
    found: list[Path] = []
    for path in named:
        later = [file for _, file in segments(path) if file not in named]
        found += [path, *later] if path.exists() or not later else later  # the oldest may be deleted
    return found


def of_stream(stream: BinaryIO, name: str) -> Iterator[Line | Flaw]:
    """The lines of one open file.

    Raises:
        UsageError: its first line is not a header, or has a later format.
    """
    time, number = 0.0, 0
    for number, text in enumerate(iter(lambda: stream.readline(LINE_BYTES_MAX + 1), b""), 1):
        if len(text) > LINE_BYTES_MAX and not text.endswith(b"\n"):
            _skip(stream)
            yield Flaw(name, number, f"it has more than {LINE_BYTES_MAX} bytes, the limit of a line")
            continue
        line = parse(text, name, number, cut=not text.endswith(b"\n"))
        if number == 1:
            _check_header(line, name)
        if isinstance(line, Line):
            if line.time < time:
                yield Flaw(name, number, f"its time is {time - line.time:.3f} s before the previous line's")
            time = max(time, line.time)
        yield line
    if number == 0:
        raise UsageError(f"{name} is empty: a record begins with a header; was the server started with --record?")


def _skip(stream: BinaryIO) -> None:
    """Skip to the end of a line, a piece at a time."""
    while (piece := stream.readline(LINE_BYTES_MAX)) and not piece.endswith(b"\n"):
        pass


def _check_header(line: Line | Flaw, name: str) -> None:
    if isinstance(line, Flaw) or line.what != "header":
        why = line.why if isinstance(line, Flaw) else f"it is a line {line.what!r}"
        raise UsageError(f"{name}: its first line is not a header of a record: {why}; name a file of --record")
    if line.fields["format"] != FORMAT:
        raise UsageError(
            f"{name} is a record of format {line.fields['format']}, and this version reads {FORMAT}: "
            "explain it with the version that wrote it"
        )


def parse(text: bytes | str, file: str = "", number: int = 0, *, cut: bool = False) -> Line | Flaw:
    """One line of a record, or its flaw."""
    try:
        found = loaded(text)
    except (ValueError, RecursionError) as error:
        if cut:
            return Flaw(file, number, "it is cut off", cut=True)
        return Flaw(file, number, f"it is not JSON: {str(error)[:80]}")
    if not isinstance(found, dict):
        return Flaw(file, number, f"it is a JSON {type(found).__name__}, not an object")
    what, time, connection = found.get("op"), found.get("t"), found.get("c", 0)
    if not isinstance(what, str) or not 0 < len(what) <= 40:
        return Flaw(file, number, "it has no `op`")
    if isinstance(time, bool) or not isinstance(time, int | float) or not 0 <= time <= NUMBER_MAX:
        return Flaw(file, number, "its `t` is not a time in seconds")
    if isinstance(connection, bool) or not isinstance(connection, int) or not 0 <= connection <= NUMBER_MAX:
        return Flaw(file, number, "its `c` is not the number of a connection")
    for name, kind in SHAPES.get(what, {}).items():
        value: Any = found.get(name)
        fits = isinstance(value, kind) and not isinstance(value, bool)
        if not fits or (isinstance(value, int) and not 0 <= value <= NUMBER_MAX):
            return Flaw(file, number, f"its `{name}` is {_shown(value)}, which a line {what!r} cannot have")
    return Line(file, number, what, float(time), connection, found)


def loaded(text: bytes | str) -> Any:
    """The JSON of a line, whose numbers, lists and names take little memory: only the texts of a record are long.

    Raises:
        ValueError: it is not JSON, or is too long without its texts.
        RecursionError: it is nested too deeply.
    """
    if len(text) > STRUCTURE_BYTES_MAX:
        data = text if isinstance(text, bytes) else text.encode("utf-8", "surrogatepass")
        if len(_TEXT.sub(b"", data)) > STRUCTURE_BYTES_MAX:
            raise ValueError(f"without its texts it has more than {STRUCTURE_BYTES_MAX} bytes")
    return json.loads(text, parse_constant=_refuse)


def _refuse(name: str) -> None:
    raise ValueError(f"{name} is not a number")


def _shown(value: Any) -> str:
    return "missing" if value is None else repr(value)[:40]
