"""TCPStore(use_libuv=False): one byte from a connection that then is silent blocks all clients

Versions: torch 2.13.0 and 2.15.0; Python 3.11, Linux, CPU.

Steps:
1. A stranger connects, sends one byte, and is silent.
2. Another client calls `check(["k"])`.

Expected:
The other client is served.

Seen:
check(['k']) of another client with a timeout of 5 s, after 10 s: still waiting
reproduced: one byte of a silent connection stopped the server for another client

Cause:
`torch/csrc/distributed/c10d/TCPStoreBackend.cpp`, `TCPStoreMasterDaemon::queryFds` reads a request to its end with
blocking reads (`tcputil::recvValue`), in the only thread of the server.

Fix:
Keep what has arrived for each connection, and read without blocking. Or retire the legacy server.
"""

import os
import socket
import sys
import threading
import time
from datetime import timedelta

import torch.distributed as dist

CONTROL = "--control" in sys.argv  # the peer sends nothing
server = dist.TCPStore("127.0.0.1", 0, is_master=True, wait_for_workers=False, use_libuv=False)


def client(seconds: float = 5) -> dist.TCPStore:
    limit = timedelta(seconds=seconds)
    return dist.TCPStore(
        "127.0.0.1", server.port, is_master=False, timeout=limit, wait_for_workers=False, use_libuv=False
    )


b = client()
assert not b.check(["k"])
stranger = socket.create_connection(("127.0.0.1", server.port))
stranger.sendall(b"" if CONTROL else b"\x00")  # the first byte of VALIDATE, and no more
time.sleep(0.5)
operation = threading.Thread(target=b.check, args=(["k"],), daemon=True)
operation.start()
operation.join(10)
hangs = operation.is_alive()

print(f"check(['k']) of another client with a timeout of 5 s, after 10 s: {'still waiting' if hangs else 'over'}")
if hangs:
    print("reproduced: one byte of a silent connection stopped the server for another client", flush=True)
    os._exit(1)
print("not reproduced: the other client was served")
