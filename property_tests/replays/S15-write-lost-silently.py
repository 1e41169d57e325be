"""TCPStore: the first set() after the server has died returns as if it had happened

Versions: torch 2.13.0 and 2.15.0; Python 3.11, Linux, CPU.

Steps:
1. A client has set a key, and it was seen.
2. The server's process is killed.
3. Half a second later the client calls `set`.

Expected:
set raises DistNetworkError: the connection has ended.

Seen:
without a server: the first set returned, the second raised DistNetworkError
reproduced: a set() returned half a second after the server had died

Cause:
`torch/csrc/distributed/c10d/TCPStore.cpp`, `TCPStore::set`, `append`, `multiSet` and `queuePush` write the request,
and return without an answer. The kernel takes the bytes although the peer has closed; the next write fails.

Fix:
Acknowledge writes with one byte, which costs a round trip, or look for the end of the connection before a write.
The documentation could say that writes are not acknowledged.
"""

import multiprocessing
import sys
import time
from datetime import timedelta
from typing import Any

import torch.distributed as dist

CONTROL = "--control" in sys.argv  # the server does not die


def serve(line: Any) -> None:
    store = dist.TCPStore("127.0.0.1", 0, is_master=True, wait_for_workers=False)
    line.send(store.port)
    time.sleep(120)


ours, theirs = multiprocessing.Pipe()
process = multiprocessing.get_context("fork").Process(target=serve, args=(theirs,), daemon=True)
process.start()
port = ours.recv()

client = dist.TCPStore("127.0.0.1", port, is_master=False, timeout=timedelta(seconds=5), wait_for_workers=False)

client.set("before", "1")
assert client.check(["before"])
if not CONTROL:
    process.kill()
    process.join()
time.sleep(0.5)
results = []
for key in ("first", "second"):
    try:
        client.set(key, "1")
        results.append("returned")
    except dist.DistNetworkError:
        results.append("raised DistNetworkError")

kept = CONTROL and client.check(["first"])
print(f"{'with' if CONTROL else 'without'} a server: the first set {results[0]}, the second {results[1]}")
if results[0] == "returned" and not kept:
    print("reproduced: a set() returned half a second after the server had died")
    sys.exit(1)
print("not reproduced: no set() returned without its effect")
