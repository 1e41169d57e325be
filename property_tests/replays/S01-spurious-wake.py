"""TCPStore: a compare_set that stores nothing ends a get() of the key, which returns b""

Versions: torch 2.13.0 and 2.15.0; Python 3.11, Linux, CPU.

Steps:
1. A calls `get("k")`; k is absent, so A waits.
2. B calls `compare_set("k", "expected", "desired")`, which stores nothing.

Expected:
A continues to wait until k has a value, or until its timeout.

Seen:
k exists after the compare_set: False; A's get returned by then: [b'']
reproduced: get('k') returned b'' while no client has ever set k

Cause:
`torch/csrc/distributed/c10d/TCPStoreLibUvBackend.cpp`, `LibUVStoreDaemon::compareAndSet` calls
`wakeupWaitingClients(key)` in every branch, including the branch for an absent key and a non-empty expected value,
which stores nothing. To the client the answer means that the key exists. It sends GET, which `LibUVStoreDaemon::get`
answers with an empty vector.

Fix:
Call `wakeupWaitingClients` only in the branch that creates the key. An answer to GET that distinguishes a missing
key from an empty value would turn such mistakes into errors.
"""

import time

from ending import CONTROL, end
from stores import Call, clients

# With --control, the compare_set stores its value.
a, b = clients(5, 5)
waiter = Call(a.get, "k")  # A waits for k
b.compare_set("k", "" if CONTROL else "expected", "desired")  # k is absent: "expected" stores nothing
exists = b.check(["k"])
time.sleep(0.5)
early = list(waiter.got)
b.set("k", "v")  # ends A's wait in any case
waiter.join()

print(f"k exists after the compare_set: {exists}; A's get returned by then: {early}")
end(early == [b""] and not exists, "get('k') returned b'' while no client has ever set k")
