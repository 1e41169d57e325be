"""c10d rendezvous: a member that was led by another asserts when it becomes rank 0, and the others get no master

Versions: torch 2.5 to 2.12; fixed in 2.13.0, where a rank 0 without a server starts one. Python 3.11, Linux, CPU.

Steps:
1. A and B are in round 0: A has rank 0, and B has taken A's address.
2. A's worker fails, and A leaves; it is slow to come back.
3. B restarts, and C joins, which completes round 1: B has rank 0, C has rank 1.

Expected:
B publishes an address of its own for round 1, and B and C return from next_rendezvous().

Seen:
round 0: A has rank 0, and B has rank 1 of 2
round 1: B has rank 0 of 2, and next_rendezvous raises AssertionError
round 1: C has rank 1 of 2, and next_rendezvous raises DistStoreError
reproduced: a member that becomes rank 0 asserts

Cause:
`DynamicRendezvousHandler.next_rendezvous` (`torch/distributed/elastic/rendezvous/dynamic_rendezvous.py`) builds the
bootstrap information only if the handler has none. B has A's from round 0, and no server: the assertion that rank 0 has
one fails.

Fix:
Start a server when a node without one becomes rank 0, and publish its address, as 2.13 does.
"""

import os
import sys
import threading
import time
from datetime import timedelta

from torch.distributed import DistStoreError, HashStore
from torch.distributed.elastic.rendezvous import dynamic_rendezvous as dr
from torch.distributed.elastic.rendezvous.c10d_rendezvous_backend import C10dRendezvousBackend

CONTROL = "--control" in sys.argv  # rank 0 publishes its address in each round
os.environ["TORCH_DISABLE_SHARE_RDZV_TCP_STORE"] = str(int(CONTROL))
store = HashStore()
store.set_timeout(timedelta(seconds=3))  # stands for --rdzv-conf read_timeout


def node(number: int) -> dr.DynamicRendezvousHandler:
    settings = dr.RendezvousSettings("job", 2, 2, dr.RendezvousTimeout(), timedelta(seconds=5), 3)
    backend = C10dRendezvousBackend(store, "job")
    holder = dr._BackendRendezvousStateHolder(backend, settings, cache_duration=0)
    return dr.DynamicRendezvousHandler(dr._NodeDesc("127.0.0.1", number, 0), settings, backend.name, store, holder)


def join(name: str, handler: dr.DynamicRendezvousHandler) -> None:
    try:
        info = handler.next_rendezvous()
        ends[name] = f"has rank {info.rank} of {info.world_size}, and knows the master"
    except (AssertionError, DistStoreError) as error:
        ends[name] = f"has rank {'BC'.index(name)} of 2, and next_rendezvous raises {type(error).__name__}"


def c_joins(seconds: object) -> None:
    """In the place of B's sleep between two polls: C joins, which completes the round."""
    if seconds == 1 and newcomer.ident is None:
        newcomer.start()
        while c._keep_alive_timer is None:
            time.sleep(0.01)


a, b, c, ends = node(1), node(2), node(3), {}
newcomer = threading.Thread(target=join, args=("C", c))
dr._delay = lambda seconds: a.next_rendezvous() if seconds == 1 else None
rank = b.next_rendezvous().rank  # A joins in B's sleep
print(f"round 0: A has rank 0, and B has rank {rank} of 2")
a._op_executor.run(dr._RendezvousExitOp(), a._get_deadline(timedelta(seconds=10)))  # A's worker fails
dr._delay = c_joins
join("B", b)
newcomer.join()
for name in "BC":
    print(f"round 1: {name} {ends[name]}")
shown = "AssertionError" in ends["B"]
print("reproduced: a member that becomes rank 0 asserts" if shown else "not reproduced: B and C know a master")
sys.exit(int(shown))
