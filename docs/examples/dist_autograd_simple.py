"""The design note's end-to-end example: remote values, a backward pass, and an optimizer's step on their owners.

    MASTER_ADDR=localhost MASTER_PORT=29500 python docs/examples/dist_autograd_simple.py [ours|torch]

This is the note's program. It imports the names from torch or, by default, from trystate. It also prints each element
of the parameters before and after the step.
"""

from __future__ import annotations

import sys
from typing import Any

import torch
import torch.multiprocessing as mp
from torch import optim


def names(whose: str) -> Any:
    """The modules `dist_autograd` and `rpc`, and DistributedOptimizer."""
    if whose == "torch":
        import torch.distributed.autograd as dist_autograd
        from torch.distributed import rpc
        from torch.distributed.optim import DistributedOptimizer

        return dist_autograd, rpc, DistributedOptimizer
    from trystate import autograd, rpc

    return autograd, rpc, autograd.DistributedOptimizer


def random_tensor() -> torch.Tensor:
    return torch.rand((3, 3), requires_grad=True)


def values(rref: Any) -> list[float]:
    return list(rref.local_value().detach().flatten().tolist())


def _run_process(rank: int, dst_rank: int, world_size: int, whose: str) -> None:
    dist_autograd, rpc, DistributedOptimizer = names(whose)
    name, dst_name = f"worker{rank}", f"worker{dst_rank}"

    # Initialize RPC.
    rpc.init_rpc(name=name, rank=rank, world_size=world_size)

    # Use a distributed autograd context.
    with dist_autograd.context() as context_id:
        # Forward pass (create references on remote nodes).
        rref1 = rpc.remote(dst_name, random_tensor)
        rref2 = rpc.remote(dst_name, random_tensor)
        loss = rref1.to_here() + rref2.to_here()

        # Backward pass (run distributed autograd).
        dist_autograd.backward(context_id, [loss.sum()])

        # Build DistributedOptimizer.
        dist_optim = DistributedOptimizer(optim.SGD, [rref1, rref2], lr=0.05)

        # Run the distributed optimizer step.
        before = [rpc.rpc_sync(dst_name, values, (rref,)) for rref in (rref1, rref2)]
        dist_optim.step(context_id)
        after = [rpc.rpc_sync(dst_name, values, (rref,)) for rref in (rref1, rref2)]

    for k, (old, new) in enumerate(zip(before, after, strict=True), 1):
        print(f"{name}: rref{k} on {dst_name}: {' '.join(f'{b:.4f}>{a:.4f}' for b, a in zip(old, new, strict=True))}")


def run_process(rank: int, world_size: int, whose: str) -> None:
    dst_rank = (rank + 1) % world_size
    _run_process(rank, dst_rank, world_size, whose)
    sys.stdout.flush()
    names(whose)[1].shutdown()


if __name__ == "__main__":
    # Run world_size workers.
    world_size = 2
    mp.spawn(run_process, args=(world_size, (sys.argv[1:] or ["ours"])[0]), nprocs=world_size)
