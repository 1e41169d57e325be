"""distributed: two disjoint groups that their members make at once have one name, and collectives give sums of the
other group's ranks

Versions: torch 2.13.0; Python 3.11, Linux, CPU.

Steps:
1. Rank 0 calls new_group([0, 1]), and at the same time rank 3 calls new_group([2, 3]). Both return.
2. Each sums 10 to the power of its rank over its group.

Expected:
11 on rank 0 and 1100 on rank 3, or an exception when the groups are made.

Seen:
rank 0: the sum over the group [0, 1] is 1001 (right: 11)
rank 3: the sum over the group [2, 3] is 1001 (right: 1100)
reproduced: the sums are of ranks of two groups, and nothing is raised

Cause:
`distributed_c10d.py`, `_process_group_name`: the name is a counter of the process, so that the first group of every
process has the name 1. An address is published under the name and the member's rank in its group, where ranks 0 and 2
have rank 0, and ranks 1 and 3 have rank 1. Rank 0 finds the address of rank 3, and rank 3 that of rank 0; gloo compares
nothing but ranks.

Fix:
Write the group's ranks below the prefix, and compare those of all members.
"""

import multiprocessing
import os
import sys
from datetime import timedelta
from typing import Any

import torch
import torch.distributed as dist

CONTROL = "--control" in sys.argv  # each rank makes both groups
TIMEOUT = timedelta(seconds=20)  # the default of gloo is 30 minutes
PAIRS = {0: [0, 1], 3: [2, 3]}


def member(rank: int, line: Any) -> None:
    port = line.recv()
    store = dist.TCPStore("127.0.0.1", port, is_master=False, wait_for_workers=False)
    dist.init_process_group("gloo", store=store, rank=rank, world_size=4, timeout=TIMEOUT)
    if rank in PAIRS or CONTROL:  # ranks 1 and 2 would call new_group for their pairs a little later
        groups = [dist.new_group(pair, timeout=TIMEOUT) for pair in PAIRS.values() if rank in pair or CONTROL]
        total = torch.tensor([10.0**rank])
        for group in groups:  # no effect on a group without this rank
            dist.all_reduce(total, group=group)
        line.send(total.item())
    line.recv()


context = multiprocessing.get_context("fork")
lines = [context.Pipe() for _ in range(4)]
processes = [context.Process(target=member, args=(rank, theirs), daemon=True) for rank, (_, theirs) in enumerate(lines)]
for process in processes:
    process.start()
server = dist.TCPStore("127.0.0.1", 0, is_master=True, wait_for_workers=False)  # it has threads: after the forks
for ours, _ in lines:
    ours.send(server.port)
said = {rank: lines[rank][0].recv() for rank in PAIRS}
for process in processes:
    process.kill()

right = {0: 10.0**0 + 10.0**1, 3: 10.0**2 + 10.0**3}
for rank, total in said.items():
    print(f"rank {rank}: the sum over the group {PAIRS[rank]} is {total:g} (right: {right[rank]:g})")
if said != right:
    print("reproduced: the sums are of ranks of two groups, and nothing is raised", flush=True)
    os._exit(1)
print("not reproduced: each group has its own sum")
