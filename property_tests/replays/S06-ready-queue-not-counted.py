"""TCPStore: wait() for a queue that has an element and for a missing key never returns

Versions: torch 2.13.0 and 2.15.0; Python 3.11, Linux, CPU.

Steps:
1. B pushes to q.
2. A calls `wait(["q", "m"])`; m is absent.
3. B sets m. `check(["q", "m"])` is True.

Expected:
A's wait returns when m is set.

Seen:
check(['q', 'm']): True; A's wait for both with a timeout of 3 s raised wait timeout after 3000ms, keys: /q, /m
reproduced: wait(['q', 'm']) timed out while check(['q', 'm']) was True

Cause:
`torch/csrc/distributed/c10d/TCPStoreLibUvBackend.cpp`, `LibUVStoreDaemon::waitKeys` counts the keys that are
missing in `tcpStore_`, and does not look into `queues_`, as `checkKeys` does. A queue that is ready is counted as
missing, and only a further push would count it down.

Fix:
Count a key as missing by the test that `checkKeys` makes. One helper for both would keep them alike.
"""

import sys
import threading
import time
from datetime import timedelta

import torch.distributed as dist

CONTROL = "--control" in sys.argv  # the queue gets its element later
server = dist.TCPStore("127.0.0.1", 0, is_master=True, wait_for_workers=False)


def client(seconds: float = 5) -> dist.TCPStore:
    limit = timedelta(seconds=seconds)
    return dist.TCPStore("127.0.0.1", server.port, is_master=False, timeout=limit, wait_for_workers=False)


a, b = client(seconds=3), client()
if not CONTROL:
    b.queue_push("q", "1")
    b.queue_len("q")  # the push has arrived
result = "returned"


def wait_for_both() -> None:
    global result
    try:
        a.wait(["q", "m"])
    except dist.DistStoreError as error:
        result = f"raised {error}".splitlines()[0]


waiter = threading.Thread(target=wait_for_both)
waiter.start()
time.sleep(0.5)  # A waits for q, which is ready, and m, which is not
if CONTROL:
    b.queue_push("q", "1")
b.set("m", "1")
ready = b.check(["q", "m"])
waiter.join()

print(f"check(['q', 'm']): {ready}; A's wait for both with a timeout of 3 s {result}")
if ready and "timeout" in result:
    print("reproduced: wait(['q', 'm']) timed out while check(['q', 'm']) was True")
    sys.exit(1)
print("not reproduced: wait(['q', 'm']) returned")
