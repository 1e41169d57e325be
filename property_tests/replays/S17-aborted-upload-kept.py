"""TCPStore: the server keeps the part of a request that has arrived when its connection closes

Versions: torch 2.13.0 and 2.15.0; Python 3.11, Linux, CPU.

Steps:
1. A client sends half of a SET of 1 MiB and closes the connection. It does this 200 times.
2. Read the resident memory of the server's process.

Expected:
The memory has not grown by more than a few MiB.

Seen:
200 uploads of 1 MiB broke off half-way; the server's process has 102 MiB more
reproduced: the server keeps the bytes that closed connections had sent

Cause:
`torch/csrc/distributed/c10d/TCPStoreLibUvBackend.cpp`, `ChunkedStream` owns the buffers that `alloc_buffer`
allocates with malloc, and frees them only in `commit`. It has no destructor, so the buffers that a connection has not
committed leak when its `UvClient` is destroyed.

Fix:
Give `ChunkedStream` a destructor that frees its buffers, or keep them in `std::unique_ptr`. A test can count the
buffers of closed clients.
"""

import os
import time

from ending import CONTROL, end
from stores import PING, VALIDATE, Server, blob

# With --control, the uploads are complete.
server = Server()
UPLOADS, MIB = 200, 1 << 20


def resident_mib() -> int:
    with open(f"/proc/{server.pid}/statm") as statm:
        return int(statm.read().split()[1]) * os.sysconf("SC_PAGE_SIZE") // MIB


sent = (b"\x01" + blob(b"/k") + blob(bytes(MIB)))[: None if CONTROL else MIB // 2]
before = resident_mib()
for _ in range(UPLOADS):
    with server.connection() as peer:
        peer.sendall(VALIDATE)
        peer.sendall(PING)
        peer.recv(4)  # the server has read both
        peer.sendall(sent)
time.sleep(1)
grown = resident_mib() - before

ended = "were complete" if CONTROL else "broke off half-way"
print(f"{UPLOADS} uploads of 1 MiB {ended}; the server's process has {grown} MiB more")
end(grown > UPLOADS // 4, "the server keeps the bytes that closed connections had sent")
