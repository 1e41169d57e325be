"""distributed: two disjoint groups that are created at the same time have one name, and collectives give sums of the
other group's ranks

Versions: torch 2.13.0; Python 3.11, Linux, CPU.

Steps:
1. Rank 0 calls new_group([0, 1]), and at the same time rank 3 calls new_group([2, 3]). Both return.
2. Each of the two ranks sums 10 to the power of the rank over its group.

Expected:
11 on rank 0 and 1100 on rank 3, or an exception when the groups are created.

Seen:
rank 0: the sum over the group [0, 1] is 1001 (right: 11)
rank 3: the sum over the group [2, 3] is 1001 (right: 1100)
reproduced: the sums contain values of the other group, and nothing is raised

Cause:
`distributed_c10d.py`, `_process_group_name`: the name is a counter of the process. The first group of every process
therefore has the name 1. An address is published under the name and the member's rank in its group, where ranks 0 and 2
have rank 0, and ranks 1 and 3 have rank 1. Rank 0 finds the address of rank 3, and rank 3 the address of rank 0. gloo
compares only ranks.

Fix:
Write the group's ranks below the prefix, and compare them with the other members' entries.
"""

from datetime import timedelta
from typing import Any

import torch
import torch.distributed as dist
from ending import CONTROL, end
from groups import join, members

# With --control, each rank creates both groups.
TIMEOUT = timedelta(seconds=20)  # the default of gloo is 30 minutes
PAIRS = {0: [0, 1], 3: [2, 3]}


def member(rank: int, line: Any, port: int) -> None:
    join(rank, 4, port, TIMEOUT)
    if rank in PAIRS or CONTROL:  # ranks 1 and 2 would call new_group for their pairs a little later
        groups = [dist.new_group(pair, timeout=TIMEOUT) for pair in PAIRS.values() if rank in pair or CONTROL]
        total = torch.tensor([10.0**rank])
        for group in groups:  # no effect on a group without this rank
            dist.all_reduce(total, group=group)
        line.send(total.item())


lines, server = members(member, 4)
said = {rank: lines[rank].recv() for rank in PAIRS}

right = {0: 10.0**0 + 10.0**1, 3: 10.0**2 + 10.0**3}
for rank, total in said.items():
    print(f"rank {rank}: the sum over the group {PAIRS[rank]} is {total:g} (right: {right[rank]:g})")
end(said != right, "the sums contain values of the other group, and nothing is raised")
