"""`trystate store serve` listens where it is told, says so in a line, names offenders, and ends with 0 on a signal."""

from __future__ import annotations

import asyncio
import io
import math
import re
import signal
import socket
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

from trystate.__main__ import main
from trystate.exits import Exit
from trystate.impl.host.secret import SECRET_BYTES_MIN
from trystate.impl.store.limits import MIB, Limits
from trystate.impl.store.server import driver, embedding
from trystate.impl.store.tcp_server import TCPStoreServer
from trystate.impl.store.wire import counted
from trystate.model.store.vocabulary import Query
from trystate.property_tests.adapters.our_store.wire import SECONDS, Peer, request, set_


@contextmanager
def serving(*options: str) -> Iterator[tuple[subprocess.Popen[str], str, int]]:
    """The command in a process: itself, the line that it printed, its port."""
    argv = [sys.executable, "-m", "trystate", "store", "serve", *options]
    with subprocess.Popen(argv, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True) as process:
        assert process.stdout is not None
        line = process.stdout.readline()
        found = re.search(r"listening on \S+:(\d+)", line)
        try:
            assert found is not None, process.communicate()[1]
            yield process, line, int(found[1])
        finally:
            process.kill()


def test_a_log_that_fails_or_never_returns_stops_nothing() -> None:
    asleep = threading.Event()

    def fail(line: str) -> None:
        raise BrokenPipeError(line)

    for log in (fail, lambda line: asleep.wait()):
        limits = Limits(handshake_seconds=0.5)
        with TCPStoreServer(run_in="thread", log=log, limits=limits) as server, Peer(server.port) as good:
            assert good.answers()
            for _ in range(2):
                with Peer(server.port, validated=False) as silent:
                    assert silent.closed()
            assert good.answers()
    asleep.set()


@pytest.mark.parametrize("loop", [driver.new_event_loop, asyncio.SelectorEventLoop])
@pytest.mark.parametrize("end", ["nonsense", "no more"])
def test_what_a_connection_did_not_read_ends_with_it(
    end: str, loop: Callable[[], object], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(driver, "new_event_loop", loop)
    monkeypatch.setattr(driver, "LINGER_SECONDS", SECONDS)
    with TCPStoreServer(run_in="thread", log=list[str]().append) as server, Peer(server.port) as greedy:
        greedy.send(set_(b"/large", bytes(8 * MIB)))
        assert greedy.answers()
        many = request(Query.MULTI_GET, counted([b"/large"] * 8))
        greedy.send(many + b"\xff" if end == "nonsense" else many)
        if end == "no more":
            greedy.socket.shutdown(socket.SHUT_WR)
        time.sleep(0.2)  # for the server to see it
        read = 0
        while piece := greedy.socket.recv(MIB):
            read += len(piece)
        assert read < 48 * MIB, "only what the system had already taken"


@pytest.mark.parametrize("seconds", [1e7, math.inf])
def test_a_server_may_take_any_time_to_start(seconds: float) -> None:
    with TCPStoreServer(start_seconds=seconds) as server:
        assert server.running


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

    for stream in (io.StringIO(), Broken()):  # as a notebook's: without a descriptor
        monkeypatch.setattr(sys, "stderr", stream)
        with TCPStoreServer(run_in="thread") as server, Peer(server.port, validated=False) as bad:
            bad.send(b"GET / HTTP/1.1\r\n\r\n")
            assert bad.closed()
        assert isinstance(stream, Broken) or "trystate store: 127.0.0.1:" in stream.getvalue()


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_it_serves_until_a_signal_and_exits_with_0(number: signal.Signals) -> None:
    with serving("--port", "0") as (process, line, port):
        assert line == f"trystate store: listening on 127.0.0.1:{port}, for everybody who can reach it\n"
        with Peer(port) as peer:
            assert peer.answers()
            process.send_signal(number)
            assert process.wait(SECONDS) == Exit.OK
            assert peer.closed()
        assert process.communicate() == ("", "")


def test_an_offender_is_named_in_a_line_on_stderr() -> None:
    with serving("--port", "0", "--value-bytes", "100") as (process, _, port):
        with Peer(port) as good, Peer(port) as bad:
            bad.send(set_(b"/k", b"v" * 101))
            assert bad.closed()
            assert good.answers()
            address = "{}:{}".format(*bad.socket.getsockname())
        process.send_signal(signal.SIGTERM)
        out, err = process.communicate(timeout=SECONDS)
        assert out == ""
        assert re.fullmatch(
            rf"trystate store: {re.escape(address)}: closed: SET .*101 bytes > 100: .*value_bytes\n", err
        )


def test_with_a_secret_only_those_who_know_it_are_served(tmp_path: Path) -> None:
    with serving("--port", "0", "--secret-file", str(secret_file(tmp_path))) as (process, line, port):
        assert "for clients that know the secret" in line
        with Peer(port) as peer:
            assert peer.answers()
            peer.send(set_(b"/k", b"v"))
            assert peer.closed()
        process.send_signal(signal.SIGTERM)
        assert "has not proved that it knows the secret" in process.communicate(timeout=SECONDS)[1]


def secret_file(folder: Path, content: bytes = b"s" * SECRET_BYTES_MIN + b"\n", mode: int = 0o600) -> Path:
    path = folder / "secret"
    path.write_bytes(content)
    path.chmod(mode)
    return path


def refused(capsys: pytest.CaptureFixture[str], *options: str) -> str:
    """Its line on stderr, with exit code 2 and without having listened."""
    assert main(["store", "serve", *options]) == Exit.USAGE
    out, err = capsys.readouterr()
    assert out == ""
    assert re.fullmatch(r"trystate: [^\n]+\n", err)
    return err


def test_a_busy_port_is_refused(capsys: pytest.CaptureFixture[str]) -> None:
    with socket.create_server(("127.0.0.1", 0)) as other:
        port = other.getsockname()[1]
        said = refused(capsys, "--port", str(port))
        assert f"cannot listen on 127.0.0.1:{port}: Address already in use; stop who uses it" in said


@pytest.mark.parametrize(
    ("options", "said"),
    [
        (["--host", "nosuch.invalid"], "unknown host 'nosuch.invalid'"),
        (["--host", "192.0.2.1", "--port", "0"], "give an address of this machine"),
        (["--port", "65536"], "'65536' is no port"),
        (["--port", "x"], "'x' is no port"),
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
        (b"short\n", 0o600, f"has 5 bytes < {SECRET_BYTES_MIN}"),
        (b"s" * 32, 0o644, "is open to every user of this machine: chmod o-rw"),
        (b"s" * 32, 0o602, "is open to every user of this machine: chmod o-rw"),
    ],
)
def test_a_secret_that_protects_nothing_is_refused(
    content: bytes, mode: int, said: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert said in refused(capsys, "--secret-file", str(secret_file(tmp_path, content, mode)))


def test_its_command_is_documented(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["store", "serve", "--help"]) == Exit.OK
    out = capsys.readouterr().out
    assert "--half-sent-seconds S" in out
    assert "(default: 127.0.0.1)" in out
    assert main(["store"]) == Exit.USAGE
