"""A worker process in the benchmark of distributed autograd; worker 0 drives.

Rule: it uses only names that both libraries have.
"""

from __future__ import annotations

import os
import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from functools import cache

import torch
from torch import Tensor

from trystate.property_tests.support.autograd.sides import SIDES, Side, worker

WIDTH = 16  # width of a layer
BURSTS = 8  # the fastest of them counts


@dataclass(frozen=True)
class Work:
    """A call of worker 1 with `rows` times WIDTH numbers; `threads` do this at once, each in its own context."""

    rows: int
    threads: int = 1


@cache
def layer() -> Tensor:
    """The parameter of worker 1; with plain autograd it is in this process."""
    return (torch.rand(WIDTH, WIDTH, generator=torch.Generator().manual_seed(1)) / WIDTH).requires_grad_()


def forward(x: Tensor) -> Tensor:
    return x @ layer()


def result(y: Tensor) -> Tensor:
    return (y * y).sum()


def one(side: Side, x: Tensor) -> Tensor:
    """Run an iteration; returns the gradient of x."""
    with side.autograd.context() as context:
        side.autograd.backward(context, [result(side.rpc.rpc_sync(worker(1), forward, args=(x,)))])
        gradient: Tensor = side.autograd.get_gradients(context)[x]
        return gradient


def made(work: Work) -> Tensor:
    return torch.rand(work.rows, WIDTH, generator=torch.Generator().manual_seed(0)).requires_grad_()


def prepare(rank: int, side: str, work: Work) -> None:
    """Run a first iteration and compare its gradient with the gradient of plain autograd."""
    torch.set_num_threads(1)
    if rank:
        return
    x = made(work)
    result(forward(x)).backward()
    assert x.grad is not None
    found = one(SIDES[side], x)
    assert torch.allclose(found, x.grad, rtol=1e-4, atol=1e-6), f"{side} is wrong: {found} instead of {x.grad}"


def on_one_core(rank: int) -> None:
    cores = sorted(os.sched_getaffinity(0))
    os.sched_setaffinity(0, {cores[rank % len(cores)]})


def measure(rank: int, side: str, work: Work, iterations: int) -> float:
    """Seconds of an iteration."""
    if rank:
        return 0.0
    x = made(work)
    fastest, do = float("inf"), at_once(work.threads, lambda: one(SIDES[side], x))
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
