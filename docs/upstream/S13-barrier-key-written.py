"""TCPStore: setting a key of a barrier's name releases the barrier."""

import sys
import threading
import time
from datetime import timedelta

import torch.distributed as dist

CONTROL = "--control" in sys.argv  # B sets another key
server = dist.TCPStore("127.0.0.1", 0, is_master=True, wait_for_workers=False)


def client(seconds: float = 5) -> dist.TCPStore:
    limit = timedelta(seconds=seconds)
    return dist.TCPStore("127.0.0.1", server.port, is_master=False, timeout=limit, wait_for_workers=False)


a, b = client(), client()
result = "released"


def pass_barrier() -> None:
    global result
    try:
        a.barrier("name", 2, timedelta(seconds=3))
    except dist.DistStoreError:
        result = "timed out"


waiter = threading.Thread(target=pass_barrier)
waiter.start()
time.sleep(0.5)  # A waits at the barrier
key = "other" if CONTROL else "name"
b.set(key, "any value")
waiter.join()

print(f"A, alone at barrier('name', 2), after set({key!r}): {result}")
if result == "released":
    print("reproduced: set('name') released barrier('name', 2) with one client in it")
    sys.exit(1)
print("not reproduced: the set did not release the barrier")
