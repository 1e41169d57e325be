"""FtRendezvousBarrierHandler: a node that has joined and is killed with its task is given a rank

Versions: NVRx 0.6.0 to 2645ee3 (3 August 2026). Python 3.11, Linux, CPU.

Steps:
1. Node 1 joins with --nnodes 2:3. Another node of its task is unhealthy and marks the task; the batch system kills
   node 1.
2. Nodes 0 and 2 join, and node 0 closes the round.

Expected:
Nodes 0 and 2 train.

Seen:
machine 0: rank 0
machine 1: dead
machine 2: waits, waits for an open round
reproduced: the dead node has rank 1, and the node that lives waits as a spare

Cause:
`_host_close_round` takes every record of the round. Since 079c6fc it reads the marks of the tasks, and uses them only
for the last call.

Fix:
Leave out the slots of marked tasks before the ranks are assigned. 2645ee3 does so.
"""

from barrier import settle, take, tcp_job, told
from ending import CONTROL, end

# With --control, node 1 is not killed.
job = tcp_job()
take(job, "look_for_round(1) take_slot(1) read_slot(1) write_slot(1)")
take(job, "" if CONTROL else "kill(1)")
take(job, "look_for_round(2) take_slot(2) read_slot(2) write_slot(2)")
settle(job)

print(*told(job), sep="\n")
shown = job.nodes[1].outcome == "dead" and job.observe()["rank[0]"] == 2
end(shown, "the dead node has rank 1, and the node that lives waits as a spare")
