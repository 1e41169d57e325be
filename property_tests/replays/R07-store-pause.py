"""c10d rendezvous: after a pause of the store longer than the keep-alive window no member ever writes a heartbeat again

Versions: torch 2.13.0 and 2.15.0; Python 3.11, Linux, CPU. Line numbers refer to 2.13.0.

Steps:
1. A and B run in round 0; no call to the store gets through for 20 s, and the window is 3 x 5 s.
2. The store answers again, and A and B call `_keep_alive()`.
3. C and D join.

Expected:
A and B write a heartbeat after the pause, or detect their removal before another group starts.

Seen:
at  0 s A and B run, in round 0
at 20 s A and B call _keep_alive(): no error, and no new time in the store
at 26 s A and B call _keep_alive(): no error, and no new time in the store
at 32 s A and B call _keep_alive(): no error, and no new time in the store
at 32 s C and D run, in round 1
at 32 s A and B see a node that waits, or a rendezvous that is closed: False
reproduced: two groups run, and no member gets notice of the other group

Cause:
At its first read after the pause each node finds its own heartbeat expired, and `_sanitize`
(`torch/distributed/elastic/rendezvous/dynamic_rendezvous.py:488`) removes it from its local copy.
`_should_keep_alive` (line 849) then returns False forever, because the node has no entry. The next node that joins
finds no participant.

Fix:
Do not let a node expire itself: write the due heartbeat before the state is sanitised, or skip the node itself there.
A member that others have removed needs a notice (see the report on a member that was removed while stopped).
"""

from datetime import timedelta

from ending import CONTROL, end
from nodes import NODES_STORE, Clock, beat_by_clock, node, shared, together

# With --control, no call gets through for less than a heartbeat lives.


beat_by_clock()
a, b, c, d = node("A"), node("B"), node("C"), node("D")
together(b, a)
for seconds in (14, 20, 26) if CONTROL else (20, 26, 32):  # no call got through before the first
    Clock.ahead = timedelta(seconds=seconds)
    before = NODES_STORE.get("torch.rendezvous.job")
    a._keep_alive()
    b._keep_alive()
    wrote = NODES_STORE.get("torch.rendezvous.job") != before
    print(f"at {seconds} s A and B call _keep_alive(): no error, and {'a' if wrote else 'no'} new time in the store")
told = wrote
if not wrote:
    together(d, c)
    told = any(node.num_nodes_waiting() or node.is_closed() for node in (a, b))
    print(f"at 32 s A and B see a node that waits, or a rendezvous that is closed: {told}")
end(not told and c._this_node in shared().participants, "two groups run, and no member gets notice of the other group")
