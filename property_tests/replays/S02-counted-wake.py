"""TCPStore: wait() returns although one of its keys has been deleted again

Versions: torch 2.13.0 and 2.15.0; Python 3.11, Linux, CPU.

Steps:
1. A calls `wait(["x", "y"])`; both are absent.
2. B sets x, deletes x, and sets y.

Expected:
A goes on waiting: at no time were both keys there.

Seen:
A waits for x and y; x was set and deleted, then y was set
A's wait for x and y returned: True; both are there: False
reproduced: wait(['x', 'y']) returned while x was deleted

Cause:
`torch/csrc/distributed/c10d/TCPStoreLibUvBackend.cpp`, `LibUVStoreDaemon::waitKeys` remembers the number of missing
keys, and `wakeupWaitingClients` counts it down at the first write of each; `deleteKey` does not count up. The
legacy server (`torch/csrc/distributed/c10d/TCPStoreBackend.cpp`) does the same.

Fix:
When the count reaches zero, check all keys of the waiter (`checkKeys`), and enter it again for those that are
missing. That costs one look-up for each key of a wait that ends.
"""

import sys
import threading
import time
from datetime import timedelta

import torch.distributed as dist

CONTROL = "--control" in sys.argv  # x is not deleted
server = dist.TCPStore("127.0.0.1", 0, is_master=True, wait_for_workers=False)


def client(seconds: float = 5) -> dist.TCPStore:
    limit = timedelta(seconds=seconds)
    return dist.TCPStore("127.0.0.1", server.port, is_master=False, timeout=limit, wait_for_workers=False)


a, b = client(), client()
returned = threading.Event()


def wait_for_both() -> None:
    a.wait(["x", "y"])
    returned.set()


threading.Thread(target=wait_for_both, daemon=True).start()
time.sleep(0.5)  # A waits for x and y
b.set("x", "1")
if not CONTROL:
    b.delete_key("x")
b.set("y", "1")
early = returned.wait(1)
together = b.check(["x", "y"])
b.set("x", "1")  # so that A ends in any case
returned.wait(5)

print(f"A waits for x and y; x was set{'' if CONTROL else ' and deleted'}, then y was set")
print(f"A's wait for x and y returned: {early}; both are there: {together}")
if early and not together:
    print("reproduced: wait(['x', 'y']) returned while x was deleted")
    sys.exit(1)
print("not reproduced: wait(['x', 'y']) continued until both keys were there")
