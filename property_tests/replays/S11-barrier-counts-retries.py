"""TCPStore.barrier: a client that retries after a timeout is counted twice and passes alone

Versions: torch 2.13.0 and 2.15.0; Python 3.11, Linux, CPU.

Steps:
1. A calls `barrier("b", 2, timeout=1 s)`, which times out because no other client arrives.
2. A calls `barrier` again.

Expected:
The second try times out as well.

Seen:
A, alone at a barrier of two: first try timed out, second try passed
reproduced: the second try of one client passed a barrier of two alone

Cause:
`torch/csrc/distributed/c10d/TCPStoreLibUvBackend.cpp`, `LibUVStoreDaemon::barrier` adds 1 to the value of the key
for each request. CANCEL_WAIT (`clearClientWaitState`) and `unregisterClient` remove the waiter but not its count. The
legacy server does the same.

Fix:
Keep the set of arrived connections instead of a number, and remove a connection when it cancels or closes. The
barrier opens when the set is large enough.

Related:
barrier was added by https://github.com/pytorch/pytorch/pull/174920.
"""

from datetime import timedelta

import torch.distributed as dist
from ending import CONTROL, end
from stores import clients

# With --control, the second try is at another barrier.
(a,) = clients(5)
tries = []
for name in ("b", "c" if CONTROL else "b"):
    try:
        a.barrier(name, 2, timedelta(seconds=1))
        tries.append("passed")
    except dist.DistStoreError:
        tries.append("timed out")

print(f"A, alone at a barrier of two: first try {tries[0]}, second try {tries[1]}")
end(tries[1] == "passed", "the second try of one client passed a barrier of two alone")
