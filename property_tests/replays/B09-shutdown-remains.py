"""FtRendezvousBarrierHandler: the launchers of a later job with the id of an ended job exit with code 0 at once

Versions: NVRx 0.6.0 to main at d8686d9 (7 August 2026). Python 3.11, Linux, CPU.

Steps:
1. A control process outside of the nodes serves the store and closes the rounds (nvrx-control; machine 2 below).
2. Nodes 0 and 1 of a job train, and end when their training is complete.
3. A later job with the same --rdzv-id is started on the nodes while the control process continues.

Expected:
The later job trains, or its launchers end with an error.

Seen:
machine 0: RendezvousGracefulExitError: The node 'machine0_1_0' detected that rendezvous was permanently closed
machine 1: RendezvousGracefulExitError: The node 'machine1_1_1' detected that rendezvous was permanently closed
machine 2: RendezvousGracefulExitError: The node 'machine2_1_2' detected that rendezvous was permanently closed
reproduced: both launchers of the later job end without an error, and no worker has run

Cause:
The key `shutdown` belongs to the run id, and is never removed. `_wait_for_rendezvous_open` raises
RendezvousGracefulExitError whenever it finds the key, also in a launcher that has not been in any round.
`launcher.py`, `LocalElasticAgent.run`, returns None after that error, and the launcher ends with exit code 0.

Fix:
Raise RendezvousClosedError in a launcher that finds the key `shutdown` at its first look.
"""

from barrier import settle, take, tcp_job, told
from ending import CONTROL, end

# With --control, the later job has another id.
SIZES = {"node": 2, "slot": 2, "world": 2, "most": 2, "outside": 1}
job = tcp_job(**SIZES)
settle(job)
take(job, "complete(0) complete(1)")
if CONTROL:
    job = tcp_job(port=job.server.port, run="later", **SIZES)
else:
    take(job, "restart(0) restart(1)")
settle(job)

print(*told(job), sep="\n")
left = all(process.outcome.startswith("RendezvousGracefulExitError") for process in job.nodes)
end(left, "both launchers of the later job end without an error, and no worker has run")
