"""c10d rendezvous: a node with a different min clears the deadline of others, whose round then never completes

Versions: torch 2.13.0 and 2.15.0; Python 3.11, Linux, CPU. Line numbers refer to 2.13.0.

Steps:
1. A and B (2 to 4 nodes) join: the last call begins.
2. C (3 to 4 nodes) joins, and leaves after its join_timeout.
3. A and B wait.

Expected:
A and B are enough for their min: the round completes after last_call_timeout. Or C is refused, because its settings
differ.

Seen:
C (3 to 4 nodes, join_timeout 1, last_call_timeout 2) gets RendezvousTimeoutError
B (2 to 4 nodes, join_timeout 5, last_call_timeout 2) gets RendezvousTimeoutError
A (2 to 4 nodes, join_timeout 5, last_call_timeout 2) gets RendezvousTimeoutError
reproduced: two nodes are enough for A and B, and they never start

Cause:
C's `_remove_participant_epilogue` (`torch/distributed/elastic/rendezvous/dynamic_rendezvous.py:330`) compares the two
remaining participants with its own min of 3, and clears the deadline. The deadline is set again only when the number of
participants reaches min from below (`_add_to_participants`, line 743), which does not happen.

Fix:
Keep min and max in the shared state and refuse a node with different values. Or let any participant that finds enough
participants and no deadline set one.
"""

import time
from datetime import timedelta

from ending import CONTROL, end
from nodes import node
from torch.distributed.elastic.rendezvous import dynamic_rendezvous as dr
from torch.distributed.elastic.rendezvous.api import RendezvousTimeoutError

# With --control, C has the settings of A and B.


def join(name: str, min_nodes: int, join_timeout: int) -> None:
    handler = node(name, (min_nodes, 4), join=join_timeout, last_call=2)
    try:
        # next_rendezvous() makes this call, and then exchanges the master's address
        handler._op_executor.run(dr._RendezvousJoinOp(), handler._get_deadline(timedelta(seconds=join_timeout)))
        ended[name] = "is in a complete round"
    except RendezvousTimeoutError:
        ended[name] = "gets RendezvousTimeoutError"
    print(f"{name} ({min_nodes} to 4 nodes, join_timeout {join_timeout}, last_call_timeout 2) {ended[name]}")


def sleep(seconds: int) -> None:
    """Replaces the sleep between two polls: B joins during A's first sleep, and C during B's. Later calls sleep."""
    if later:
        join(*later.pop(0))
    else:
        time.sleep(seconds)


dr._delay = sleep
later, ended = [("B", 2, 5), ("C", 2 if CONTROL else 3, 1)], {}
join("A", 2, 5)
end(ended["A"] == ended["B"] == "gets RendezvousTimeoutError", "two nodes are enough for A and B, and they never start")
