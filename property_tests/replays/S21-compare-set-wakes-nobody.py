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
`torch/csrc/distributed/c10d/TCPStoreBackend.cpp`, `TCPStoreMasterDaemon::compareSetHandler` stores the value, but
unlike `setHandler` and `addHandler` does not call `wakeupWaitingClients`.

Fix:
Call `wakeupWaitingClients(key)` where the key is created. Or retire the legacy server.
"""

from ending import CONTROL, end
from stores import Call, clients

# With --control, a set creates the key.
a, b = clients(3, 5, use_libuv=False)

waiter = Call(a.get, "k")  # A waits for k
if CONTROL:
    b.set("k", "v")
else:
    b.compare_set("k", "", "v")  # creates k
exists = b.check(["k"])
waiter.join()

print(f"k exists: {exists}; A's get of k with a timeout of 3 s {waiter.said}")
end(exists and "timeout" in waiter.said, "get('k') timed out although compare_set had created k")
