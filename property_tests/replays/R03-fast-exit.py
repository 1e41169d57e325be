"""c10d rendezvous: a member that leaves a complete round at once changes the world of members that have yet to poll it

Versions: torch 2.13.0 and 2.15.0; Python 3.11, Linux, CPU. Line numbers refer to 2.13.0.

Steps:
1. B joins a round of two, and sleeps for a second between two polls.
2. A joins: the round is complete, with a world of 2.
3. A's worker fails; A's agent calls next_rendezvous() again, which removes A from the round.
4. B polls.

Expected:
B returns with a world of 2, the world of the complete round, or joins the next round.

Seen:
A returns from round 0 with rank 0 in a world of 2
B returns from round 0 with rank 1 in a world of 1
reproduced: members of one round have different worlds

Cause:
`_RendezvousExitOp` (`torch/distributed/elastic/rendezvous/dynamic_rendezvous.py:862`) removes a node from the
participants of a complete round, whose ranks are assigned already. `_get_world` (line 1365) computes rank and world
from the participants at the time of a node's own poll, so members get different results.

Fix:
Keep the ranks and the world of a complete round in the state as they were assigned, separate from the list of live
participants. A member that polls a round which another member has left meanwhile should join the next one.
"""

from contextlib import suppress

from ending import CONTROL, end
from nodes import Waits, between_polls, node, returns

# With --control, B polls before A's worker fails.


def meanwhile() -> None:
    """During B's sleep A completes the round, its worker fails, and A joins again."""
    if worlds:
        raise Waits
    returns("A returns from round 0", a, worlds)
    if CONTROL:
        return
    with suppress(Waits):
        a.next_rendezvous()


between_polls(meanwhile)
worlds: list[int] = []
a, b = node("A"), node("B")
with suppress(Waits):
    returns("B returns from round 0", b, worlds)
end(worlds == [2, 1], "members of one round have different worlds")
