"""`trystate store serve --data`: killed and started again, the server has lost nothing, and its clients go on."""

from __future__ import annotations

import contextlib
import errno
import json
import os
import random
import signal
import socket
import threading
import time
from collections.abc import Callable, Iterator
from datetime import timedelta
from functools import partial
from pathlib import Path
from typing import Any

import pytest
import torch.distributed as dist

from trystate.__main__ import main
from trystate.exits import Exit
from trystate.impl.host.disk import Disk
from trystate.impl.store.durable import journal as journals
from trystate.impl.store.durable.contents import KeptContents
from trystate.impl.store.durable.directory import Directory
from trystate.impl.store.durable.driver import KeepingDriver
from trystate.impl.store.errors import ConnectionLost, FileRefused, OutcomeUnknown, StoreError, StoreTimeout
from trystate.impl.store.limits import Limits
from trystate.impl.store.wire import blob
from trystate.model.store.vocabulary import Query
from trystate.property_tests.adapters.jobs import CONF, Job, Server, eventually
from trystate.property_tests.adapters.our_store.wire import Peer, add, get, request, set_, wait
from trystate.property_tests.adapters.stores.kept import SECONDS, Serving
from trystate.property_tests.support.agents import succeed
from trystate.property_tests.support.mutants import Mutant, replaced, survivors
from trystate.property_tests.support.nightly import by_night
from trystate.store import TCPStore

PATIENT = CONF.replace("max_attempt=3", "max_attempt=15")  # a server takes seconds to start on a busy machine


class SlowDisk(Disk):
    """A sync takes until the test lets it go on."""

    def __init__(self) -> None:
        self.let = threading.Event()
        self.let.set()
        self.syncs = 0

    @contextlib.contextmanager
    def held(self) -> Iterator[None]:
        self.let.clear()
        try:
            yield
        finally:
            self.let.set()

    def sync(self, fd: int) -> None:
        self.let.wait(SECONDS)
        super().sync(fd)
        self.syncs += 1


def silent(peer: Peer) -> bool:
    """Whether nothing comes for a while."""
    peer.socket.settimeout(0.1)
    try:
        peer.socket.recv(1)
    except TimeoutError:
        return True
    finally:
        peer.socket.settimeout(SECONDS)
    return False


def test_no_reply_tells_of_what_is_not_durable_and_each_connection_gets_its_replies_in_order(tmp_path: Path) -> None:
    disk = SlowDisk()
    adding, getting = add(b"/n", 1), get(b"/n")
    with Serving(tmp_path / "data", disk) as server, Peer(server.port) as writer, Peer(server.port) as reader:
        assert writer.answers() and reader.answers()
        with disk.held():
            writer.send(adding)
            assert silent(writer)
            reader.send(getting)
            writer.send(adding + getting)
            assert silent(reader) and silent(writer)
        assert reader.read(9) == blob(b"1")
        assert writer.read(25) == (1).to_bytes(8, "little") + (2).to_bytes(8, "little") + blob(b"2")


def test_a_server_that_answers_sooner_is_found(tmp_path: Path) -> None:
    """The mutants: nothing waits; what waited for one batch leaves with all that came after it."""
    folders = (tmp_path / str(number) for number in range(9))

    def claim() -> None:
        folder = next(folders)
        folder.mkdir()
        test_no_reply_tells_of_what_is_not_durable_and_each_connection_gets_its_replies_in_order(folder)

    mutants: dict[str, Mutant] = {
        "nothing waits": replaced(KeptContents, "dirty", property(lambda self: False)),
        "a batch is not waited for": replaced(KeepingDriver, "begin_batch", _told_at_once),
    }
    assert survivors(mutants, claim) == []


BEGIN = KeepingDriver.begin_batch


def _told_at_once(self: KeepingDriver) -> None:
    appended = self.contents.appended
    BEGIN(self)
    self.durable(appended)


def test_one_sync_serves_all_requests_that_came_meanwhile(tmp_path: Path) -> None:
    disk = SlowDisk()
    with Serving(tmp_path / "data", disk) as server, contextlib.ExitStack() as stack:
        peers = [stack.enter_context(Peer(server.port)) for _ in range(50)]
        assert all(peer.answers() for peer in peers)
        with disk.held():
            for number, peer in enumerate(peers):
                peer.send(set_(b"/%d" % number, b"v") + get(b"/%d" % number))
            assert silent(peers[-1])
            before = disk.syncs
        assert all(peer.read(9) == blob(b"v") for peer in peers)
        assert disk.syncs - before <= 3


def test_a_watcher_of_a_key_that_changes_without_a_pause_is_told(tmp_path: Path) -> None:
    """Its replies never run dry: those of an earlier batch leave while a later one is under way."""
    told: list[int] = []
    with Serving(tmp_path / "data") as server, server.store() as store, server.store() as watching:
        watching.watch_key("n", lambda event: told.append(int(event.new or b"0")))
        ends = threading.Event()

        def write() -> None:
            with Peer(server.port) as peer:
                while not ends.is_set():
                    peer.send(add(b"/n", 1) * 50)
                    peer.read(400)

        writers = [threading.Thread(target=write) for _ in range(2)]
        for writer in writers:
            writer.start()
        eventually("it is told of many", lambda: len(told) > 500)
        ends.set()
        for writer in writers:
            writer.join()
        total = int(store.get("n"))
        eventually("it is told of all", lambda: len(told) == total)
        assert told == list(range(1, total + 1))


def test_a_large_value_is_read_whole_while_others_write(tmp_path: Path) -> None:
    value = random.Random(1).randbytes(3_000_000)
    with Serving(tmp_path / "data") as server, server.store() as store, server.store() as other:
        store.set("large", value)
        ends = threading.Event()

        def write() -> None:
            while not ends.is_set():
                other.add("n", 1)

        writer = threading.Thread(target=write)
        writer.start()
        assert all(store.get("large") == value for _ in range(20))
        ends.set()
        writer.join()


class FailingDisk(Disk):
    """A disk that fails when it is told to."""

    failing: int | None = None
    full = False
    room = 1 << 40

    def free(self, directory: str) -> int:
        return self.room

    def sync(self, fd: int) -> None:
        if self.failing is not None:
            raise OSError(self.failing, os.strerror(self.failing))
        super().sync(fd)

    def reserve(self, fd: int, at: int, count: int) -> None:
        if self.full:
            raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))
        super().reserve(fd, at, count)


def test_a_disk_that_fails_takes_back_what_was_not_told_of_and_leaves_reads(tmp_path: Path) -> None:
    disk = FailingDisk()
    with Serving(tmp_path / "data", disk) as server, server.store() as store:
        store.set("told", "of")
        store.queue_push("queue", "element")
        disk.failing = errno.EIO
        with pytest.raises(OutcomeUnknown, match=r"set.'told'.: the server hung up"):
            store.set("told", "untold")
        assert store.get("told") == b"of"
        for change in (lambda: store.set("other", ""), lambda: store.queue_pop("queue"), lambda: store.add("n", 1)):
            with pytest.raises(StoreError, match=r"cannot be written.*nothing was changed: start the server again"):
                change()
        assert store.queue_len("queue") == 1 and not store.check(["other"])
        with Peer(server.port) as peer:  # torch's protocol has no answer for a refusal
            peer.send(set_(b"/told", b"x"))
            assert peer.closed()
    assert any("connections are closed, and only reads are served" in line for line in server.lines)
    with Serving(tmp_path / "data") as server, server.store() as store:
        assert store.get("told") in (b"of", b"untold") and store.queue_pop("queue") == b"element"


def test_a_full_disk_refuses_what_writes_and_goes_on_when_there_is_room(tmp_path: Path) -> None:
    disk = FailingDisk()
    with Serving(tmp_path / "data", disk) as server, server.store() as store:
        store.queue_push("queue", "element")
        disk.full = True
        store.set("fits", b"what was reserved before")
        with pytest.raises(StoreError, match=r"journal .*cannot grow .No space left on device.; nothing was changed"):
            store.set("large", bytes(2 << 20))
        assert store.get("fits") == b"what was reserved before" and store.queue_pop("queue") == b"element"
        with Peer(server.port) as peer:
            peer.send(set_(b"/large", bytes(2 << 20)))
            assert peer.closed()
        disk.full = False
        store.set("large", bytes(2 << 20))


def test_a_disk_that_has_room_for_a_snapshot_alone_is_used_for_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Else the journal would take the last room with its history, and nothing could ever drop that."""
    monkeypatch.setattr(journals, "COMPACT_BYTES_MIN", 50_000)
    monkeypatch.setattr(journals, "COMPACT_FACTOR", 1000)  # the disk is full sooner
    monkeypatch.setattr(journals, "PIECE_BYTES", 4096)
    disk = FailingDisk()
    with Serving(tmp_path / "data", disk) as server, server.store() as store:
        for number in range(500):
            store.set("key", b"%200d" % number)
        assert server.directory.journal.generation == 0
        disk.room = 8000
        why = r"its disk has 8000 bytes free, and \d+ are needed, .*; nothing was changed, .*: make room for \d+ bytes"
        with pytest.raises(StoreError, match=why):
            for number in range(500, 1000):
                store.set("key", b"%200d" % number)
        assert store.get("key") == b"%200d" % (number - 1)
        eventually("the history is dropped", lambda: server.directory.journal.generation == 1)
        disk.room = 1 << 40
        store.set("key", b"and there is room")
    disk.room = 8000
    with Serving(tmp_path / "data", disk) as server:
        assert any("its disk has 8000 bytes free, and a snapshot" in line for line in server.lines)


def test_a_journal_does_not_grow_with_what_is_overwritten(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(journals, "COMPACT_BYTES_MIN", 50_000)
    monkeypatch.setattr(journals, "PIECE_BYTES", 4096)
    with Serving(tmp_path / "data") as server, server.store() as store:
        for number in range(1500):
            store.set(f"key {number % 7}", b"%200d" % number)
        eventually("it is compacted", lambda: (tmp_path / "data" / "journal").stat().st_size < 110_000)
        generation = server.directory.journal.generation
        assert generation >= 2
    with Serving(tmp_path / "data") as server, server.store() as store:
        assert [store.get(f"key {number % 7}") for number in range(1493, 1500)] == [
            b"%200d" % number for number in range(1493, 1500)
        ]


@pytest.mark.parametrize("sync", [None, 0.05])
def test_a_store_that_is_closed_and_served_again_has_all(tmp_path: Path, sync: float | None) -> None:
    with Serving(tmp_path / "data", sync=sync) as server:
        with server.store() as store:
            store.multi_set(["a", "b"], ["1", "2"])
            store.append("a", "more")
            store.delete_key("b")
            store.compare_set("c", "", "3")
            store.take("c")
            store.queue_push("q", "x")
            store.queue_push("q", "y")
            time.sleep(0.2 if sync else 0)
        identity = server.directory.journal.identity
    with Serving(tmp_path / "data", sync=sync) as server, server.store() as store:
        assert server.directory.journal.identity == identity
        assert store.list_keys() == ["a"] and store.get("a") == b"1more"
        assert [store.queue_pop("q") for _ in range(2)] == [b"x", b"y"]


def test_an_element_that_is_reserved_is_there_after_a_restart_and_one_that_was_fetched_is_not(tmp_path: Path) -> None:
    with (
        Serving(tmp_path / "data") as server,
        server.store() as store,
        Peer(server.port) as first,
        Peer(server.port) as second,
    ):
        for element in ("a", "b", "c"):
            store.queue_push("q", element)
        for peer in (first, second):  # torch's client pops in two requests
            peer.send(wait(b"/q"))
            assert peer.read(1) == b"\0"
        second.send(request(Query.QUEUE_POP, blob(b"/q")))
        assert second.read(17)[8:] == blob(b"b")
        assert as_after_a_kill(tmp_path) == [b"a", b"c"]


def as_after_a_kill(folder: Path) -> list[bytes]:
    """The queue that a server would find now."""
    copy = folder / "copy"
    copy.mkdir()
    (copy / "journal").write_bytes((folder / "data" / "journal").read_bytes())
    directory = Directory(str(copy), Limits(), list[str]().append)
    directory.close()
    return list(directory.contents.queues[b"/q"])


# ---- what is refused


def test_a_directory_has_one_server_at_a_time(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    with Serving(tmp_path / "data"):
        with pytest.raises(FileRefused, match=rf"in use by another server .process {os.getpid()}.; end that one"):
            Directory(str(tmp_path / "data"), Limits(), print)
        assert main(["store", "serve", "--data", str(tmp_path / "data")]) == Exit.USAGE
        assert "in use by another server" in capsys.readouterr().err


@pytest.mark.parametrize(
    ("made", "why"),
    [
        (lambda path: path.write_text("a file"), "is no directory"),
        (lambda path: (path.mkdir(), (path / "notes.txt").write_text("mine")), "not empty .'notes.txt' is there."),
        (lambda path: (path.mkdir(), (path / "journal").write_bytes(b"\x89tryst\x02\n")), "not the journal of a store"),
        (lambda path: (path.mkdir(), (path / "journal").write_bytes(b"\x89tryjr\x07\n")), "version 7 of its format"),
    ],
)
def test_another_directory_is_refused_and_left_as_it_was(tmp_path: Path, made: Callable[[Path], Any], why: str) -> None:
    made(tmp_path / "data")
    before = sorted((path, path.read_bytes()) for path in tmp_path.rglob("*") if path.is_file())
    with pytest.raises(FileRefused, match=why):
        Directory(str(tmp_path / "data"), Limits(), print)
    assert sorted((path, path.read_bytes()) for path in tmp_path.rglob("*") if path.is_file()) == before


def test_a_directory_without_a_parent_and_a_sync_without_data_are_refused(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    with pytest.raises(FileRefused, match="No such file or directory"):
        Directory(str(tmp_path / "no" / "data"), Limits(), print)
    for when in ("always", "1"):
        assert main(["store", "serve", "--sync", when]) == Exit.USAGE
        assert "--sync says when the journal of --data DIR is synced" in capsys.readouterr().err


# ---- real servers that are killed


class Killed:
    """A server in a process, on one port and directory, that is killed and started again."""

    def __init__(self, folder: Path, *options: str) -> None:
        self.folder, self.options = folder, ("--data", str(folder / "data"), *options)
        self.server = Server(folder, 0, *self.options)
        self.port = self.server.port

    def again(self, seconds: float = 0.0) -> None:
        self.server.kill()
        time.sleep(seconds)
        self.server = Server(self.folder, self.port, *self.options)

    def store(self, seconds: float = SECONDS) -> TCPStore:
        return TCPStore("127.0.0.1", self.port, timeout=timedelta(seconds=seconds))

    def __enter__(self) -> Killed:
        return self

    def __exit__(self, *exception: object) -> None:
        self.server.kill()


def test_waits_go_on_and_watches_are_told_and_may_watch_again(tmp_path: Path) -> None:
    got: list[object] = []
    lost, heard = threading.Event(), threading.Event()
    with Killed(tmp_path) as killed, killed.store() as store, killed.store() as other:
        store.set("kept", "value")

        def watch(reason: object = None) -> None:
            if reason is not None:
                lost.set()
            other.watch_key("news", lambda event: heard.set(), watch)

        def wait_for_it() -> None:
            store.wait(["late"])
            got.append("waited")

        watch()
        waiting = [
            threading.Thread(target=lambda: got.append(store.get("late"))),
            threading.Thread(target=wait_for_it),
            threading.Thread(target=lambda: got.append(store.multi_get(["kept", "late"]))),
        ]
        for thread in waiting:
            thread.start()
        time.sleep(0.2)
        killed.again(0.3)
        assert other.get("kept") == b"value", "it connects again, and asks again"
        other.set("late", "come")
        for thread in waiting:
            thread.join(SECONDS)
        assert sorted(map(str, got)) == sorted(map(str, [b"come", "waited", [b"value", b"come"]]))
        assert lost.wait(SECONDS)

        def is_heard() -> bool:
            store.set("news", "x")
            return heard.wait(0.2)

        eventually("it watches again", is_heard)


def test_a_client_of_torchs_stays_lost_and_a_new_one_finds_all(tmp_path: Path) -> None:
    with Killed(tmp_path) as killed:
        theirs = partial(dist.TCPStore, "127.0.0.1", killed.port, wait_for_workers=False)  # type: ignore[attr-defined]
        store = theirs()
        store.set("kept", "value")
        assert store.add("count", 2) == 2
        killed.again()
        for _ in range(2):
            with pytest.raises(dist.DistNetworkError):
                store.add("count", 1)
        again = theirs()
        assert again.get("kept") == b"value" and again.add("count", 0) == 2


def test_a_record_of_a_server_that_is_started_again_begins_with_the_states_that_it_has(tmp_path: Path) -> None:
    with Killed(tmp_path) as killed, killed.store() as store:
        store.set("trystate/job/state", "a state")
        killed.options = (*killed.options, "--record", str(tmp_path / "record"))
        killed.again()
        store.set("trystate/job/state", "the next")
        os.kill(killed.server.pid, signal.SIGTERM)
        assert killed.server.ends() == 0
    lines = [json.loads(line) for line in (tmp_path / "record").read_text().splitlines()]
    found = [(line["value"], line.get("again", False)) for line in lines if line["op"] == "write"]
    assert found[-2:] == [("a state", True), ("the next", False)], found


def test_an_operation_waits_for_its_server_as_long_as_it_may_take(tmp_path: Path) -> None:
    with Killed(tmp_path) as killed, killed.store(1.0) as store:
        store.set("kept", "value")
        killed.server.kill()
        began = time.monotonic()
        with pytest.raises(ConnectionLost):
            store.get("kept")
        with pytest.raises((ConnectionLost, StoreTimeout)):
            store.set("kept", "other")
        assert 1.8 < time.monotonic() - began < 6
        starting = threading.Timer(0.3, killed.again)
        starting.start()
        store.set_timeout(timedelta(seconds=SECONDS))
        store.set("kept", "nothing was sent before, so it is done once")
        assert store.get("kept").startswith(b"nothing was sent")
        starting.join(SECONDS)


def test_an_empty_store_that_takes_the_place_is_noticed(tmp_path: Path) -> None:
    with Killed(tmp_path) as killed, killed.store() as store:
        store.set("kept", "value")
        killed.server.kill()
        other = Server(tmp_path, killed.port)
        with pytest.raises(ConnectionLost, match="restarted and is empty"):
            store.get("kept")
        other.kill()


class Load:
    """Clients that change a store, in threads, and see no less than was acknowledged."""

    def __init__(self, killed: Killed, counters: int) -> None:
        self.killed, self.ends = killed, threading.Event()
        self.told: dict[str, tuple[int, int]] = {}  # of each counter: acknowledged additions, and those not known
        self.pushed: list[bytes] = []
        self.failures: list[BaseException] = []
        self.threads = [threading.Thread(target=self.run, args=(self.count, f"counter {n}")) for n in range(counters)]
        self.threads.append(threading.Thread(target=self.run, args=(self.overwrite, "large")))
        for thread in self.threads:
            thread.start()

    def end(self) -> None:
        self.ends.set()
        for thread in self.threads:
            thread.join(SECONDS)
        assert not self.failures, self.failures

    def run(self, change: Callable[[TCPStore, str], None], name: str) -> None:
        try:
            with self.killed.store() as store:
                change(store, name)
        except BaseException as error:
            self.failures.append(error)

    def count(self, store: TCPStore, name: str) -> None:
        sure = unknown = seen = 0
        while not self.ends.is_set():
            try:
                total = store.add(name, 1)
                sure += 1
                assert seen < total and sure <= total <= sure + unknown, (seen, total, sure, unknown)
                seen = total
                store.queue_push("queue", f"{name} {total}")
                self.pushed.append(f"{name} {total}".encode())
            except OutcomeUnknown:
                unknown += 1
            assert sure <= (int(store.get(name)) if seen else 0) <= sure + unknown
        self.told[name] = sure, unknown

    def overwrite(self, store: TCPStore, name: str) -> None:
        """So that compactions come beside the kills."""
        sent = sure = 0
        while not self.ends.is_set():
            sent += 1
            with contextlib.suppress(OutcomeUnknown):
                store.set(name, b"%d " % sent + bytes(300_000))
                sure = sent
            assert not sure or sure <= int(store.get(name).split()[0]) <= sent


@pytest.mark.parametrize("options", [(), ("--sync", "0.05")])
def test_a_server_that_is_killed_at_random_moments_loses_nothing_that_it_acknowledged(
    tmp_path: Path, options: tuple[str, ...]
) -> None:
    """A killed process leaves its written bytes to the system, so that the interval makes no difference here."""
    chance = random.Random(5)
    with Killed(tmp_path, *options) as killed:
        load = Load(killed, 3)
        for _ in range(by_night("restarts of a job", 3)):
            time.sleep(chance.uniform(0.05, 0.4))
            killed.again()
        time.sleep(0.1)
        load.end()
        killed.again()
        assert (tmp_path / "data" / "journal").stat().st_size < 64 << 20, "it was compacted"
        with killed.store() as store:
            assert len(load.told) == 3
            for name, (sure, unknown) in load.told.items():
                assert 0 < sure <= store.add(name, 0) <= sure + unknown
            queued = [store.queue_pop("queue", block=False) for _ in range(store.queue_len("queue"))]
            assert set(load.pushed) <= set(queued) and len(queued) == len(set(queued)), "each once"


def test_a_job_does_not_notice_that_its_endpoint_was_killed_and_started_again(tmp_path: Path) -> None:
    """Two agents of `trystate run`: no restart is spent, no worker is ended, and a round after it is formed there."""
    serving = ("--data", str(tmp_path / "data"))
    with Job(tmp_path, nodes="1:2", max_restarts=1, conf=PATIENT, serving=serving) as job:
        a, b = job.two()
        before, began, version = len(a.began), [*a.began, *b.began], job.state.version
        job.server.kill()
        time.sleep(0.5)
        job.server = Server(tmp_path, job.port, *serving)
        eventually("heartbeats go on", lambda: job.state.version > version + 2)
        assert [*a.began, *b.began] == began
        a.do("fail once")
        a.runs(before + 1, world_size=2)
        assert a.began[-1].restart == 1, "the restart of the worker that failed"
        succeed(a, b)


def test_a_round_forms_though_its_endpoint_is_killed_while_a_node_waits(tmp_path: Path) -> None:
    serving = ("--data", str(tmp_path / "data"))
    with Job(tmp_path, nodes="2", conf=PATIENT, serving=serving) as job:
        a = job.agent("a")
        eventually("one waits", lambda: sum(1 for _ in job.state.listed()) == 1)
        for _ in range(2):
            job.server.kill()
            time.sleep(0.2)
            job.server = Server(tmp_path, job.port, *serving)
        b = job.agent("b")
        a.runs(world_size=2)
        b.runs(world_size=2)
        assert [began.restart for agent in (a, b) for began in agent.began] == [0, 0]
        succeed(a, b)


def test_a_job_whose_endpoint_is_started_again_empty_spends_more(tmp_path: Path) -> None:
    """The directory makes the difference: without it the members learn that their round is gone."""
    with Job(tmp_path, nodes="1:2", max_restarts=1) as job:
        a, b = job.two()
        before = len(a.began), len(b.began)
        job.server.kill()
        time.sleep(0.5)
        job.server = Server(tmp_path, job.port)
        eventually("workers are started again", lambda: (len(a.began), len(b.began)) != before)


def test_the_server_ends_in_order_on_a_signal(tmp_path: Path) -> None:
    with Killed(tmp_path) as killed, killed.store() as store:
        store.set("key", "value")
        os.kill(killed.server.pid, signal.SIGTERM)
        assert killed.server.ends() == 0
    size = (tmp_path / "data" / "journal").stat().st_size
    assert size < 1000, "what was reserved is given back"
    with socket.socket() as sock:
        assert sock.connect_ex(("127.0.0.1", killed.port)) != 0
