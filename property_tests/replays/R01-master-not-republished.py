"""c10d rendezvous: rank 0 does not publish its address for a later round, and a node that joins this round times out

Versions: torch 2.13.0 and 2.15.0; Python 3.11, Linux, CPU. Line numbers refer to 2.13.0.

Steps:
1. A is alone in round 0, and publishes MASTER_ADDR and MASTER_PORT.
2. A's agent restarts; B joins, which completes round 1: A has rank 0, B has rank 1.
3. B waits for MASTER_ADDR of round 1.

Expected:
A publishes its address for round 1, and B returns from next_rendezvous().

Seen:
round 0: A has rank 0 of 1
round 1: A has rank 0 of 2
round 1: B has rank 1 of 2, and next_rendezvous raises DistStoreError
reproduced: rank 0 publishes no master for round 1

Cause:
`DynamicRendezvousHandler.next_rendezvous` (`torch/distributed/elastic/rendezvous/dynamic_rendezvous.py:1209`) builds
the bootstrap information only if the handler has none, or has rank 0 and no server yet. A has both from round 0. It
therefore calls `RendezvousStoreInfo.build`, which publishes the address, only once. The store that B reads has a prefix
with the number of the round (`_wrap_store`, line 1370): the keys of round 0 are not the keys of round 1.

Fix:
Call `RendezvousStoreInfo.build` in every round, with the port of the existing server. Only the server is worth
caching; the address costs one write for rank 0 and one read for the others.
"""

import threading
from datetime import timedelta

from ending import CONTROL, end
from nodes import NODES_STORE, begins, between_polls, node
from torch.distributed import DistStoreError

# With --control, rank 0 publishes its address in each round.
NODES_STORE.set_timeout(timedelta(seconds=3))  # the value of --rdzv-conf read_timeout


def join_as_newcomer() -> None:
    try:
        info = b.next_rendezvous()
        print(f"round 1: B has rank {info.rank} of {info.world_size}, and has the master's address")
    except DistStoreError as error:
        errors.append(error)
        print(f"round 1: B has rank 1 of 2, and next_rendezvous raises {type(error).__name__}")


a, b = (node("127.0.0.1", (1, 2), number=number, shares=not CONTROL, last_call=1) for number in (1, 2))
errors = []
newcomer = threading.Thread(target=join_as_newcomer)
first = a.next_rendezvous()
print(f"round 0: A has rank {first.rank} of {first.world_size}")
between_polls(lambda: begins(newcomer, b))
second = a.next_rendezvous()  # A restarts, as for a newcomer or a failed worker
print(f"round 1: A has rank {second.rank} of {second.world_size}")
newcomer.join()
end(errors, "rank 0 publishes no master for round 1")
