"""symmetric memory: a rendezvous of a subgroup makes a later rendezvous of a larger group hang

Versions: torch 2.13.0; Python 3.11, Linux, CPU.

Steps:
1. Ranks 0 and 1 of three exchange values in the group [0, 1], with the StoreExchange of torch's header, as a rendezvous
   of symmetric memory does.
2. All three exchange values in the default group.

Expected:
Each rank gets the values of all three.

Seen:
rank 0: the exchange of all three: DistStoreError
rank 1: the exchange of all three: DistStoreError
rank 2: the exchange of all three: DistStoreError
reproduced: a subgroup's exchange shifts the numbers of the next exchange

Cause:
`CUDASymmetricMemoryUtils.hpp`, `StoreExchange::all_gather`: the key has `seq_id_`, which counts the exchanges of the
process in all groups. Ranks 0 and 1 wait for CUDASymmetricMemory/1/2, and rank 2 for CUDASymmetricMemory/0/0.

Fix:
Count the exchanges of each group separately.

Related: pytorch#196082 has this hang with GPUs, and pytorch#196350 the count for each group's store.
"""

from datetime import timedelta
from typing import Any

import torch.distributed as dist
from ending import CONTROL, end
from exchanges import PREFIX, gathered, store_exchange
from groups import join, members

# With --control, rank 2 is a member of the first group too.
TIMEOUT = timedelta(seconds=30 if CONTROL else 2)  # the default is 30 minutes
FIRST = [0, 1, 2] if CONTROL else [0, 1]


def member(rank: int, line: Any, port: int) -> None:
    join(rank, 3, port, timedelta(seconds=30))
    exchange = store_exchange()(PREFIX)
    for ranks in (FIRST, [0, 1, 2]):
        group = dist.new_group(ranks)
        if rank in ranks:
            store = dist.distributed_c10d._get_process_group_store(group)
            store.set_timeout(TIMEOUT)
            got = gathered(exchange, store, rank, len(ranks), rank)
    line.send(got)


store_exchange()
lines, server = members(member, 3)
said = [line.recv() for line in lines]

for rank, got in enumerate(said):
    print(f"rank {rank}: the exchange of all three: {got}")
end(said != [[0, 1, 2]] * 3, "a subgroup's exchange shifts the numbers of the next exchange")
