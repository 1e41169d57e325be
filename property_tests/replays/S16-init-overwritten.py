"""TCPStore: a peer that writes the key init/ makes the master start without its workers

Versions: torch 2.13.0 and 2.15.0; Python 3.11, Linux, CPU.

Steps:
1. A master waits in `TCPStore(world_size=3, is_master=True)`.
2. A peer sends VALIDATE, and SET of `init/` with the value 3.

Expected:
The master goes on waiting for two workers.

Seen:
the master of a world of three, with no other worker: started
reproduced: TCPStore(world_size=3, is_master=True) returned with one worker of three

Cause:
`torch/csrc/distributed/c10d/TCPStore.cpp`, `TCPStore::waitForWorkers` counts workers with ADD in the key `init/`,
and the master reads it with GET. The server has no other protection for that key than the prefix that clients put
before others.

Fix:
Count workers by a request of their own, outside of the keys. The count then no longer appears in `num_keys` either.
"""

import socket
import struct
import sys
import threading
import time
from datetime import timedelta

import torch.distributed as dist

CONTROL = "--control" in sys.argv  # the peer writes another key


def blob(data: bytes) -> bytes:
    return struct.pack("<Q", len(data)) + data


VALIDATE = b"\x00" + struct.pack("<I", 0x3C85F7CE)
SET_INIT = b"\x01" + blob(b"/other" if CONTROL else b"init/") + blob(b"3")  # keys of users begin with "/"

with socket.socket() as probe:
    probe.bind(("127.0.0.1", 0))
    port = probe.getsockname()[1]
result = "started"


def be_master() -> None:
    global result
    try:
        dist.TCPStore("127.0.0.1", port, 3, True, timedelta(seconds=10))
    except dist.DistStoreError:
        result = "timed out"


master = threading.Thread(target=be_master)
master.start()
while True:  # until the master listens
    try:
        stranger = socket.create_connection(("127.0.0.1", port))
        break
    except ConnectionRefusedError:
        time.sleep(0.05)
time.sleep(1)  # the master is counted, and waits for two more
stranger.sendall(VALIDATE)
time.sleep(0.2)
stranger.sendall(SET_INIT)
master.join()

print(f"the master of a world of three, with no other worker: {result}")
if result == "started":
    print("reproduced: TCPStore(world_size=3, is_master=True) returned with one worker of three")
    sys.exit(1)
print("not reproduced: the master waited for its workers")
