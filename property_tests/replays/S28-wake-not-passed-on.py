"""TCPStore: an element whose woken consumer dies or times out wakes no other consumer

Versions: torch 2.13.0 and 2.15.0; Python 3.11, Linux, CPU.

Steps:
1. A and C wait in `queue_pop("q")`, A first.
2. B pushes an element: A is woken.
3. A dies before it has sent QUEUE_POP.

Expected:
C returns with the element.

Seen:
A was woken: True; C's queue_pop with a timeout of 5 s raised wait timeout after 5000ms, keys: /q; elements in q: 1
reproduced: queue_pop('q') timed out while q held an element that no client was going to pop

Cause:
`torch/csrc/distributed/c10d/TCPStoreLibUvBackend.cpp`, `LibUVStoreDaemon::queuePush` wakes one waiter. Neither
`clearClientWaitState` (CANCEL_WAIT) nor `unregisterClient` wakes the next when the one that was woken has not
popped.

Fix:
Reserve the element for the waiter that is woken, and wake the next when that one cancels, closes or asks for
something else. Without reservations, waking all waiters of the queue would do.
"""

import socket
import struct
import sys
import threading
import time
from datetime import timedelta

import torch.distributed as dist

CONTROL = "--control" in sys.argv  # A pops its element, and B pushes another one
server = dist.TCPStore("127.0.0.1", 0, is_master=True, wait_for_workers=False)


def client(seconds: float = 5) -> dist.TCPStore:
    limit = timedelta(seconds=seconds)
    return dist.TCPStore("127.0.0.1", server.port, is_master=False, timeout=limit, wait_for_workers=False)


def blob(data: bytes) -> bytes:
    return struct.pack("<Q", len(data)) + data


VALIDATE = b"\x00" + struct.pack("<I", 0x3C85F7CE)
WAIT = b"\x06" + struct.pack("<Q", 1) + blob(b"/q")  # the first half of queue_pop("q")
POP = b"\x0f" + blob(b"/q")  # the second half

a = socket.create_connection(("127.0.0.1", server.port))
a.sendall(VALIDATE)
time.sleep(0.2)
a.sendall(WAIT)
time.sleep(0.5)  # A waits for q, as a queue_pop does

b, c = client(), client(seconds=5)
result = ""


def pop() -> None:
    global result
    try:
        result = f"returned {c.queue_pop('q')!r}"
    except dist.DistStoreError as error:
        result = f"raised {error}".splitlines()[0]


consumer = threading.Thread(target=pop)
consumer.start()
time.sleep(0.5)  # C waits for q too
b.queue_push("q", "1")
woken = a.recv(1) == b"\x00"
if CONTROL:
    a.sendall(POP)
    a.recv(64)
    b.queue_push("q", "2")
a.close()  # A dies before it has popped
consumer.join()
left = b.queue_len("q")

print(f"A was woken: {woken}; C's queue_pop with a timeout of 5 s {result}; elements in q: {left}")
if woken and left == 1 and "timeout" in result:
    print("reproduced: queue_pop('q') timed out while q held an element that no client was going to pop")
    sys.exit(1)
print("not reproduced: the element went to the consumer that still waited")
