"""distributed: new_group(use_local_synchronization=True) gives a new group the name of an existing group
after another group was destroyed

Versions: torch 2.13.0; Python 3.11, Linux, CPU. 2.14 does not have the defect.

Steps:
1. In a world of two, both ranks call `new_group([0, 1], use_local_synchronization=True)` twice.
2. Both destroy the first of the two groups.
3. Both call `new_group` a third time.

Expected:
The group is created.

Seen:
rank 0: a third group of the same ranks, after the first was destroyed: ValueError
rank 1: a third group of the same ranks, after the first was destroyed: ValueError
reproduced: a group gets the name of an existing one, and is refused

Cause:
`distributed_c10d.py`, `_hash_ranks_to_str`: the name is a hash of the ranks and of `len(_world.pg_names)`, the number
of groups that this process is in now. It is 3 for the second group, and 3 again after the first was destroyed.

Fix:
Count the groups of the same ranks that the process has ever created, and never decrease the count.
"""

from typing import Any

import torch.distributed as dist
from ending import CONTROL, end_of
from groups import TIMEOUT, created, join, members

# With --control, the ranks do not use use_local_synchronization: the counter of all groups names each.


def member(rank: int, line: Any, port: int) -> None:
    join(rank, 2, port)
    how: dict[str, Any] = {"timeout": TIMEOUT, "use_local_synchronization": not CONTROL}
    first, _ = dist.new_group([0, 1], **how), dist.new_group([0, 1], **how)
    dist.barrier(first)
    dist.destroy_process_group(first)
    line.send(created(lambda: dist.new_group([0, 1], **how)))


lines, server = members(member, 2)
said = [line.recv() for line in lines]
text = "a group gets the name of an existing one, and is refused"
end_of("a third group of the same ranks, after the first was destroyed", said, text)
