"""TCPStore: get() returns b"" for a key that is deleted between its two requests."""

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
