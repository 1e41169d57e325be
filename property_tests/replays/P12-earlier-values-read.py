"""symmetric memory: a process that is started again reads the handles of earlier processes from the store

Versions: torch 2.13.0; Python 3.11, Linux, CPU.

Steps:
1. Two processes exchange values over a store, with the StoreExchange of torch's header, as a rendezvous of symmetric
   memory does. Both end.
2. Two new processes do the same with the same store. Rank 1 is a moment later.

Expected:
Rank 0 waits for the new rank 1, and gets its value.

Seen:
rank 0: the exchange of the new processes: [20, 11] (right: [20, 21])
rank 1: the exchange of the new processes: [20, 21] (right: [20, 21])
reproduced: an exchange has returned the value of a process that has ended

Cause:
`CUDASymmetricMemoryUtils.hpp`, `StoreExchange::all_gather`: the key has a count that begins at 0 in each process, and
is never deleted. The new rank 0 finds the value of the old rank 1. A count for each store object, as in
pytorch#196350, begins at 0 also when a process destroys its groups and makes them again.

Fix:
Let the members of a group agree on a prefix when they meet, for example on a number that rank 0 draws.
"""

from datetime import timedelta
from typing import Any

import torch.distributed as dist
from ending import CONTROL, end
from exchanges import PREFIX, gathered, store_exchange
from groups import members

# With --control, the new processes have another prefix.


def member(process: int, line: Any, port: int) -> None:
    """Processes 0 and 1 are the first ones, 2 and 3 the new ones."""
    life, rank = divmod(process, 2)
    client = dist.TCPStore("127.0.0.1", port, is_master=False, wait_for_workers=False, timeout=timedelta(seconds=30))
    store = dist.PrefixStore(f"life {life}" if CONTROL else "0", client)
    line.recv()
    line.send(gathered(store_exchange()(PREFIX), store, rank, 2, 10 * life + 10 + rank))


store_exchange()
lines, server = members(member, 4)
for line in lines[:2]:
    line.send("begin")
for line in lines[:2]:
    line.recv()
    line.send("end")
lines[2].send("begin")
said = [] if CONTROL else [lines[2].recv()]  # rank 1 is later
lines[3].send("begin")
said += [line.recv() for line in lines[2 + len(said) :]]

for rank, got in enumerate(said):
    print(f"rank {rank}: the exchange of the new processes: {got} (right: [20, 21])")
end(said != [[20, 21]] * 2, "an exchange has returned the value of a process that has ended")
