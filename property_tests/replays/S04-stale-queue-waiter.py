"""TCPStore: a queue_push ends the get() of another key by a client that once popped from the queue

Versions: torch 2.13.0 and 2.15.0; Python 3.11, Linux, CPU.

Steps:
1. A calls `queue_pop("q")` and waits; B pushes; A returns with the element.
2. A calls `get("x")`; x is absent.
3. B pushes to q again.

Expected:
A continues to wait for x.

Seen:
A popped b'1' after a wait
after a second push to q A's get of x returned [b'']
reproduced: queue_push('q') ended get('x'), which returned b'' while x was never set

Cause:
`torch/csrc/distributed/c10d/TCPStoreLibUvBackend.cpp`, `LibUVStoreDaemon::wakeupOneWaitingClient` answers a waiter
and leaves it in `waitingSockets_[key]`. At the next push `--keysAwaited_[client]` decreases the count of the
client's next wait, which is for another key.

Fix:
Erase the waiter from `waitingSockets_[key]` when it is answered, and the list when it is empty. Remove a waiter of
several keys from the lists of the other keys too.
"""

import time

from ending import CONTROL, end
from stores import Call, clients

# With --control, A does not wait for its first element.
a, b = clients(5, 5)
if CONTROL:
    b.queue_push("q", "1")
    b.queue_len("q")  # the push has arrived
popper = Call(a.queue_pop, "q")  # A waits for q
if not CONTROL:
    b.queue_push("q", "1")
popper.join()

reader = Call(a.get, "x")  # A waits for x
b.queue_push("q", "2")
time.sleep(0.5)
early = list(reader.got)
b.set("x", "v")  # ends A's wait in any case
reader.join()

print(f"A popped {popper.got[0]!r} {'at once' if CONTROL else 'after a wait'}")
print(f"after a second push to q A's get of x returned {early}")
end(early == [b""], "queue_push('q') ended get('x'), which returned b'' while x was never set")
