"""How workers meet: by which sockets and secrets, and what other programs can do there."""

from __future__ import annotations

import os
import socket
import threading
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pytest
from torch.distributed import PrefixStore as TorchPrefix  # type: ignore[attr-defined]
from torch.distributed import TCPStore as TorchStore  # type: ignore[attr-defined]

from trystate.impl.host import addresses, listening, sealing
from trystate.impl.rpc import directory, handshake
from trystate.property_tests.adapters.torch_store.server import free_port
from trystate.property_tests.support.rpc.worlds import PATIENCE_SECONDS, meet
from trystate.rpc import Options, PeerLost, RpcError
from trystate.store import HashStore, PrefixStore, TCPStore, TCPStoreServer


def test_only_who_knows_the_secret_is_let_in(store: HashStore) -> None:
    assert meet(store, "ab", Options(init_timeout=PATIENCE_SECONDS, secret=b"one")) == ["", ""]
    refused = meet(HashStore(), "ab", *(Options(init_timeout=1.0, secret=secret) for secret in (b"one", b"two")))
    assert "does not know the group's secret" in refused[1] and "RpcTimeout" in refused[0]


@pytest.mark.parametrize("near", [True, False])
def test_a_rank_that_is_started_twice_is_refused_and_the_first_one_meets(
    near: bool, store: HashStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    if not near:
        monkeypatch.setattr(handshake, "machine", str)
        monkeypatch.setattr(directory, "machine", str)
    with ThreadPoolExecutor(1) as thread:
        first = thread.submit(meet, store, "b", first=1, world_size=2)
        store.wait(["worker/1"])
        refused = meet(store, "c", first=1, world_size=2)
        assert "worker 'b' has rank 1 already" in refused[0] and "start each rank once" in refused[0]
        assert meet(store, "a", world_size=2) == first.result() == [""]


@pytest.mark.parametrize("left", ["", "not ours", b"\xff", *directory.WITHDRAWN, "of a killed process"])
def test_the_files_of_a_killed_worker_are_replaced(left: Any, store: HashStore) -> None:
    if left == "of a killed process":
        gone = handshake.Listeners.open("127.0.0.1")
        gone.close()
        where = gone.name, "127.0.0.1", free_port()
        directory.publish(store, 0, "dead", 1, where, Options())
    else:
        store.set("worker/0", left)
    assert meet(store, "a") == [""]


@pytest.fixture
def strangers(monkeypatch: pytest.MonkeyPatch) -> Iterator[list[socket.socket]]:
    """Strangers connect by TCP before any worker. One sends nothing, one too much, and one half of a greeting."""
    opened, strangers = handshake.Listeners.open, list[socket.socket]()

    def open_to_all(host: str) -> Any:
        listeners = opened(host)
        for noise in (b"", b"GET / HTTP/1.1\r\n" * 9, handshake.HELLO.pack(handshake.MAGIC, 1, bytes(32))):
            strangers.append(socket.create_connection(listeners.tcp.getsockname()))
            strangers[-1].sendall(noise)
        return listeners

    monkeypatch.setattr(handshake.Listeners, "open", open_to_all)
    yield strangers
    for stranger in strangers:
        stranger.close()


def test_strangers_at_the_door_keep_nobody_out(
    monkeypatch: pytest.MonkeyPatch, store: HashStore, strangers: list[socket.socket]
) -> None:
    """Strangers may take any time. Their connections are closed as soon as all workers have arrived."""
    monkeypatch.setattr(handshake, "GREETING_SECONDS", 1e6)
    monkeypatch.setattr(handshake, "machine", str)  # no worker can use the local socket
    assert meet(store, "abc") == [""] * 3
    assert len(strangers) == 9
    assert not [thread for thread in threading.enumerate() if thread.name.startswith("rpc greeting")]


def test_a_stranger_beyond_the_limit_waits_until_another_is_closed(
    monkeypatch: pytest.MonkeyPatch, store: HashStore, strangers: list[socket.socket]
) -> None:
    monkeypatch.setattr(handshake, "GREETINGS_MAX", 1)
    monkeypatch.setattr(handshake, "GREETING_SECONDS", 0.05)
    monkeypatch.setattr(handshake, "machine", str)
    assert meet(store, "ab") == ["", ""]


def test_a_local_socket_of_another_user_is_not_called(monkeypatch: pytest.MonkeyPatch, store: HashStore) -> None:
    monkeypatch.setattr("trystate.impl.rpc.handshake.os.getuid", lambda: -1)
    said = meet(store, "ab", Options(init_timeout=1.0))
    assert any("another user listens at the local socket of worker" in one for one in said)


@pytest.mark.parametrize(
    ("user", "machines", "why"),
    [(-1, "aa", "a process of another user calls"), (os.getuid(), "ab", "a caller of this machine claims")],
)
def test_a_local_caller_of_another_user_or_machine_is_refused(
    monkeypatch: pytest.MonkeyPatch, user: int, machines: str, why: str
) -> None:
    monkeypatch.setattr("trystate.impl.rpc.handshake.os.getuid", lambda: user)
    entries = [directory.Entry(directory.VERSION, name, 2, name, "x", "", 0, "ab") for name in machines]
    meeting = handshake.Meeting(0, entries, Options(), time.monotonic() + PATIENCE_SECONDS)
    one, other = socket.socketpair()
    with one, other:
        other.sendall(handshake.HELLO.pack(handshake.MAGIC, 1, bytes(32)))
        other.shutdown(socket.SHUT_WR)
        with pytest.raises(RpcError, match=why):
            meeting._receive(one, {}, time.monotonic() + PATIENCE_SECONDS)


def test_on_one_machine_nobody_comes_in_by_tcp(
    monkeypatch: pytest.MonkeyPatch, store: HashStore, strangers: list[socket.socket]
) -> None:
    families, greet = [], handshake.Meeting._greet

    def seen(self: handshake.Meeting, sock: socket.socket, found: Any) -> None:
        families.append(sock.family)
        greet(self, sock, found)

    monkeypatch.setattr(handshake.Meeting, "_greet", seen)
    assert meet(store, "ab") == ["", ""]
    assert families == [socket.AF_UNIX]


def test_a_greeting_has_one_deadline_however_it_drips() -> None:
    one, other = socket.socketpair()

    def drip() -> None:
        for _ in range(handshake.HELLO.size):
            other.sendall(b"t")
            time.sleep(0.02)

    with one, other, ThreadPoolExecutor(1) as thread:
        thread.submit(drip)
        with pytest.raises(TimeoutError):
            sealing.exactly(one, handshake.HELLO.size, time.monotonic() + 0.2)


@pytest.mark.parametrize("of", [TCPStore, TorchStore])
def test_the_address_of_the_route_is_found_below_any_prefixes(of: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    """The store's 127.0.0.2 and MASTER_ADDR differ, so the result shows which route was looked up."""
    monkeypatch.setenv("MASTER_ADDR", "127.0.0.3")
    monkeypatch.setattr(addresses, "own_host", lambda given, towards: given or f"the route to {towards}")
    monkeypatch.setattr(addresses, "known_host", str)
    with TCPStoreServer("0.0.0.0") as server:
        below = of("127.0.0.2", server.port)
        for store in (below, PrefixStore("a", below), TorchPrefix("a", TorchPrefix("b", below)),
                      TorchPrefix("a", PrefixStore("b/c", TorchPrefix("d", below)))):  # fmt: skip
            assert directory.own_host(Options(), store) == "the route to 127.0.0.2"
    assert directory.own_host(Options(), HashStore()) == "the route to 127.0.0.3"
    monkeypatch.setenv(directory.HOST_VARIABLE, "here")
    assert directory.own_host(Options(), HashStore()) == "here"
    assert directory.own_host(Options(host="[::1]"), HashStore()) == "::1"


def test_a_loopback_that_cannot_be_reached_is_said_to_be_each_machines_own(store: HashStore) -> None:
    """Two machines: one sends its loopback address to the other."""
    gone = listening.listen("127.0.0.1", 0)
    port = gone.getsockname()[1]
    gone.close()
    entries = [directory.Entry(directory.VERSION, name, 2, name, "x", "127.0.0.1", port, "00") for name in ("a", "b")]
    meeting = handshake.Meeting(1, entries, Options(), time.monotonic() + PATIENCE_SECONDS)
    with pytest.raises(PeerLost, match=r"worker 'a' cannot be reached at 127.0.0.1:\d+ .*Options\(host=...\)"):
        meeting._call(0)


@pytest.mark.parametrize(("proof", "sent"), [(bytes(32), 2), (bytes(31), 1)], ids=["wrong", "cut off"])
def test_a_stranger_leaves_no_descriptor_behind(proof: bytes, sent: int, tmp_path: Path) -> None:
    entries = [directory.Entry(directory.VERSION, name, 2, "", "x", "", 0, "ab") for name in "ab"]
    meeting = handshake.Meeting(0, entries, Options(), time.monotonic() + PATIENCE_SECONDS)
    one, other = socket.socketpair()
    with one, other, (tmp_path / "sent").open("w") as file:
        other.sendall(handshake.HELLO.pack(handshake.MAGIC, 1, bytes(32)))
        socket.send_fds(other, [proof + b"\1"], [file.fileno()] * sent)  # a wrong proof
        other.shutdown(socket.SHUT_WR)
        with pytest.raises((RpcError, ConnectionError)):
            meeting._receive(one, {}, time.monotonic() + PATIENCE_SECONDS)
        paths = [fd.resolve() for fd in Path("/proc/self/fd").iterdir()]  # other threads may open and close files
        assert paths.count(tmp_path / "sent") == 1, "the test's own"


def test_an_entry_of_somebody_else_is_refused(store: HashStore) -> None:
    store.set("worker/0", "not ours")
    with pytest.raises(RpcError, match="is not RPC's"):
        directory.gather(store, 1, time.monotonic() + PATIENCE_SECONDS, PATIENCE_SECONDS)
