"""TCPStore.barrier: setting a key of the barrier's name releases it, deleting the key strands it

Versions: torch 2.13.0 and 2.15.0; Python 3.11, Linux, CPU.

Steps:
1. A calls `barrier("name", 2)` and waits, alone.
2. B calls `set("name", "any value")`.

Expected:
A goes on waiting.

Seen:
A, alone at barrier('name', 2), after set('name'): released
reproduced: set('name') released barrier('name', 2) with one client in it

Cause:
`torch/csrc/distributed/c10d/TCPStoreLibUvBackend.cpp`, `LibUVStoreDaemon::barrier` keeps its counter in
`tcpStore_[key]` and its waiters in `waitingSockets_[key]`, where `set`, `add`, `append`, `compareAndSet` and
`deleteKey` find them.

Fix:
Keep barriers in a table of their own. They then no longer appear in `num_keys` and `list_keys` either.
"""

import sys
import threading
import time
from datetime import timedelta

import torch.distributed as dist

CONTROL = "--control" in sys.argv  # B sets another key
server = dist.TCPStore("127.0.0.1", 0, is_master=True, wait_for_workers=False)


def client(seconds: float = 5) -> dist.TCPStore:
    limit = timedelta(seconds=seconds)
    return dist.TCPStore("127.0.0.1", server.port, is_master=False, timeout=limit, wait_for_workers=False)


a, b = client(), client()
result = "released"


def pass_barrier() -> None:
    global result
    try:
        a.barrier("name", 2, timedelta(seconds=3))
    except dist.DistStoreError:
        result = "timed out"


waiter = threading.Thread(target=pass_barrier)
waiter.start()
time.sleep(0.5)  # A waits at the barrier
key = "other" if CONTROL else "name"
b.set(key, "any value")
waiter.join()

print(f"A, alone at barrier('name', 2), after set({key!r}): {result}")
if result == "released":
    print("reproduced: set('name') released barrier('name', 2) with one client in it")
    sys.exit(1)
print("not reproduced: the set did not release the barrier")
