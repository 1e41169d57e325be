"""TCPStore: barrier() raises in a client that the server had released together with all others

Versions: torch 2.13.0 and 2.15.0; Python 3.11, Linux, CPU.

Steps:
1. A is in `barrier("b", 2)` with a timeout of 2 s.
2. The server is stopped. B arrives 1.3 s before A's timeout. The server continues 1.7 s after A's timeout.
3. The server handles B's arrival and A's CANCEL_WAIT.

Expected:
Either both pass, or neither does.

Seen:
A and B at a barrier of two: A raised a timeout, B passed
reproduced: one of two clients passed a barrier of two, the other raised

Cause:
`torch/csrc/distributed/c10d/TCPStore.cpp`, `TCPStore::barrier` raises after its timeout, even if the first answer to
CANCEL_WAIT is STOP_WAITING, which means that the barrier has opened. If the server handles CANCEL_WAIT first, it keeps
the count of the cancelled client, which then releases the others.

Fix:
Return when STOP_WAITING arrives before WAIT_CANCELED: the server decides the order. A cancelled arrival must not count.
"""

import os
import signal
import time
from datetime import timedelta

from ending import CONTROL, end
from stores import Call, client_of, served_apart

# With --control, the server is not stopped: B arrives in good time.


process, port = served_apart()

a, b = client_of(port, 60), client_of(port, 60)

first = Call(a.barrier, "b", 2, timedelta(seconds=2))  # A is in the barrier
if not CONTROL:
    os.kill(process.pid, signal.SIGSTOP)  # the server is slow: B arrives in time, but A times out meanwhile
time.sleep(0.2)
second = Call(b.barrier, "b", 2, timedelta(seconds=5), begins=0)
time.sleep(3)
os.kill(process.pid, signal.SIGCONT)
first.join()
second.join()
ends = ["passed" if each.got else "raised a timeout" for each in (first, second)]

print(f"A and B at a barrier of two: A {ends[0]}, B {ends[1]}")
end(ends == ["raised a timeout", "passed"], "one of two clients passed a barrier of two, the other raised")
