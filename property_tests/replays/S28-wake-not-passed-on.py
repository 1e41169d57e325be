"""TCPStore: an element whose woken consumer dies or times out wakes no other consumer

Versions: torch 2.13.0 and 2.15.0; Python 3.11, Linux, CPU.

Steps:
1. A and C wait in `queue_pop("q")`, A first.
2. B pushes an element, which wakes A.
3. A dies before it has sent QUEUE_POP.

Expected:
C returns with the element.

Seen:
A was woken: True; C's queue_pop with a timeout of 5 s raised wait timeout after 5000ms, keys: /q; elements in q: 1
reproduced: queue_pop('q') timed out while q held an element that no client was going to pop

Cause:
`torch/csrc/distributed/c10d/TCPStoreLibUvBackend.cpp`, `LibUVStoreDaemon::queuePush` wakes one waiter. Neither
`clearClientWaitState` (CANCEL_WAIT) nor `unregisterClient` wakes the next waiter when the woken one has not popped.

Fix:
Reserve the element for the woken waiter, and wake the next when this waiter cancels, closes or sends another request.
Without reservations, it would be enough to wake all waiters of the queue.
"""

import struct
import time

from ending import CONTROL, end
from stores import VALIDATE, Call, Server, blob

# With --control, A pops its element, and B pushes another one.
server = Server()
client = server.client
WAIT = b"\x06" + struct.pack("<Q", 1) + blob(b"/q")  # the first half of queue_pop("q")
POP = b"\x0f" + blob(b"/q")  # the second half

a = server.connection()
a.sendall(VALIDATE)
time.sleep(0.2)
a.sendall(WAIT)
time.sleep(0.5)  # A waits for q, like a queue_pop

b, c = client(), client(seconds=5)

consumer = Call(c.queue_pop, "q")  # C waits for q too
b.queue_push("q", "1")
woken = a.recv(1) == b"\x00"
if CONTROL:
    a.sendall(POP)
    a.recv(64)
    b.queue_push("q", "2")
a.close()  # A dies before it has popped
consumer.join()
left = b.queue_len("q")

print(f"A was woken: {woken}; C's queue_pop with a timeout of 5 s {consumer.said}; elements in q: {left}")
end(
    woken and left == 1 and "timeout" in consumer.said,
    "queue_pop('q') timed out while q held an element that no client was going to pop",
)
