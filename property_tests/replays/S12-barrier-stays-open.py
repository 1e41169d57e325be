"""TCPStore.barrier: a barrier that has opened once lets every client through for good

Versions: torch 2.13.0 and 2.15.0; Python 3.11, Linux, CPU.

Steps:
1. A and B pass `barrier("b", 2)` together.
2. A calls it again, alone.

Expected:
A waits for B, or the documentation says that a key is of use once.

Seen:
A and B passed the barrier together; then A, alone at that barrier, passed
reproduced: at the second use of a barrier of two one client passed alone

Cause:
`torch/csrc/distributed/c10d/TCPStoreLibUvBackend.cpp`, `LibUVStoreDaemon::barrier` never resets the counter that it
keeps in `tcpStore_[key]`: at the second use it begins with the world size. The legacy server does the same.

Fix:
Erase the counter when the barrier opens, so that the next arrival begins anew. If one use is intended, raise at the
next.
"""

import sys
import threading
from datetime import timedelta

import torch.distributed as dist

CONTROL = "--control" in sys.argv  # A comes to another barrier the second time
server = dist.TCPStore("127.0.0.1", 0, is_master=True, wait_for_workers=False)


def client(seconds: float = 5) -> dist.TCPStore:
    limit = timedelta(seconds=seconds)
    return dist.TCPStore("127.0.0.1", server.port, is_master=False, timeout=limit, wait_for_workers=False)


a, b = client(), client()
both = [threading.Thread(target=each.barrier, args=("b", 2, timedelta(seconds=5))) for each in (a, b)]
for thread in both:
    thread.start()
for thread in both:
    thread.join()
try:
    a.barrier("new" if CONTROL else "b", 2, timedelta(seconds=1))
    second = "passed"
except dist.DistStoreError:
    second = "timed out"

print(f"A and B passed the barrier together; then A, alone at {'a new' if CONTROL else 'that'} barrier, {second}")
if second == "passed":
    print("reproduced: at the second use of a barrier of two one client passed alone")
    sys.exit(1)
print("not reproduced: one client alone did not pass a barrier of two")
