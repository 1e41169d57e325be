"""TCPStore(use_libuv=False): one byte from a connection that is then silent blocks all clients

Versions: torch 2.13.0 and 2.15.0; Python 3.11, Linux, CPU.

Steps:
1. A stranger connects, sends one byte, and is silent.
2. Another client calls `check(["k"])`.

Expected:
The server answers the other client.

Seen:
check(['k']) of another client with a timeout of 5 s, after 10 s: still waiting
reproduced: one byte of a silent connection stopped the server for another client

Cause:
`torch/csrc/distributed/c10d/TCPStoreBackend.cpp`, `TCPStoreMasterDaemon::queryFds` reads a whole request with
blocking reads (`tcputil::recvValue`) in the server's only thread.

Fix:
Keep the bytes that have arrived for each connection, and read without blocking. Or retire the legacy server.
"""

import time

from ending import CONTROL, end
from stores import Call, Server

# With --control, the peer sends nothing.
server = Server(use_libuv=False)

b = server.client()
assert not b.check(["k"])
stranger = server.connection()
stranger.sendall(b"" if CONTROL else b"\x00")  # the first byte of VALIDATE, and no more
time.sleep(0.5)
hangs = Call(b.check, ["k"]).hangs()

print(f"check(['k']) of another client with a timeout of 5 s, after 10 s: {'still waiting' if hangs else 'over'}")
end(hangs, "one byte of a silent connection stopped the server for another client")
