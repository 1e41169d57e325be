"""c10d rendezvous: a member that had another master asserts when it becomes rank 0, and the others get no master

Versions: torch 2.5 to 2.12; fixed in 2.13.0, where a rank 0 without a server starts one. Python 3.11, Linux, CPU.

Steps:
1. A and B are in round 0: A has rank 0, and B has taken A's address.
2. A's worker fails, and A leaves. A is slow to join again.
3. B restarts, and C joins, which completes round 1: B has rank 0, C has rank 1.

Expected:
B publishes its own address for round 1, and B and C return from next_rendezvous().

Seen:
round 0: A has rank 0, and B has rank 1 of 2
round 1: B has rank 0 of 2, and next_rendezvous raises AssertionError
round 1: C has rank 1 of 2, and next_rendezvous raises DistStoreError
reproduced: a member that becomes rank 0 asserts

Cause:
`DynamicRendezvousHandler.next_rendezvous` (`torch/distributed/elastic/rendezvous/dynamic_rendezvous.py`) builds the
bootstrap information only if the handler has none. B has A's information from round 0 and no server. The assertion
that rank 0 has a server fails.

Fix:
Start a server when a node without one becomes rank 0, and publish its address, as 2.13 does.
"""

import threading
from datetime import timedelta

from ending import CONTROL, end
from nodes import NODES_STORE, begins, between_polls, leave, node
from torch.distributed import DistStoreError
from torch.distributed.elastic.rendezvous import dynamic_rendezvous as dr

# With --control, rank 0 publishes its address in each round.
NODES_STORE.set_timeout(timedelta(seconds=3))  # the value of --rdzv-conf read_timeout


def join(name: str, handler: dr.DynamicRendezvousHandler) -> None:
    try:
        info = handler.next_rendezvous()
        ends[name] = f"has rank {info.rank} of {info.world_size}, and has the master's address"
    except (AssertionError, DistStoreError) as error:
        ends[name] = f"has rank {'BC'.index(name)} of 2, and next_rendezvous raises {type(error).__name__}"


a, b, c = (node("127.0.0.1", number=number, shares=not CONTROL) for number in (1, 2, 3))
ends = {}
newcomer = threading.Thread(target=join, args=("C", c))
between_polls(a.next_rendezvous)
rank = b.next_rendezvous().rank  # A joins during B's sleep
print(f"round 0: A has rank 0, and B has rank {rank} of 2")
leave(a)  # A's worker fails
between_polls(lambda: begins(newcomer, c))
join("B", b)
newcomer.join()
for name in "BC":
    print(f"round 1: {name} {ends[name]}")
end("AssertionError" in ends["B"], "a member that becomes rank 0 asserts")
