"""c10d rendezvous: a spare on the wait list of a full round is never moved to the redundancy list, and makes the group
restart

Versions: torch 2.13.0 and 2.15.0; Python 3.11, Linux, CPU. Lines are those of 2.13.0.

Steps:
1. A and B run, two of at most two; C joins, and is redundant.
2. A's worker fails, A leaves: C sees room, and moves to the wait list.
3. A and B join again before C's next poll: the round is full, and C is still on the wait list.
4. num_nodes_waiting() is 1: both agents restart, and again.

Expected:
C becomes redundant when it finds the round full: num_nodes_waiting() is 0, and the group runs.

Seen:
the spare has joined, num_nodes_waiting() is 0; A's worker fails, A leaves to join again
the spare has seen room, num_nodes_waiting() is 1; A and B join before it polls again
A and B run in a full round, num_nodes_waiting() is 1: restart 1
A and B run in a full round, num_nodes_waiting() is 1: restart 2
A and B run in a full round, num_nodes_waiting() is 1: restart 3
reproduced: a full group restarts for a spare

Cause:
`_RendezvousJoinOp.__call__` (`torch/distributed/elastic/rendezvous/dynamic_rendezvous.py:931`) adds a node to the
redundancy list of a full round only if it is not on the wait list. A node that is stays there until it wins a race
for a seat, and `SimpleElasticAgent._invoke_run` (`torch/distributed/elastic/agent/server/api.py:959`) restarts for
every waiting node, whether there is room or not.

Fix:
Move a waiting node of a complete and full round to the redundancy list. Counting only the waiting nodes that have
room in `num_nodes_waiting` would end the restarts as well.
"""

import os
import sys
from contextlib import suppress
from datetime import timedelta

from torch.distributed import HashStore
from torch.distributed.elastic.rendezvous import dynamic_rendezvous as dr
from torch.distributed.elastic.rendezvous.c10d_rendezvous_backend import C10dRendezvousBackend

CONTROL = "--control" in sys.argv  # A's worker does not fail
os.environ["TORCH_DISABLE_SHARE_RDZV_TCP_STORE"] = "1"  # no server is needed here
store = HashStore()


def node(name: str) -> dr.DynamicRendezvousHandler:
    settings = dr.RendezvousSettings("job", 2, 2, dr.RendezvousTimeout(), timedelta(seconds=5), 3)
    backend = C10dRendezvousBackend(store, "job")
    holder = dr._BackendRendezvousStateHolder(backend, settings, cache_duration=0)
    return dr.DynamicRendezvousHandler(dr._NodeDesc(name, 1, 0), settings, backend.name, store, holder)


class Enough(Exception):
    """The spare's sleep in which this script ends."""


def leave(handler: dr.DynamicRendezvousHandler) -> None:
    """The first half of next_rendezvous()."""
    handler._op_executor.run(dr._RendezvousExitOp(), handler._get_deadline(timedelta(seconds=10)))


def join() -> None:
    """A joins in B's sleep between two polls."""
    dr._delay = lambda seconds: a.next_rendezvous() if seconds == 1 else None
    b.next_rendezvous()
    dr._delay = in_the_sleep_of_the_spare


def in_the_sleep_of_the_spare(seconds: object) -> None:
    """Between two polls of the spare: A and B do what their agents do."""
    global polls, restarts
    if seconds != 1:
        return  # the random delay of a first join
    polls += 1
    waiting = a.num_nodes_waiting()
    if polls == 1 and not CONTROL:
        print(f"the spare has joined, num_nodes_waiting() is {waiting}; A's worker fails, A leaves to join again")
        leave(a)
    elif polls == 2:
        print(f"the spare has seen room, num_nodes_waiting() is {waiting}; A and B join before it polls again")
        leave(b)
        join()
    elif waiting and restarts < 3:
        restarts += 1
        print(f"A and B run in a full round, num_nodes_waiting() is {waiting}: restart {restarts}")
        leave(a)
        leave(b)
        join()
    else:
        raise Enough


a, b, spare, polls, restarts = node("A"), node("B"), node("C"), 0, 0
join()
with suppress(Enough):
    spare.next_rendezvous()
shown = restarts == 3
print("reproduced: a full group restarts for a spare" if shown else "not reproduced: the group comes to rest")
sys.exit(int(shown))
