"""A node with a larger min leaves, and takes the others' deadline along: enough nodes wait, and no round completes."""

import sys
import time
from datetime import timedelta

from torch.distributed import HashStore
from torch.distributed.elastic.rendezvous import dynamic_rendezvous as dr
from torch.distributed.elastic.rendezvous.api import RendezvousTimeoutError
from torch.distributed.elastic.rendezvous.c10d_rendezvous_backend import C10dRendezvousBackend

store = HashStore()


def join(name: str, min_nodes: int, join_timeout: int) -> None:
    timeout = dr.RendezvousTimeout(join=timedelta(seconds=join_timeout), last_call=timedelta(seconds=2))
    settings = dr.RendezvousSettings("job", min_nodes, 4, timeout, timedelta(seconds=5), 3)
    backend = C10dRendezvousBackend(store, "job")
    holder = dr._BackendRendezvousStateHolder(backend, settings, cache_duration=0)
    handler = dr.DynamicRendezvousHandler(dr._NodeDesc(name, 1, 0), settings, backend.name, store, holder)
    try:
        # next_rendezvous() is this, and then the exchange of the master's address
        handler._op_executor.run(dr._RendezvousJoinOp(), handler._get_deadline(timeout.join))
        ended[name] = "is in a complete round"
    except RendezvousTimeoutError:
        ended[name] = "gets RendezvousTimeoutError"
    print(f"{name} ({min_nodes} to 4 nodes, join_timeout {join_timeout}, last_call_timeout 2) {ended[name]}")


def sleep(seconds: int) -> None:
    """In the place of the sleep between two polls: first B joins in A's, then C in B's; then it is a sleep."""
    if later:
        join(*later.pop(0))
    else:
        time.sleep(seconds)


dr._delay = sleep
later, ended = [("B", 2, 5), ("C", 3, 1)], {}
join("A", 2, 5)
shown = ended["A"] == ended["B"] == "gets RendezvousTimeoutError"
print("reproduced: two nodes do for A and B, and they never start" if shown else "not reproduced: A and B start")
sys.exit(int(shown))
