"""distributed: a process that skips new_group for a group that it is not in makes a later group time out on all members

Versions: torch 2.13.0 and 2.15.0; Python 3.11, Linux, CPU.

Steps:
1. In a world of three, ranks 0 and 1 call `new_group([0, 1])`; rank 2 does not.
2. All call `new_group([0, 1, 2])`.

Expected:
The group is made, or an exception says at once that the processes call new_group in different orders.

Seen:
rank 0: new_group([0, 1, 2]), which all three call: DistStoreError
rank 1: new_group([0, 1, 2]), which all three call: DistStoreError
reproduced: a group that all of its members call for is not made

Cause:
`distributed_c10d.py`, `_process_group_name`: the name is a counter of this process, and the prefix of the group's keys.
Rank 2 names the group 1, the others 2; rank 2 finds under 1 the addresses of the group {0, 1}, and waits to be
connected to them. torch 1.9 had a barrier of all processes in new_group, so that the skipped call itself was noticed.

Fix:
Derive the name from the ranks and from how often this process has made a group of these ranks; or write the ranks below
the prefix, and compare.
"""

import multiprocessing
import os
import sys
from datetime import timedelta
from typing import Any

import torch.distributed as dist

CONTROL = "--control" in sys.argv  # rank 2 calls it too
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
    if rank < 2 or CONTROL:  # rank 2 is not in it
        dist.new_group([0, 1], timeout=TIMEOUT)
    line.send(created(lambda: dist.new_group([0, 1, 2], timeout=TIMEOUT)))
    line.recv()


context = multiprocessing.get_context("fork")
lines = [context.Pipe() for _ in range(3)]
processes = [context.Process(target=member, args=(rank, theirs), daemon=True) for rank, (_, theirs) in enumerate(lines)]
for process in processes:
    process.start()
server = dist.TCPStore("127.0.0.1", 0, is_master=True, wait_for_workers=False)  # it has threads: after the forks
for ours, _ in lines:
    ours.send(server.port)
said = [lines[rank][0].recv() for rank in (0, 1)]  # rank 2 takes 20 s to give up
for process in processes:
    process.kill()

for rank, outcome in enumerate(said):
    print(f"rank {rank}: new_group([0, 1, 2]), which all three call: {outcome}")
if said != ["created"] * 2:
    print("reproduced: a group that all of its members call for is not made", flush=True)
    os._exit(1)
print("not reproduced: the group is made")
