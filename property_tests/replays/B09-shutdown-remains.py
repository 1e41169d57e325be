"""FtRendezvousBarrierHandler: the launchers of a later job with the id of an ended job exit with code 0 at once

Versions: NVRx 0.6.0 to main at d8686d9 (7 August 2026). Python 3.11, Linux, CPU.

Steps:
1. A separate process serves the store (trystate store serve). The launcher of node 0 closes the rounds.
2. Nodes 0 and 1 of a job train, and end when their training is complete.
3. A later job with the same --rdzv-id is started on the nodes.

Expected:
The later job trains, or its launchers end with an error.

Seen:
machine 0: RendezvousGracefulExitError: The node 'machine0_1_0' detected that rendezvous was permanently closed
machine 1: RendezvousGracefulExitError: The node 'machine1_1_1' detected that rendezvous was permanently closed
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
SIZES = {"node": 2, "slot": 2, "world": 2, "most": 2, "outside": 0}
first = tcp_job(**SIZES)
take(first, "look_for_round(0) look_for_round(1) take_slot(0) take_slot(1) read_slot(0) read_slot(1)")
take(first, "write_slot(0) write_slot(1) read_counter fetch_slots close_round read_rank(0) read_rank(1)")
trained = all(process.outcome.startswith("rank") for process in first.nodes)
take(first, "complete(0) complete(1)")
later = tcp_job(port=first.server.port, run="later" if CONTROL else "job", **SIZES)
settle(later)

print(*told(later), sep="\n")
left = all(process.outcome.startswith("RendezvousGracefulExitError") for process in later.nodes)
end(trained and left, "both launchers of the later job end without an error, and no worker has run")
