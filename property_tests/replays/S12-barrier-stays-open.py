"""TCPStore.barrier: a barrier that has opened once lets every client through for good

Versions: torch 2.13.0 and 2.15.0; Python 3.11, Linux, CPU.

Steps:
1. A and B pass `barrier("b", 2)` together.
2. A calls it again, without B.

Expected:
A waits for B, or the documentation states that a barrier's key can be used only once.

Seen:
A and B passed the barrier together; then A, alone at that barrier, passed
reproduced: at the second use of a barrier of two one client passed alone

Cause:
`torch/csrc/distributed/c10d/TCPStoreLibUvBackend.cpp`, `LibUVStoreDaemon::barrier` never resets the counter that it
keeps in `tcpStore_[key]`. At the second use it starts at the world size. The legacy server does the same.

Fix:
Erase the counter when the barrier opens; the next arrival then starts a new count. If only one use is intended,
raise at the next use.
"""

from datetime import timedelta

import torch.distributed as dist
from ending import CONTROL, end
from stores import Call, clients

# With --control, A uses another barrier the second time.
a, b = clients(5, 5)
both = [Call(each.barrier, "b", 2, timedelta(seconds=5), begins=0) for each in (a, b)]
for call in both:
    call.join()
try:
    a.barrier("new" if CONTROL else "b", 2, timedelta(seconds=1))
    second = "passed"
except dist.DistStoreError:
    second = "timed out"

print(f"A and B passed the barrier together; then A, alone at {'a new' if CONTROL else 'that'} barrier, {second}")
end(second == "passed", "at the second use of a barrier of two one client passed alone")
