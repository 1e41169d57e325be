"""TCPStore: barrier() raises for a client that the server had released together with all others."""

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
