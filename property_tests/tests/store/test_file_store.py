"""FileStore: a file after any kill, cut or foreign write is read, or refused in time with a reason."""

from __future__ import annotations

import errno
import fcntl
import os
import queue
import time
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack, contextmanager
from datetime import timedelta
from multiprocessing.connection import Connection
from pathlib import Path
from typing import Any

import pytest

from trystate.impl.store.base import Event
from trystate.impl.store.contents.waiting import Waiting
from trystate.impl.store.errors import FileLost, FileRefused, StoreClosed, StoreTimeout
from trystate.impl.store.file import journal
from trystate.impl.store.file.records import MAGIC
from trystate.impl.store.file.replica import Replica
from trystate.impl.store.file.store import FileStore
from trystate.property_tests.adapters.torch_store.isolated import Child
from trystate.property_tests.support.stores.client.common import until
from trystate.property_tests.support.stores.files import AMPLE, SHORT, state


def use_as_job_one(line: Connection, path: Path) -> None:
    """In a child: use the file until the end of the process."""
    FileStore(path, 3, job="one").set("k", "v")
    line.send("used")
    time.sleep(60)


def within(seconds: float, call: Callable[[], object], error: type[Exception], match: str) -> None:
    begun = time.monotonic()
    with pytest.raises(error, match=match):
        call()
    assert time.monotonic() - begun < seconds


# Files that are cut off or overwritten.


def history(path: Path) -> tuple[bytes, list[dict[str, bytes]]]:
    """The bytes of a log, and the states after each of its steps."""
    states: list[dict[str, bytes]] = [{}]
    with FileStore(path) as store:
        steps: list[Callable[[], object]] = [
            lambda: store.set("a", "1"),
            lambda: store.multi_set(["a", "b"], ["2", "2"]),
            lambda: store.add("n", -5),
            lambda: store.append("a", "tail"),
            lambda: store.delete_key("b"),
            lambda: store.compare_set("c", "", "new"),
        ]
        for step in steps:
            step()
            states.append(dict(zip(store.list_keys(), store.multi_get(store.list_keys()), strict=True)))
        data = path.read_bytes()
    return data, states


def test_a_log_that_is_cut_off_at_any_byte_is_an_earlier_state_and_goes_on(tmp_path: Path) -> None:
    data, states = history(tmp_path / "whole")
    cut = tmp_path / "cut"
    reached = 0
    for size in range(len(data) + 1):
        cut.write_bytes(data[:size])
        with FileStore(cut, timeout=AMPLE) as store:
            reached = max(reached, states.index(state(store)))
            assert state(store) == states[reached]
            store.set("more", "x")
        with FileStore(cut) as store:
            assert state(store) == states[reached] | {"more": b"x"}
        cut.unlink()
    assert reached == len(states) - 1


def test_a_log_with_any_byte_overwritten_is_refused_and_not_touched(tmp_path: Path) -> None:
    data, _ = history(tmp_path / "whole")
    broken = tmp_path / "broken"
    for place in range(len(data)):
        written = data[:place] + bytes([data[place] ^ 0x41]) + data[place + 1 :]
        broken.write_bytes(written)
        with pytest.raises(FileRefused, match=r"damaged at byte|not a file of a trystate FileStore"):
            FileStore(broken)
        assert broken.read_bytes() == written


# Several processes.


def test_a_rewritten_file_holds_values_queues_arrivals_and_users(path: Path) -> None:
    with FileStore(path, 2, AMPLE) as store, FileStore(path, 2, AMPLE) as other, ThreadPoolExecutor(1) as pool:
        store.multi_set(["a", "b"], ["1", ""])
        for element in ("x", "y"):
            store.queue_push("q", element)
        arrived = pool.submit(other.barrier, "b", 2)
        until(lambda: store.check([]) and bool(store._journal.replica.places))
        with store._journal.locked("compact", 1.0):
            store._journal.compact()
        with FileStore(path, 2) as reader:
            assert state(reader) == {"a": b"1", "b": b""}
            assert (reader.queue_pop("q"), other.queue_pop("q"), store.queue_len("q")) == (b"x", b"y", 0)
            assert len(reader._journal.replica.users) == 3
        store.barrier("b", 2)
        arrived.result(20)


def test_a_watcher_that_missed_two_rewritings_learns_of_the_loss(path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(journal, "COMPACT_SECONDS_MIN", 0.0)
    with FileStore(path) as writer, FileStore(path) as watcher:
        told: queue.SimpleQueue[Event] = queue.SimpleQueue()
        reasons: queue.SimpleQueue[object] = queue.SimpleQueue()
        watch = watcher.watch_key("k", told.put, on_lost=reasons.put)
        with watcher._journal.mutex:  # the watcher reads nothing
            while writer._journal.replica.generation < 3:
                writer.set("k", "v" * 100_000)
            writer.set("k", "last")
        until(lambda: watch.lost)
        assert "missed" in str(reasons.get(timeout=20))
        assert watcher.get("k") == b"last"
        last = told.get(timeout=20)
        while not told.empty():
            last = told.get()
        assert last.new == b"v" * 100_000 or last.new == b"last"


# The owner of the file.


def test_a_file_of_another_job_is_refused_until_that_job_is_over(path: Path) -> None:
    with FileStore(path, 1, job="one") as store:
        store.set("k", "v")
        before = path.read_bytes()
        for job in ({"world_size": 3, "job": "one"}, {"world_size": 1, "job": "two"}, {}):
            with pytest.raises(FileRefused, match=rf"job 'one', .* is used by process {os.getpid()}"):
                FileStore(path, **job)  # type: ignore[arg-type]
        assert path.read_bytes() == before
    with Child(use_as_job_one, path) as child:  # which is killed
        assert child.hear(60.0) == "used"
    with FileStore(path, 1, job="two") as store:
        assert store.list_keys() == []


@pytest.mark.parametrize(
    "content", [b"hello", b"\x00" * 100, MAGIC[:-2] + b"\x07\n", b"\x06\x00\x00\x00\x00\x00\x00\x00"]
)
def test_a_foreign_file_is_refused_and_not_touched(path: Path, content: bytes) -> None:
    path.write_bytes(content)
    within(5, lambda: FileStore(path), FileRefused, "not a file of a trystate FileStore of this version")
    assert path.read_bytes() == content


@pytest.mark.parametrize("gone", ["file", "folder", "replaced"])
def test_a_file_that_goes_away_is_told_at_once_also_to_who_waits(tmp_path: Path, gone: str) -> None:
    folder = tmp_path / "folder"
    folder.mkdir()
    path = folder / "store"
    with FileStore(path, timeout=AMPLE) as store, ThreadPoolExecutor(1) as pool:
        store.set("k", "v")
        waiting = pool.submit(store.get, "never")
        time.sleep(0.05)
        path.unlink()
        if gone == "folder":
            folder.rmdir()
        if gone == "replaced":
            FileStore(path).close()
        within(5, lambda: waiting.result(20), FileLost, "does not exist any more|was replaced")
        within(5, lambda: store.set("k", "w"), FileLost, "does not exist any more|was replaced")
        within(5, lambda: store.check(["k"]), FileLost, "does not exist any more|was replaced")


def test_a_watch_of_a_file_that_goes_away_is_lost(path: Path) -> None:
    with FileStore(path) as store:
        watch = store.watch_key("k", lambda event: None)
        path.unlink()
        until(lambda: watch.lost)


def test_damage_under_an_open_store_is_told_and_not_waited_for(path: Path) -> None:
    with FileStore(path, timeout=AMPLE) as store:
        with path.open("ab") as file:
            file.write(b"garbage that is longer than a head")
        for call in (lambda: store.get("k"), lambda: store.set("k", "v"), lambda: store.check(["k"])):
            within(5, call, FileRefused, "damaged at byte")


def test_close_sends_home_who_waits(path: Path) -> None:
    with ThreadPoolExecutor(2) as pool:
        store = FileStore(path, timeout=AMPLE)
        waiting, arrived = pool.submit(store.get, "k"), pool.submit(store.barrier, "b", 2)
        time.sleep(0.05)
        begun = time.monotonic()
        store.close()
        for future in (waiting, arrived):
            with pytest.raises(StoreClosed):
                future.result(20)
        assert time.monotonic() - begun < 10  # much less than AMPLE
    with FileStore(path) as again:
        assert again._journal.replica.places == {}


def test_a_stopped_process_with_the_lock_delays_writers_for_their_timeout(path: Path) -> None:
    with FileStore(path, timeout=timedelta(seconds=1)) as store:
        store.set("k", "v")
        with locked(path):
            assert (store.get("k"), store.check(["k"]), store.num_keys()) == (b"v", True, 1)
            within(3, lambda: store.wait(["no"], SHORT), StoreTimeout, "timed out after 50ms")
            within(5, lambda: store.set("k", "w"), StoreTimeout, "another process has the lock")
            within(3, lambda: FileStore(path, timeout=SHORT), StoreTimeout, "another process has the lock")
        store.set("k", "w")
        assert store.get("k") == b"w"


# Interrupts at any moment, by a signal's handler that raises: no lock is kept, and the store has the file's contents.


@pytest.mark.parametrize("where", ["append", "apply", "appeared"])
def test_an_interrupt_in_a_change_leaves_what_the_file_says(
    path: Path, monkeypatch: pytest.MonkeyPatch, where: str
) -> None:
    """The interrupt comes at the end of the change, or, for `apply`, at its beginning."""
    owner = {"append": journal.Journal, "apply": Replica, "appeared": Waiting}[where]
    with FileStore(path, timeout=AMPLE) as store, FileStore(path, timeout=AMPLE) as other, ThreadPoolExecutor() as pool:
        waiting = pool.submit(store.wait, ["k"])
        until(lambda: b"k" in store._journal.replica.contents.waiting.waits)

        def interrupted(self: Any, *arguments: Any) -> None:
            monkeypatch.undo()
            if where == "append":
                getattr(self, where)(*arguments)
            raise KeyboardInterrupt

        monkeypatch.setattr(owner, where, interrupted)
        with pytest.raises(KeyboardInterrupt):
            store.set("k", "1")
        waiting.result(AMPLE.total_seconds())
        assert (store.get("k"), other.get("k")) == (b"1", b"1")
        assert store.add("n", 1) == 1
        assert state(store) == state(other)


# The lock: an error of the kernel is quoted, with the remedy; a lock of another process delays little.

CLOSE_SECONDS = 0.5  # the value in docs/stores.md


@contextmanager
def locked(path: Path) -> Iterator[None]:
    """Hold the lock with another open file, as a stopped process would."""
    with path.open("rb") as other:
        fcntl.flock(other, fcntl.LOCK_EX)
        yield


@pytest.mark.parametrize("first", [True, False], ids=["at once", "later"])
@pytest.mark.parametrize(("code", "remedy"), [
    ("ENOLCK", "another file system, or use a TCPStore"),
    ("EOPNOTSUPP", "another file system, or use a TCPStore"),
    ("ENOSYS", "another file system, or use a TCPStore"),
    ("EIO", "mounted and responds"),
])  # fmt: skip
def test_a_refused_lock_names_the_file_the_error_and_the_remedy(
    path: Path, code: str, remedy: str, first: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Locks are refused from the beginning (`first`), or after the open. The store can be closed nevertheless."""

    def refuse(fd: int, how: int) -> None:
        raise OSError(getattr(errno, code), os.strerror(getattr(errno, code)))

    with ExitStack() as stores:
        store = None if first else stores.enter_context(FileStore(path))
        monkeypatch.setattr(fcntl, "flock", refuse)
        with pytest.raises(FileRefused, match=remedy) as refused:
            (store or FileStore(path)).set("k", "v")
        said = str(refused.value).replace("ENOTSUP:", "EOPNOTSUPP:")  # two names of one error
        assert str(path) in said and f"({code}: " in said


def test_close_waits_shortly_for_the_lock_and_says_good_bye_later(path: Path) -> None:
    """The file is deleted only when the process, which continues, has been removed from the users."""
    store = FileStore(path, 1)
    store.set("k", "v")
    with locked(path):
        began = time.monotonic()
        store.close()
        assert time.monotonic() - began < 5 * CLOSE_SECONDS
        assert path.exists()
    until(lambda: not path.exists())
