"""FtRendezvousBarrierHandler: the record of a node that was killed while joining shuts down the restarted job

Versions: NVRx 0.6.0 to main at d8686d9 (7 August 2026). Python 3.11, Linux, CPU.

Steps:
1. A control process outside of the nodes serves the store and closes the rounds (nvrx-control; machine 2 below).
2. Node 0 of a job with two nodes joins round 0.
3. The batch system kills the job, and starts it again with the same --rdzv-id. Node 0 joins before node 1.

Expected:
Nodes 0 and 1 train.

Seen:
machine 0: RendezvousClosedError: The node 'machine0_1_0' detected that rendezvous was permanently closed
machine 1: RendezvousClosedError: The node 'machine1_1_1' detected that rendezvous was permanently closed
machine 2: RendezvousClosedError: The node 'machine2_1_2' detected that rendezvous was permanently closed
reproduced: the rendezvous is shut down, although nodes 0 and 1 live

Cause:
The counter and the slots of round 0 remain in the store. The control process reads two records of machine 0, and takes
them for two launchers on one machine: `_host_close_round` shuts the rendezvous down. Only the records of a task that is
marked as unhealthy are left out, and no node has marked the task. If node 1 joins first, the dead record has a rank.
Before f59cfc6, node 1 is counted as the third of max_nodes=2, and shuts the rendezvous down.

Fix:
Leave out a record of a machine that has a later record in the same round.
"""

from barrier import settle, take, tcp_job, told
from ending import CONTROL, end

# With --control, node 0 is killed before it joins.
job = tcp_job(node=2, slot=3, world=2, most=2, outside=1)
take(job, "look_for_round(0)" if CONTROL else "look_for_round(0) take_slot(0) read_slot(0) write_slot(0)")
take(job, "restart(0) restart(1) look_for_round(0) take_slot(0) read_slot(0) write_slot(0)")
take(job, "look_for_round(1) take_slot(1) read_slot(1) write_slot(1)")
settle(job)

print(*told(job), sep="\n")
end(all("ClosedError" in process.outcome or "GracefulExitError" in process.outcome for process in job.nodes),
    "the rendezvous is shut down, although nodes 0 and 1 live")  # fmt: skip
