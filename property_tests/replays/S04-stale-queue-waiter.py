"""TCPStore: a queue_push ends the get() of another key by a client that once popped from the queue

Versions: torch 2.13.0 and 2.15.0; Python 3.11, Linux, CPU.

Steps:
1. A calls `queue_pop("q")` and waits; B pushes; A returns with the element.
2. A calls `get("x")`; x is absent.
3. B pushes to q again.

Expected:
A goes on waiting for x.

Seen:
A popped b'1' after a wait
after a second push to q A's get of x returned [b'']
reproduced: queue_push('q') ended get('x'), which returned b'' while x was never set

Cause:
`torch/csrc/distributed/c10d/TCPStoreLibUvBackend.cpp`, `LibUVStoreDaemon::wakeupOneWaitingClient` answers a waiter
and leaves it in `waitingSockets_[key]`. At the next push `--keysAwaited_[client]` counts down the client's next
wait, which is for another key.

Fix:
Erase the waiter from `waitingSockets_[key]` when it is answered, and the list when it is empty. A waiter of several
keys must leave the lists of the others as well.
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


a, b = client(), client()
popped: list[bytes] = []
popper = threading.Thread(target=lambda: popped.append(a.queue_pop("q")))
if CONTROL:
    b.queue_push("q", "1")
    b.queue_len("q")  # the push has arrived
popper.start()
time.sleep(0.5)  # A waits for q
if not CONTROL:
    b.queue_push("q", "1")
popper.join()

got: list[bytes] = []
reader = threading.Thread(target=lambda: got.append(a.get("x")))
reader.start()
time.sleep(0.5)  # A waits for x
b.queue_push("q", "2")
time.sleep(0.5)
early = list(got)
b.set("x", "v")  # so that A ends in any case
reader.join()

print(f"A popped {popped[0]!r} {'at once' if CONTROL else 'after a wait'}")
print(f"after a second push to q A's get of x returned {early}")
if early == [b""]:
    print("reproduced: queue_push('q') ended get('x'), which returned b'' while x was never set")
    sys.exit(1)
print("not reproduced: get('x') waited until x was set")
