"""Each obstacle on the way to an endpoint has its own message within two seconds, on real sockets."""

from __future__ import annotations

import http.server
import re
import socket
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager
from pathlib import Path
from typing import Any

import pytest
from torch.distributed.elastic.rendezvous import RendezvousParameters

from trystate.impl.rendezvous import endpoint, reaching, waiting
from trystate.impl.rendezvous.endpoint import meet
from trystate.impl.rendezvous.errors import RendezvousConnectionError
from trystate.impl.rendezvous.options import Options
from trystate.property_tests.adapters.torch_store.server import free_port
from trystate.property_tests.support.rendezvous.nodes import at_most
from trystate.store import TCPStoreServer

SOON = 2.0


class Said:
    """The lines of a node, each with its time."""

    def __init__(self) -> None:
        self.began, self.lines = time.monotonic(), list[tuple[float, str]]()

    def __call__(self, line: str) -> None:
        self.lines.append((time.monotonic() - self.began, line))

    @property
    def first(self) -> str:
        assert self.lines, "nothing was said"
        at, line = self.lines[0]
        assert at < SOON, f"said after {at:.2f} s: {line}"
        return line


@pytest.fixture
def said(monkeypatch: pytest.MonkeyPatch) -> Said:
    lines = Said()
    monkeypatch.setattr(endpoint, "say", lines)
    monkeypatch.setattr(waiting, "say", lines)
    return lines


def met(where: str, **config: Any) -> None:
    meet(Options.of(RendezvousParameters("trystate", where, "job", 1, 2, None, is_host=0, **config))).close()


@contextmanager
def http_server() -> Iterator[int]:
    """A server that waits for the end of a line, as many servers do."""
    with http.server.HTTPServer(("127.0.0.1", 0), http.server.BaseHTTPRequestHandler) as served:
        thread = threading.Thread(target=served.serve_forever, args=(0.01,), daemon=True)
        thread.start()
        yield served.server_port
        served.shutdown()
        thread.join()


@contextmanager
def speaks(banner: bytes, *, hangs_up: bool = False) -> Iterator[int]:
    """A server that sends something, or hangs up, or does neither."""
    with socket.create_server(("127.0.0.1", 0)) as served:
        held: list[socket.socket] = []

        def serve() -> None:
            while True:
                try:
                    peer = served.accept()[0]
                except OSError:
                    return
                peer.sendall(banner)
                if hangs_up:
                    peer.recv(100)
                    peer.close()
                held.append(peer)

        thread = threading.Thread(target=serve, daemon=True)
        thread.start()
        yield served.getsockname()[1]
        served.shutdown(socket.SHUT_RDWR)
        thread.join()
        for peer in held:
            peer.close()


# ---- obstacles that waiting can remove


@pytest.mark.parametrize(
    ("where", "what"),
    [
        (lambda: "no-such-host.invalid:29400", "'no-such-host.invalid' (is unknown|cannot be looked up)"),
        (lambda: f"127.0.0.1:{free_port()}", "no process listens at server 127.0.0.1"),
    ],
)
def test_a_server_that_may_still_start_is_named_and_waited_for(where: Callable[[], str], what: str, said: Said) -> None:
    at = where()
    with pytest.raises(RendezvousConnectionError, match=what):
        met(at, read_timeout=1.4)
    assert 1.3 < time.monotonic() - said.began < 6.0
    assert re.search(what, said.first)
    assert "Trying again for up to 1 s" in said.first
    assert len(said.lines) == 1, "one reason is said once"


@pytest.mark.parametrize(
    ("hangs_up", "what"), [(False, "accepts connections and does not answer"), (True, "accepts connections and hangs")]
)
def test_a_server_that_says_nothing_is_told_from_one_that_is_not_there(hangs_up: bool, what: str, said: Said) -> None:
    with speaks(b"", hangs_up=hangs_up) as port, pytest.raises(RendezvousConnectionError, match=what):
        met(f"127.0.0.1:{port}", read_timeout=1.8)
    assert what in said.first


def test_a_name_that_is_unknown_for_a_moment_is_looked_up_again(monkeypatch: pytest.MonkeyPatch, said: Said) -> None:
    """The resolver does not answer the first attempt, and refuses the second."""
    answers = iter([TimeoutError("resolver"), socket.gaierror(socket.EAI_AGAIN, "not now")])

    def resolve(*given: Any) -> Any:
        raise next(answers, TimeoutError("resolver"))

    monkeypatch.setattr(reaching, "resolve", resolve)
    monkeypatch.setattr("trystate.impl.store.client.client.resolve", resolve)
    with pytest.raises(RendezvousConnectionError, match="has not been looked up in time"):
        met("job-0.svc:29400", read_timeout=1.4)
    assert "Trying again" in said.first


# ---- obstacles that remain


FOREIGN: list[tuple[Callable[[], AbstractContextManager[int]], str]] = [
    (http_server, "HTTP/1.0"),
    (lambda: speaks(b"SSH-2.0-OpenSSH_9.6\r\n"), "SSH-2.0-OpenSSH_9.6"),
]


@pytest.mark.parametrize(("server", "shown"), FOREIGN, ids=["http", "ssh"])
def test_another_protocol_ends_at_once(
    server: Callable[[], AbstractContextManager[int]], shown: str, said: Said
) -> None:
    with server() as port, pytest.raises(RendezvousConnectionError, match="speaks another protocol") as raised:
        met(f"127.0.0.1:{port}", read_timeout=60)
    assert time.monotonic() - said.began < SOON
    assert shown in str(raised.value)
    assert "give the store's port" in str(raised.value)


def test_a_secret_that_is_missing_or_wrong_or_not_asked_for_ends_at_once(tmp_path: Path, said: Said) -> None:
    files = {}
    for name in ("right", "wrong"):
        files[name] = tmp_path / name
        files[name].write_text(name * 8)
        files[name].chmod(0o600)
    with TCPStoreServer(secret=files["right"].read_bytes(), run_in="thread") as asks:
        with TCPStoreServer(run_in="thread") as open_to_all:
            for server, config, why in (
                (asks, {}, "requires a secret, but none was given"),
                (asks, {"secret_file": str(files["wrong"])}, "was reached, but the secret was refused"),
                (open_to_all, {"secret_file": str(files["right"])}, "has no secret and proves nothing"),
            ):
                with at_most(SOON), pytest.raises(RendezvousConnectionError, match=why):
                    met(f"127.0.0.1:{server.port}", read_timeout=60, **config)
        met(f"127.0.0.1:{asks.port}", secret_file=str(files["right"]))
