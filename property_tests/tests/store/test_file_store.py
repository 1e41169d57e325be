"""FileStore: whatever is killed, cut off, stopped or foreign, a store is read, or refused with a reason, in time."""

from __future__ import annotations

import fcntl
import os
import queue
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from datetime import timedelta
from multiprocessing.connection import Connection
from pathlib import Path

import pytest

from trystate.impl.store.base import Event
from trystate.impl.store.errors import FileLost, FileRefused, StoreClosed, StoreError, StoreTimeout
from trystate.impl.store.file import journal
from trystate.impl.store.file import process_identity as users
from trystate.impl.store.file.records import MAGIC
from trystate.impl.store.file.store import FileStore
from trystate.property_tests.adapters.torch_store.isolated import Child, Silence
from trystate.property_tests.support.stores.client.common import until

AMPLE = timedelta(seconds=30)
SHORT = timedelta(milliseconds=50)


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "store"


def carry_out(told: Connection, body: str, path: Path) -> None:
    """In a process of its own: the body, which says its lines to the test."""
    names = {"path": path, "say": lambda *words: told.send(" ".join(map(str, words))), "time": time, "os": os}
    exec(body, {**names, "FileStore": FileStore, "StoreError": StoreError, "timedelta": timedelta})


def line(running: Child) -> str:
    said = running.hear(60.0)
    assert isinstance(said, str), said
    return said


def killed(path: Path, body: str) -> None:
    """Do something in another process, which is then killed."""
    with Child(carry_out, body + "\nsay('done')\ntime.sleep(60)", path) as running:
        assert line(running) == "done"


def within(seconds: float, call: Callable[[], object], error: type[Exception], match: str) -> None:
    begun = time.monotonic()
    with pytest.raises(error, match=match):
        call()
    assert time.monotonic() - begun < seconds


# Cut off, overwritten, killed.


def history(path: Path) -> tuple[bytes, list[dict[str, bytes]]]:
    """A log, and the states that it goes through."""
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


def state(store: FileStore) -> dict[str, bytes]:
    keys = store.list_keys()
    return dict(zip(keys, store.multi_get(keys), strict=True))


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
        with pytest.raises(FileRefused, match=r"damaged at byte|not of a trystate FileStore"):
            FileStore(broken)
        assert broken.read_bytes() == written


def test_damage_under_an_open_store_is_told_and_not_waited_for(path: Path) -> None:
    with FileStore(path, timeout=AMPLE) as store:
        with path.open("ab") as file:
            file.write(b"garbage that is longer than a head")
        for call in (lambda: store.get("k"), lambda: store.set("k", "v"), lambda: store.check(["k"])):
            within(5, call, FileRefused, "damaged at byte")


def test_a_writer_killed_at_any_moment_loses_nothing_that_it_was_told_is_there(path: Path) -> None:
    body = """
store, n = FileStore(path), 0
n = int(store.get("a")) if store.check(["a"]) else 0
while True:
    n += 1
    store.multi_set(["a", "b", "filler"], [str(n), str(n), str(n) * 2000])
    say(n)
"""
    acknowledged = 0
    for moment in (0.02, 0.05, 0.08, 0.11):
        with Child(carry_out, body, path) as running:
            acknowledged = max(acknowledged, int(line(running)))
            time.sleep(moment)
            running.kill()
            while (number := running.hear(0.0)) is not Silence.ENDED:
                acknowledged = max(acknowledged, int(number))
        with FileStore(path) as store:
            a, b = store.multi_get(["a", "b"])
        assert a == b
        assert int(a) >= acknowledged


def test_a_disk_that_is_full_changes_nothing(path: Path) -> None:
    body = """
import resource
resource.setrlimit(resource.RLIMIT_FSIZE, (4096, 4096))
store = FileStore(path)
store.set("k", "v")
try:
    store.set("k", "x" * 8192)
except StoreError as error:
    say(type(error).__name__, error)
store.add("n", 1)
say(store.get("k"), store.list_keys())
"""
    with Child(carry_out, body, path) as running:
        assert "File too large; nothing was changed" in line(running)
        assert line(running) == "b'v' ['k', 'n']"


# Several processes.


def test_processes_at_once_lose_no_addition_and_share_out_a_queue(path: Path) -> None:
    body = """
store = FileStore(path, timeout=timedelta(seconds=120))
store.barrier("begin", 4)
for _ in range(150):
    store.add("n", 1)
say(*(store.queue_pop("q").decode() for _ in range(25)))
"""
    with FileStore(path, timeout=AMPLE) as store, ThreadPoolExecutor(3) as pool:

        def work() -> list[int]:
            with Child(carry_out, body, path) as running:
                return [int(number) for number in line(running).split()]

        workers = [pool.submit(work) for _ in range(3)]
        store.barrier("begin", 4, timeout=timedelta(seconds=120))  # four processes start torch
        for number in range(75):
            store.queue_push("q", str(number))
        assert sorted(number for worker in workers for number in worker.result(120)) == list(range(75))
        assert store.get("n") == b"450"


def test_readers_and_watches_go_on_while_the_file_is_rewritten(path: Path) -> None:
    body = """
store = FileStore(path)
for n in range(1, 401):
    store.set("n", str(n).ljust(20_000))
    time.sleep(0.005)
say("done", os.path.getsize(path))
"""
    with FileStore(path, timeout=AMPLE) as store:
        store.set("constant", "c")
        told: queue.SimpleQueue[Event] = queue.SimpleQueue()
        watch = store.watch_key("n", told.put)
        seen = 0
        with Child(carry_out, body, path) as running, ThreadPoolExecutor(1) as pool:
            done = pool.submit(line, running)
            while not done.done():
                now = int(store.get("n"))
                assert now >= seen
                assert store.get("constant") == b"c"
                seen = now
            assert done.result().startswith("done")
            assert int(done.result().split()[1]) < 400 * 20_000 * 3 // 4
        news = [int(told.get(timeout=20).new or b"0") for _ in range(400)]
        assert news == list(range(1, 401))
        assert not watch.lost


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


def test_a_watcher_that_slept_through_two_rewritings_is_told_that_changes_are_lost(
    path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(journal, "COMPACT_SECONDS_MIN", 0.0)
    with FileStore(path) as writer, FileStore(path) as watcher:
        told: queue.SimpleQueue[Event] = queue.SimpleQueue()
        reasons: queue.SimpleQueue[object] = queue.SimpleQueue()
        watch = watcher.watch_key("k", told.put, on_lost=reasons.put)
        with watcher._journal.mutex:  # it sleeps
            while writer._journal.replica.generation < 3:
                writer.set("k", "v" * 100_000)
            writer.set("k", "last")
        until(lambda: watch.lost)
        assert "unseen" in str(reasons.get(timeout=20))
        assert watcher.get("k") == b"last"
        last = told.get(timeout=20)
        while not told.empty():
            last = told.get()
        assert last.new == b"v" * 100_000 or last.new == b"last"


def test_a_stopped_process_with_the_lock_delays_writers_until_their_timeout_and_readers_not_at_all(path: Path) -> None:
    with FileStore(path, timeout=timedelta(seconds=1)) as store:
        store.set("k", "v")
        fd = os.open(path, os.O_RDWR)
        fcntl.flock(fd, fcntl.LOCK_EX)
        try:
            assert (store.get("k"), store.check(["k"]), store.num_keys()) == (b"v", True, 1)
            within(3, lambda: store.wait(["no"], SHORT), StoreTimeout, "timed out after 50ms")
            within(5, lambda: store.set("k", "w"), StoreTimeout, "another process has the lock")
            within(3, lambda: FileStore(path, timeout=SHORT), StoreTimeout, "another process has the lock")
        finally:
            os.close(fd)
        store.set("k", "w")
        assert store.get("k") == b"w"


def test_who_dies_in_a_barrier_has_not_arrived(path: Path) -> None:
    killed(
        path,
        """
import threading
store = FileStore(path)
threading.Thread(target=store.barrier, args=("b", 2), daemon=True).start()
while not store._journal.replica.places: time.sleep(0.01)
""",
    )
    with FileStore(path, timeout=AMPLE) as store, ThreadPoolExecutor(1) as pool:
        within(5, lambda: store.barrier("b", 2, SHORT), StoreTimeout, "not everybody arrived")
        other = FileStore(path, timeout=AMPLE)
        arrived = pool.submit(other.barrier, "b", 2)
        store.barrier("b", 2)
        arrived.result(20)
        other.close()


def test_a_forked_child_is_a_user_of_its_own(path: Path) -> None:
    body = """
store = FileStore(path, 2)
child = os.fork()
if child == 0:
    store.add("child", 1)
    store.add("child", len(store._journal.replica.users) - 1)
    store.close()
    os._exit(0)
os.waitpid(child, 0)
say(store.get("child").decode(), os.path.exists(path))
store.close()
say(os.path.exists(path))
"""
    with Child(carry_out, body, path) as running:
        assert (line(running), line(running)) == ("2 True", "False")


# The owner of the file.


def test_the_last_of_world_size_deletes_the_file(path: Path) -> None:
    stores = [FileStore(path, 2), FileStore(path, 2)]
    clone = stores[0].clone()
    clone.set("k", "v")
    stores[0].close()
    assert (stores[1].get("k"), path.exists()) == (b"v", True)
    stores[1].close()
    assert path.exists()
    clone.close()
    assert list(path.parent.iterdir()) == []


def test_an_operation_that_close_overtakes_does_not_bring_the_file_back(
    path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    store = FileStore(path, 1)
    monkeypatch.setattr(store, "_alive", lambda operation: store.close())
    with pytest.raises(StoreClosed):
        store.set("k", "v")
    assert not path.exists()


def test_a_file_that_may_not_be_deleted_is_left_to_the_next_job(path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(path: str) -> None:
        raise PermissionError

    with monkeypatch.context() as patch:
        patch.setattr(os, "unlink", refuse)
        with FileStore(path, 1) as store:
            store.set("k", "v")
    with FileStore(path, 1) as store:
        assert store.list_keys() == []


def test_a_process_that_ends_while_it_is_looked_at_is_over(monkeypatch: pytest.MonkeyPatch) -> None:
    def vanished(path: Path) -> bytes:
        raise ProcessLookupError

    monkeypatch.setattr(Path, "read_bytes", vanished)
    assert users.start_of(os.getpid()) == b""


def test_a_process_that_just_ends_has_left(path: Path) -> None:
    """As an interpreter ends, whatever its functions of `atexit` are."""
    code = (
        "import multiprocessing, sys; from trystate.impl.store.file.store import FileStore\n"
        "FileStore(sys.argv[1], 1).set('k', 'v')"
    )
    subprocess.run([sys.executable, "-c", code, str(path)], check=True, timeout=60)
    assert not path.exists()


def test_a_file_without_world_size_stays_with_what_it_holds(path: Path) -> None:
    with FileStore(path) as store:
        store.set("k", "v")
    killed(path, "FileStore(path).set('l', 'w')")
    with FileStore(path) as store:
        assert state(store) == {"k": b"v", "l": b"w"}


def test_a_crashed_user_does_not_end_the_job_of_those_who_live(path: Path) -> None:
    with FileStore(path, 2) as store:
        store.set("k", "v")
        killed(path, "FileStore(path, 2).set('l', 'w')")
        with FileStore(path, 2) as restarted:
            assert restarted.list_keys() == ["k", "l"]


def test_a_file_that_another_job_uses_is_refused_and_begun_anew_when_it_is_over(path: Path) -> None:
    with FileStore(path, 1, job="one") as store:
        store.set("k", "v")
        before = path.read_bytes()
        for job in ({"world_size": 3, "job": "one"}, {"world_size": 1, "job": "two"}, {}):
            with pytest.raises(FileRefused, match=rf"job 'one', .* is used by process {os.getpid()}"):
                FileStore(path, **job)  # type: ignore[arg-type]
        assert path.read_bytes() == before
    killed(path, "FileStore(path, 3, job='one').set('k', 'v')")
    with FileStore(path, 1, job="two") as store:
        assert store.list_keys() == []


@pytest.mark.parametrize(
    "content", [b"hello", b"\x00" * 100, MAGIC[:-2] + b"\x07\n", b"\x06\x00\x00\x00\x00\x00\x00\x00"]
)
def test_a_foreign_file_is_refused_and_not_touched(path: Path, content: bytes) -> None:
    path.write_bytes(content)
    within(5, lambda: FileStore(path), FileRefused, "not of a trystate FileStore, or of another version")
    assert path.read_bytes() == content


def test_what_is_no_file_is_refused(tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "fifo")
    for place, reason in [(tmp_path, "directory"), (tmp_path / "no" / "x", "No such"), (tmp_path / "fifo", "regular")]:
        within(5, lambda: FileStore(place), FileRefused, reason)  # noqa: B023 (called at once)


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
        within(5, lambda: waiting.result(20), FileLost, "is gone|was replaced")
        within(5, lambda: store.set("k", "w"), FileLost, "is gone|was replaced")
        within(5, lambda: store.check(["k"]), FileLost, "is gone|was replaced")


def test_a_watch_of_a_file_that_goes_away_is_lost(path: Path) -> None:
    with FileStore(path) as store:
        watch = store.watch_key("k", lambda event: None)
        path.unlink()
        until(lambda: watch.lost)


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
        assert time.monotonic() - begun < 10  # and not AMPLE
    with FileStore(path) as again:
        assert again._journal.replica.places == {}


def test_a_stopped_process_is_a_user_still(path: Path) -> None:
    with Child(carry_out, "FileStore(path, 2).set('k', 'v')\nsay('done')\ntime.sleep(60)", path) as running:
        assert line(running) == "done"
        os.kill(running.pid, signal.SIGSTOP)
        with FileStore(path, 2) as store:
            assert store.list_keys() == ["k"]
