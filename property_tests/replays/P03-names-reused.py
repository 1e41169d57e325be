"""distributed: after destroy_process_group, init_process_group with the same store reads the old group's addresses and
fails

Versions: torch 2.13.0 and 2.15.0; Python 3.11, Linux, CPU.

Steps:
1. Both ranks make the default group over a TCPStore, and destroy it.
2. Rank 0 calls init_process_group with the same store again; rank 1 does so a moment later.

Expected:
Rank 0 waits for rank 1, and the group is made.

Seen:
rank 0: the second init_process_group: RuntimeError
rank 1: the second init_process_group: RuntimeError
reproduced: a second group over the same store is not made

Cause:
`distributed_c10d.py`, `destroy_process_group` sets `_world.group_count = 0`, so that the second group has the name of
the first, 0, and its prefix. Rank 0 finds the address that rank 1 had left there. The keys of a group are never
deleted.

Fix:
Delete the keys of a group when it is destroyed, or put a number that rank 0 draws for each meeting into the prefix.
"""

import multiprocessing
import os
import sys
from datetime import timedelta
from typing import Any

import torch.distributed as dist

CONTROL = "--control" in sys.argv  # the second group is below another prefix, and both ranks begin at once
TIMEOUT = timedelta(seconds=30 if CONTROL else 2)  # the default of gloo is 30 minutes


def join(rank: int, size: int, port: int) -> Any:
    store = dist.TCPStore("127.0.0.1", port, is_master=False, wait_for_workers=False)
    dist.init_process_group("gloo", store=store, rank=rank, world_size=size, timeout=TIMEOUT)
    store.set_timeout(TIMEOUT)
    return store


def created(make: Any) -> str:
    try:
        make()
    except RuntimeError as error:
        return type(error).__name__
    return "created"


def member(rank: int, line: Any) -> None:
    port = line.recv()
    store = join(rank, 2, port)
    dist.barrier()
    dist.destroy_process_group()
    line.send("destroyed")
    line.recv()
    below = dist.PrefixStore("second", store) if CONTROL else store
    options: dict[str, Any] = {"store": below, "rank": rank, "world_size": 2, "timeout": TIMEOUT}
    line.send(created(lambda: dist.init_process_group("gloo", **options)))
    line.recv()


context = multiprocessing.get_context("fork")
lines = [context.Pipe() for _ in range(2)]
processes = [context.Process(target=member, args=(rank, theirs), daemon=True) for rank, (_, theirs) in enumerate(lines)]
for process in processes:
    process.start()
server = dist.TCPStore("127.0.0.1", 0, is_master=True, wait_for_workers=False)  # it has threads: after the forks
for ours, _ in lines:
    ours.send(server.port)
for ours, _ in lines:
    ours.recv()
if CONTROL:
    for ours, _ in lines:
        ours.send("begin again")
said = []
for ours, _ in lines:  # rank 1 is slower than rank 0
    if not CONTROL:
        ours.send("begin again")
    said.append(ours.recv())
for process in processes:
    process.kill()

for rank, outcome in enumerate(said):
    print(f"rank {rank}: the second init_process_group: {outcome}")
if said != ["created"] * 2:
    print("reproduced: a second group over the same store is not made", flush=True)
    os._exit(1)
print("not reproduced: the second group is made")
