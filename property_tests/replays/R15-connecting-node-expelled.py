"""c10d rendezvous: a node that waits for the master's address cannot send heartbeats, and is removed as dead

Versions: torch 2.13.0 and 2.15.0; Python 3.11, Linux, CPU. Line numbers refer to 2.13.0.

Steps:
1. A and B complete a round. A, rank 0, takes 5 s to publish its address. The window is 3 x 1 s.
2. B waits in next_rendezvous() for the address while its keep-alive thread runs.
3. Look at the participants.

Expected:
B stays a participant, because its process is alive and its keep-alive thread runs.

Seen:
participants: ['A', 'B']; B waits for the address of A, and its keep-alive thread runs
participants: ['A']; 5 s later, with a window of three
B returns with rank 1 in a world of 2
reproduced: a live member was removed

Cause:
`RendezvousStoreInfo.build` (`torch/distributed/elastic/rendezvous/api.py:102`) waits in a get on the store, and the
backend of the heartbeats uses the same client (`_create_c10d_handler`, registry.py:46). A TCPStore client serves one
call at a time: the heartbeat waits for the get.

Fix:
Give the backend its own client (`store.clone()`). Or wait for the address in short gets.
"""

import threading
import time
from datetime import timedelta

from ending import CONTROL, end
from nodes import node, participants
from torch.distributed import TCPStore
from torch.distributed.elastic.rendezvous import dynamic_rendezvous as dr
from torch.distributed.elastic.rendezvous.api import RendezvousStoreInfo

# With --control, A publishes its address in time.
server = TCPStore("127.0.0.1", 0, is_master=True, wait_for_workers=False)

SECONDS = 1 if CONTROL else 5
a, b = (
    node(name, beat=1, store=TCPStore("127.0.0.1", server.port, timeout=timedelta(seconds=30)), cache_duration=300)
    for name in "AB"
)
infos = []
joining = threading.Thread(target=lambda: infos.append(b.next_rendezvous()))
joining.start()
# A is rank 0, and slow: it has joined and sends heartbeats, but takes SECONDS to publish its address.
a._op_executor.run(dr._RendezvousJoinOp(), a._get_deadline(timedelta(seconds=20)))
a._start_heartbeats()
while b._keep_alive_timer is None:
    time.sleep(0.1)
print(f"participants: {participants(server)}; B waits for the address of A, and its keep-alive thread runs")
time.sleep(SECONDS)
expelled = "B" not in participants(server)
print(f"participants: {participants(server)}; {SECONDS} s later, with a window of three")
RendezvousStoreInfo.build(0, a._get_store(), "127.0.0.1")
joining.join()
print(f"B returns with rank {infos[0].rank} in a world of {infos[0].world_size}")
end(expelled, "a live member was removed")
