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
`receiveValueWithTimeout` is used for the answer to WAIT and BARRIER alone; the answer to CANCEL_WAIT that follows a
timeout is read without one, so that a wait hangs as well.

Fix:
Pass the store's timeout to every read, and close the connection when it expires, since the answer may still come.
`SO_RCVTIMEO` on the client's socket would do for most.

Related:
https://github.com/pytorch/pytorch/issues/129367.
"""

import multiprocessing
import os
import signal
import sys
import threading
import time
from datetime import timedelta
from typing import Any

import torch.distributed as dist

CONTROL = "--control" in sys.argv  # the server's process is not stopped


def serve(line: Any) -> None:
    store = dist.TCPStore("127.0.0.1", 0, is_master=True, wait_for_workers=False)
    line.send(store.port)
    time.sleep(120)


ours, theirs = multiprocessing.Pipe()
process = multiprocessing.get_context("fork").Process(target=serve, args=(theirs,), daemon=True)
process.start()
port = ours.recv()

client = dist.TCPStore("127.0.0.1", port, is_master=False, timeout=timedelta(seconds=1), wait_for_workers=False)

if not CONTROL:
    os.kill(process.pid, signal.SIGSTOP)  # as a debugger, a suspended VM, a cgroup freezer
time.sleep(0.5)
operation = threading.Thread(target=client.add, args=("n", 1), daemon=True)
operation.start()
operation.join(10)
hangs = operation.is_alive()
process.kill()

print(f"add('n', 1) with a timeout of 1 s, after 10 s: {'still waiting' if hangs else 'over'}")
if hangs:
    print("reproduced: add() with a timeout of 1 s had not returned after 10 s", flush=True)
    os._exit(1)
print("not reproduced: add() ended in time")
