"""TCPStore: a queue_push wakes a client that does not wait for the queue any more; the one that does sleeps on

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
Erase a waiter when it is answered. Then the first client of the list is one that waits for the queue.
"""

import sys
import threading
import time
from datetime import timedelta

import torch.distributed as dist

CONTROL = "--control" in sys.argv  # A does not wait for its first element
server = dist.TCPStore("127.0.0.1", 0, is_master=True, wait_for_workers=False)


def client(seconds: float = 5) -> dist.TCPStore:
    limit = timedelta(seconds=seconds)
    return dist.TCPStore("127.0.0.1", server.port, is_master=False, timeout=limit, wait_for_workers=False)


a, b, c = client(), client(), client(seconds=3)
popper = threading.Thread(target=a.queue_pop, args=("q",))
if CONTROL:
    b.queue_push("q", "1")
    b.queue_len("q")  # the push has arrived
popper.start()
time.sleep(0.5)  # A waits for q
if not CONTROL:
    b.queue_push("q", "1")
popper.join()
reader = threading.Thread(target=a.get, args=("x",))
reader.start()
time.sleep(0.5)  # A waits for x, and for nothing else

result = ""


def pop() -> None:
    global result
    try:
        result = f"returned {c.queue_pop('q')!r}"
    except dist.DistStoreError as error:
        result = f"raised {error}".splitlines()[0]


waiter = threading.Thread(target=pop)
waiter.start()
time.sleep(0.5)  # C waits for q
b.queue_push("q", "2")
waiter.join()
left = b.queue_len("q")
b.set("x", "v")
reader.join()

print("A has popped the first element, and waits for x; C waits for q; B pushes an element")
print(f"C's queue_pop with a timeout of 3 s {result}; elements in q: {left}")
if left == 1 and "timeout" in result:
    print("reproduced: queue_pop('q') timed out while q held an element")
    sys.exit(1)
print("not reproduced: queue_pop('q') returned the element")
