"""`trystate store serve` listens at the given address, prints it, names offenders, and ends with 0 on a signal."""

from __future__ import annotations

import io
import re
import signal
import sys
import threading
from pathlib import Path
from typing import Any

import pytest

from trystate.__main__ import main
from trystate.exits import Exit
from trystate.impl.host.secret import SECRET_BYTES_MIN
from trystate.impl.store.server import driver, embedding
from trystate.impl.store.tcp_server import TCPStoreServer
from trystate.property_tests.adapters.our_store.wire import SECONDS, Peer, set_
from trystate.property_tests.support.stores.recorded import Command


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


def secret_file(folder: Path, content: bytes = b"s" * SECRET_BYTES_MIN + b"\n", mode: int = 0o600) -> Path:
    path = folder / "secret"
    path.write_bytes(content)
    path.chmod(mode)
    return path


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
        (["--host", "192.0.2.1", "--port", "0"], "give an address of this machine"),
        (["--port", "65536"], "'65536' is not a port"),
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
    assert said in refused(capsys, "--secret-file", str(secret_file(tmp_path, content, mode)))
