"""FtRendezvousBarrierHandler: after an error has closed the rendezvous, a node that waits ends as if the training were
complete

Versions: NVRx 0.6.0 to f59cfc6 (26 June 2026). Python 3.11, Linux, CPU.

Steps:
1. Three nodes start with --nnodes 2:2. Nodes 0 and 1 train, and node 2 has found round 0 open.
2. Workers of node 1 fail: it waits for an open round. Node 2 is counted beyond max_nodes, and closes the rendezvous.

Expected:
Node 1 ends with an error.

Seen:
machine 0: rank 0
machine 1: RendezvousGracefulExitError: The node 'machine1_1_1' detected that rendezvous was permanently closed
machine 2: RendezvousClosedError: Maximum number of nodes (2) exceeded. ...
reason: none or graceful
reproduced: the launcher of node 1 ends with exit code 0, although an error has closed the rendezvous

Cause:
`_wait_for_rendezvous_open` raises RendezvousGracefulExitError for every shutdown, and the launcher returns without an
error. Since df0b358 the launcher reads a reason from the key; `set_shutdown()` in `perform_rendezvous` records none.

Fix:
Give the reason `failure` at each place that shuts down because of an error.
"""

from barrier import take, tcp_job, told
from ending import CONTROL, end

# With --control, node 2 comes after the round is closed.
job = tcp_job(most=2)
take(job, "look_for_round(0) look_for_round(1) take_slot(0) take_slot(1) read_slot(0) read_slot(1) write_slot(0)")
take(job, "write_slot(1) read_counter fetch_slots")
take(job, "" if CONTROL else "look_for_round(2)")
take(job, "close_round read_rank(0) read_rank(1) fail_workers(1)")
take(job, "" if CONTROL else "take_slot(2)")
take(job, "look_for_round(1)")

print(*(line.partition(". Act")[0].partition(". Join")[0] for line in told(job)), sep="\n")
print("reason:", "failure" if job.observe()["shut"].name == "FAILED" else "none or graceful")
shown = "Graceful" in job.nodes[1].outcome and job.observe()["shut"].name == "GRACEFUL"
end(shown, "the launcher of node 1 ends with exit code 0, although an error has closed the rendezvous")
