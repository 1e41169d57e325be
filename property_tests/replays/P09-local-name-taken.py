"""distributed: new_group(use_local_synchronization=True) gives a group the name of a living one after another was
destroyed

Versions: torch 2.13.0; Python 3.11, Linux, CPU. 2.14 does not have it.

Steps:
1. In a world of two, both ranks call `new_group([0, 1], use_local_synchronization=True)` twice.
2. Both destroy the first of the two groups.
3. Both call it a third time.

Expected:
The group is made.

Seen:
rank 0: a third group of the same ranks, after the first was destroyed: ValueError
rank 1: a third group of the same ranks, after the first was destroyed: ValueError
reproduced: a group is given the name of a living one, and is refused

Cause:
`distributed_c10d.py`, `_hash_ranks_to_str`: the name is a hash of the ranks and of `len(_world.pg_names)`, the number
of groups that this process is in now. It is 3 for the second group, and 3 again after the first was destroyed.

Fix:
Count how many groups of the same ranks the process has ever made, and never count down.
"""

import multiprocessing
import os
import sys
from datetime import timedelta
from typing import Any

import torch.distributed as dist

CONTROL = "--control" in sys.argv  # without use_local_synchronization: the counter of all groups names them
TIMEOUT = timedelta(seconds=30 if CONTROL else 2)  # the default of gloo is 30 minutes


def join(rank: int, size: int, port: int) -> Any:
    store = dist.TCPStore("127.0.0.1", port, is_master=False, wait_for_workers=False)
    dist.init_process_group("gloo", store=store, rank=rank, world_size=size, timeout=TIMEOUT)
    store.set_timeout(TIMEOUT)
    return store


def created(make: Any) -> str:
    try:
        make()
    except (RuntimeError, ValueError) as error:
        return type(error).__name__
    return "created"


def member(rank: int, line: Any) -> None:
    port = line.recv()
    join(rank, 2, port)
    how: dict[str, Any] = {"timeout": TIMEOUT, "use_local_synchronization": not CONTROL}
    first, _ = dist.new_group([0, 1], **how), dist.new_group([0, 1], **how)
    dist.barrier(first)
    dist.destroy_process_group(first)
    line.send(created(lambda: dist.new_group([0, 1], **how)))
    line.recv()


context = multiprocessing.get_context("fork")
lines = [context.Pipe() for _ in range(2)]
processes = [context.Process(target=member, args=(rank, theirs), daemon=True) for rank, (_, theirs) in enumerate(lines)]
for process in processes:
    process.start()
server = dist.TCPStore("127.0.0.1", 0, is_master=True, wait_for_workers=False)  # it has threads: after the forks
for ours, _ in lines:
    ours.send(server.port)
said = [ours.recv() for ours, _ in lines]
for process in processes:
    process.kill()

for rank, outcome in enumerate(said):
    print(f"rank {rank}: a third group of the same ranks, after the first was destroyed: {outcome}")
if said != ["created"] * 2:
    print("reproduced: a group is given the name of a living one, and is refused", flush=True)
    os._exit(1)
print("not reproduced: the group is made")
