"""c10d rendezvous: nodes with a different min clear the deadline of others, whose round then never completes

Versions: torch 2.13.0 and 2.15.0; Python 3.11, Linux, CPU. Lines are those of 2.13.0.

Steps:
1. A and B (2 to 4 nodes) join: the last call runs.
2. C (3 to 4 nodes) joins, and leaves when its join_timeout is over.
3. A and B wait.

Expected:
A and B are enough for their min: the round completes after last_call_timeout. Or C is refused, because its settings
differ.

Seen:
C (3 to 4 nodes, join_timeout 1, last_call_timeout 2) gets RendezvousTimeoutError
B (2 to 4 nodes, join_timeout 5, last_call_timeout 2) gets RendezvousTimeoutError
A (2 to 4 nodes, join_timeout 5, last_call_timeout 2) gets RendezvousTimeoutError
reproduced: two nodes do for A and B, and they never start

Cause:
C's `_remove_participant_epilogue` (`torch/distributed/elastic/rendezvous/dynamic_rendezvous.py:330`) compares the two
that are left with its own min of 3, and clears the deadline. It is set again only when the number of participants
reaches min from below (`_add_to_participants`, line 743), which it does not.

Fix:
Keep min and max in the shared state and refuse a node with others. Or let any participant that finds enough
participants and no deadline set one.
"""

import sys
import time
from datetime import timedelta

from torch.distributed import HashStore
from torch.distributed.elastic.rendezvous import dynamic_rendezvous as dr
from torch.distributed.elastic.rendezvous.api import RendezvousTimeoutError
from torch.distributed.elastic.rendezvous.c10d_rendezvous_backend import C10dRendezvousBackend

CONTROL = "--control" in sys.argv  # C has the settings of A and B
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
later, ended = [("B", 2, 5), ("C", 2 if CONTROL else 3, 1)], {}
join("A", 2, 5)
shown = ended["A"] == ended["B"] == "gets RendezvousTimeoutError"
print("reproduced: two nodes do for A and B, and they never start" if shown else "not reproduced: A and B start")
sys.exit(int(shown))
