"""distributed: new_group(use_local_synchronization=True) times out if some members are in more groups than others

Versions: torch 2.13.0 and 2.15.0; Python 3.11, Linux, CPU.

Steps:
1. In a world of three, ranks 0 and 1 call `new_group([0, 1], use_local_synchronization=True)`. Rank 2 is not a
   member; its call would return None and change nothing.
2. All three call `new_group([0, 1, 2], use_local_synchronization=True)`.

Expected:
The group is created.

Seen:
rank 0: new_group([0, 1, 2]), which all three call: DistStoreError
rank 1: new_group([0, 1, 2]), which all three call: DistStoreError
rank 2: new_group([0, 1, 2]), which all three call: DistStoreError
reproduced: a group that all its members request, in one order, is not created

Cause:
`distributed_c10d.py`, `_hash_ranks_to_str`: the name is a hash of the ranks and of `len(_world.pg_names)`, the number
of groups that this process is in: 2 on ranks 0 and 1, and 1 on rank 2. Each rank waits under a prefix that the others
never use.

Fix:
Count only the groups of the same ranks instead of `len(_world.pg_names)`.
"""

from typing import Any

import torch.distributed as dist
from ending import CONTROL, end_of
from groups import TIMEOUT, created, join, members

# With --control, the ranks do not use use_local_synchronization, and rank 2 calls new_group too.


def member(rank: int, line: Any, port: int) -> None:
    join(rank, 3, port)
    how: dict[str, Any] = {"timeout": TIMEOUT, "use_local_synchronization": not CONTROL}
    if rank < 2 or CONTROL:  # with use_local_synchronization only members call
        dist.new_group([0, 1], **how)
    line.send(created(lambda: dist.new_group([0, 1, 2], **how)))


lines, server = members(member, 3)
said = [line.recv() for line in lines]
text = "a group that all its members request, in one order, is not created"
end_of("new_group([0, 1, 2]), which all three call", said, text)
