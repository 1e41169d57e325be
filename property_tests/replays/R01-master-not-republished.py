"""c10d rendezvous: rank 0 does not publish its address for a later round, and a node that joins it times out

Versions: torch 2.13.0 and 2.15.0; Python 3.11, Linux, CPU. Lines are those of 2.13.0.

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
the bootstrap information only if the handler has none, or has rank 0 and no server yet. A has both from round 0, so
that it calls `RendezvousStoreInfo.build`, which publishes, only once. The store that B reads has a prefix with the
number of the round (`_wrap_store`, line 1370): the keys of round 0 are not the keys of round 1.

Fix:
Call `RendezvousStoreInfo.build` in every round, with the port of the server that exists already. Only the server is
worth caching; the address is one write for rank 0 and one read for the others.
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
    timeout = dr.RendezvousTimeout(last_call=timedelta(seconds=1))
    settings = dr.RendezvousSettings("job", 1, 2, timeout, timedelta(seconds=5), 3)
    backend = C10dRendezvousBackend(store, "job")
    holder = dr._BackendRendezvousStateHolder(backend, settings, cache_duration=0)
    return dr.DynamicRendezvousHandler(dr._NodeDesc("127.0.0.1", number, 0), settings, backend.name, store, holder)


def join_as_newcomer() -> None:
    try:
        info = b.next_rendezvous()
        print(f"round 1: B has rank {info.rank} of {info.world_size}, and knows the master")
    except DistStoreError as error:
        errors.append(error)
        print(f"round 1: B has rank 1 of 2, and next_rendezvous raises {type(error).__name__}")


def b_joins(seconds: object) -> None:
    """In the place of A's sleep between two polls: the newcomer joins, which completes the round."""
    if seconds == 1 and newcomer.ident is None:
        newcomer.start()
        while b._keep_alive_timer is None:
            time.sleep(0.01)


a, b, errors = node(1), node(2), []
newcomer = threading.Thread(target=join_as_newcomer)
first = a.next_rendezvous()
print(f"round 0: A has rank {first.rank} of {first.world_size}")
dr._delay = b_joins
second = a.next_rendezvous()  # A restarts, as for a newcomer or a failed worker
print(f"round 1: A has rank {second.rank} of {second.world_size}")
newcomer.join()
print("reproduced: rank 0 publishes no master for round 1" if errors else "not reproduced: B knows the master")
sys.exit(int(bool(errors)))
