"""The server as a process and a thread: torch's own client is served, a bad peer hurts itself, it ends cleanly."""

from __future__ import annotations

import asyncio
import contextlib
import os
import signal
import socket
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator
from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest

from trystate.impl.store.limits import MIB, Limits
from trystate.impl.store.server import driver
from trystate.impl.store.tcp_server import TCPStoreServer
from trystate.impl.store.wire import COUNTER_KEY, I64, U64, counted
from trystate.model.errors import UsageError
from trystate.model.store.vocabulary import Query
from trystate.property_tests.adapters.our_store.wire import SECONDS, Peer, add, check, get, request, set_, wait
from trystate.property_tests.adapters.torch_release import require

LINUX = pytest.mark.skipif(not sys.platform.startswith("linux"), reason="reads /proc")
FRESH = iter(range(1 << 30))


@pytest.fixture(scope="module")
def server() -> Iterator[TCPStoreServer]:
    with TCPStoreServer() as server:
        yield server


@pytest.fixture
def store(server: TCPStoreServer) -> Any:
    """torch's own client, among keys of its own."""
    dist = pytest.importorskip("torch.distributed")
    return dist.PrefixStore(f"test{next(FRESH)}", torch_client(server.port))


def torch_client(port: int) -> Any:
    dist = pytest.importorskip("torch.distributed")
    return dist.TCPStore("127.0.0.1", port, is_master=False, wait_for_workers=False, timeout=timedelta(seconds=SECONDS))


class Lines(list[str]):
    """A log, which a thread writes."""

    def __call__(self, line: str) -> None:
        self.append(line)

    def first(self) -> str:
        assert eventually(lambda: self)
        return self[0]


@pytest.fixture
def log() -> Lines:
    return Lines()


def eventually(holds: Callable[[], object]) -> bool:
    """Whether it holds within a while."""
    end = time.monotonic() + SECONDS
    while not holds():
        if time.monotonic() > end:
            return False
        time.sleep(0.005)
    return True


def in_thread(log: Lines, **limits: Any) -> TCPStoreServer:
    return TCPStoreServer(limits=Limits(**limits), run_in="thread", log=log)


def alive(pid: int) -> bool:
    try:
        return Path(f"/proc/{pid}/stat").read_text().rsplit(")", 1)[1].split()[0] != "Z"
    except OSError:
        return False


# ---- torch's own client


def test_torch_sets_and_gets_many(store: Any) -> None:
    keys = [f"k{i}" for i in range(3_000)]  # more than one packet, in both directions
    store.multi_set(keys, [key * 40 for key in keys])
    assert store.multi_get(keys) == [key.encode() * 40 for key in keys]
    assert store.check(keys)


def test_torch_counts_its_workers_in() -> None:
    dist = pytest.importorskip("torch.distributed")
    with TCPStoreServer() as server:
        stores = [dist.TCPStore("127.0.0.1", server.port, world_size=2, is_master=False) for _ in range(2)]
        assert [store.num_keys() for store in stores] == [1, 1]
        with Peer(server.port) as peer:
            assert peer.ask(add(COUNTER_KEY, 0), 8) == I64.pack(2)


def test_torch_in_the_process_that_started_the_server_does_not_deadlock(store: Any) -> None:
    """list_keys and queue_len hold the GIL while they wait: see impl/store/server/embedding.py."""
    require("list_keys")
    assert isinstance(store.underlying_store.list_keys(), list)
    assert store.queue_len("nothing") == 0


# ---- bad peers


@pytest.fixture(params=["uvloop", "asyncio"])
def loop(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> str:
    """Both loops."""
    new = pytest.importorskip("uvloop").new_event_loop if request.param == "uvloop" else asyncio.SelectorEventLoop
    monkeypatch.setattr(driver, "new_event_loop", new)
    return str(request.param)


def test_a_peer_that_speaks_something_else_is_closed_and_logged(loop: str, log: Lines) -> None:
    with in_thread(log) as server, Peer(server.port) as good, Peer(server.port, validated=False) as bad:
        bad.send(b"GET / HTTP/1.1\r\n\r\n")
        assert bad.closed()
        assert good.answers()
        assert "VALIDATE" in log.first() and log.first().startswith("127.0.0.1:")


def test_a_silent_peer_is_closed_after_its_time(loop: str, log: Lines) -> None:
    with in_thread(log, handshake_seconds=0.5) as server, Peer(server.port) as good:
        assert good.answers()
        with Peer(server.port, validated=False) as silent:
            assert silent.closed()
        assert good.answers()
        assert "not validated within 0.5 s" in log.first()


def test_a_half_sent_request_blocks_nobody_and_is_closed_after_its_time(loop: str, log: Lines) -> None:
    with in_thread(log, half_sent_seconds=0.2) as server, Peer(server.port) as good, Peer(server.port) as half:
        half.send(set_(b"/k", b"v" * 100)[:-1])
        assert good.ask(check(b"/k"), 1) == b"\x01"
        assert half.closed()
        assert good.ask(check(b"/k"), 1) == b"\x01"
        assert "0.2 s" in log.first()


def test_a_peer_that_never_reads_is_closed_and_costs_no_more_than_its_bound(loop: str, log: Lines) -> None:
    with in_thread(log, unsent_bytes=8 * MIB) as server, Peer(server.port) as good, Peer(server.port) as slow:
        good.send(set_(b"/large", b"x" * MIB))
        assert good.answers()
        with contextlib.suppress(ConnectionError):  # closed before it asked for all of them
            for _ in range(64):
                slow.send(get(b"/large"))
        assert "did not read" in log.first()
        assert good.answers()


def test_replies_that_nobody_reads_are_bounded_together(loop: str, log: Lines) -> None:
    with in_thread(log, unsent_bytes_total=24 * MIB) as server, contextlib.ExitStack() as peers:
        slow = [peers.enter_context(Peer(server.port)) for _ in range(3)]
        slow[0].send(b"".join(set_(b"/%d" % n, bytes(8 * MIB)) for n in range(6)))
        assert slow[0].answers()
        for n, peer in enumerate(slow):  # each asks once, for values of its own; the system's buffers hold some 6 MiB
            peer.send(request(Query.MULTI_GET, counted([b"/%d" % (2 * n + k) for k in range(2)])))
        assert "unread bytes are the most of" in log.first()


def test_a_peer_that_reads_slowly_gets_all_of_it(loop: str, log: Lines) -> None:
    with in_thread(log) as server, Peer(server.port) as slow:
        value, times = os.urandom(MIB), 24
        slow.send(set_(b"/large", value) + get(b"/large") * times)
        time.sleep(0.1)
        answer = U64.pack(len(value)) + value
        for _ in range(times):
            assert slow.read(len(answer)) == answer
        assert slow.answers()
    assert not log


def test_a_peer_that_will_send_no_more_is_forgotten(loop: str, log: Lines) -> None:
    with in_thread(log, connections=2) as server, Peer(server.port) as good, Peer(server.port) as waits:
        waits.send(wait(b"/never"))
        assert good.answers()
        waits.socket.shutdown(socket.SHUT_WR)
        assert waits.closed()
        assert eventually(lambda: served(server.port))


def served(port: int) -> bool:
    try:
        with Peer(port) as peer:
            return peer.answers()
    except (EOFError, ConnectionError):
        return False


def test_connections_beyond_the_limit_are_refused_until_one_ends(loop: str, log: Lines) -> None:
    with in_thread(log, connections=2) as server, Peer(server.port) as first:
        with Peer(server.port) as second:
            assert first.answers()
            assert second.answers()
            assert not served(server.port)
            assert "2 connections are the most" in log.first()
        assert eventually(lambda: served(server.port))


@LINUX
def test_without_descriptors_newcomers_are_turned_away_and_the_others_served(tmp_path: Path) -> None:
    errors = tmp_path / "errors"
    program = f"ulimit -n 48; exec {sys.executable} -m trystate store serve --port 0"
    with (
        errors.open("w") as stderr,
        subprocess.Popen(["sh", "-c", program], stdout=subprocess.PIPE, stderr=stderr, text=True) as process,
        contextlib.ExitStack() as at_last,
    ):
        at_last.callback(process.kill)
        assert process.stdout is not None
        port = int(process.stdout.readline().split(",")[0].rsplit(":", 1)[1])
        with Peer(port) as good:
            peers = [Peer(port, validated=False) for _ in range(60)]
            assert eventually(lambda: "cannot accept" in errors.read_text())
            assert good.answers()
            before = cpu_seconds(process.pid)
            time.sleep(0.5)
            assert cpu_seconds(process.pid) - before < 0.25, "it spins"
            for peer in peers:
                peer.close()
            assert eventually(lambda: served(port))
            assert good.answers()
        process.send_signal(signal.SIGTERM)
        assert process.wait(SECONDS) == 0


def cpu_seconds(pid: int) -> float:
    fields = Path(f"/proc/{pid}/stat").read_text().rsplit(")", 1)[1].split()
    return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")


def test_hundreds_connect_at_once_and_all_are_served(loop: str, log: Lines) -> None:
    with in_thread(log) as server:
        peers = [Peer(server.port) for _ in range(300)]
        for peer in peers:
            peer.send(add(b"/n", 1))
        assert len({peer.read(8) for peer in peers}) == 300
        for peer in peers:
            peer.send(wait(b"/go"))
        with Peer(server.port) as last:
            last.send(set_(b"/go", b"1"))
        assert {peer.read(1) for peer in peers} == {b"\0"}
        for peer in peers:
            peer.close()


# ---- where it listens


def test_it_listens_on_the_address_that_it_is_told_and_on_no_other(server: TCPStoreServer) -> None:
    assert server.host == "127.0.0.1"
    with pytest.raises(ConnectionRefusedError):
        Peer(server.port, host="127.0.0.2")


def test_it_takes_over_a_listening_socket() -> None:
    listener = socket.create_server(("127.0.0.1", 0))
    port = listener.getsockname()[1]
    with TCPStoreServer(listen_fd=listener.detach()) as server:
        assert server.port == port
        assert served(port)


def test_a_descriptor_that_cannot_listen_is_refused_and_stays_the_callers() -> None:
    with socket.create_server(("127.0.0.1", 0)) as here, socket.socket() as connected, socket.socket() as idle:
        connected.connect(here.getsockname())
        for refused, why in ((idle, r"not a TCP socket that is bound: call bind\(\) on it first"),
                             (connected, "cannot listen: Invalid argument; give another address")):  # fmt: skip
            with pytest.raises(UsageError, match=why):
                TCPStoreServer(listen_fd=refused.fileno())
            assert os.fstat(refused.fileno())
    with pytest.raises(UsageError, match="listen_fd 987654"):
        TCPStoreServer(listen_fd=987654)


@pytest.mark.parametrize(
    ("options", "said"),
    [
        ({"host": ""}, "an empty host"),
        ({"host": "nosuch.invalid"}, "unknown host 'nosuch.invalid'"),
        ({"host": "192.0.2.1"}, "give an address of this machine"),
        ({"port": 65536}, "port 65536"),
        ({"run_in": "cellar"}, "run_in='cellar'"),
        ({"secret": b""}, "an empty secret"),
        ({"secret": "abc"}, "the secret is a str: give bytes"),
        ({"log": print}, 'log= is for run_in="thread"'),
    ],
)
def test_what_it_cannot_do_is_said_with_the_remedy(options: dict[str, Any], said: str) -> None:
    with pytest.raises(UsageError, match=said):
        TCPStoreServer(**options)


# ---- how it ends


@pytest.mark.parametrize("run_in", ["process", "thread"])
def test_closed_it_leaves_nothing(run_in: Any) -> None:
    threads = threading.active_count()
    server = TCPStoreServer(run_in=run_in)
    pid, peer = server.pid, Peer(server.port)
    peer.send(wait(b"/never"))
    assert server.running
    server.close()
    server.close()
    assert not server.running
    assert peer.closed()
    peer.close()
    assert threading.active_count() <= threads  # those of tests before may have ended meanwhile
    assert run_in == "thread" or not Path(f"/proc/{pid}").exists()
    with pytest.raises(ConnectionRefusedError):
        Peer(server.port)
    with TCPStoreServer(port=server.port):  # which is free at once
        pass


def test_a_server_that_nobody_refers_to_ends() -> None:
    server = TCPStoreServer()
    pid = server.pid
    del server
    assert eventually(lambda: not alive(pid))


PARENT = """import os, sys, time
from trystate.impl.store.tcp_server import TCPStoreServer
server = TCPStoreServer()
forked = os.fork() if {forks} else 1
if forked:
    print(server.pid, forked, server.port, flush=True)
time.sleep(60)"""


@LINUX
@pytest.mark.parametrize("forks", [False, True])
def test_its_process_ends_when_the_parent_is_killed(forks: bool) -> None:
    """Also if a fork of the parent lives on and holds the pipe."""
    argv = [sys.executable, "-c", PARENT.format(forks=forks)]
    with subprocess.Popen(argv, stdout=subprocess.PIPE, text=True) as parent:
        assert parent.stdout is not None
        pid, forked, _ = map(int, parent.stdout.readline().split())
        assert alive(pid)
        parent.kill()
        parent.wait()
        try:
            assert eventually(lambda: not alive(pid))
        finally:
            if forks:
                os.kill(forked, signal.SIGKILL)


def test_a_fork_of_the_parent_that_ends_does_not_end_it(server: TCPStoreServer) -> None:
    forked = os.fork()
    if not forked:
        try:
            server.close()
        finally:
            os._exit(0)
    os.waitpid(forked, 0)
    assert server.running
    assert served(server.port)


@LINUX
def test_its_process_has_no_descriptor_of_the_parent_and_neither_torch_nor_numpy(tmp_path: Path) -> None:
    with (tmp_path / "stray").open("w") as stray:
        os.set_inheritable(stray.fileno(), True)
        with TCPStoreServer() as server:
            links = [os.readlink(link) for link in Path(f"/proc/{server.pid}/fd").iterdir() if link.is_symlink()]
            assert str(tmp_path / "stray") not in links
            assert sum(link.startswith("socket:") for link in links) <= 3  # to listen, and the loop's pair
            mapped = Path(f"/proc/{server.pid}/maps").read_text()
            assert "uvloop" in mapped or "asyncio" in mapped
            assert not [name for name in ("torch", "numpy") if f"/{name}/" in mapped]


@LINUX
def test_a_signal_to_the_whole_group_is_the_parents_to_handle() -> None:
    with TCPStoreServer() as server:
        for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP, signal.SIGQUIT):
            os.kill(server.pid, number)
        time.sleep(0.2)
        assert served(server.port)
    assert not server.running
