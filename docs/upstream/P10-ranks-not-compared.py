"""new_group: two disjoint groups that are made at once have one name; ranks of both sum with each other."""

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
