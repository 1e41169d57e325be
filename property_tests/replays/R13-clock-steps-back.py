"""c10d rendezvous: a wall clock that is set back stops the node's heartbeats, and the others remove it

Versions: torch 2.13.0 and 2.15.0; Python 3.11, Linux, CPU. Line numbers refer to 2.13.0.

Steps:
1. A and B run; A's wall clock is set back by 60 s.
2. A and B call `_keep_alive()` every 6 s, for 18 s.

Expected:
A writes heartbeats, and stays a participant.

Seen:
at  0 s A and B run, in round 0
at 18 s A has called _keep_alive() three times, and was removed from the round
reproduced: a live member was removed

Cause:
`_should_keep_alive` (`torch/distributed/elastic/rendezvous/dynamic_rendezvous.py:854`) compares the time of the last
heartbeat, written before the clock was set back, with `datetime.now()`. For a minute no heartbeat is due.

Fix:
Decide by the node's monotonic clock whether a heartbeat is due. The timer that calls `_keep_alive` already uses one.
"""

from datetime import timedelta

from ending import CONTROL, end
from nodes import Clock, beat_by_clock, node, shared, together

# With --control, A's clock is set back by a second.


beat_by_clock()
a, b = node("A"), node("B")
together(b, a)
for seconds in (6, 12, 18):
    Clock.ahead = timedelta(seconds=seconds - (1 if CONTROL else 60))  # A's, which has been set back
    a._keep_alive()
    Clock.ahead = timedelta(seconds=seconds)
    b._keep_alive()
removed = a._this_node not in shared().participants
print(f"at 18 s A has called _keep_alive() three times, and {'was removed from' if removed else 'is in'} the round")
end(removed, "a live member was removed")
