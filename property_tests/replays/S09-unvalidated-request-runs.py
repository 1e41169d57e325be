"""TCPStore: requests of a connection that never sent VALIDATE are carried out

Versions: torch 2.13.0 and 2.15.0; Python 3.11, Linux, CPU.

Steps:
1. A stranger connects, and sends a SET without a VALIDATE before it. Nothing happens.
2. It sends any second packet: the server carries out the SET, and answers.

Expected:
The server closes a connection whose first request is no VALIDATE.

Seen:
the SET was carried out after one packet: False, after two: True
the PING was answered: True
reproduced: a peer that never sent VALIDATE has set a key

Cause:
`torch/csrc/distributed/c10d/TCPStoreLibUvBackend.cpp`, `UvClient::processBuf` calls `isMiscellaneousClient`, which
takes the connection off the list of those that have not validated, before it looks at the request. If that is no
VALIDATE, `processBuf` returns without closing; the bytes stay in the stream, and with the next read the connection
counts as validated.

Fix:
Take the connection off the list when VALIDATE has been read, and close it at any other first request. The legacy
server closes it already.

Related:
VALIDATE came with https://github.com/pytorch/pytorch/pull/107607.
"""

import socket
import struct
import sys
import time
from datetime import timedelta

import torch.distributed as dist

CONTROL = "--control" in sys.argv  # the peer sends nothing after its SET
server = dist.TCPStore("127.0.0.1", 0, is_master=True, wait_for_workers=False)


def client(seconds: float = 5) -> dist.TCPStore:
    limit = timedelta(seconds=seconds)
    return dist.TCPStore("127.0.0.1", server.port, is_master=False, timeout=limit, wait_for_workers=False)


def blob(data: bytes) -> bytes:
    return struct.pack("<Q", len(data)) + data


SET = b"\x01" + blob(b"/k") + blob(b"from a stranger")
PING = b"\x0d" + struct.pack("<I", 7)

b = client()
stranger = socket.create_connection(("127.0.0.1", server.port))
stranger.sendall(SET)  # no VALIDATE before it
time.sleep(0.5)
before = b.check(["k"])
if not CONTROL:
    stranger.sendall(PING)  # any second packet
stranger.settimeout(2)
try:
    answer = stranger.recv(4)
except (ConnectionResetError, TimeoutError):
    answer = b""
landed = b.check(["k"])

print(f"the SET was carried out after one packet: {before}, {'later' if CONTROL else 'after two'}: {landed}")
print(f"the PING was answered: {bool(answer)}")
if landed:
    print("reproduced: a peer that never sent VALIDATE has set a key")
    sys.exit(1)
print("not reproduced: a peer that never sent VALIDATE was not served")
