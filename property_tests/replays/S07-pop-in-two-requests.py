"""TCPStore: a blocking queue_pop raises QueueEmptyError when another client pops in between

Versions: torch 2.13.0 and 2.15.0; Python 3.11, Linux, CPU.

Steps:
1. A calls `queue_pop("q")` and waits.
2. B pushes an element, which wakes A, and pops it before A's second request arrives.

Expected:
A goes on waiting for the next element, until its timeout.

Seen:
16 of 20 blocking pops, each with 5 s of time, raised QueueEmptyError at once
reproduced: queue_pop('q', block=True) raised QueueEmptyError instead of waiting for the next element

Cause:
`torch/csrc/distributed/c10d/TCPStore.cpp`, `TCPStore::queuePop` waits (`doWait`), and then sends QUEUE_POP, which
is answered with the length 0 if the element is gone: `DistQueueEmptyError`.

Fix:
Reserve the element for the waiter that it has woken, or pop it in the server when the wait ends. Without a new
protocol the client can wait again, with the time that is left, when a blocking pop finds nothing.

Related:
Queues came with https://github.com/pytorch/pytorch/pull/150969.
"""

import sys
import threading
import time
from contextlib import suppress
from datetime import timedelta

import torch.distributed as dist

CONTROL = "--control" in sys.argv  # no other client pops
server = dist.TCPStore("127.0.0.1", 0, is_master=True, wait_for_workers=False)


def client(seconds: float = 5) -> dist.TCPStore:
    limit = timedelta(seconds=seconds)
    return dist.TCPStore("127.0.0.1", server.port, is_master=False, timeout=limit, wait_for_workers=False)


TRIES = 20
a, b = client(), client()
raised = 0


def pop(outcome: list[str]) -> None:
    try:
        a.queue_pop("q", block=True)
        outcome.append("returned")
    except dist.QueueEmptyError:
        outcome.append("raised QueueEmptyError")


for _ in range(TRIES):
    outcome: list[str] = []
    popper = threading.Thread(target=pop, args=(outcome,))
    popper.start()
    time.sleep(0.05)  # A waits for q
    b.queue_push("q", "1")  # wakes A, which now asks for the element
    if not CONTROL:
        with suppress(dist.QueueEmptyError):  # A was faster
            b.queue_pop("q", block=False)
    popper.join(0.5)
    if not outcome:  # A waits on, as it should: let it end
        b.queue_push("q", "1")
        popper.join()
    raised += outcome == ["raised QueueEmptyError"]

print(f"{raised} of {TRIES} blocking pops, each with 5 s of time, raised QueueEmptyError at once")
if raised:
    print("reproduced: queue_pop('q', block=True) raised QueueEmptyError instead of waiting for the next element")
    sys.exit(1)
print("not reproduced: every blocking pop waited for an element")
