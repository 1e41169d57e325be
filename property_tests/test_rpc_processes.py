"""RPC among real processes: how they meet, what they call, how they part, and how one dies."""

from __future__ import annotations

import os
import socket
import threading
import time
from collections.abc import Iterator
from multiprocessing.connection import Connection as Line
from pathlib import Path
from typing import Any

import pytest
import torch
from trystate.impl import rpc
from trystate.impl.rpc import AgentClosed, Options, RpcError, RpcTimeout, directory, handshake
from trystate.impl.rpc import calls as api
from trystate.impl.store import HashStore
from trystate.model.errors import UsageError

from .rpc import functions as f
from .rpc.worlds import PATIENCE_SECONDS, Worker, eventually, processes
from .torch_store.isolated import Child

# What the workers do, in their processes.


def echo_all(to: str) -> list[str]:
    """The kinds of tensor that did not come back as they were."""
    wrong = []
    for tensor in f.shapes():
        back = rpc.rpc_sync(to, f.given_back, (tensor,))
        same = (back.dtype, back.shape, back.layout) == (tensor.dtype, tensor.shape, tensor.layout)
        if not same or not torch.equal(back.to_dense(), tensor.to_dense()):
            wrong.append(f"{tensor.dtype} {tensor.shape}")
    return wrong


def large_one_way_and_back(to: str) -> list[int]:
    """How many slots of the arenas are used when its tensors are gone, at both ends; and that one was used at all."""
    tensor = torch.randn(1 << 20)
    back = rpc.rpc_sync(to, f.given_back, (tensor,))
    assert torch.equal(back, tensor)
    during = slots_here(rpc.get_worker_info(to).id)
    del back
    rpc.rpc_sync(to, f.nothing)  # its frame comes after the slot is free
    return [during, *rpc.rpc_sync(to, both_ends, (rpc.get_worker_info().id,)), slots_here(rpc.get_worker_info(to).id)]


def both_ends(peer: int) -> list[int]:
    return [slots_here(peer)]


def slots_here(peer: int) -> int:
    """Of the peer's arena, as this process sees it."""
    return len(rpc.current_agent()._connections[peer]._parser.window._leases)  # type: ignore[union-attr]


def call(to: str, name: str, *args: object, timeout: float | None = None) -> Any:
    return rpc.rpc_sync(to, getattr(f, name), args, timeout=timeout)


def call_in_a_fork(to: str) -> int:
    """The exit code of a fork of this worker: 7 if it is told there that it is none."""
    pid = os.fork()
    if not pid:
        try:
            rpc.rpc_sync(to, f.nothing)
        except AgentClosed:
            os._exit(7)
        os._exit(1)
    return os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1])


def rref_round(to: str) -> list[int]:
    rref = rpc.remote(to, f.Counter, (1,))
    mine = rpc.RRef(f.Counter(10))
    return [rref.rpc_sync().add(), rpc.rpc_sync(to, f.use, (mine, 5)), mine.local_value().count]


def failed(to: str, function: str) -> str:
    """The error of a call."""
    try:
        rpc.rpc_sync(to, getattr(f, function))
    except RpcError as error:
        return f"{type(error).__name__}: {error}"
    return ""


def ended(graceful: bool, timeout: float = PATIENCE_SECONDS) -> str:
    """The error of shutdown(), and the threads that are left."""
    try:
        rpc.shutdown(graceful=graceful, timeout=timeout)
    except RpcError as error:
        return type(error).__name__
    left = [thread.name for thread in threading.enumerate() if thread.name.startswith("rpc ")]
    return (
        str(left) if not eventually(lambda: not [t for t in threading.enumerate() if t.name.startswith("rpc ")]) else ""
    )


def test_three_workers_from_their_meeting_to_their_parting(tmp_path: Path) -> None:
    with processes(tmp_path, 3) as (one, two, three):
        pids = [worker.does(os.getpid) for worker in (one, two, three)]
        assert one.does(echo_all, "w1") == []
        assert three.does(echo_all, "w0") == []
        assert one.does(call, "w1", "nested", ["w2", "w0", "w1"]) == [pids[1], pids[2], pids[0], pids[1]]
        assert one.does(large_one_way_and_back, "w1") == [1, 0, 0]
        assert one.does(rref_round, "w2") == [2, 15, 15]
        assert two.does(call_in_a_fork, "w0") == 7 and two.does(call, "w0", "both", 1) == (1, None)
        with pytest.raises(AssertionError, match=r"RemoteKeyError: on worker 'w2': KeyError: 'a key'"):
            one.does(call, "w2", "raise_key")
        for worker in (one, two, three):
            worker.tell(ended, True)
        assert [worker.heard() for worker in (one, two, three)] == ["", "", ""]


def test_when_a_worker_is_killed_nobody_waits_for_it(tmp_path: Path) -> None:
    with processes(tmp_path, 3) as (one, two, _):
        assert one.does(failed, "w2", "die").startswith("PeerLost: worker 'w2' is lost")  # and no timeout
        assert two.does(failed, "w2", "nothing").startswith("PeerLost")
        assert one.does(call, "w1", "both", 3) == (3, None)
        one.tell(ended, True)
        two.tell(ended, True)
        assert [one.heard(), two.heard()] == ["PeerLost", "PeerLost"]


def test_a_worker_that_leaves_at_once_is_no_riddle_to_the_others(tmp_path: Path) -> None:
    with processes(tmp_path, 2) as (one, two):
        assert two.does(ended, False) == ""
        assert one.does(failed, "w1", "nothing").startswith("PeerLost: worker 'w1' has shut down")
        assert one.does(ended, True, 1.0) == "PeerLost"


# How they meet.


def _apart(line: Line, rank: int, port: int) -> None:
    """As if on two machines; by a URL; twice."""
    setattr(handshake, "machine", str)  # noqa: B010
    for _ in range(2):
        rpc.init_rpc(
            f"w{rank}", rank, 2, init_method=f"tcp://127.0.0.1:{port}", options=Options(init_timeout=PATIENCE_SECONDS)
        )
        family = rpc.current_agent()._connections[1 - rank]._socket.family
        wrong = echo_all(f"w{1 - rank}")
        rpc.shutdown()
        line.send((family == socket.AF_INET and wrong, None))
    line.recv()


def test_two_machines_are_connected_by_tcp_and_meet_again() -> None:
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    with Child(_apart, 0, port) as zero, Child(_apart, 1, port) as one:
        workers = Worker(zero), Worker(one)
        assert [worker.heard() for worker in workers * 2] == [[]] * 4


@pytest.fixture
def lone_store() -> Iterator[HashStore]:
    store = HashStore()
    yield store
    store.close()


def test_who_does_not_come_is_named(lone_store: HashStore) -> None:
    with pytest.raises(RpcTimeout, match=r"2 of 3 workers did not come within 0.1 s, of rank 0, 2"):
        rpc.init_rpc("b", 1, 3, store=lone_store, options=Options(init_timeout=0.1))
    with pytest.raises(RpcError, match="RPC is not up"):
        rpc.get_worker_info()


@pytest.mark.parametrize(
    ("arguments", "complaint"),
    [
        (("", 0, 1), "a worker's name is ''"),
        (("a", 1, 1), "rank is 1"),
        (("a", 0, 0), "world_size is 0"),
        (("a", None, None), "rank and world_size are missing"),
    ],
)
def test_what_cannot_be_is_refused(lone_store: HashStore, arguments: Any, complaint: str) -> None:
    with pytest.raises(UsageError, match=complaint):
        rpc.init_rpc(*arguments, store=lone_store)


def test_one_worker_alone_and_once_at_a_time(lone_store: HashStore) -> None:
    agent = rpc.init_rpc("only", 0, 1, store=lone_store, options=Options(timeout=PATIENCE_SECONDS))
    try:
        assert rpc.get_worker_info() == ("only", 0) == rpc.get_worker_info("only")
        assert rpc.rpc_sync(agent.me, f.add, (torch.ones(2), torch.ones(2))).tolist() == [2, 2]
        with pytest.raises(UsageError, match="up already in this process, as 'only'"):
            rpc.init_rpc("two", 0, 1, store=lone_store)
        with pytest.raises(UsageError, match="there is no worker 'other'"):
            rpc.rpc_sync("other", f.nothing)
    finally:
        rpc.shutdown(timeout=PATIENCE_SECONDS)
    assert rpc.shutdown() is None  # type: ignore[func-returns-value]


def meet(store: HashStore, secrets: list[bytes | None], names: list[str], seconds: float) -> list[str]:
    """What came of a meeting of workers in threads of this process."""
    found = [""] * len(names)

    def come(rank: int) -> None:
        options = Options(init_timeout=seconds, secret=secrets[rank])
        try:
            agent = api._connected(
                names[rank], rank, len(names), store, "127.0.0.1", options, time.monotonic() + seconds
            )
        except RpcError as error:
            found[rank] = f"{type(error).__name__}: {error}"
        else:
            agent.start()
            agent.close("met")

    threads = [threading.Thread(target=come, args=(rank,)) for rank in range(len(names))]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    return found


def test_only_who_knows_the_secret_is_let_in(lone_store: HashStore) -> None:
    assert meet(lone_store, [b"one", b"one"], ["a", "b"], PATIENCE_SECONDS) == ["", ""]
    refused = meet(HashStore(), [b"one", b"two"], ["a", "b"], 1.0)
    assert "does not know the group's secret" in refused[1] and "RpcTimeout" in refused[0]


def test_two_of_one_name_are_told(lone_store: HashStore) -> None:
    assert all("both named 'a'" in said for said in meet(lone_store, [None] * 2, ["a", "a"], PATIENCE_SECONDS))


def test_strangers_at_the_door_keep_nobody_out(monkeypatch: pytest.MonkeyPatch, lone_store: HashStore) -> None:
    """Some say nothing, some too much; nobody else can come by the local socket."""
    monkeypatch.setattr(handshake, "STRANGER_SECONDS", 0.05)
    monkeypatch.setattr(handshake, "machine", lambda: "")
    opened, strangers = handshake.Listeners.open, []

    def open_to_all(host: str, backlog: int) -> Any:
        listeners = opened(host, backlog)
        for noise in (b"", b"GET / HTTP/1.1\r\n" * 9, handshake.HELLO.pack(handshake.MAGIC, 1, bytes(32))):
            strangers.append(socket.create_connection(listeners.tcp.getsockname()))
            strangers[-1].sendall(noise)
        return listeners

    monkeypatch.setattr(handshake.Listeners, "open", open_to_all)
    try:
        assert meet(lone_store, [None] * 2, ["a", "b"], PATIENCE_SECONDS) == ["", ""]
    finally:
        for stranger in strangers:
            stranger.close()


def test_an_entry_of_somebody_else_is_refused(lone_store: HashStore) -> None:
    lone_store.set("worker/0", "not ours")
    with pytest.raises(RpcError, match="is none of ours"):
        directory.gather(lone_store, 1, time.monotonic() + PATIENCE_SECONDS, PATIENCE_SECONDS)
