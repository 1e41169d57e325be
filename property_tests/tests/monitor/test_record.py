"""The reader of records reports the line of garbage, and reads the other lines."""

from __future__ import annotations

import io
import json
from pathlib import Path
from typing import Any

import pytest

from trystate.model.errors import UsageError
from trystate.monitor import record
from trystate.monitor.record import STRUCTURE_BYTES_MAX, Flaw, Line, all_files, lines, of_stream, parse

HEADER = {"op": "header", "t": 1.0, "c": 0, "format": 1, "by": "store serve"}
TICK = {"op": "tick", "t": 2.0, "c": 0}


def written(*found: Any) -> bytes:
    return b"".join(line if isinstance(line, bytes) else json.dumps(line).encode() + b"\n" for line in found)


def read(*found: Any) -> list[Line | Flaw]:
    return list(of_stream(io.BytesIO(written(*found)), "job.jsonl"))


@pytest.mark.parametrize(
    ("text", "why"),
    [
        (b"no json\n", "it is not JSON"),
        (b"[1]\n", "it is a JSON list, not an object"),
        (b"\xff\xfe\n", "it is not JSON"),
        (b"[" * 100_000 + b"\n", "it is not JSON"),
        (b'{"t": 1, "c": 0}\n', "it has no `op`"),
        (b'{"op": "tick", "t": NaN, "c": 0}\n', "it is not JSON"),
        (b'{"op": "tick", "t": 1e999, "c": 0}\n', "its `t` is not a time"),
        (b'{"op": "tick", "t": 3, "c": -1}\n', "its `c` is not the number of a connection"),
        (b'{"op": "write", "t": 3, "c": 1, "key": 5, "v": 1, "value": ""}\n', "its `key` is 5"),
        (b'{"op": "write", "t": 3, "c": 1, "key": "k", "v": true, "value": ""}\n', "its `v` is True"),
        (b'{"op": "write", "t": 3, "c": 1, "key": "k", "v": 1}\n', "its `value` is missing"),
    ],
)
def test_a_line_that_is_none_is_named_and_the_next_one_is_read(text: bytes, why: str) -> None:
    _, flaw, tick = read(HEADER, text, TICK)
    assert isinstance(flaw, Flaw)
    assert flaw.place == "job.jsonl:2"
    assert flaw.why.startswith(why)
    assert isinstance(tick, Line)
    assert tick.place == "job.jsonl:3"


def test_a_line_that_is_too_long_is_skipped_a_piece_at_a_time(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(record, "LINE_BYTES_MAX", 200)
    _, flaw, tick = read(HEADER, b'"' + b"x" * 10_000 + b'"\n', TICK)
    assert isinstance(flaw, Flaw)
    assert flaw.why == "it has more than 200 bytes, the limit of a line"
    assert isinstance(tick, Line)


def test_a_line_that_a_crash_has_cut_off_is_the_end() -> None:
    whole = written(HEADER, TICK)
    for size in range(len(written(HEADER)) + 1, len(whole) - 1):
        found = list(of_stream(io.BytesIO(whole[:size]), "job.jsonl"))
        assert [line.cut for line in found if isinstance(line, Flaw)] == [True], size


@pytest.mark.parametrize(
    ("text", "why"),
    [
        (b"", "is empty: a record begins with a header"),
        (b"hello\n", "its first line is not a header"),
        (written(TICK), "its first line is not a header of a record: it is a line 'tick'"),
        (written({**HEADER, "format": 2}), "is a record of format 2, and this version reads 1"),
    ],
)
def test_a_file_that_is_no_record_is_refused(tmp_path: Path, text: bytes, why: str) -> None:
    path = tmp_path / "job.jsonl"
    path.write_bytes(text)
    with pytest.raises(UsageError, match=why.replace("(", r"\(")):
        list(lines([path]))


def test_the_files_that_continue_a_record_are_read_after_it(tmp_path: Path) -> None:
    for name in ("job.jsonl", "job.jsonl.1", "job.jsonl.2", "job.jsonl.10", "job.jsonl.old"):
        (tmp_path / name).write_bytes(written(HEADER))
    names = ["job.jsonl", "job.jsonl.1", "job.jsonl.2", "job.jsonl.10"]
    assert [path.name for path in all_files([tmp_path / "job.jsonl"])] == names
    both = all_files([tmp_path / "job.jsonl", tmp_path / "job.jsonl.1"])
    assert sorted(path.name for path in both) == sorted(names)
    assert len(list(lines([tmp_path / "job.jsonl"]))) == 4


def test_a_long_line_of_anything_but_texts_is_not_parsed() -> None:
    """Parsing sixty megabytes of small numbers would take two gigabytes."""
    found = parse(b'{"op":"tick","t":1.0,"x":[' + b"1," * STRUCTURE_BYTES_MAX + b"1]}")
    assert isinstance(found, Flaw) and "without its texts it has more than" in found.why
    value = "\\\u00ff\x00,[{" * STRUCTURE_BYTES_MAX
    line = parse(json.dumps({"op": "write", "t": 1.0, "key": "k", "v": 1, "value": value}))
    assert isinstance(line, Line) and line.fields["value"] == value


def test_a_time_that_goes_back_is_named() -> None:
    found = read(HEADER, TICK, {**TICK, "t": 1.5})
    assert [f.why for f in found if isinstance(f, Flaw)] == ["its time is 0.500 s before the previous line's"]


def test_a_file_that_is_missing_is_refused(tmp_path: Path) -> None:
    with pytest.raises(UsageError, match="cannot be read: No such file"):
        list(lines([tmp_path / "none"]))
