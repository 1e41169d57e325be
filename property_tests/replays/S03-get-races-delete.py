"""TCPStore: get() returns b"" for a key that is deleted between its WAIT and its GET

Versions: torch 2.13.0 and 2.15.0; Python 3.11, Linux, CPU.

Steps:
1. A calls `get("k")` and waits.
2. B sets k to `v` and deletes it at once.
3. The set ends A's WAIT; when A's GET arrives, k is gone.

Expected:
get returns `b"v"`, the value that ended the wait, or goes on waiting. It never returns a value that nobody has set.

Seen:
13 of 20 gets returned b''; the keys only ever held b'v'
reproduced: get() returned b'' for a key that only ever held b'v'

Cause:
`torch/csrc/distributed/c10d/TCPStore.cpp`, `TCPStore::doGet` sends WAIT, reads its answer, and then sends GET.
`torch/csrc/distributed/c10d/TCPStoreLibUvBackend.cpp`, `LibUVStoreDaemon::get` answers the GET of a missing key
with an empty vector.

Fix:
Let the server answer a GET that follows a WAIT with the value that satisfied the WAIT, or add a request that waits
and reads in one. A missing key in the answer to GET should be distinguishable from an empty value in any case.
"""

import sys
import threading
import time
from datetime import timedelta

import torch.distributed as dist

CONTROL = "--control" in sys.argv  # the key is not deleted while A reads it
server = dist.TCPStore("127.0.0.1", 0, is_master=True, wait_for_workers=False)


def client(seconds: float = 5) -> dist.TCPStore:
    limit = timedelta(seconds=seconds)
    return dist.TCPStore("127.0.0.1", server.port, is_master=False, timeout=limit, wait_for_workers=False)


TRIES = 20
a, b = client(), client()
empty = 0


def read(key: str, got: list[bytes]) -> None:
    got.append(a.get(key))


for number in range(TRIES):
    key, got = f"k{number}", list[bytes]()
    reader = threading.Thread(target=read, args=(key, got))
    reader.start()
    time.sleep(0.05)  # A waits for the key
    b.set(key, "v")  # wakes A, which now asks for the value
    if not CONTROL:
        b.delete_key(key)
    reader.join(0.5)
    if not got:  # A did not see the key at all: let it end
        b.set(key, "v")
        reader.join()
    empty += got == [b""]

print(f"{empty} of {TRIES} gets returned b''; the keys only ever held b'v'")
if empty:
    print("reproduced: get() returned b'' for a key that only ever held b'v'")
    sys.exit(1)
print("not reproduced: every get() returned b'v'")
