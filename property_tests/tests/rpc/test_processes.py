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
from torch.distributed.rpc import BackendType, TensorPipeRpcBackendOptions

from trystate import autograd, rpc
from trystate.impl.autograd.optimizer import DistributedOptimizer
from trystate.impl.rpc import handshake
from trystate.impl.rpc.options import SECONDS_MAX
from trystate.model.errors import UsageError
from trystate.property_tests.adapters.torch_store.isolated import Child
from trystate.property_tests.support.rpc import functions as f
from trystate.property_tests.support.rpc.worlds import PATIENCE_SECONDS, Worker, eventually, of_the_tests, processes
from trystate.rpc import AgentClosed, Options, RpcError, RpcTimeout
from trystate.store import FileStore, HashStore

# The workers' functions, in their processes.


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


def come_again(place: str, rank: int, seconds: float) -> str:
    """The error of another try to meet, as one of two."""
    try:
        options = of_the_tests(Options(timeout=PATIENCE_SECONDS, init_timeout=seconds))
        rpc.init_rpc(f"w{rank}", rank=rank, world_size=2, store=FileStore(place, 2), options=options)
    except RpcError as error:
        return type(error).__name__
    return ""


def impatient() -> None:
    """From now on, with its own calls."""
    rpc.current_agent().timeout = 0.1


def ended(graceful: bool, timeout: float | None = PATIENCE_SECONDS) -> str:
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
        two.does(impatient)
        two.tell(ended, True, None)
        time.sleep(0.3)  # beyond its timeout; it serves on
        assert one.does(call, "w1", "both", 1) == (1, None)
        for worker in (one, three):
            worker.tell(ended, True)
        assert [worker.heard() for worker in (one, two, three)] == ["", "", ""]


def test_a_graceful_shutdown_inside_a_call_is_refused(tmp_path: Path) -> None:
    with processes(tmp_path, 2) as (one, two):
        said = one.does(failed, "w1", "shut_down")
        assert "UsageError: shutdown() inside a call on worker 'w1' waits for that call itself" in said
        assert one.does(call, "w1", "both", 3) == (3, None)
        for worker in (one, two):
            worker.tell(ended, True)
        assert [one.heard(), two.heard()] == ["", ""]


def backwards(to: str) -> list[Any]:
    """Gradients by passes that begin at RRefs, here and there, and the errors of those that cannot."""
    leaf, found = torch.ones(3, requires_grad=True), list[Any]()
    rpc.RRef(leaf.sum() * 2).backward()
    found.append(leaf.grad.tolist())  # type: ignore[union-attr]
    with autograd.context() as context:
        there = rpc.remote(to, f.given_back, (rpc.rpc_sync(to, f.add, (leaf, leaf)).sum(),))
        there.backward(context, retain_graph=True)
        there.backward(context)
        found.append(autograd.get_gradients(context)[leaf].tolist())
        found.append(error_of(there.backward))
        found.append(error_of(rpc.RRef("text").backward))
        found.append(error_of(rpc.remote(to, f.both, (1,)).backward, context))
    return found


def error_of(function: Any, *args: object) -> str:
    try:
        function(*args)
    except RpcError as error:
        return str(error).partition("\n")[0]
    return ""


def test_a_pass_begins_where_the_value_of_an_rref_is(tmp_path: Path) -> None:
    with processes(tmp_path, 2) as (one, _):
        here, there, no_context, no_tensor, no_tensor_there = one.does(backwards, "w1")
        assert here == [2, 2, 2] and there == [4, 4, 4]
        assert no_context.startswith("User RRefs require 'dist_autograd_ctx_id' to be specified: the owner of")
        assert no_tensor == "RRef should contain a tensor for .backward(): it refers to a str"
        assert no_tensor_there.endswith("RRef should contain a tensor for .backward(): it refers to a tuple")


def waited_for(to: str) -> list[Any]:
    """The calls that are over at the end of a block: without an error, with one, and with one of the block itself."""
    with rpc.wait_all() as futures:
        rpc.rpc_async(to, f.sleep, (0.2,))
        with rpc.wait_all() as inner:
            rpc.rpc_async(to, f.nothing)
    found: list[Any] = [[each.done() for each in futures], len(inner)]
    try:
        with rpc.wait_all() as futures:
            rpc.rpc_async(to, f.raise_key)
            rpc.rpc_async(to, f.sleep, (0.2,))
    except KeyError:
        found.append([each.done() for each in futures])
    try:
        with rpc.wait_all() as futures:
            rpc.rpc_async(to, f.raise_key)
            raise ValueError
    except ValueError:
        found.append([each.done() for each in futures])
    rpc.rpc_async(to, f.nothing).wait()
    return [*found, len(futures)]


def counted(to: str) -> list[Any]:
    """The numbers of a worker that holds a value of another, which holds one of its own; then its timeouts."""
    held, mine = rpc.remote(to, f.Counter, (1,)), rpc.RRef(f.Counter(2))
    rpc.rpc_sync(to, f.keep_here, (mine,))
    held.get_future().wait()
    names = ("num_owner_rrefs", "num_forks", "num_held_rrefs", "num_autograd_contexts")
    found: list[Any] = [{name: rpc.debug_info()[name] for name in names}, rpc.get_rpc_timeout() == PATIENCE_SECONDS]
    rpc.set_rpc_timeout(0.05)
    found += [rpc.get_rpc_timeout(), error_of(rpc.rpc_sync, to, f.sleep, (0.5,)).partition(" on ")[2]]
    try:
        rpc.set_rpc_timeout(-2)
    except UsageError as error:
        found.append(str(error))
    rpc.set_rpc_timeout(0)  # torch's word for no end
    found.append(rpc.get_rpc_timeout())
    return found


def test_a_block_ends_when_its_calls_have_ended(tmp_path: Path) -> None:
    with processes(tmp_path, 2) as (one, _):
        assert one.does(waited_for, "w1") == [[True], 1, [True, True], [True], 1]
        counts, is_default, seconds, late, refused, longest = one.does(counted, "w1")
        assert counts == {"num_owner_rrefs": 1, "num_forks": 1, "num_held_rrefs": 1, "num_autograd_contexts": 0}
        assert is_default and seconds == 0.05 and late.startswith("worker 'w1' was not answered within 0.05 s")
        assert refused == "timeout is -2: give seconds above 0, at most 10000000; no wait is for ever"
        assert longest == SECONDS_MAX


def test_when_a_worker_is_killed_nobody_waits_for_it(tmp_path: Path) -> None:
    with processes(tmp_path, 3) as (one, two, _):
        assert one.does(failed, "w2", "die").startswith("PeerLost: worker 'w2' is lost")  # and no timeout
        assert two.does(failed, "w2", "nothing").startswith("PeerLost")
        assert one.does(call, "w1", "both", 3) == (3, None)
        one.tell(ended, True)
        two.tell(ended, True)
        assert [one.heard(), two.heard()] == ["PeerLost", "PeerLost"]


def test_a_worker_that_leaves_at_once_is_no_riddle_to_the_others_and_both_can_come_again(tmp_path: Path) -> None:
    with processes(tmp_path, 2) as (one, two):
        assert two.does(ended, False) == ""
        assert one.does(failed, "w1", "nothing").startswith("PeerLost: worker 'w1' has shut down")
        assert one.does(ended, True, 1.0) == "PeerLost"
        place = str(tmp_path / "store")
        assert [w.does(come_again, place, r, 0.1) for r, w in ((0, one), (0, one), (1, two))] == ["RpcTimeout"] * 3
        two.tell(come_again, place, 1, PATIENCE_SECONDS)
        time.sleep(0.1)  # it does not call where nobody listens any more
        one.tell(come_again, place, 0, PATIENCE_SECONDS)
        assert [one.heard(), two.heard()] == ["", ""]
        assert one.does(call, "w1", "both", 3) == (3, None)


# How they meet.


def _apart(line: Line, rank: int, port: int) -> None:
    """As if on two machines; by a URL; twice."""
    setattr(handshake, "machine", str)  # noqa: B010
    url, options = f"tcp://127.0.0.1:{port}", of_the_tests(Options(init_timeout=PATIENCE_SECONDS))
    torch_options = TensorPipeRpcBackendOptions(init_method=url, rpc_timeout=PATIENCE_SECONDS)
    ways: list[dict[str, Any]] = [{"init_method": url}, {"rpc_backend_options": torch_options}]
    for way in ways:
        rpc.init_rpc(f"w{rank}", rank=rank, world_size=2, options=options, **way)
        sock = rpc.current_agent()._connections[1 - rank]._socket
        by_tcp = sock.family == socket.AF_INET and sock.getsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE)
        wrong = echo_all(f"w{1 - rank}")
        rpc.shutdown()
        line.send((by_tcp and wrong, None))
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
        rpc.init_rpc("b", rank=1, world_size=3, store=lone_store, options=Options(init_timeout=0.1))
    with pytest.raises(RpcError, match="RPC has not been initialized"):
        rpc.get_worker_info()


def test_a_worker_that_gave_up_is_not_reported_as_one_that_never_came(lone_store: HashStore) -> None:
    """A worker that came early ends its init_rpc() with a timeout, and the others come later."""
    short = Options(init_timeout=0.1)
    with pytest.raises(RpcTimeout):
        rpc.init_rpc("a", rank=0, world_size=3, store=lone_store, options=short)
    with pytest.raises(RpcTimeout) as found:
        rpc.init_rpc("b", rank=1, world_size=3, store=lone_store, options=short)
    absent, gave_up = str(found.value).split("; ")
    assert "1 of 3 workers did not come within 0.1 s, of rank 2: " in absent
    assert "1 of 3 workers came, and gave up before all were connected, of rank 0: " in gave_up


@pytest.mark.parametrize(
    ("arguments", "complaint"),
    [
        (("", None, 0, 1), "must be non-empty and shorter than 128: ''"),
        (("a*", None, 0, 1), r"Worker name must match .*: 'a\*'"),
        (("a" * 128, None, 0, 1), "shorter than 128"),
        (("a", "TENSORPIPE", 1, 1), "rank is 1"),
        (("a", None, 0, 0), "world_size is 0"),
        (("a", None, -1, None), "rank and world_size are missing"),
        (("a", 0, 1), "backend is 0: give None or TENSORPIPE; rank and world_size go by their names"),
        (("a", None, 0, 1, "options"), "rpc_backend_options is 'options'"),
        (("a", None, 0, 1, TensorPipeRpcBackendOptions(rpc_timeout=1e9)), "rpc_timeout is 1000000000.0"),
    ],
)
def test_what_cannot_be_is_refused(lone_store: HashStore, arguments: Any, complaint: str) -> None:
    with pytest.raises(UsageError, match=complaint):
        rpc.init_rpc(*arguments, store=lone_store)


def test_one_worker_alone_and_once_at_a_time(lone_store: HashStore) -> None:
    backend = BackendType.TENSORPIPE  # type: ignore[attr-defined]
    agent = rpc.init_rpc("only", backend, 0, 1, of_the_tests(Options(timeout=PATIENCE_SECONDS)), store=lone_store)
    try:
        assert rpc.get_worker_info() == ("only", 0) == rpc.get_worker_info("only")
        assert rpc.rpc_sync(agent.me, f.add, (torch.ones(2), torch.ones(2))).tolist() == [2, 2]
        for call_it in (rpc.rpc_sync, rpc.rpc_async, rpc.remote):
            call_it(agent.me, f.nothing, None, None, -1.0)  # torch's functions take these for nothing
        with pytest.raises(UsageError, match="already initialized in this process, as 'only'"):
            rpc.init_rpc("two", rank=0, world_size=1, store=lone_store)
        with pytest.raises(UsageError, match="could not find destination 'other'"):
            rpc.rpc_sync("other", f.nothing)
    finally:
        rpc.shutdown(timeout=PATIENCE_SECONDS)
    assert rpc.shutdown() is None  # type: ignore[func-returns-value]


class OwnSGD(torch.optim.SGD):
    """Of no module that others may call."""


def test_modules_restrict_optimizers_too(lone_store: HashStore) -> None:
    options = Options(timeout=PATIENCE_SECONDS, modules=("mine",))
    rpc.init_rpc("only", rank=0, world_size=1, store=lone_store, options=options)
    try:
        params = [rpc.RRef(torch.ones(1, requires_grad=True))]
        assert DistributedOptimizer(torch.optim.SGD, params, lr=0.1)
        with pytest.raises(RpcError, match="OwnSGD' may not be called here"):
            DistributedOptimizer(OwnSGD, params, lr=0.1)
    finally:
        rpc.shutdown(timeout=PATIENCE_SECONDS)
