"""TCPStore: a compare_set that stores nothing ends a get() of the key, which returns b""

Versions: torch 2.13.0 and 2.15.0; Python 3.11, Linux, CPU.

Steps:
1. A calls `get("k")`; k is absent, so A waits.
2. B calls `compare_set("k", "expected", "desired")`, which stores nothing.

Expected:
A goes on waiting until k has a value, or until its timeout.

Seen:
k exists after the compare_set: False; A's get returned by then: [b'']
reproduced: get('k') returned b'' while no client has ever set k

Cause:
`torch/csrc/distributed/c10d/TCPStoreLibUvBackend.cpp`, `LibUVStoreDaemon::compareAndSet` calls
`wakeupWaitingClients(key)` in every branch, also in the one for an absent key and a non-empty expected value, which
stores nothing. The client takes the answer for "the key is there" and sends GET, which `LibUVStoreDaemon::get`
answers with an empty vector.

Fix:
Call `wakeupWaitingClients` only in the branch that creates the key. An answer to GET that tells a missing key from
an empty value would turn such mistakes into errors.
"""

import sys
import threading
import time
from datetime import timedelta

import torch.distributed as dist

CONTROL = "--control" in sys.argv  # the compare_set stores its value
server = dist.TCPStore("127.0.0.1", 0, is_master=True, wait_for_workers=False)


def client(seconds: float = 5) -> dist.TCPStore:
    limit = timedelta(seconds=seconds)
    return dist.TCPStore("127.0.0.1", server.port, is_master=False, timeout=limit, wait_for_workers=False)


a, b = client(), client()
got: list[bytes] = []
waiter = threading.Thread(target=lambda: got.append(a.get("k")))
waiter.start()
time.sleep(0.5)  # A waits for k
b.compare_set("k", "" if CONTROL else "expected", "desired")  # k is absent: "expected" stores nothing
exists = b.check(["k"])
time.sleep(0.5)
early = list(got)
b.set("k", "v")  # so that A ends in any case
waiter.join()

print(f"k exists after the compare_set: {exists}; A's get returned by then: {early}")
if early == [b""] and not exists:
    print("reproduced: get('k') returned b'' while no client has ever set k")
    sys.exit(1)
print(f"not reproduced: get('k') waited until k was set, and returned {got[0]!r}")
