"""TCPStore: a blocking queue_pop raises QueueEmptyError when another client pops in between

Versions: torch 2.13.0 and 2.15.0; Python 3.11, Linux, CPU.

Steps:
1. A calls `queue_pop("q")` and waits.
2. B pushes an element, which wakes A, and pops it before A's second request arrives.

Expected:
A continues to wait for the next element, until its timeout.

Seen:
16 of 20 blocking pops, each with a timeout of 5 s, raised QueueEmptyError at once
reproduced: queue_pop('q', block=True) raised QueueEmptyError instead of waiting for the next element

Cause:
`torch/csrc/distributed/c10d/TCPStore.cpp`, `TCPStore::queuePop` waits (`doWait`) and then sends QUEUE_POP. If
the element has been popped, the server answers with the length 0, and the client raises `DistQueueEmptyError`.

Fix:
Reserve the element for the waiter that it has woken, or pop it in the server when the wait ends. Without a change of
the protocol, the client can wait again for the remaining time when a blocking pop finds no element.

Related:
Queues were added by https://github.com/pytorch/pytorch/pull/150969.
"""

from contextlib import suppress

import torch.distributed as dist
from ending import CONTROL, end
from stores import Call, clients

# With --control, no other client pops.
TRIES = 20
a, b = clients(5, 5)
raised = 0

for _ in range(TRIES):
    popper = Call(a.queue_pop, "q", begins=0.05)  # A waits for q
    b.queue_push("q", "1")  # wakes A, which now requests the element
    if not CONTROL:
        with suppress(dist.QueueEmptyError):  # A was faster
            b.queue_pop("q", block=False)
    popper.join(0.5)
    if not popper.said:  # A continues to wait, as it should: end its wait
        b.queue_push("q", "1")
        popper.join()
    raised += popper.said.startswith("raised")

print(f"{raised} of {TRIES} blocking pops, each with a timeout of 5 s, raised QueueEmptyError at once")
end(raised, "queue_pop('q', block=True) raised QueueEmptyError instead of waiting for the next element")
