"""The server in a process, in a thread, and as `trystate store serve`.

A bad peer affects only itself, and the server ends cleanly. The command listens at the given address, prints it, names
offenders, and ends with 0 on a signal.
"""

from __future__ import annotations

import contextlib
import io
import os
import re
import signal
import socket
import subprocess
import sys
import threading
import time
from pathlib import Path
from typing import Any

import pytest

from trystate.__main__ import main
from trystate.exits import Exit
from trystate.impl.host.secret import SECRET_BYTES_MIN
from trystate.impl.store.limits import MIB, Limits
from trystate.impl.store.server import driver, embedding
from trystate.impl.store.server.log import LINES_MAX, Log
from trystate.impl.store.tcp_server import TCPStoreServer
from trystate.model.errors import UsageError
from trystate.property_tests.adapters.jobs import alive
from trystate.property_tests.adapters.our_store.wire import SECONDS, Peer, add, get, set_, wait
from trystate.property_tests.support.stores.client.common import until
from trystate.property_tests.support.stores.recorded import Command


@pytest.fixture
def log() -> list[str]:
    """A log, whose lines a thread adds."""
    return []


def first_line(log: list[str]) -> str:
    until(lambda: bool(log))
    return log[0]


def in_thread(log: list[str], **limits: Any) -> TCPStoreServer:
    return TCPStoreServer(limits=Limits(**limits), run_in="thread", log=log.append)


# ---- bad peers


@pytest.fixture(params=["uvloop", "asyncio"])
def loop(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> str:
    """Each of the two event loops."""
    if request.param == "uvloop":
        pytest.importorskip("uvloop")
    else:
        monkeypatch.setitem(sys.modules, "uvloop", None)
    return str(request.param)


def test_a_peer_that_speaks_something_else_is_closed_and_logged(loop: str, log: list[str]) -> None:
    with in_thread(log) as server, Peer(server.port) as good, Peer(server.port, validated=False) as bad:
        bad.send(b"GET / HTTP/1.1\r\n\r\n")
        assert bad.closed()
        assert good.answers()
        assert re.match(r"127\.0\.0\.1:.*VALIDATE", first_line(log))


def test_a_peer_that_never_reads_is_closed_at_its_bound(loop: str, log: list[str]) -> None:
    with in_thread(log, unsent_bytes=8 * MIB) as server, Peer(server.port) as good, Peer(server.port) as slow:
        good.send(set_(b"/large", b"x" * MIB))
        assert good.answers()
        with contextlib.suppress(ConnectionError):  # closed before it has sent all requests
            for _ in range(64):
                slow.send(get(b"/large"))
        assert "unread bytes exceed" in first_line(log)
        assert good.answers()


def served(port: int) -> bool:
    try:
        with Peer(port) as peer:
            return peer.answers()
    except (EOFError, ConnectionError):
        return False


def test_without_descriptors_newcomers_are_refused_and_others_served() -> None:
    limited = ("sh", "-c", 'ulimit -n 48; exec "$@"', "sh")
    with Command("serve", "--connections", "20000", under=limited) as command, Peer(command.port) as good:
        peers = [Peer(command.port, validated=False) for _ in range(60)]
        assert peers[-1].closed()
        assert good.answers()
        before = cpu_seconds(command.process.pid)
        time.sleep(0.5)
        assert cpu_seconds(command.process.pid) - before < 0.25, "it spins"
        peers[0].close()
        until(lambda: served(command.port))  # it took the place of that peer: the server is full again
        for peer in peers:
            peer.close()
        until(lambda: served(command.port))
        command.process.send_signal(signal.SIGTERM)
        start, full = command.process.communicate(timeout=SECONDS)[1].splitlines()
    assert command.process.returncode == 0
    assert "the hard limit of open files is 48, and connections=20000 need more" in start
    assert re.search(r"cannot accept: Too many open files, with \d+ connections; .* \(ulimit -n\)", full)


def cpu_seconds(pid: int) -> float:
    fields = Path(f"/proc/{pid}/stat").read_text().rsplit(")", 1)[1].split()
    return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")


def test_hundreds_connect_at_once_and_all_are_served(loop: str, log: list[str]) -> None:
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


def test_it_listens_on_the_address_that_it_is_told_and_on_no_other() -> None:
    with TCPStoreServer() as server, pytest.raises(ConnectionRefusedError):
        assert server.host == "127.0.0.1"
        Peer(server.port, host="127.0.0.2")


def test_a_descriptor_that_cannot_listen_is_refused_and_stays_the_callers() -> None:
    with socket.create_server(("127.0.0.1", 0)) as here, socket.socket() as connected, socket.socket() as idle:
        connected.connect(here.getsockname())
        for refused, why in ((idle, r"not a bound TCP socket; call bind\(\) on it first"),
                             (connected, "cannot listen: Invalid argument; give another address")):  # fmt: skip
            with pytest.raises(UsageError, match=why):
                TCPStoreServer(listen_fd=refused.fileno())
            assert os.fstat(refused.fileno())
    for number in (987654, -1):
        with pytest.raises(UsageError, match=f"listen_fd {number}: "):
            TCPStoreServer(listen_fd=number)


@pytest.mark.parametrize(
    ("options", "said"),
    [
        ({"host": ""}, "the host is empty"),
        ({"host": "nosuch.invalid"}, "unknown host 'nosuch.invalid'"),
        ({"host": "192.0.2.1"}, "give an address of this machine"),
        ({"port": 65536}, "port 65536"),
        ({"run_in": "cellar"}, "run_in='cellar'"),
        ({"secret": b""}, "an empty secret"),
        ({"secret": "abc"}, "the secret is a str; give bytes"),
        ({"log": print}, 'log= needs run_in="thread"'),
    ],
)
def test_an_impossible_server_option_is_refused_with_the_remedy(options: dict[str, Any], said: str) -> None:
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
    here, there = socket.socketpair()
    if not (child := os.fork()):  # a worker of a DataLoader, which lives longer
        here.close()
        there.send(b"forked")
        there.recv(1)
        os._exit(0)
    there.close()
    assert here.recv(6) == b"forked"
    server.close()
    server.close()
    assert not server.running
    assert peer.closed()
    peer.close()
    assert threading.active_count() <= threads  # earlier tests' threads may have ended meanwhile
    assert run_in == "thread" or not Path(f"/proc/{pid}").exists()
    with pytest.raises(ConnectionRefusedError):
        Peer(server.port)
    with TCPStoreServer(port=server.port):  # the port is free at once
        pass
    assert run_in == "thread" or server._embedded._process.returncode == 0, "it was killed"
    here.close()
    assert os.waitpid(child, 0)[1] == 0


def test_a_server_that_nobody_refers_to_ends() -> None:
    server = TCPStoreServer()
    pid = server.pid
    del server
    until(lambda: not alive(pid))


PARENT = """import os, sys, time
from trystate.impl.store.tcp_server import TCPStoreServer
server = TCPStoreServer()
if forked := os.fork():
    print(server.pid, forked, flush=True)
time.sleep(60)"""


def test_its_process_ends_when_the_parent_is_killed() -> None:
    """A fork of the parent still has the pipe open."""
    with subprocess.Popen([sys.executable, "-c", PARENT], stdout=subprocess.PIPE, text=True) as parent:
        assert parent.stdout is not None
        pid, forked = map(int, parent.stdout.readline().split())
        assert alive(pid)
        parent.kill()
        parent.wait()
        try:
            until(lambda: not alive(pid))
        finally:
            os.kill(forked, signal.SIGKILL)


def test_the_server_process_has_no_inherited_descriptor_torch_or_numpy(tmp_path: Path) -> None:
    with (tmp_path / "stray").open("w") as stray:
        os.set_inheritable(stray.fileno(), True)
        with TCPStoreServer() as server:
            links = [os.readlink(link) for link in Path(f"/proc/{server.pid}/fd").iterdir() if link.is_symlink()]
            assert str(tmp_path / "stray") not in links
            assert sum(link.startswith("socket:") for link in links) <= 3  # the listener, and the loop's pair
            mapped = Path(f"/proc/{server.pid}/maps").read_text()
            assert "uvloop" in mapped or "asyncio" in mapped
            assert not [name for name in ("torch", "numpy") if f"/{name}/" in mapped]


def test_the_server_process_runs_no_file_of_the_folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "json.py").write_text("raise SystemExit(3)")
    monkeypatch.chdir(tmp_path)
    with TCPStoreServer() as server:
        assert server.pid


def test_a_signal_to_the_whole_group_is_the_parents_to_handle() -> None:
    with TCPStoreServer() as server:
        for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP, signal.SIGQUIT):
            os.kill(server.pid, number)
        time.sleep(0.2)
        assert served(server.port)
    assert not server.running


def test_connections_beyond_the_limit_are_refused_until_one_ends(log: list[str]) -> None:
    with in_thread(log, connections=2) as server, Peer(server.port) as first:
        with Peer(server.port) as second:
            assert first.answers()
            assert second.answers()
            assert not served(server.port) and not served(server.port)
            assert "the limit of 2 connections is reached" in first_line(log)
        until(lambda: served(server.port))
    assert len(log) == 1


def test_a_peer_that_will_send_no_more_is_forgotten(loop: str, log: list[str]) -> None:
    with in_thread(log, connections=2) as server, Peer(server.port) as good, Peer(server.port) as waits:
        waits.send(wait(b"/never"))
        assert good.answers()
        waits.socket.shutdown(socket.SHUT_WR)
        assert waits.closed()
        until(lambda: served(server.port))


def test_a_thread_that_does_not_start_in_time_is_not_waited_for(monkeypatch: pytest.MonkeyPatch) -> None:
    held, ended = threading.Event(), threading.Event()

    def late(*arguments: Any) -> None:
        held.wait(SECONDS)
        driver.serve(*arguments)
        ended.set()

    monkeypatch.setattr(embedding, "serve", late)
    with pytest.raises(embedding.StartTimeout, match="thread did not start in time"):
        TCPStoreServer(run_in="thread", start_seconds=0.1)
    held.set()
    assert ended.wait(SECONDS), "it begins too late, and ends at once"


def test_a_thread_logs_to_whatever_stands_for_stderr(monkeypatch: pytest.MonkeyPatch) -> None:
    class Broken(io.StringIO):
        def write(self, text: str) -> int:
            raise OSError(text)

    for stream in (io.StringIO(), Broken()):  # without a descriptor, like a notebook's
        monkeypatch.setattr(sys, "stderr", stream)
        with TCPStoreServer(run_in="thread") as server, Peer(server.port, validated=False) as bad:
            bad.send(b"GET / HTTP/1.1\r\n\r\n")
            assert bad.closed()
        assert isinstance(stream, Broken) or "trystate store: 127.0.0.1:" in stream.getvalue()


def test_lines_of_the_log_that_come_too_fast_are_counted_after_the_others() -> None:
    go, written = threading.Event(), list[str]()

    def write(line: str) -> None:
        go.wait(SECONDS)
        written.append(line)

    log = Log(write)
    for n in range(LINES_MAX + 2):
        log(str(n))
    go.set()
    log.close(SECONDS)
    *others, note = written
    assert len(others) + int(note.partition(" more lines, not shown")[0]) == LINES_MAX + 2
    plain = Log(written.append, str)
    plain('{"a": "b    c"}')
    plain.close(SECONDS)
    assert written[-1] == '{"a": "b    c"}'


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_it_serves_until_a_signal_and_exits_with_0(number: signal.Signals) -> None:
    with Command("serve", "--value-bytes", "100") as served:
        process, port = served.process, served.port
        assert served.line == f"trystate store: listening on 127.0.0.1:{port}, for every client that can reach it\n"
        with Peer(port) as peer, Peer(port) as offender:
            address = "{}:{}".format(*offender.socket.getsockname())
            offender.send(set_(b"/k", b"v" * 101))
            assert offender.closed()
            assert peer.answers()
            process.send_signal(number)
            assert process.wait(SECONDS) == Exit.OK
            assert peer.closed()
        out, err = process.communicate()
    line = rf"trystate store: {re.escape(address)}: closed: SET .*101 bytes exceeds 100; .*value_bytes\n"
    assert out == "" and re.fullmatch(line, err)


def refused(capsys: pytest.CaptureFixture[str], *options: str) -> str:
    """The command's line on stderr; it ends with exit code 2 and does not listen."""
    assert main(["store", "serve", *options]) == Exit.USAGE
    out, err = capsys.readouterr()
    assert out == ""
    assert re.fullmatch(r"trystate: [^\n]+\n", err)
    return err


@pytest.mark.parametrize(
    ("options", "said"),
    [
        (["--port", "x"], "'x' is not a port"),
        (["--key-bytes", "0"], "'0' is not a whole number of at least 1"),
        (["--half-sent-seconds", "-1"], "'-1' is not a number above 0"),
        (["--frame-bytes", "10"], "the limit frame_bytes is 10"),
        (["--secret-file", "/nowhere/secret"], "cannot read the secret in /nowhere/secret: No such file"),
    ],
)
def test_a_wrong_option_is_refused(options: list[str], said: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert said in refused(capsys, *options)


@pytest.mark.parametrize(
    ("content", "mode", "said"),
    [
        (b"\n", 0o600, "is empty; make one: (umask 077; openssl"),
        (b"short\n", 0o600, f"has 5 bytes, fewer than {SECRET_BYTES_MIN}"),
        (b"s" * 32, 0o644, "is open to every user of this machine: chmod o-rw"),
        (b"s" * 32, 0o602, "is open to every user of this machine: chmod o-rw"),
    ],
)
def test_a_secret_that_protects_nothing_is_refused(
    content: bytes, mode: int, said: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    path = tmp_path / "secret"
    path.write_bytes(content)
    path.chmod(mode)
    assert said in refused(capsys, "--secret-file", str(path))
