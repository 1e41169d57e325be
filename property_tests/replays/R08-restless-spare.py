"""c10d rendezvous: a spare on the wait list of a full round is never moved to the redundancy list, and makes the group
restart

Versions: torch 2.13.0 and 2.15.0; Python 3.11, Linux, CPU. Line numbers refer to 2.13.0.

Steps:
1. A and B run in a round of at most two nodes. C joins and is redundant.
2. A's worker fails, and A leaves. C finds room in the round and moves to the wait list.
3. A and B join again before C's next poll: the round is full, and C is still on the wait list.
4. num_nodes_waiting() is 1: both agents restart, again and again.

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
redundancy list of a full round only if it is not on the wait list. A node on the wait list stays there until it wins a
race for a place in a round, and `SimpleElasticAgent._invoke_run`
(`torch/distributed/elastic/agent/server/api.py:959`) restarts for every waiting node, whether or not the round
has room.

Fix:
Move a waiting node of a complete and full round to the redundancy list. The restarts would also end if
`num_nodes_waiting` counted only the nodes for which the round has room.
"""

from contextlib import suppress

from ending import CONTROL, end
from nodes import Waits, between_polls, leave, node

# With --control, A's worker does not fail.


def join() -> None:
    """A joins during B's sleep between two polls."""
    between_polls(a.next_rendezvous)
    b.next_rendezvous()
    between_polls(in_the_sleep_of_the_spare)


def in_the_sleep_of_the_spare() -> None:
    """A and B do what their agents do."""
    global polls, restarts
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
        raise Waits


a, b, spare, polls, restarts = node("A"), node("B"), node("C"), 0, 0
join()
with suppress(Waits):
    spare.next_rendezvous()
end(restarts == 3, "a full group restarts for a spare")
