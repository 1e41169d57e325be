"""TCPStore: the server keeps the part of a request that has arrived when its connection closes

Versions: torch 2.13.0 and 2.15.0; Python 3.11, Linux, CPU.

Steps:
1. A client sends half of a SET of 1 MiB, and closes. This 200 times.
2. The resident memory of the server's process is read.

Expected:
The memory is as before, up to a few MiB.

Seen:
200 uploads of 1 MiB broke off half-way; the server's process has 102 MiB more
reproduced: the server keeps what closed connections had sent

Cause:
`torch/csrc/distributed/c10d/TCPStoreLibUvBackend.cpp`, `ChunkedStream` owns the buffers that `alloc_buffer` has got
from malloc, and frees them in `commit` alone. It has no destructor: what a connection has not committed is lost
when its `UvClient` ends.

Fix:
Give `ChunkedStream` a destructor that frees its buffers, or keep them in `std::unique_ptr`. A test can count the
buffers of closed clients.
"""

import os
import socket
import struct
import sys
import time

import torch.distributed as dist

CONTROL = "--control" in sys.argv  # the uploads are complete
server = dist.TCPStore("127.0.0.1", 0, is_master=True, wait_for_workers=False)
VALIDATE = b"\x00" + struct.pack("<I", 0x3C85F7CE)
PING = b"\x0d" + struct.pack("<I", 7)
UPLOADS, MIB = 200, 1 << 20


def blob(data: bytes) -> bytes:
    return struct.pack("<Q", len(data)) + data


def resident_mib() -> int:
    with open("/proc/self/statm") as statm:  # the server is in this process
        return int(statm.read().split()[1]) * os.sysconf("SC_PAGE_SIZE") // MIB


sent = (b"\x01" + blob(b"/k") + blob(bytes(MIB)))[: None if CONTROL else MIB // 2]
before = resident_mib()
for _ in range(UPLOADS):
    with socket.create_connection(("127.0.0.1", server.port)) as peer:
        peer.sendall(VALIDATE)
        peer.sendall(PING)
        peer.recv(4)  # the server has read both
        peer.sendall(sent)
time.sleep(1)
grown = resident_mib() - before

ended = "were complete" if CONTROL else "broke off half-way"
print(f"{UPLOADS} uploads of 1 MiB {ended}; the server's process has {grown} MiB more")
if grown > UPLOADS // 4:
    print("reproduced: the server keeps what closed connections had sent")
    sys.exit(1)
print("not reproduced: the server has dropped what closed connections had sent")
