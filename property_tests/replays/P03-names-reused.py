"""distributed: after destroy_process_group, init_process_group with the same store reads the old group's addresses and
fails

Versions: torch 2.13.0 and 2.15.0; Python 3.11, Linux, CPU.

Steps:
1. Both ranks create the default group over a TCPStore and destroy it.
2. Rank 0 calls init_process_group with the same store again; rank 1 does so a moment later.

Expected:
Rank 0 waits for rank 1, and the group is created.

Seen:
rank 0: the second init_process_group: RuntimeError
rank 1: the second init_process_group: RuntimeError
reproduced: a second group over the same store is not created

Cause:
`distributed_c10d.py`, `destroy_process_group` sets `_world.group_count = 0`. The second group therefore has the name
of the first, 0, and its prefix, where rank 0 finds the old address of rank 1. The keys of a group are never deleted.

Fix:
Delete the keys of a group when it is destroyed, or add to the prefix a number that rank 0 draws for each group.
"""

from typing import Any

import torch.distributed as dist
from ending import CONTROL, end_of
from groups import TIMEOUT, created, join, members

# With --control, the second group is below another prefix, and both ranks begin at once.


def member(rank: int, line: Any, port: int) -> None:
    store = join(rank, 2, port)
    dist.barrier()
    dist.destroy_process_group()
    line.send("destroyed")
    line.recv()
    below = dist.PrefixStore("second", store) if CONTROL else store
    options: dict[str, Any] = {"store": below, "rank": rank, "world_size": 2, "timeout": TIMEOUT}
    line.send(created(lambda: dist.init_process_group("gloo", **options)))


lines, server = members(member, 2)
for ours in lines:
    ours.recv()
if CONTROL:
    for ours in lines:
        ours.send("begin again")
said = []
for ours in lines:  # rank 1 is slower than rank 0
    if not CONTROL:
        ours.send("begin again")
    said.append(ours.recv())
end_of("the second init_process_group", said, "a second group over the same store is not created")
