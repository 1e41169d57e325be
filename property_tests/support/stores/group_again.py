"""A program: a rank of groups that are made at one URL, used and destroyed, several times.

Rule: the claims about a group are checked here. Only the URL brings the ranks together, and their random pauses put
them into any order.
"""

from __future__ import annotations

import json
import os
import random
import signal
import time
from datetime import timedelta
from typing import Any

import torch
import torch.distributed as dist
from torch._C._distributed_c10d import HashStore
from torch.distributed.rendezvous import rendezvous as come_together

from .group_member import collectives

# torch 2.7.1 can hang here: a thread of gloo needs the interpreter lock to drop a tensor after the collective, and
# destroy_process_group holds the lock while it joins that thread.
SETTLES_SECONDS = 0.05


def main(told: str) -> None:
    """`told`: url, rank, sizes (of the groups), seed, and pause (the most seconds)."""
    from trystate import rendezvous

    rendezvous.register()
    torch.set_num_threads(1)
    job: dict[str, Any] = json.loads(told)
    rank, chance = job["rank"], random.Random(f"{job['seed']} {job['rank']}")
    for size in job["sizes"]:
        if rank < size:
            time.sleep(chance.uniform(0, job["pause"]))
            _group(job["url"], rank, size)
            leave()


def meet(url: str, rank: int, world_size: int, stays: bool = False) -> None:
    """Join the group that meets at a URL, print the prefix of its keys, and end or wait for a signal."""
    from trystate import rendezvous

    rendezvous.register()
    store, _, _ = next(come_together(url, rank, world_size, timeout=timedelta(seconds=60)))
    os.write(1, (store.prefix + "\n").encode())
    while stays:
        signal.pause()


def _group(url: str, rank: int, size: int) -> None:
    """Make a group and use it."""
    dist.init_process_group("gloo", init_method=url, rank=rank, world_size=size, timeout=timedelta(seconds=30))
    collectives(rank, size)
    dist.barrier()  # the server ends with rank 0's group


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
