"""TCPStore.barrier: setting a key with the barrier's name releases it, and deleting the key blocks it

Versions: torch 2.13.0 and 2.15.0; Python 3.11, Linux, CPU.

Steps:
1. A calls `barrier("name", 2)` and waits, alone.
2. B calls `set("name", "any value")`.

Expected:
A continues to wait.

Seen:
A, alone at barrier('name', 2), after set('name'): released
reproduced: set('name') released barrier('name', 2) with one client in it

Cause:
`torch/csrc/distributed/c10d/TCPStoreLibUvBackend.cpp`, `LibUVStoreDaemon::barrier` keeps its counter in
`tcpStore_[key]` and its waiters in `waitingSockets_[key]`, where `set`, `add`, `append`, `compareAndSet` and
`deleteKey` find them.

Fix:
Keep barriers in a separate table. They then also no longer appear in `num_keys` and `list_keys`.
"""

from datetime import timedelta

from ending import CONTROL, end
from stores import Call, clients

# With --control, B sets another key.
a, b = clients(5, 5)

waiter = Call(a.barrier, "name", 2, timedelta(seconds=3))  # A waits at the barrier
key = "other" if CONTROL else "name"
b.set(key, "any value")
waiter.join()
released = waiter.said == "returned None"

print(f"A, alone at barrier('name', 2), after set({key!r}): {'released' if released else 'timed out'}")
end(released, "set('name') released barrier('name', 2) with one client in it")
