"""TCPStore: the first set() after the server has died returns as if it had happened

Versions: torch 2.13.0 and 2.15.0; Python 3.11, Linux, CPU.

Steps:
1. A client has set a key, and the server has it.
2. The server's process is killed.
3. Half a second later the client calls `set`.

Expected:
set raises DistNetworkError, because the connection has ended.

Seen:
without a server: the first set returned, the second raised DistNetworkError
reproduced: a set() returned half a second after the server had died

Cause:
`torch/csrc/distributed/c10d/TCPStore.cpp`, `TCPStore::set`, `append`, `multiSet` and `queuePush` write the request
and return without an answer. The kernel accepts the bytes although the peer has closed. The next write fails.

Fix:
Acknowledge writes with one byte, which costs a round trip, or check for the end of the connection before a write.
Otherwise document that writes are not acknowledged.
"""

import time

import torch.distributed as dist
from ending import CONTROL, end
from stores import client_of, served_apart

# With --control, the server does not die.


process, port = served_apart()

client = client_of(port)

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
end(results[0] == "returned" and not kept, "a set() returned half a second after the server had died")
