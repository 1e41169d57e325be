"""TCPStore.barrier: raises for a client that the server had released together with all others

Versions: torch 2.13.0 and 2.15.0; Python 3.11, Linux, CPU.

Steps:
1. A is in `barrier("b", 2)` with 2 s of time.
2. The server is stopped; B arrives 1.5 s before A's time ends; the server goes on a second after it.
3. The server carries out B's arrival and A's CANCEL_WAIT.

Expected:
Either both pass, or neither does.

Seen:
A and B at a barrier of two: A raised a timeout, B passed
reproduced: one of two clients passed a barrier of two, the other raised

Cause:
`torch/csrc/distributed/c10d/TCPStore.cpp`, `TCPStore::barrier` raises when the time is over, also if the answer to
CANCEL_WAIT is STOP_WAITING first, which says that the barrier has opened. If CANCEL_WAIT comes first, the count of
the one that has cancelled stays, and releases the others.

Fix:
Return when STOP_WAITING comes before WAIT_CANCELED: the server decides what came first. A cancelled arrival must
not count.
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

CONTROL = "--control" in sys.argv  # the server is not stopped: B arrives in good time


def serve(line: Any) -> None:
    store = dist.TCPStore("127.0.0.1", 0, is_master=True, wait_for_workers=False)
    line.send(store.port)
    time.sleep(120)


ours, theirs = multiprocessing.Pipe()
process = multiprocessing.get_context("fork").Process(target=serve, args=(theirs,), daemon=True)
process.start()
port = ours.recv()


def client(seconds: float) -> dist.TCPStore:
    limit = timedelta(seconds=seconds)
    return dist.TCPStore("127.0.0.1", port, is_master=False, timeout=limit, wait_for_workers=False)


a, b = client(60), client(60)
outcome: dict[str, str] = {}


def pass_barrier(name: str, store: dist.TCPStore, seconds: float) -> None:
    try:
        store.barrier("b", 2, timedelta(seconds=seconds))
        outcome[name] = "passed"
    except dist.DistStoreError:
        outcome[name] = "raised a timeout"


first = threading.Thread(target=pass_barrier, args=("A", a, 2))
first.start()
time.sleep(0.5)  # A is in the barrier
if not CONTROL:
    os.kill(process.pid, signal.SIGSTOP)  # the server is slow: B arrives in time, and A's time ends meanwhile
time.sleep(0.2)
second = threading.Thread(target=pass_barrier, args=("B", b, 30))
second.start()
time.sleep(3)
os.kill(process.pid, signal.SIGCONT)
first.join()
second.join()
process.kill()

print(f"A and B at a barrier of two: A {outcome['A']}, B {outcome['B']}")
if outcome == {"A": "raised a timeout", "B": "passed"}:
    print("reproduced: one of two clients passed a barrier of two, the other raised")
    sys.exit(1)
print("not reproduced: either both clients passed, or neither")
