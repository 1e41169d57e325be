"""distributed: if a process skips new_group for a group that it does not belong to, a later group times out on all its
members

Versions: torch 2.13.0 and 2.15.0; Python 3.11, Linux, CPU.

Steps:
1. In a world of three, ranks 0 and 1 call `new_group([0, 1])`; rank 2 does not.
2. All three call `new_group([0, 1, 2])`.

Expected:
The group is created, or an exception at once reports that the processes call new_group in different orders.

Seen:
rank 0: new_group([0, 1, 2]), which all three call: DistStoreError
rank 1: new_group([0, 1, 2]), which all three call: DistStoreError
reproduced: a group that all its members request is not created

Cause:
`distributed_c10d.py`, `_process_group_name`: the name is a counter of this process, and the prefix of the group's keys.
Rank 2 names the group 1, and the others name it 2. Under 1 rank 2 finds the addresses of the group {0, 1} and waits for
a connection to them. In torch 1.9 new_group had a barrier of all processes, which detected the skipped call itself.

Fix:
Derive the name from the ranks and the number of groups of these ranks that this process has created. Or write the ranks
below the prefix and compare them.
"""

from typing import Any

import torch.distributed as dist
from ending import CONTROL, end_of
from groups import TIMEOUT, created, join, members

# With --control, rank 2 calls it too.


def member(rank: int, line: Any, port: int) -> None:
    join(rank, 3, port)
    if rank < 2 or CONTROL:  # rank 2 is not a member
        dist.new_group([0, 1], timeout=TIMEOUT)
    line.send(created(lambda: dist.new_group([0, 1, 2], timeout=TIMEOUT)))


lines, server = members(member, 3)
said = [lines[rank].recv() for rank in (0, 1)]  # rank 2 takes 20 s to give up
end_of("new_group([0, 1, 2]), which all three call", said, "a group that all its members request is not created")
