"""A record, read line by line; nothing in it is believed.

Theory of operation. The files of a record are read in the order of their numbers, one line in memory at a time. Each
line has to be an object with the fields that every line has, and no longer than LINE_BYTES_MAX; times may not go back.
At a line that is not so the reading ends: `RecordError` names the file and the number of the line. A last line without
a newline is no error: `cut` says where a crash, or a writer that still writes, has ended the record.

Rule: memory is bounded by one line, whatever the file holds.
"""

from __future__ import annotations

import json
import math
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any, BinaryIO

from trystate.model.errors import UsageError

from .format import FORMAT, LINE_BYTES_MAX
from .writer import segments


class RecordError(UsageError):
    """A record cannot be read on; the text names the file, the line and the reason."""


@dataclass(frozen=True, slots=True)
class Line:
    """A line, and where it stands."""

    path: Path
    number: int
    fields: dict[str, Any]

    @property
    def place(self) -> str:
        """The file and the line, as an error names them."""
        return f"{self.path}:{self.number}"


class Reader:
    """The lines of a record, in their order; an iterator."""

    def __init__(self, path: Path) -> None:
        """Raises UsageError if there is no such record."""
        self.path = path
        self.cut: str | None = None  # where the record was cut off
        if not segments(path):
            raise UsageError(f"{path}: there is no such record: name the file that --record named")

    def __iter__(self) -> Iterator[Line]:
        """Read from the begin. Raises RecordError at the first line that cannot be right."""
        expected, last = None, 0.0
        for number, path in segments(self.path):
            if expected is not None and number != expected:
                raise RecordError(f"{self.path}.{expected}: this file of the record is missing: give all of them")
            expected = number + 1
            try:
                with path.open("rb") as file:
                    for line in self._lines(path, file):
                        last = self._checked(line, last)
                        yield line
            except OSError as error:
                raise RecordError(f"{path}: {error.strerror}") from error

    def _lines(self, path: Path, file: BinaryIO) -> Iterator[Line]:
        self.cut = None
        number = 0
        while data := file.readline(LINE_BYTES_MAX + 1):
            number += 1
            if len(data) > LINE_BYTES_MAX:
                raise RecordError(f"{path}:{number}: the line is longer than {LINE_BYTES_MAX} bytes")
            if not data.endswith(b"\n"):
                self.cut = f"{path}:{number}"
                return
            yield Line(path, number, _fields(data, f"{path}:{number}"))

    def _checked(self, line: Line, last: float) -> float:
        """The line's time, if it has what each line has."""
        fields, place = line.fields, line.place
        time, c, op = fields.get("t"), fields.get("c"), fields.get("op")
        if not isinstance(time, float) or not math.isfinite(time):
            raise RecordError(f"{place}: its time is {_short(time)}, not a number of seconds")
        if time < last:
            raise RecordError(f"{place}: its time {time:.6f} is before that of the line before it, {last:.6f}")
        if not isinstance(c, int) or isinstance(c, bool) or c < 0:
            raise RecordError(f"{place}: its connection is {_short(c)}, not a whole number")
        if not isinstance(op, str):
            raise RecordError(f"{place}: its op is {_short(op)}, not a word")
        if line.number == 1 and op != "header":
            raise RecordError(f"{place}: the file does not begin with a header: it is no record of a store")
        if op == "header" and fields.get("format") != FORMAT:
            raise RecordError(
                f"{place}: the record has format {_short(fields.get('format'))}, and this release reads {FORMAT}: "
                "read it with the release that wrote it"
            )
        return time


def _fields(data: bytes, place: str) -> dict[str, Any]:
    try:
        fields = json.loads(data.decode())
    except (ValueError, RecursionError) as error:
        raise RecordError(f"{place}: it is not a line of JSON in UTF-8 ({_short(str(error))})") from error
    if not isinstance(fields, dict):
        raise RecordError(f"{place}: it is {_short(fields)}, not an object")
    return fields


def _short(value: object) -> str:
    text = repr(value)
    return text if len(text) <= 60 else f"{text[:60]}..."
