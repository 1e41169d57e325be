"""c10d rendezvous: expiry compares wall clocks of different nodes, so a node with a fast clock removes live nodes

Versions: torch 2.13.0 and 2.15.0; Python 3.11, Linux, CPU. Line numbers refer to 2.13.0.

Steps:
1. B's wall clock is 20 s ahead of A's; a heartbeat lives for 3 x 5 s.
2. A and B join a round of two.
3. Compare their worlds; look at the participants after B's next heartbeat.

Expected:
Both have a world of 2, and both stay participants, because both send their heartbeats in time.

Seen:
A returns with rank 0 in a world of 2
B returns with rank 1 in a world of 1
six seconds later A, which is alive, was removed from the round
reproduced: a live member was taken for dead

Cause:
`_sanitize` (`torch/distributed/elastic/rendezvous/dynamic_rendezvous.py:475`) compares the time in `last_heartbeats`,
which another node wrote with its clock (`_keep_alive`, line 720), with the node's own `datetime.now()`.

Fix:
Treat a node as dead when its heartbeat has not changed for interval x attempts on the observer's monotonic clock. The
value of a heartbeat is then a counter, and no two clocks are compared.
"""

from contextlib import suppress
from datetime import timedelta

from ending import CONTROL, end
from nodes import Clock, Waits, beat_by_clock, between_polls, node, returns

# With --control, B's clock is ahead by less than a heartbeat lives.


def meanwhile() -> None:
    """During B's sleep A joins by its own clock, and the round is complete."""
    if worlds:
        raise Waits
    Clock.ahead = timedelta(0)
    returns("A returns", a, worlds)
    Clock.ahead = ahead


beat_by_clock()
between_polls(meanwhile)
ahead = timedelta(seconds=0.25 if CONTROL else 20)  # the offset of B's clock; a heartbeat lives for 3 x 5 s
worlds: list[int] = []
a, b = node("A"), node("B")
Clock.ahead = ahead
with suppress(Waits):
    returns("B returns", b, worlds)
Clock.ahead = ahead + timedelta(seconds=6)
b._keep_alive()  # B's timer makes this call
Clock.ahead = timedelta(seconds=6)
state = a._state_holder
state.sync()
removed = a._this_node not in state.state.participants
print(f"six seconds later A, which is alive, {'was removed from' if removed else 'is in'} the round")
end(worlds == [2, 1] and removed, "a live member was taken for dead")
