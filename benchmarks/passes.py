"""A worker process in the benchmark of distributed autograd; worker 0 drives.

Rule: it uses only names that both libraries have.
"""

from __future__ import annotations

import os
import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor

from trystate.property_tests.support.autograd.sides import SIDES, Side, worker

WIDTH = 16  # width of a layer
BURSTS = 8  # the fastest of them counts


@dataclass(frozen=True)
class Work:
    """`many` calls in a shape, with tensors of `rows` times WIDTH numbers.

    Shapes: "trips" (to the other worker, each with the result of the last), "chain" (worker 1, which calls worker 2,
    and so on). `threads` of worker 0 do this at once, each in its own context.
    """

    shape: str
    many: int
    rows: int
    threads: int = 1


_layers: dict[int, Tensor] = {}  # the layers of this process; with plain autograd, the layers of all workers


def layer(rank: int) -> Tensor:
    """The parameter of a worker."""
    if rank not in _layers:
        generator = torch.Generator().manual_seed(rank)
        _layers[rank] = (torch.rand(WIDTH, WIDTH, generator=generator) / WIDTH).requires_grad_()
    return _layers[rank]


def forward(rank: int, x: Tensor) -> Tensor:
    return x @ layer(rank)


def hop(side: str, rank: int, last: int, x: Tensor) -> Tensor:
    """This worker's layer, then the layers of the workers after it."""
    y = forward(rank, x)
    return y if rank == last else call(side, rank + 1, hop, side, rank + 1, last, y)


def call(side: str, to: int, function: Any, *arguments: Any) -> Tensor:
    """Call the function with a library, or directly if `side` names none."""
    found: Tensor = SIDES[side].rpc.rpc_sync(worker(to), function, args=arguments) if side else function(*arguments)
    return found


def result(work: Work, side: str, workers: int, x: Tensor) -> Tensor:
    if work.shape == "chain":
        y = call(side, 1, hop, side, 1, work.many, x)
    else:
        y = x
        for k in range(work.many):
            to = 1 + k % (workers - 1)
            y = call(side, to, forward, to, y)
    return (y * y).sum()


def one(work: Work, side: Side, workers: int, x: Tensor) -> Tensor:
    """Run an iteration; returns the gradient of x."""
    with side.autograd.context() as context:
        side.autograd.backward(context, [result(work, side.name, workers, x)])
        gradient: Tensor = side.autograd.get_gradients(context)[x]
        return gradient


def made(work: Work) -> Tensor:
    return torch.rand(work.rows, WIDTH, generator=torch.Generator().manual_seed(0)).requires_grad_()


def prepare(rank: int, workers: int, side: str, work: Work) -> None:
    """Run a first iteration and compare its gradient with the gradient of plain autograd."""
    torch.set_num_threads(1)
    if rank:
        return
    x = made(work)
    result(work, "", workers, x).backward()
    assert x.grad is not None
    found = one(work, SIDES[side], workers, x)
    assert torch.allclose(found, x.grad, rtol=1e-4, atol=1e-6), f"{side} is wrong: {found} instead of {x.grad}"


def on_one_core(rank: int) -> None:
    cores = sorted(os.sched_getaffinity(0))
    os.sched_setaffinity(0, {cores[rank % len(cores)]})


def measure(rank: int, workers: int, side: str, work: Work, iterations: int) -> float:
    """Seconds of an iteration."""
    if rank:
        return 0.0
    x = made(work)
    fastest, do = float("inf"), at_once(work.threads, lambda: one(work, SIDES[side], workers, x))
    for _ in range(BURSTS):
        began = time.perf_counter()
        for _ in range(iterations):
            do()
        fastest = min(fastest, (time.perf_counter() - began) / iterations)
    return fastest


def at_once(threads: int, do: Callable[[], object]) -> Callable[[], object]:
    """A function that calls `do` in `threads` threads and returns when all calls are done."""
    if threads == 1:
        return do
    pool = ThreadPoolExecutor(threads)
    return lambda: [each.result() for each in [pool.submit(do) for _ in range(threads)]]
