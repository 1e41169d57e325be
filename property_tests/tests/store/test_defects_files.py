"""Stores in files: cut off, foreign or stale, a file neither hangs nor deceives who opens it. torch's does."""

from __future__ import annotations

import os
import time
from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest

from trystate.impl.store.file.journal import COMPACT_SECONDS_MIN
from trystate.property_tests.adapters.torch_store.isolated import Child, Silence
from trystate.property_tests.support.stores.defects import OURS, SOON_S, TORCH, Connection, Timed, defective, made_by


def opened(library: str, path: Path, world_size: int = -1) -> Any:
    return made_by(library, "FileStore")(str(path), world_size)


def _write(line: Connection, library: str, path: Path) -> None:
    """Write two values, and end as a process does that is killed."""
    store = opened(library, path)
    store.set("first", "1")
    store.set("last", "2")
    line.send(store.check(["last"]))
    os._exit(1)


def _look(line: Connection, library: str, path: Path) -> None:
    """Open a file, and look for what was written first and last."""
    found = Timed(lambda: _seen(opened(library, path)))
    line.send(found.result or type(found.error).__name__)


def _seen(store: Any) -> tuple[bytes, bool]:
    store.set_timeout(timedelta(seconds=SOON_S))
    return bytes(store.get("first")), bool(store.check(["last"]))


@pytest.mark.parametrize("library", [OURS, defective(TORCH, "each operation spins at the end of the file, for ever")])
def test_a_record_that_was_cut_off_hides_none_of_the_others(library: str, tmp_path: Path) -> None:
    path = tmp_path / "store"
    with Child(_write, library, path) as child:
        assert child.hear(5.0) is True
        assert child.hear(5.0) is Silence.ENDED
    os.truncate(path, path.stat().st_size - 1)
    with Child(_look, library, path) as child:
        assert child.hear(3 * SOON_S) == (b"1", False)


@pytest.mark.parametrize("library", [OURS, defective(TORCH, "its constructor spins with the interpreter's lock held")])
def test_a_file_of_another_program_is_refused_and_left_as_it_was(library: str, tmp_path: Path) -> None:
    path, content = tmp_path / "notes", b"Not a store at all.\n" * 50
    path.write_bytes(content)
    with Child(_look, library, path) as child:
        assert child.hear(3 * SOON_S) == "FileRefused"
    assert path.read_bytes() == content


@pytest.mark.parametrize("library", [OURS, defective(TORCH, "keeps the history of all writes, for each who opens it")])
def test_a_file_does_not_grow_with_what_is_overwritten(library: str, tmp_path: Path) -> None:
    path = tmp_path / "store"
    store = opened(library, path)
    for _ in range(300):
        store.set("k", bytes(10_000).decode())
    time.sleep(1.5 * COMPACT_SECONDS_MIN)
    store.set("k", "")
    assert path.stat().st_size < 1_500_000  # of 3,000,000 written


def _crash(line: Connection, library: str, path: Path) -> None:
    """A job whose process is killed: it writes, and never closes."""
    store = opened(library, path, world_size=2)
    store.set("master", "of the job that crashed")
    line.send(store.check(["master"]))
    os._exit(1)


@pytest.mark.parametrize("library", [OURS, defective(TORCH, "the next job reads them (pytorch/pytorch#13865)")])
def test_the_values_of_a_crashed_job_are_not_the_next_ones(library: str, tmp_path: Path) -> None:
    path = tmp_path / "store"
    with Child(_crash, library, path) as child:
        assert child.hear(5.0) is True
        assert child.hear(5.0) is Silence.ENDED
    store = opened(library, path, world_size=2)
    assert not store.check(["master"])
