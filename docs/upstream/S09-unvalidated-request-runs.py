"""TCPStore: the server carries out requests of a connection that never validated."""

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
