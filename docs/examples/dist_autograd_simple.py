"""The design note's end-to-end example: remote values, a backward pass, a step of an optimizer on their owners.

python docs/examples/dist_autograd_simple.py
"""

from __future__ import annotations

import tempfile

import torch
import torch.multiprocessing as processes

from trystate import autograd, rpc

WORLD = 2


def random_tensor() -> torch.Tensor:
    return torch.rand((3, 3), requires_grad=True)


def total(value: rpc.RRef[torch.Tensor]) -> float:
    return float(value.local_value().detach().sum())


def run(rank: int, folder: str) -> None:
    rpc.init_rpc(f"worker{rank}", rank=rank, world_size=WORLD, init_method=f"file://{folder}/meeting")
    other = f"worker{(rank + 1) % WORLD}"
    with autograd.context() as context_id:
        one, two = (rpc.remote(other, random_tensor) for _ in range(2))
        before = [rpc.rpc_sync(other, total, (value,)) for value in (one, two)]
        loss = one.to_here() + two.to_here()
        autograd.backward(context_id, [loss.sum()])
        optimizer = autograd.DistributedOptimizer(torch.optim.SGD, [one, two], lr=0.05)
        optimizer.step(context_id)
        after = [rpc.rpc_sync(other, total, (value,)) for value in (one, two)]
    for name, a, b in zip(("one", "two"), before, after, strict=True):
        print(f"worker{rank}: the sum of {name}, on {other}, went from {a:.2f} to {b:.2f}: by {b - a:+.2f}", flush=True)
    rpc.shutdown()


if __name__ == "__main__":
    torch.optim.SGD([torch.zeros(1)])  # loads what optimizers need, once for all processes
    with tempfile.TemporaryDirectory() as folder:
        processes.start_processes(run, args=(folder,), nprocs=WORLD, start_method="fork")
