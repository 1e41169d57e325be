"""TCPStore: a queue_push wakes a client that no longer waits for the queue, and the client that waits is not woken

Versions: torch 2.13.0 and 2.15.0; Python 3.11, Linux, CPU.

Steps:
1. A calls `queue_pop("q")` and waits; B pushes; A returns with the element, and calls `get("x")`.
2. C calls `queue_pop("q")` and waits.
3. B pushes to q.

Expected:
C returns with the element.

Seen:
A has popped the first element, and waits for x; C waits for q; B pushes an element
C's queue_pop with a timeout of 3 s raised wait timeout after 3000ms, keys: /q; elements in q: 1
reproduced: queue_pop('q') timed out while q held an element

Cause:
`torch/csrc/distributed/c10d/TCPStoreLibUvBackend.cpp`, `LibUVStoreDaemon::wakeupOneWaitingClient` takes the first
client in `waitingSockets_[key]` whose count reaches zero. A client that was answered before is still in that list,
and takes the wake-up.

Fix:
Erase a waiter when it is answered. Then the first client in the list is always a client that waits for the queue.
"""

from ending import CONTROL, end
from stores import Call, clients

# With --control, A does not wait for its first element.
a, b, c = clients(5, 5, 3)
if CONTROL:
    b.queue_push("q", "1")
    b.queue_len("q")  # the push has arrived
popper = Call(a.queue_pop, "q")  # A waits for q
if not CONTROL:
    b.queue_push("q", "1")
popper.join()
reader = Call(a.get, "x")  # A waits for x, and for nothing else

waiter = Call(c.queue_pop, "q")  # C waits for q
b.queue_push("q", "2")
waiter.join()
left = b.queue_len("q")
b.set("x", "v")
reader.join()

print("A has popped the first element, and waits for x; C waits for q; B pushes an element")
print(f"C's queue_pop with a timeout of 3 s {waiter.said}; elements in q: {left}")
end(left == 1 and "timeout" in waiter.said, "queue_pop('q') timed out while q held an element")
