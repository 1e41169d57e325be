"""distributed: new_group(use_local_synchronization=True) times out if some members are in more groups than others

Versions: torch 2.13.0 and 2.15.0; Python 3.11, Linux, CPU.

Steps:
1. In a world of three, ranks 0 and 1 call `new_group([0, 1], use_local_synchronization=True)`. Rank 2 is no member; its
   call would return None and change nothing.
2. All call `new_group([0, 1, 2], use_local_synchronization=True)`.

Expected:
The group is made.

Seen:
rank 0: new_group([0, 1, 2]), which all three call: DistStoreError
rank 1: new_group([0, 1, 2]), which all three call: DistStoreError
rank 2: new_group([0, 1, 2]), which all three call: DistStoreError
reproduced: a group that all of its members call for, in one order, is not made

Cause:
`distributed_c10d.py`, `_hash_ranks_to_str`: the name is a hash of the ranks and of `len(_world.pg_names)`, the number
of groups that this process is in: 2 on ranks 0 and 1, and 1 on rank 2. Each waits under a prefix where the others never
come.

Fix:
Count only the groups of the same ranks in place of `len(_world.pg_names)`.
"""

import multiprocessing
import os
import sys
from datetime import timedelta
from typing import Any

import torch.distributed as dist

CONTROL = "--control" in sys.argv  # without use_local_synchronization, and rank 2 calls it too
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
    join(rank, 3, port)
    how: dict[str, Any] = {"timeout": TIMEOUT, "use_local_synchronization": not CONTROL}
    if rank < 2 or CONTROL:  # with use_local_synchronization only members call
        dist.new_group([0, 1], **how)
    line.send(created(lambda: dist.new_group([0, 1, 2], **how)))
    line.recv()


context = multiprocessing.get_context("fork")
lines = [context.Pipe() for _ in range(3)]
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
    print(f"rank {rank}: new_group([0, 1, 2]), which all three call: {outcome}")
if said != ["created"] * 3:
    print("reproduced: a group that all of its members call for, in one order, is not made", flush=True)
    os._exit(1)
print("not reproduced: the group is made")
