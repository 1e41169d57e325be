"""A rank of groups that are made at one URL, used and destroyed again and again, as a program.

Prints one line of JSON when it has been in as many groups as it was told. Rule: each claim about a group is checked
here; nothing but the URL brings the ranks together, so that their pauses put them into any order.
"""

from __future__ import annotations

import json
import os
import random
import signal
import threading
import time
from datetime import timedelta
from typing import Any

import torch
import torch.distributed as dist
from torch._C._distributed_c10d import HashStore
from torch.distributed.rendezvous import rendezvous as come_together

FAILURES_MAX = 15  # of one rank: its groups fail when another rank is killed, and for no other reason
# torch 2.7.1: a thread of gloo that drops a tensor after the collective has ended wants the interpreter lock, and
# destroy_process_group holds it while it joins that thread: both wait for ever.
SETTLES_SECONDS = 0.05
ARRIVES_SECONDS = 0.4  # before the others: the rank that is to die while it waits for them


def main(told: str) -> None:
    """`told`: url, rank, sizes (of each group), seed, pause (seconds, at most), timeout (seconds), and dies.

    `dies`: whose rank, in which group, when ("waiting" for the others, "working" in the group, or so many seconds after
    it came), and whether it is this process.
    """
    from trystate import rendezvous

    rendezvous.register()
    torch.set_num_threads(1)
    job: dict[str, Any] = json.loads(told)
    rank, sizes, chance = job["rank"], job["sizes"], random.Random(job["seed"])
    done, failures = 0, list[str]()
    while done < len(sizes):
        if rank >= sizes[done]:
            done += 1  # at once: it comes before its next group, whose other ranks may be in this one
            continue
        time.sleep(chance.uniform(0, job["pause"]))
        dies = job.get("dies") or {}
        if dies.get("group") == done:
            _die_soon(dies["when"]) if dies["self"] else _come_later(dies["when"])
        try:
            done = _group(job, sizes[done], done)
        except Exception as error:
            failures.append(f"group {done}: {type(error).__name__}: {error}")
            if len(failures) > FAILURES_MAX:
                raise
        finally:
            leave()
    os.write(1, (json.dumps({"rank": rank, "failures": failures}) + "\n").encode())


def meet(url: str, rank: int, world_size: int, stays: bool = False) -> None:
    """Come to the group that meets at a URL, and say the prefix of its keys; it may stay until it is killed."""
    from trystate import rendezvous

    rendezvous.register()
    store, _, _ = next(come_together(url, rank, world_size, timeout=timedelta(seconds=60)))
    os.write(1, (store.prefix + "\n").encode())
    while stays:
        signal.pause()


def try_again(url: str, rank: int, given_up: str) -> None:
    """Rank 0 gives up once before rank 1 comes; then they make a group, another one, and use both."""
    from trystate import rendezvous

    rendezvous.register()
    torch.set_num_threads(1)
    if rank:
        while not os.path.exists(given_up):
            time.sleep(0.01)
    else:
        try:
            dist.init_process_group("gloo", init_method=url, rank=0, world_size=2, timeout=timedelta(seconds=0.2))
        except dist.DistError:
            open(given_up, "w").close()
    dist.init_process_group("gloo", init_method=url, rank=rank, world_size=2, timeout=timedelta(seconds=20))
    for group in (None, dist.new_group([0, 1])):
        total = torch.ones(1)
        dist.all_reduce(total, group=group)
        assert total.item() == 2
    dist.barrier()
    dist.destroy_process_group()


def _group(job: dict[str, Any], size: int, done: int) -> int:
    """Make a group and use it; how many have been made, as the most experienced rank knows."""
    timeout = timedelta(seconds=job["timeout"])
    dist.init_process_group("gloo", init_method=job["url"], rank=job["rank"], world_size=size, timeout=timeout)
    dies = job.get("dies") or {}
    if dies.get("group") == done and dies["when"] == "working" and dies["self"]:
        os.kill(os.getpid(), signal.SIGKILL)
    seen: list[Any] = [None] * size
    dist.all_gather_object(seen, (dist.get_rank(), done))
    assert [rank for rank, _ in seen] == list(range(size))
    halves = [dist.new_group(list(range(first, size, 2))) for first in range(min(size, 2))]
    total = torch.tensor([float(job["rank"])])
    dist.all_reduce(total, group=halves[job["rank"] % 2])
    assert total.item() == sum(range(job["rank"] % 2, size, 2))
    dist.barrier()  # the server ends with rank 0's group
    newest: int = max(count for _, count in seen)
    return newest + 1


def leave() -> None:
    """Destroy the group, also one that init_process_group began and did not make.

    torch has counted such a group, destroy_process_group refuses to end it, and the next one is named by the count: a
    process that was started again counts from 0, and the two never meet. A group of one, destroyed, sets it to 0.
    Source: torch/distributed/distributed_c10d.py, `_process_group_name` and `destroy_process_group`; seen with torch
    2.6.0, 2.7.1, 2.10.0 and 2.13.0.
    """
    if not dist.is_initialized():
        dist.init_process_group("gloo", store=HashStore(), rank=0, world_size=1)
    time.sleep(SETTLES_SECONDS)
    dist.destroy_process_group()


def _die_soon(when: str | float) -> None:
    if when != "working":
        seconds = ARRIVES_SECONDS / 2 if when == "waiting" else float(when)
        threading.Timer(seconds, os.kill, (os.getpid(), signal.SIGKILL)).start()


def _come_later(when: str | float) -> None:
    if when == "waiting":
        time.sleep(ARRIVES_SECONDS)
