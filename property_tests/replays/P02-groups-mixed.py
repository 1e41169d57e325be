"""distributed: two threads that call new_group in another order than on another rank exchange their groups, and
collectives give wrong numbers

Versions: torch 2.13.0 and 2.15.0; Python 3.11, Linux, CPU.

Steps:
1. On rank 0 one thread makes group a, and then another makes group b; on rank 1 the other way round. Both return.
2. Both ranks sum 1 over a and 100 over b.

Expected:
2 over a and 200 over b, or an exception when the groups are made.

Seen:
rank 0: the sum over group a is 101 (right: 2), over group b 101 (right: 200)
rank 1: the sum over group a is 101 (right: 2), over group b 101 (right: 200)
reproduced: the sums of two groups are mixed, and nothing is raised

Cause:
`distributed_c10d.py`, `_process_group_name`: the name is a counter of the process. Group a of rank 0 and group b of
rank 1 have the name 1, publish their addresses under one prefix, and connect to each other; gloo compares nothing but
ranks.

Fix:
Write the group's ranks and its `group_desc` below the prefix, and compare those of all members; or let the caller name
the group.
"""

import multiprocessing
import os
import sys
import threading
import time
from datetime import timedelta
from typing import Any

import torch
import torch.distributed as dist

CONTROL = "--control" in sys.argv  # the order is the same on each rank
TIMEOUT = timedelta(seconds=30 if CONTROL else 2)  # the default of gloo is 30 minutes


def join(rank: int, size: int, port: int) -> Any:
    store = dist.TCPStore("127.0.0.1", port, is_master=False, wait_for_workers=False)
    dist.init_process_group("gloo", store=store, rank=rank, world_size=size, timeout=TIMEOUT)
    store.set_timeout(TIMEOUT)
    return store


def member(rank: int, line: Any) -> None:
    port = line.recv()
    join(rank, 2, port)
    groups = {}

    def make(name: str) -> None:
        groups[name] = dist.new_group([0, 1], timeout=TIMEOUT)

    threads = []
    for name in ("a", "b") if rank == 0 or CONTROL else ("b", "a"):
        before = dist.distributed_c10d._world.group_count
        threads.append(threading.Thread(target=make, args=(name,)))
        threads[-1].start()
        while dist.distributed_c10d._world.group_count == before:  # so that the order is always the same
            time.sleep(0.001)
    for thread in threads:
        thread.join()
    sums = {"a": torch.tensor([1.0]), "b": torch.tensor([100.0])}
    works = [dist.all_reduce(sums[name], group=groups[name], async_op=True) for name in sums]
    for work in works:
        work.wait()
    line.send((sums["a"].item(), sums["b"].item()))
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

for rank, (a, b) in enumerate(said):
    print(f"rank {rank}: the sum over group a is {a:g} (right: 2), over group b {b:g} (right: 200)")
if said != [(2.0, 200.0)] * 2:
    print("reproduced: the sums of two groups are mixed, and nothing is raised", flush=True)
    os._exit(1)
print("not reproduced: each group has its own sum")
