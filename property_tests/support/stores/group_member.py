"""A program: a member of a real process group, which uses its store as a training script does.

    python -m trystate.property_tests.support.stores.group_member '{"url": "trystate-tcp://127.0.0.1:29500", ...}'

Prints one line of JSON that begins with its rank. Rule: the claims about the group are checked here.
"""

from __future__ import annotations

import contextlib
import json
import os
import random
import signal
import sys
import time
from datetime import timedelta
from typing import Any

import torch
import torch.distributed as dist
from torch import nn
from torch._C._distributed_c10d import HashStore, Store
from torch._C._distributed_c10d import TCPStore as TorchTCPStore
from torch.distributed.rendezvous import rendezvous as come_together
from torch.nn.parallel import DistributedDataParallel

STEPS, BATCH, INPUTS = 3, 12, 4
PATIENCE = timedelta(seconds=30)


def main(told: str) -> None:
    torch.set_num_threads(1)
    job: dict[str, Any] = json.loads(told)
    from trystate import rendezvous

    rendezvous.register()
    given: dict[str, Any] = {name: job[name] for name in ("rank", "world_size") if name in job}
    with contextlib.ExitStack() as stack:
        given |= {"init_method": job["url"]} if "url" in job else {"store": _store(job, stack)}
        dist.init_process_group("gloo", timeout=PATIENCE, **given)
        rank, size = dist.get_rank(), dist.get_world_size()
        collectives(rank, size)
        if int(os.environ.get("TORCHELASTIC_RESTART_COUNT", "0")) < job.get("failures", 0) and rank == size - 1:
            sys.exit("as planned: the agents are to restart all workers")
        trained = train(rank, size)
        dist.monitored_barrier(timeout=PATIENCE)
        # Rank 0 may host the store, so no rank leaves before all have used it.
        dist.barrier()
        dist.destroy_process_group()
    # One write, because members share a pipe, and print() may write the end of the line separately.
    said = {"rank": rank, "size": size, "master": os.environ.get("MASTER_ADDR"), **trained}
    os.write(1, (json.dumps(said) + "\n").encode())


def _store(job: dict[str, Any], stack: contextlib.ExitStack) -> Store:
    if job["make"] == "torch":
        return TorchTCPStore("127.0.0.1", job["port"], is_master=False, wait_for_workers=False, timeout=PATIENCE)
    from trystate import store

    return stack.enter_context(
        store.TCPStore("127.0.0.1", job["port"], is_master=False, wait_for_workers=False, timeout=PATIENCE)
    )


def collectives(rank: int, size: int) -> None:
    total = torch.full((4,), float(rank + 1))
    dist.all_reduce(total)
    assert total.tolist() == [size * (size + 1) / 2] * 4
    gathered: list[Any] = [None] * size
    dist.all_gather_object(gathered, {"rank": rank, "text": "x" * rank})
    assert gathered == [{"rank": k, "text": "x" * k} for k in range(size)]
    members = list(range(0, size, 2)), list(range(1, size, 2))
    groups = [dist.new_group(ranks) for ranks in members]
    own = torch.tensor([float(rank)])
    dist.all_reduce(own, group=groups[rank % 2])
    assert own.item() == sum(members[rank % 2])


def data() -> tuple[nn.Module, torch.Tensor, torch.Tensor]:
    """The same model and batch in every process."""
    torch.manual_seed(7)
    model = nn.Sequential(nn.Linear(INPUTS, 3), nn.Tanh(), nn.Linear(3, 1)).double()
    return model, torch.randn(BATCH, INPUTS, dtype=torch.double), torch.randn(BATCH, 1, dtype=torch.double)


def train(rank: int, size: int) -> dict[str, list[float]]:
    """Train for a few steps on this rank's share of each batch; returns the last gradients and weights."""
    model, inputs, targets = data()
    parallel = DistributedDataParallel(model) if size > 1 else model
    optimizer = torch.optim.SGD(parallel.parameters(), lr=0.1)
    for _ in range(STEPS):
        optimizer.zero_grad()
        loss = nn.functional.mse_loss(parallel(inputs[rank::size]), targets[rank::size])
        loss.backward()  # type: ignore[no-untyped-call]
        optimizer.step()
    weights = list(model.parameters())
    gradients = [float(x) for w in weights if w.grad is not None for x in w.grad.flatten()]
    return {"gradients": gradients, "weights": [float(x) for w in weights for x in w.detach().flatten()]}


# ---- groups that are made again

# torch 2.7.1 can hang here: a thread of gloo needs the interpreter lock to drop a tensor after the collective, and
# destroy_process_group holds the lock while it joins that thread.
SETTLES_SECONDS = 0.05


def again(told: str) -> None:
    """A program: a rank of groups that are made at one URL, used and destroyed, several times.

    Only the URL brings the ranks together, and their random pauses put them into any order. `told`: url, rank, sizes
    (of the groups), seed, and pause (the most seconds).
    """
    from trystate import rendezvous

    rendezvous.register()
    torch.set_num_threads(1)
    job: dict[str, Any] = json.loads(told)
    rank, chance = job["rank"], random.Random(f"{job['seed']} {job['rank']}")
    for size in job["sizes"]:
        if rank < size:
            time.sleep(chance.uniform(0, job["pause"]))
            dist.init_process_group("gloo", init_method=job["url"], rank=rank, world_size=size, timeout=PATIENCE)
            collectives(rank, size)
            dist.barrier()  # the server ends with rank 0's group
            leave()


def meet(url: str, rank: int, world_size: int) -> None:
    """Join the group that meets at a URL, print the prefix of its keys, and wait for a signal."""
    from trystate import rendezvous

    rendezvous.register()
    store, _, _ = next(come_together(url, rank, world_size, timeout=timedelta(seconds=60)))
    os.write(1, (store.prefix + "\n").encode())
    while True:
        signal.pause()


def leave() -> None:
    """Destroy the group, even a group that init_process_group began and did not finish.

    torch has counted such a group, destroy_process_group refuses to end it, and the count names the next group. A
    process that was started again counts from 0, so the two do not meet. To make and destroy a group of one sets the
    count to 0.
    Source: torch/distributed/distributed_c10d.py, `_process_group_name` and `destroy_process_group`; seen with torch
    2.6.0, 2.7.1, 2.10.0 and 2.13.0.
    """
    if not dist.is_initialized():
        dist.init_process_group("gloo", store=HashStore(), rank=0, world_size=1)
    time.sleep(SETTLES_SECONDS)
    dist.destroy_process_group()


if __name__ == "__main__":
    main(sys.argv[1])
