"""torchrun: when a node dies, the agents of the other nodes get no notice, and no restart happens

Versions: torch 2.13.0 and 2.15.0; Python 3.11, Linux, CPU. Line numbers refer to 2.13.0.

Steps:
1. A and B run in a round of at least two nodes. A dies with its agent.
2. B continues to send heartbeats; one of them removes A from the participants.
3. Look at everything that B's agent reads.

Expected:
B's agent detects that its round has lost a member, stops its workers, and joins the next round.

Seen:
at  0 s A and B run, in round 0
at 24 s round 0 is complete: True, with 1 of at least 2 nodes
at 24 s B sees num_nodes_waiting() = 0, is_closed() = False
reproduced: the survivor gets no notice

Cause:
`_sanitize` (`torch/distributed/elastic/rendezvous/dynamic_rendezvous.py:510`) removes a dead participant and leaves
the round complete. `SimpleElasticAgent._invoke_run` (`torch/distributed/elastic/agent/server/api.py:959`) restarts
only for `num_nodes_waiting()`, so a missed heartbeat has no consequence for the members.

Fix:
Treat an expired participant of a complete round as a membership change, which the agent reads together with the number
of waiting nodes. Today the restart happens only when a worker fails by itself.
"""

from datetime import timedelta

from ending import CONTROL, end
from nodes import Clock, beat_by_clock, node, shared, together

# With --control, A stays alive.


beat_by_clock()
a, b = node("A"), node("B")
together(b, a)
for seconds in (6, 12, 18, 24):  # A has died; B's heartbeats continue
    Clock.ahead = timedelta(seconds=seconds)
    b._keep_alive()
    if CONTROL:
        a._keep_alive()
state = shared()
print(f"at 24 s round {state.round} is complete: {state.complete}, with {len(state.participants)} of at least 2 nodes")
print(f"at 24 s B sees num_nodes_waiting() = {b.num_nodes_waiting()}, is_closed() = {b.is_closed()}")
alone = state.complete and len(state.participants) == 1
end(alone and b.num_nodes_waiting() == 0 and not b.is_closed(), "the survivor gets no notice")
