"""FtRendezvousBarrierHandler: a node beyond max_nodes closes the rendezvous for ever, although enough nodes live

Versions: NVRx 0.6.0 to f59cfc6 (26 June 2026). Python 3.11, Linux, CPU.

Steps:
1. Three nodes start with --nnodes 2:2 (a spare, or a survivor of a failed task).
2. All three find round 0 open, and are counted before the host closes it.

Expected:
Two nodes train, and the third waits for the next round.

Seen:
machine 0: RendezvousClosedError: The node 'machine0_1_0' detected that rendezvous was permanently closed
machine 1: RendezvousClosedError: The node 'machine1_1_1' detected that rendezvous was permanently closed
machine 2: RendezvousClosedError: Maximum number of nodes (2) exceeded. ...
reproduced: the third node has closed the rendezvous for ever

Cause:
`perform_rendezvous` calls `set_shutdown` if the counter exceeds max_nodes. The counter only orders the nodes: it does
not show how many of them will train.

Fix:
Leave the node as a spare. f59cfc6 does so.

Related:
Issue 348 of NVRx.
"""

from barrier import settle, take, tcp_job, told
from ending import CONTROL, end

# With --control, the third node comes after the round is closed.
job = tcp_job(most=2)
if CONTROL:
    take(job, "look_for_round(0) look_for_round(1) take_slot(0) take_slot(1) read_slot(0) read_slot(1) write_slot(1)")
    take(job, "write_slot(0) read_counter fetch_slots close_round")
else:
    take(job, "look_for_round(0) look_for_round(1) look_for_round(2) take_slot(0) take_slot(1) take_slot(2)")
settle(job)

print(*told(job), sep="\n")
end(job.observe()["shut"].name != "NO", "the third node has closed the rendezvous for ever")
