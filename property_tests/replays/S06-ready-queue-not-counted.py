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
missing in `tcpStore_`. Unlike `checkKeys`, it does not look into `queues_`. A queue that is ready is counted as
missing, and only a further push would decrease the count.

Fix:
Count a key as missing by the same test as `checkKeys`. A shared helper would keep both consistent.
"""

from ending import CONTROL, end
from stores import Call, clients

# With --control, the queue gets its element later.
a, b = clients(3, 5)
if not CONTROL:
    b.queue_push("q", "1")
    b.queue_len("q")  # the push has arrived

waiter = Call(a.wait, ["q", "m"])  # A waits for q, which is ready, and m, which is not
if CONTROL:
    b.queue_push("q", "1")
b.set("m", "1")
ready = b.check(["q", "m"])
waiter.join()

print(f"check(['q', 'm']): {ready}; A's wait for both with a timeout of 3 s {waiter.said.removesuffix(' None')}")
end(ready and "timeout" in waiter.said, "wait(['q', 'm']) timed out while check(['q', 'm']) was True")
