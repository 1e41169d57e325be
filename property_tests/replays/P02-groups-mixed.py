"""distributed: if two threads call new_group in different orders on two ranks, their groups are mixed up, and
collectives give wrong numbers

Versions: torch 2.13.0 and 2.15.0; Python 3.11, Linux, CPU.

Steps:
1. On rank 0 one thread creates group a, and then another creates group b. Rank 1 creates b first. All calls return.
2. Both ranks sum 1 over a and 100 over b.

Expected:
2 over a and 200 over b, or an exception when the groups are created.

Seen:
rank 0: the sum over group a is 101 (right: 2), over group b 101 (right: 200)
rank 1: the sum over group a is 101 (right: 2), over group b 101 (right: 200)
reproduced: the sums of two groups are mixed, and nothing is raised

Cause:
`distributed_c10d.py`, `_process_group_name`: the name is a counter of the process. Group a of rank 0 and group b of
rank 1 have the name 1, publish their addresses under one prefix, and connect to each other. gloo compares only ranks.

Fix:
Write the group's ranks and its `group_desc` below the prefix, and compare them with the other members' entries. Or let
the caller name the group.
"""

import threading
import time
from typing import Any

import torch
import torch.distributed as dist
from ending import CONTROL, end
from groups import TIMEOUT, join, members

# With --control, each rank creates one group after the other, in the same order.


def member(rank: int, line: Any, port: int) -> None:
    join(rank, 2, port)
    groups = {}

    def make(name: str) -> None:
        groups[name] = dist.new_group([0, 1], timeout=TIMEOUT)

    threads = []
    for name in ("a", "b") if rank == 0 or CONTROL else ("b", "a"):
        before = dist.distributed_c10d._world.group_count
        threads.append(threading.Thread(target=make, args=(name,)))
        threads[-1].start()
        while dist.distributed_c10d._world.group_count == before:  # keeps the order the same in each run
            time.sleep(0.001)
        if CONTROL:
            threads[-1].join()
    for thread in threads:
        thread.join()
    sums = {"a": torch.tensor([1.0]), "b": torch.tensor([100.0])}
    works = [dist.all_reduce(sums[name], group=groups[name], async_op=True) for name in sums]
    for work in works:
        work.wait()
    line.send((sums["a"].item(), sums["b"].item()))


lines, server = members(member, 2)
said = [line.recv() for line in lines]

for rank, (a, b) in enumerate(said):
    print(f"rank {rank}: the sum over group a is {a:g} (right: 2), over group b {b:g} (right: 200)")
end(said != [(2.0, 200.0)] * 2, "the sums of two groups are mixed, and nothing is raised")
