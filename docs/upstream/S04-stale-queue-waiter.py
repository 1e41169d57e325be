"""TCPStore: a queue_push ends the get() of another key by a client that once popped from the queue."""

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
