"""Workers A, B and C, each a process, for the replays of torch's RPC framework and distributed autograd."""

from __future__ import annotations

import contextlib
import logging
import os
import queue
import sys
import tempfile
import threading
import time
from collections import defaultdict
from collections.abc import Callable, Iterator
from typing import Any

import torch
import torch.distributed.autograd as dist_autograd
import torch.distributed.rpc as rpc
import torch.multiprocessing as mp

PARAMETER = torch.tensor([3.0], requires_grad=True)
SHARED = PARAMETER * 2  # on B: a node that two calls use
failed = threading.Event()  # on C: C's part of the pass has failed, once
EVENTS = defaultdict(threading.Event)  # this worker's events, by name


@contextlib.contextmanager
def started(work: Callable[[int, str, Any], None], world: int) -> Iterator[tuple[list[Any], Any]]:
    """Start workers that call work(rank, path of a store, queue of results); yields both, and kills the workers."""
    os.environ["TP_SOCKET_IFNAME"] = "lo"
    context = mp.get_context("fork")
    result = context.Queue()
    with tempfile.TemporaryDirectory() as folder:
        workers = [context.Process(target=work, args=(rank, f"{folder}/store", result)) for rank in range(world)]
        for worker in workers:
            worker.start()
        try:
            yield workers, result
        finally:
            for worker in workers:
                worker.kill()


def join(rank: int, world: int, store: str, timeout: float) -> None:
    options = rpc.TensorPipeRpcBackendOptions(init_method=f"file://{store}", rpc_timeout=timeout)
    rpc.init_rpc("ABC"[rank], rank=rank, world_size=world, rpc_backend_options=options)


@contextlib.contextmanager
def one_worker() -> Iterator[None]:
    """This process is worker A, of one; the warning for an optimizer that is not scripted is left out."""
    logging.getLogger("torch.distributed.optim").setLevel(logging.ERROR)
    os.environ["TP_SOCKET_IFNAME"] = "lo"
    with tempfile.TemporaryDirectory() as folder:
        join(0, 1, f"{folder}/store", 60)
        yield
        rpc.shutdown()


def plays(scenario: Callable[[], Any], world: int, timeout: float = 60) -> Callable[[int, str, Any], None]:
    """A function for workers: A plays a scenario and puts its result into the queue."""

    def work(rank: int, store: str, result: Any) -> None:
        join(rank, world, store, timeout)
        if rank == 0:
            result.put(scenario())
        time.sleep(600)  # until it is killed

    return work


def run(scenario: Callable[[], Any], world: int, timeout: float = 60) -> Any:
    """The result of a scenario on A."""
    with started(plays(scenario, world, timeout), world) as (_, result):
        return result.get(timeout=50)


def reports(work: Callable[[int, str, Any], None], expected: int, patience: float) -> dict[str, Any]:
    """The reports that two workers put into the queue, until `expected` have arrived or `patience` has passed."""
    said: dict[str, Any] = {}
    with started(work, 2) as (_, result):
        until = time.monotonic() + patience
        while len(said) < expected and time.monotonic() < until:
            with contextlib.suppress(queue.Empty):
                said.update([result.get(timeout=0.1)])
    return said


def until_none(count: Callable[[], int]) -> int:
    """Poll a count until it is 0 or 10 s have passed; returns the last count."""
    until = time.monotonic() + 10
    while (left := count()) and time.monotonic() < until:
        time.sleep(0.1)
    return left


def event(name: str, method: str) -> Any:
    """On any worker: call this method of its event."""
    return getattr(EVENTS[name], method)()


def passes() -> int:
    return int(dist_autograd._get_debug_info()["num_current_backward_passes"])


def contexts() -> int:
    return int(dist_autograd._get_debug_info()["num_autograd_contexts"])


def times_parameter(x: torch.Tensor) -> torch.Tensor:
    return x * PARAMETER


def plus_shared(x: torch.Tensor) -> torch.Tensor:
    """On B."""
    return x + SHARED


def through_c(x: torch.Tensor) -> torch.Tensor:
    """On C, which calls B. C's part fails when B has its other gradient and waits for C's."""
    return fails_once(rpc.rpc_sync("B", plus_shared, (x,)), passes)


class Acts(torch.autograd.Function):
    """A node that calls a function in the pass."""

    @staticmethod
    def forward(ctx: Any, x: torch.Tensor, act: Callable[[], object]) -> torch.Tensor:
        ctx.act = act
        return x.clone()

    @staticmethod
    def backward(ctx: Any, gradient: torch.Tensor) -> tuple[torch.Tensor, None]:
        ctx.act()
        return gradient, None


def fails_once(x: torch.Tensor, ready: Callable[[], object]) -> torch.Tensor:
    """A node that fails once, as soon as a function returns true on B; with --control it never fails."""

    def act() -> None:
        if not failed.is_set() and "--control" not in sys.argv:
            while not rpc.rpc_sync("B", ready):
                pass
            failed.set()
            raise RuntimeError("this node fails")

    return Acts.apply(x, act)


def gradient(context: int) -> float:
    """On B: the gradient of the parameter in the context, or 0."""
    return float(dist_autograd.get_gradients(context).get(PARAMETER, 0.0))


def backward(context: int, loss: torch.Tensor) -> str:
    """Run a pass that keeps its graph; returns how it ended."""
    try:
        dist_autograd.backward(context, [loss], retain_graph=True)
    except RuntimeError as error:
        return f"raised {str(error).splitlines()[0]}"
    return "ended well"
