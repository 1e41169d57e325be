"""TCPStore: only waits have a timeout; add, check, get and the constructor hang while the server does not answer

Versions: torch 2.13.0 and 2.15.0; Python 3.11, Linux, CPU.

Steps:
1. The process of the server is stopped with SIGSTOP; its sockets stay open.
2. A client with a timeout of 1 s calls `add("n", 1)`.

Expected:
add raises DistStoreError after about 1 s.

Seen:
add('n', 1) with a timeout of 1 s, after 10 s: still waiting
reproduced: add() with a timeout of 1 s had not returned after 10 s

Cause:
`torch/csrc/distributed/c10d/TCPStore.cpp`, `TCPClient::receiveValue` and `receiveBits` read without a deadline.
`receiveValueWithTimeout` is used only for the answers to WAIT and BARRIER. After a timeout the client reads the answer
to CANCEL_WAIT without a deadline, so a wait hangs as well.

Fix:
Pass the store's timeout to every read, and close the connection when it expires, since the answer may still arrive.
`SO_RCVTIMEO` on the client's socket would be enough for most reads.

Related:
https://github.com/pytorch/pytorch/issues/129367.
"""

import os
import signal
import time

from ending import CONTROL, end
from stores import Call, client_of, served_apart

# With --control, the server's process is not stopped.


process, port = served_apart()

client = client_of(port, 1)

if not CONTROL:
    os.kill(process.pid, signal.SIGSTOP)  # stands for a debugger, a suspended VM or a cgroup freezer
time.sleep(0.5)
hangs = Call(client.add, "n", 1).hangs()

print(f"add('n', 1) with a timeout of 1 s, after 10 s: {'still waiting' if hangs else 'over'}")
end(hangs, "add() with a timeout of 1 s had not returned after 10 s")
