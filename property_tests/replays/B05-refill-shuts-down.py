"""FtRendezvousBarrierHandler: a task that replaces a dead one on the same machine is counted next to it, and the
rendezvous is closed for ever

Versions: NVRx main from f59cfc6 (26 June 2026) to 2645ee3 (3 August 2026). Python 3.11, Linux, CPU.

Steps:
1. Node 1 joins with --nnodes 2:3. Its task is marked as unhealthy, and is killed.
2. The batch system starts a new task on the same machine, which joins the same round. Node 0 joins.

Expected:
Node 0 and the new node 1 train.

Seen:
machine 0: RendezvousClosedError: The node 'machine0_1_0' detected that rendezvous was permanently closed
machine 1: RendezvousClosedError: The node 'machine1_2_1' detected that rendezvous was permanently closed
machine 2: RendezvousGracefulExitError: The node 'machine2_1_2' detected that rendezvous was permanently closed
reproduced: the host has closed the rendezvous for ever

Cause:
`_host_close_round` compares the addresses of all records of the round. This includes records of marked tasks. Two
records of one address count as two launchers on one machine.

Fix:
Leave out the slots of marked tasks before the addresses are compared. 2645ee3 does so.
"""

from barrier import settle, take, tcp_job, told
from ending import CONTROL, end

# With --control, the task is not replaced.
job = tcp_job(slot=4)
take(job, "look_for_round(1) take_slot(1) read_slot(1) write_slot(1)")
take(job, "" if CONTROL else "refill(1) look_for_round(1) take_slot(1) read_slot(1) write_slot(1)")
take(job, "look_for_round(0) take_slot(0) read_slot(0) write_slot(0) read_counter fetch_slots")
settle(job)

print(*told(job), sep="\n")
end(job.observe()["shut"].name == "FAILED", "the host has closed the rendezvous for ever")
