"""`trystate store serve --data`: after a kill and a restart the server has all data, and its clients continue."""

from __future__ import annotations

import contextlib
import errno
import os
import threading
import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from datetime import timedelta
from functools import partial
from pathlib import Path
from typing import Any
from unittest.mock import Mock

import pytest

from trystate.__main__ import main
from trystate.exits import Exit
from trystate.impl.store.durable import journal as journals
from trystate.impl.store.durable.directory import Directory
from trystate.impl.store.durable.driver import KeptConnection
from trystate.impl.store.errors import FileRefused, OutcomeUnknown, StoreError
from trystate.impl.store.limits import Limits
from trystate.impl.store.wire import blob
from trystate.property_tests.adapters.jobs import CONF, Job, Server, eventually
from trystate.property_tests.adapters.our_store.wire import Peer, add, get, set_
from trystate.property_tests.adapters.stores.kept import SECONDS, PlantedDisk, Serving, silent
from trystate.property_tests.support.agents import succeed
from trystate.store import TCPStore

PATIENT = CONF.replace("max_attempt=3", "max_attempt=15")  # a server takes seconds to start on a busy machine


def test_replies_are_durable_and_in_the_order_of_their_connection(tmp_path: Path) -> None:
    disk = PlantedDisk()
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


def test_a_reply_that_left_while_nothing_was_due_frees_no_later_one() -> None:
    driver, session = Mock(waiting={}), Mock(abort=False, closing=False)
    driver.contents.dirty = False
    session.take_parts.return_value, session.take_outgoing.side_effect = (), lambda size=0: b"x" * size
    connection = KeptConnection(driver, session, Mock())
    connection.free = 8  # bytes of a batch that was durable while another change was not
    connection.send()
    driver.contents.dirty = True
    assert connection.send() == 0 and connection in driver.waiting


def test_a_failed_disk_takes_back_unacknowledged_changes_and_serves_reads(tmp_path: Path) -> None:
    disk = PlantedDisk()
    with Serving(tmp_path / "data", disk) as server, server.store() as store:
        store.set("told", "of")
        store.queue_push("queue", "element")
        disk.failing = errno.EIO
        with pytest.raises(OutcomeUnknown, match=r"set.'told'.: the server hung up"):
            store.set("told", "untold")
        assert store.get("told") == b"of"
        for change in (lambda: store.set("other", ""), lambda: store.queue_pop("queue"), lambda: store.add("n", 1)):
            with pytest.raises(StoreError, match=r"cannot be written.*nothing was changed: repair the disk"):
                change()
        assert store.queue_len("queue") == 1 and not store.check(["other"])
        with Peer(server.port) as peer:  # torch's protocol has no answer for refusals
            peer.send(set_(b"/told", b"x"))
            assert peer.closed()
    assert any("connections are closed, and only reads are served" in line for line in server.lines)
    with Serving(tmp_path / "data") as server, server.store() as store:
        assert store.get("told") in (b"of", b"untold") and store.queue_pop("queue") == b"element"


def test_a_disk_that_has_room_for_a_snapshot_alone_is_used_for_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Otherwise the history of the journal would fill the disk, and no snapshot could replace it."""
    monkeypatch.setattr(journals, "COMPACT_BYTES_MIN", 50_000)
    monkeypatch.setattr(journals, "COMPACT_FACTOR", 1000)  # the disk is full before this factor is reached
    monkeypatch.setattr(journals, "PIECE_BYTES", 4096)
    disk = PlantedDisk()
    with Serving(tmp_path / "data", disk) as server, server.store() as store:
        for number in range(500):
            store.set("key", b"%200d" % number)
        assert server.directory.journal.generation == 0
        disk.room = 8000
        why = r"its disk has 8000 bytes free, but \d+ are needed, .*; nothing was changed, .*: make room for \d+ bytes"
        with pytest.raises(StoreError, match=why):
            for number in range(500, 1000):
                store.set("key", b"%200d" % number)
        assert store.get("key") == b"%200d" % (number - 1)
        eventually("the history is dropped", lambda: server.directory.journal.generation == 1)
        disk.room = 1 << 40
        store.set("key", b"and there is room")
    disk.room = 8000
    with Serving(tmp_path / "data", disk) as server:
        assert any("its disk has 8000 bytes free, but a snapshot" in line for line in server.lines)


def test_a_full_disk_is_filled_by_one_snapshot_alone(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(journals, "COMPACT_BYTES_MIN", 5_000)
    monkeypatch.setattr(journals, "PIECE_BYTES", 4096)
    disk = PlantedDisk()
    with Serving(tmp_path / "data", disk) as server, server.store() as store:
        monkeypatch.setattr(disk, "create", Mock(side_effect=OSError(errno.ENOSPC, "full")))
        server.directory.journal.compact_at = 1 << 40
        for number in range(100):
            store.set("key", b"%200d" % number)
        disk.room = 0
        for _ in range(60):
            with contextlib.suppress(StoreError):
                store.set("key", "x" * 200)
        assert sum("not compacted" in line for line in server.lines) == 1


def test_a_store_that_is_closed_and_served_again_has_all(tmp_path: Path) -> None:
    with Serving(tmp_path / "data", sync=0.05) as server:
        with server.store() as store:
            store.multi_set(["a", "b"], ["1", "2"])
            store.append("a", "more")
            store.delete_key("b")
            store.compare_set("c", "", "3")
            store.take("c")
            store.queue_push("q", "x")
            store.queue_push("q", "y")
            time.sleep(0.2)
        identity = server.directory.journal.identity
    with Serving(tmp_path / "data") as server, server.store() as store:
        assert server.directory.journal.identity == identity
        assert store.list_keys() == ["a"] and store.get("a") == b"1more"
        assert [store.queue_pop("q") for _ in range(2)] == [b"x", b"y"]


# ---- refused directories and options


def test_a_directory_has_one_server_at_a_time(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    with Serving(tmp_path / "data"):
        with pytest.raises(FileRefused, match=rf"in use by another server .process {os.getpid()}.; end that one"):
            Directory(str(tmp_path / "data"), Limits(), print)
        assert main(["store", "serve", "--data", str(tmp_path / "data")]) == Exit.USAGE
        assert "in use by another server" in capsys.readouterr().err


@pytest.mark.parametrize(
    ("made", "why"),
    [
        (lambda path: path.write_text("a file"), "is not a directory"),
        (lambda path: (path.mkdir(), (path / "notes.txt").write_text("mine")), "not empty .it has 'notes.txt'."),
        (lambda path: (path.mkdir(), (path / "journal").write_bytes(b"\x89tryst\x02\n")), "not the journal of a store"),
        (lambda path: (path.mkdir(), (path / "journal").write_bytes(b"\x89tryjr\x02\n")), "version 2 .* that wrote it"),
        (lambda path: (path.mkdir(), (path / "journal").write_bytes(b"\x89tryjr\x07\n")), "version 7 .* reads .* 3"),
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
        assert "--sync sets when the journal of --data DIR is synced" in capsys.readouterr().err


# ---- real servers that are killed


def test_waits_go_on_and_watches_are_told_and_may_watch_again(tmp_path: Path) -> None:
    lost, heard = threading.Event(), threading.Event()
    options = ("--data", str(tmp_path / "data"))
    with ThreadPoolExecutor() as threads, contextlib.ExitStack() as ends:
        server = Server(tmp_path, 0, *options)
        ends.callback(server.kill)
        make = partial(TCPStore, "127.0.0.1", server.port, timeout=timedelta(seconds=SECONDS))
        store, other = ends.enter_context(make()), ends.enter_context(make())
        store.set("kept", "value")

        def watch(reason: object = None) -> None:
            if reason is not None:
                lost.set()
            other.watch_key("news", lambda event: heard.set(), watch)

        watch()
        asked: list[tuple[Callable[[Any], object], Any]] = [
            (store.get, "late"), (store.wait, ["late"]), (store.multi_get, ["kept", "late"]),
        ]  # fmt: skip
        waiting = [threads.submit(ask, about) for ask, about in asked]
        time.sleep(0.2)
        server.kill()
        time.sleep(0.3)
        ends.callback(Server(tmp_path, server.port, *options).kill)
        assert other.get("kept") == b"value", "it connects again, and asks again"
        other.set("late", "come")
        assert [each.result(SECONDS) for each in waiting] == [b"come", None, [b"value", b"come"]]
        assert lost.wait(SECONDS)

        def is_heard() -> bool:
            store.set("news", "x")
            return heard.wait(0.2)

        eventually("it watches again", is_heard)


def test_a_job_does_not_notice_that_its_endpoint_was_restarted(tmp_path: Path) -> None:
    """Two agents of `trystate run`: they use no restart, end no worker, and later form a round at the endpoint."""
    serving = ("--data", str(tmp_path / "data"))
    with Job(tmp_path, nodes="1:2", max_restarts=1, conf=PATIENT, serving=serving) as job:
        a, b = job.two()
        before, began = len(a.began), [*a.began, *b.began]
        job.server.kill()
        time.sleep(0.5)
        job.server = Server(tmp_path, job.port, *serving)
        # The room counts the time of heartbeats from its beginning or from the restart of its server.
        eventually("heartbeats go on", lambda: min((p.written for p in job.state.listed()), default=0) > 0)
        assert [*a.began, *b.began] == began
        a.do("fail once")
        a.runs(before + 1, world_size=2)
        assert a.began[-1].restart == 1, "the restart of the worker that failed"
        succeed(a, b)
