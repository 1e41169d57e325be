"""symmetric memory: if a rendezvous raises on one rank and is called again, it mixes with the next rendezvous

Versions: torch 2.13.0; Python 3.11, Linux, CPU.

Steps:
1. Rank 0 exchanges a value with rank 1, with the StoreExchange of torch's header, as a rendezvous of symmetric memory
   does. Rank 1 is late, so the call raises on rank 0, which calls again.
2. Rank 1 takes part in this exchange, and then in a second one.

Expected:
Rank 0 gets the value of rank 1 in the first exchange, 11, or an error.

Seen:
rank 0, the first exchange: DistStoreError
rank 0, the first exchange: [10, 21] (right: [10, 11])
rank 1, the first exchange: [10, 11] (right: [10, 11])
rank 1, the second exchange: [10, 21] (right: [20, 21])
reproduced: values of two exchanges are mixed, and nothing is raised

Cause:
`CUDASymmetricMemoryUtils.hpp`, `StoreExchange::all_gather` increases its count before it waits. The call that raises
has counted on rank 0 alone, so the second call of rank 0 has the number of the next exchange of rank 1.

Fix:
Let a group whose exchange has raised refuse further exchanges, and write a mark into the store, for which the other
members raise too.
"""

from datetime import timedelta
from typing import Any

import torch.distributed as dist
from ending import CONTROL, end
from exchanges import PREFIX, gathered, store_exchange
from groups import members

# With --control, rank 1 is not late, and rank 0 calls once for each exchange.
RIGHT = [[10, 11], [20, 21]]


def member(rank: int, line: Any, port: int) -> None:
    client = dist.TCPStore("127.0.0.1", port, is_master=False, wait_for_workers=False)
    store, exchange = dist.PrefixStore("0", client), store_exchange()(PREFIX)
    line.recv()
    for number, value in enumerate((10, 20) if rank or CONTROL else (10, 10)):
        is_impatient = rank == number == 0 and not CONTROL
        store.set_timeout(timedelta(seconds=1 if is_impatient else 30))
        line.send(gathered(exchange, store, rank, 2, value + rank))


store_exchange()
lines, server = members(member, 2)
lines[0].send("begin")
raised = None if CONTROL else lines[0].recv()
lines[1].send("begin")
said = [[line.recv() for _ in range(1 if rank == 0 and raised else 2)] for rank, line in enumerate(lines)]

if raised:
    print(f"rank 0, the first exchange: {raised}")
for rank, results in enumerate(said):
    for number, (got, right) in enumerate(zip(results, RIGHT, strict=False)):
        print(f"rank {rank}, the {('first', 'second')[number]} exchange: {got} (right: {right})")
end(
    any(got not in RIGHT for results in said for got in results),
    "values of two exchanges are mixed, and nothing is raised",
)
