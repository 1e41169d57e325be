"""FtRendezvousBarrierHandler: a node that is counted and dies before it writes its slot keeps the round open for ever

Versions: NVRx 0.6.0 to f59cfc6 (26 June 2026). Python 3.11, Linux, CPU.

Steps:
1. Three nodes join with --nnodes 2:3. Node 2 is counted and dies before it writes its slot.
2. Nodes 0 and 1 write their slots.

Expected:
The round closes with nodes 0 and 1.

Seen:
machine 0: DistStoreError: wait timeout after 2000ms, keys: ...
machine 1: waits, has written its slot, and waits until the round is closed
machine 2: dead
reproduced: the round stays open, although two nodes live and two suffice

Cause:
`get_all_participants` reads all counted slots with one `multi_get`, which waits until each of the keys exists. With a
slot of an earlier round there, `_host_close_round` polls for ever, since it needs as many records as are counted.

Fix:
Read the slots that are there, and close the round if they suffice. f59cfc6 does so.
"""

from barrier import settle, take, tcp_job, told
from ending import CONTROL, end

# With --control, node 2 dies before it is counted.
job = tcp_job()
take(job, "look_for_round(2) crash(2)" if CONTROL else "look_for_round(2) take_slot(2) crash(2)")
settle(job)

print(*(line.partition("keys")[0] + "keys: ..." * ("keys" in line) for line in told(job)), sep="\n")
end(job.observe()["door[0]"].name == "OPEN", "the round stays open, although two nodes live and two suffice")
