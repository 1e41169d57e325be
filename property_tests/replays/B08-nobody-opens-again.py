"""FtRendezvousBarrierHandler: if all nodes that train are started again, each waits for a round that no node opens

Versions: NVRx 0.6.0 to main at d8686d9 (7 August 2026). Python 3.11, Linux, CPU.

Steps:
1. A control process outside of the nodes serves the store and closes the rounds (nvrx-control; machine 3 below).
2. Nodes 0 and 1 of a job with --nnodes 2:3 train. Node 2 is a spare.
3. The batch system kills nodes 0 and 1, and starts their launchers again with the same --rdzv-id.

Expected:
The launchers form round 1.

Seen:
machine 0: waits, waits for an open round
machine 1: waits, waits for an open round
machine 2: waits, waits for an open round
machine 3: waits, waits for an open round
reproduced: three nodes wait, two suffice, and no node opens round 1

Cause:
Round 0 is closed, and only a node whose workers fail opens the next round (`open_rendezvous`). Both nodes that could do
so are dead. A launcher that is started again finds round 0 closed and waits like a spare, in
`_wait_for_rendezvous_open`, which has no timeout.

Fix:
A launcher whose own machine has a rank below min_nodes in the round that closed last opens the next round.
"""

from barrier import settle, take, tcp_job, told
from ending import CONTROL, end

# With --control, the workers of node 0 fail before the nodes are killed.
job = tcp_job(outside=1)
take(job, "begin_closing look_for_round(0) look_for_round(1) take_slot(0) take_slot(1) read_slot(0) read_slot(1)")
take(job, "write_slot(0) write_slot(1) read_counter fetch_slots close_round read_rank(0) read_rank(1)")
take(job, "fail_workers(0) look_for_round(0)" if CONTROL else "restart(0)")
take(job, "restart(1)")
settle(job)

print(*told(job), sep="\n")
seen = job.observe()
waits = all(seen[f"at[{n}]"].name == "WAITING" for n in range(3))
end(waits and seen["door[1]"].name == "ABSENT", "three nodes wait, two suffice, and no node opens round 1")
