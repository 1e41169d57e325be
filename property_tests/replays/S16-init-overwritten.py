"""TCPStore: a peer that writes the key init/ makes the master start without its workers

Versions: torch 2.13.0 and 2.15.0; Python 3.11, Linux, CPU.

Steps:
1. A master waits in `TCPStore(world_size=3, is_master=True)`.
2. A peer sends VALIDATE, and a SET of `init/` to the value 3.

Expected:
The master continues to wait for two workers.

Seen:
the master of a world of three, with no other worker: started
reproduced: TCPStore(world_size=3, is_master=True) returned with one worker of three

Cause:
`torch/csrc/distributed/c10d/TCPStore.cpp`, `TCPStore::waitForWorkers` counts workers with ADD in the key `init/`,
and the master reads it with GET. The server's only protection for that key is the prefix that clients add to
other keys.

Fix:
Count workers with a separate request, outside the keys. The count then also no longer appears in `num_keys`.
"""

import socket
import time
from datetime import timedelta

import torch.distributed as dist
from ending import CONTROL, end
from stores import VALIDATE, Call, blob

# With --control, the peer writes another key.


SET_INIT = b"\x01" + blob(b"/other" if CONTROL else b"init/") + blob(b"3")  # keys of users begin with "/"

with socket.socket() as probe:
    probe.bind(("127.0.0.1", 0))
    port = probe.getsockname()[1]

master = Call(dist.TCPStore, "127.0.0.1", port, 3, True, timedelta(seconds=5), begins=0)
while True:  # until the master listens
    try:
        stranger = socket.create_connection(("127.0.0.1", port))
        break
    except ConnectionRefusedError:
        time.sleep(0.05)
time.sleep(1)  # the master has counted itself, and waits for two more
stranger.sendall(VALIDATE)
time.sleep(0.2)
stranger.sendall(SET_INIT)
master.join()
started = bool(master.got)

print(f"the master of a world of three, with no other worker: {'started' if started else 'timed out'}")
end(started, "TCPStore(world_size=3, is_master=True) returned with one worker of three")
