"""TCPStore.barrier: a client that tries again after a timeout is counted twice, and passes alone

Versions: torch 2.13.0 and 2.15.0; Python 3.11, Linux, CPU.

Steps:
1. A calls `barrier("b", 2, timeout=1 s)`, which times out: nobody else is there.
2. A calls it again.

Expected:
The second try times out as well.

Seen:
A, alone at a barrier of two: first try timed out, second try passed
reproduced: the second try of one client passed a barrier of two alone

Cause:
`torch/csrc/distributed/c10d/TCPStoreLibUvBackend.cpp`, `LibUVStoreDaemon::barrier` adds 1 to the value of the key
for each request, and CANCEL_WAIT (`clearClientWaitState`) takes the waiter away, and not its count; nor does
`unregisterClient`. The legacy server does the same.

Fix:
Keep the set of connections that have arrived instead of a number, and take a connection out when it cancels or
closes. The barrier opens when the set is large enough.

Related:
barrier came with https://github.com/pytorch/pytorch/pull/174920.
"""

import sys
from datetime import timedelta

import torch.distributed as dist

CONTROL = "--control" in sys.argv  # the second try is at another barrier
server = dist.TCPStore("127.0.0.1", 0, is_master=True, wait_for_workers=False)


def client(seconds: float = 5) -> dist.TCPStore:
    limit = timedelta(seconds=seconds)
    return dist.TCPStore("127.0.0.1", server.port, is_master=False, timeout=limit, wait_for_workers=False)


a = client()
tries = []
for name in ("b", "c" if CONTROL else "b"):
    try:
        a.barrier(name, 2, timedelta(seconds=1))
        tries.append("passed")
    except dist.DistStoreError:
        tries.append("timed out")

print(f"A, alone at a barrier of two: first try {tries[0]}, second try {tries[1]}")
if tries[1] == "passed":
    print("reproduced: the second try of one client passed a barrier of two alone")
    sys.exit(1)
print("not reproduced: one client alone does not pass a barrier of two")
