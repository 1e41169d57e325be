"""TCPStore(use_libuv=False): a key that compare_set creates wakes no client that waits for it

Versions: torch 2.13.0 and 2.15.0; Python 3.11, Linux, CPU.

Steps:
1. A calls `get("k")` and waits.
2. B calls `compare_set("k", "", "v")`, which creates k.

Expected:
A returns with `b"v"`.

Seen:
k exists: True; A's get of k with a timeout of 3 s raised wait timeout after 3000ms, keys: /k
reproduced: get('k') timed out although compare_set had created k

Cause:
`torch/csrc/distributed/c10d/TCPStoreBackend.cpp`, `TCPStoreMasterDaemon::compareSetHandler` stores the value, and
does not call `wakeupWaitingClients`, as `setHandler` and `addHandler` do.

Fix:
Call `wakeupWaitingClients(key)` where the key is created. Or retire the legacy server.
"""

import sys
import threading
import time
from datetime import timedelta

import torch.distributed as dist

CONTROL = "--control" in sys.argv  # a set creates the key
server = dist.TCPStore("127.0.0.1", 0, is_master=True, wait_for_workers=False, use_libuv=False)


def client(seconds: float = 5) -> dist.TCPStore:
    limit = timedelta(seconds=seconds)
    return dist.TCPStore(
        "127.0.0.1", server.port, is_master=False, timeout=limit, wait_for_workers=False, use_libuv=False
    )


a, b = client(seconds=3), client()
result = ""


def get() -> None:
    global result
    try:
        result = f"returned {a.get('k')!r}"
    except dist.DistStoreError as error:
        result = f"raised {error}".splitlines()[0]


waiter = threading.Thread(target=get)
waiter.start()
time.sleep(0.5)  # A waits for k
if CONTROL:
    b.set("k", "v")
else:
    b.compare_set("k", "", "v")  # creates k
exists = b.check(["k"])
waiter.join()

print(f"k exists: {exists}; A's get of k with a timeout of 3 s {result}")
if exists and "timeout" in result:
    print("reproduced: get('k') timed out although compare_set had created k")
    sys.exit(1)
print("not reproduced: get('k') returned when k was created")
