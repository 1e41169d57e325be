"""c10d rendezvous: a member that was removed for missed heartbeats gets no notice, and runs next to its replacement

Versions: torch 2.13.0 and 2.15.0; Python 3.11, Linux, CPU. Line numbers refer to 2.13.0.

Steps:
1. A and C run in round 0; A's process is stopped for longer than 3 x 5 s.
2. C's heartbeat removes A. C's worker fails, C restarts, and B joins: B and C are in round 1.
3. A's process continues. Look at everything that its agent reads.

Expected:
A's agent detects the removal: its heartbeat fails, or num_nodes_waiting() or is_closed() reports it.

Seen:
at  0 s A and C run, in round 0
at 18 s B and C run, in round 1
at 20 s A calls _keep_alive(), without an error
at 20 s A sees num_nodes_waiting() = 0, is_closed() = False
reproduced: A runs next to the new group, and gets no notice

Cause:
`_should_keep_alive` (`torch/distributed/elastic/rendezvous/dynamic_rendezvous.py:847`) returns False for a node that
has no entry in `last_heartbeats`. `_RendezvousKeepAliveOp` (line 985) then finishes without an error and without a
write. The results of `num_nodes_waiting` (line 1265) and `is_closed` do not depend on the node's own membership, and
the agent reads nothing else.

Fix:
Let the keep-alive operation raise, or set a flag that the agent reads, when the node is no longer a participant of
the round from which it returned. The agent then stops its workers and joins again.
"""

from datetime import timedelta

from ending import CONTROL, end
from nodes import Clock, beat_by_clock, node, shared, together

# With --control, A is stopped for less than its heartbeat lives.


beat_by_clock()
a, b, c = node("A"), node("B"), node("C")
together(c, a)
for seconds in (6, 12) if CONTROL else (6, 12, 18):  # A's process is stopped, C's heartbeats continue
    Clock.ahead = timedelta(seconds=seconds)
    c._keep_alive()
if not CONTROL:
    together(c, b)  # C's worker has lost its peer: C restarts, and B replaces A
Clock.ahead = timedelta(seconds=14 if CONTROL else 20)
a._keep_alive()  # A's process continues
print(f"at {Clock.ahead.seconds} s A calls _keep_alive(), without an error")
print(f"at {Clock.ahead.seconds} s A sees num_nodes_waiting() = {a.num_nodes_waiting()}, is_closed() = {a.is_closed()}")
removed = a._this_node not in shared().participants
end(
    removed and shared().complete and a.num_nodes_waiting() == 0 and not a.is_closed(),
    "A runs next to the new group, and gets no notice",
)
