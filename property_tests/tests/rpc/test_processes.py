"""RPC among real processes: how they meet, call and shut down, and how one dies."""

from __future__ import annotations

import os
import threading
import time
from pathlib import Path
from typing import Any

import pytest
import torch
from torch.distributed.rpc import BackendType, TensorPipeRpcBackendOptions

from trystate import rpc
from trystate.impl.autograd.optimizer import DistributedOptimizer
from trystate.model.errors import UsageError
from trystate.property_tests.support.rpc import functions as f
from trystate.property_tests.support.rpc.worlds import PATIENCE_SECONDS, eventually, of_the_tests, processes
from trystate.rpc import AgentClosed, Options, RpcError, RpcTimeout
from trystate.store import HashStore

# The workers' functions, in their processes.


def large_one_way_and_back(to: str) -> list[int]:
    """The used slots of the arenas: one while the tensors exist, then at both ends after they are deleted."""
    tensor = torch.randn(1 << 20)
    back = rpc.rpc_sync(to, f.given_back, (tensor,))
    assert torch.equal(back, tensor)
    during = slots_here(rpc.get_worker_info(to).id)
    del back
    rpc.rpc_sync(to, f.nothing)  # its frame arrives after the slot is free
    there = rpc.rpc_sync(to, slots_here, (rpc.get_worker_info().id,))
    return [during, there, slots_here(rpc.get_worker_info(to).id)]


def slots_here(peer: int) -> int:
    """The used slots of the peer's arena, as this process sees it."""
    return len(rpc.current_agent()._connections[peer]._parser.window._leases)  # type: ignore[union-attr]


def call_in_a_fork(to: str) -> int:
    """The exit code of a fork of this worker: 7 if its call raises AgentClosed."""
    pid = os.fork()
    if not pid:
        try:
            rpc.rpc_sync(to, f.nothing)
        except AgentClosed:
            os._exit(7)
        os._exit(1)
    return os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1])


def outcome(to: str, function: str, *args: object) -> Any:
    """The result of a call, or its error."""
    try:
        return rpc.rpc_sync(to, getattr(f, function), args)
    except RpcError as error:
        return f"{type(error).__name__}: {error}"


def ended(graceful: bool, timeout: float | None = PATIENCE_SECONDS) -> str:
    """The error of shutdown(), and the threads that are left."""
    try:
        rpc.shutdown(graceful=graceful, timeout=timeout)
    except RpcError as error:
        return type(error).__name__
    return "" if eventually(lambda: not threads_of_rpc()) else str(threads_of_rpc())


def threads_of_rpc() -> list[str]:
    return [thread.name for thread in threading.enumerate() if thread.name.startswith("rpc ")]


def test_three_workers_from_their_meeting_to_their_parting(tmp_path: Path) -> None:
    with processes(tmp_path, 3) as (one, two, three):
        assert one.does(large_one_way_and_back, "w1") == [1, 0, 0]
        assert two.does(call_in_a_fork, "w0") == 7 and two.does(outcome, "w0", "both", 1) == (1, None)
        two.does(rpc.set_rpc_timeout, 0.1)
        two.tell(ended, True, None)
        time.sleep(0.3)  # longer than its timeout: it still serves calls
        assert one.does(outcome, "w1", "both", 1) == (1, None)
        for worker in (one, three):
            worker.tell(ended, True)
        assert [worker.heard() for worker in (one, two, three)] == ["", "", ""]


def counted(to: str) -> list[Any]:
    """The counts of a worker while it and another worker hold a value of each other; then its timeouts."""
    held, mine = rpc.remote(to, f.Counter, (1,)), rpc.RRef(f.Counter(2))
    rpc.rpc_sync(to, f.keep, (1, mine))
    held.get_future().wait()
    names = ("num_owner_rrefs", "num_forks", "num_held_rrefs", "num_autograd_contexts")
    found: list[Any] = [{name: rpc.debug_info()[name] for name in names}, rpc.get_rpc_timeout() == PATIENCE_SECONDS]
    rpc.set_rpc_timeout(0.05)
    found += [rpc.get_rpc_timeout(), outcome(to, "sleep", 0.5).partition(" on ")[2]]
    return found


NUMBERS = {"num_owner_rrefs": 1, "num_forks": 1, "num_held_rrefs": 1, "num_autograd_contexts": 0}


def test_two_workers_count_and_part(tmp_path: Path) -> None:
    with processes(tmp_path, 2) as (one, two):
        counts, is_default, seconds, late = one.does(counted, "w1")
        assert counts == NUMBERS
        assert is_default and seconds == 0.05 and late.startswith("worker 'w1' was not answered within 0.05 s")
        said = one.does(outcome, "w1", "shut_down")
        assert "UsageError: shutdown() inside a call on worker 'w1' waits for that call itself" in said
        assert two.does(ended, False) == ""
        assert one.does(outcome, "w1", "nothing").startswith("PeerLost: worker 'w1' has shut down")
        assert one.does(ended, True, 1.0) == "PeerLost"


def test_a_worker_that_is_killed_is_not_waited_for(tmp_path: Path) -> None:
    with processes(tmp_path, 3) as (one, two, _):
        assert one.does(outcome, "w2", "die").startswith("PeerLost: worker 'w2' is lost")  # before a timeout
        assert two.does(outcome, "w2", "nothing").startswith("PeerLost")
        assert one.does(outcome, "w1", "both", 3) == (3, None)
        for worker in (one, two):
            worker.tell(ended, True)
        assert [one.heard(), two.heard()] == ["PeerLost", "PeerLost"]


# ---- how they meet


def test_a_worker_that_gave_up_is_not_reported_as_one_that_never_came(store: HashStore) -> None:
    """A worker that came early ends its init_rpc() with a timeout, and the others come later."""
    short = Options(init_timeout=0.1)
    with pytest.raises(RpcTimeout, match=r"2 of 3 workers did not come within 0.1 s, of rank 1, 2"):
        rpc.init_rpc("a", rank=0, world_size=3, store=store, options=short)
    with pytest.raises(RpcTimeout) as found:
        rpc.init_rpc("b", rank=1, world_size=3, store=store, options=short)
    absent, gave_up = str(found.value).split("; ")
    assert "1 of 3 workers did not come within 0.1 s, of rank 2: " in absent
    assert "1 of 3 workers came, and gave up before all were connected, of rank 0: " in gave_up
    with pytest.raises(RpcError, match="RPC has not been initialized"):
        rpc.get_worker_info()


@pytest.mark.parametrize(
    ("arguments", "complaint"),
    [
        (("", None, 0, 1), "must be non-empty and shorter than 128: ''"),
        (("a*", None, 0, 1), r"Worker name must match .*: 'a\*'"),
        (("a" * 128, None, 0, 1), "shorter than 128"),
        (("a", "TENSORPIPE", 1, 1), "rank is 1"),
        (("a", None, 0, 0), "world_size is 0"),
        (("a", None, -1, None), "rank and world_size are missing"),
        (("a", 0, 1), "backend is 0: give None or TENSORPIPE, and give rank and world_size by keyword"),
        (("a", None, 0, 1, "options"), "rpc_backend_options is 'options'"),
        (("a", None, 0, 1, TensorPipeRpcBackendOptions(rpc_timeout=1e9)), "rpc_timeout is 1000000000.0"),
    ],
)
def test_an_impossible_argument_is_refused(store: HashStore, arguments: Any, complaint: str) -> None:
    with pytest.raises(UsageError, match=complaint):
        rpc.init_rpc(*arguments, store=store)


def test_one_worker_alone_and_once_at_a_time(store: HashStore) -> None:
    backend = BackendType.TENSORPIPE  # type: ignore[attr-defined]
    agent = rpc.init_rpc("only", backend, 0, 1, of_the_tests(Options(timeout=PATIENCE_SECONDS)), store=store)
    try:
        assert rpc.get_worker_info() == ("only", 0) == rpc.get_worker_info("only")
        assert rpc.rpc_sync(agent.me, f.add, (torch.ones(2), torch.ones(2))).tolist() == [2, 2]
        for call_it in (rpc.rpc_sync, rpc.rpc_async, rpc.remote):
            call_it(agent.me, f.nothing, None, None, -1.0)  # torch's functions ignore such arguments
        with pytest.raises(UsageError, match="already initialized in this process, as 'only'"):
            rpc.init_rpc("two", rank=0, world_size=1, store=store)
        with pytest.raises(UsageError, match="could not find destination 'other'"):
            rpc.rpc_sync("other", f.nothing)
    finally:
        rpc.shutdown(timeout=PATIENCE_SECONDS)
    assert rpc.shutdown() is None  # type: ignore[func-returns-value]


class OwnSGD(torch.optim.SGD):
    """An optimizer of a module whose functions other workers may not call."""


def test_modules_restrict_optimizers_too(store: HashStore) -> None:
    options = Options(timeout=PATIENCE_SECONDS, modules=("mine",))
    rpc.init_rpc("only", rank=0, world_size=1, store=store, options=options)
    try:
        params = [rpc.RRef(torch.ones(1, requires_grad=True))]
        assert DistributedOptimizer(torch.optim.SGD, params, lr=0.1)
        with pytest.raises(RpcError, match="OwnSGD' may not be called here"):
            DistributedOptimizer(OwnSGD, params, lr=0.1)
    finally:
        rpc.shutdown(timeout=PATIENCE_SECONDS)
