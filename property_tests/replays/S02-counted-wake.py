"""TCPStore: wait() returns although one of its keys has been deleted again

Versions: torch 2.13.0 and 2.15.0; Python 3.11, Linux, CPU.

Steps:
1. A calls `wait(["x", "y"])`; both are absent.
2. B sets x, deletes x, and sets y.

Expected:
A continues to wait, because at no time did both keys exist.

Seen:
A waits for x and y; x was set and deleted, then y was set
A's wait for x and y returned: True; both keys exist: False
reproduced: wait(['x', 'y']) returned while x was deleted

Cause:
`torch/csrc/distributed/c10d/TCPStoreLibUvBackend.cpp`, `LibUVStoreDaemon::waitKeys` stores the number of missing
keys. `wakeupWaitingClients` decreases it at the first write of each key, but `deleteKey` does not increase it. The
legacy server (`torch/csrc/distributed/c10d/TCPStoreBackend.cpp`) does the same.

Fix:
When the count reaches zero, check all keys of the waiter (`checkKeys`), and register it again for the missing
ones. That costs one look-up for each key of a wait that ends.
"""

import time

from ending import CONTROL, end
from stores import Call, clients

# With --control, x is not deleted.
a, b = clients(5, 5)

waiter = Call(a.wait, ["x", "y"])  # A waits for x and y
b.set("x", "1")
if not CONTROL:
    b.delete_key("x")
b.set("y", "1")
time.sleep(1)
early = bool(waiter.said)
together = b.check(["x", "y"])
b.set("x", "1")  # ends A's wait in any case
waiter.join(5)

print(f"A waits for x and y; x was set{'' if CONTROL else ' and deleted'}, then y was set")
print(f"A's wait for x and y returned: {early}; both keys exist: {together}")
end(early and not together, "wait(['x', 'y']) returned while x was deleted")
