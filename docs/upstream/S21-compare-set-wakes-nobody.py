"""TCPStore(use_libuv=False): a key that compare_set creates wakes no client that waits for it."""

import sys
import threading
import time
from datetime import timedelta

import torch.distributed as dist

CONTROL = "--control" in sys.argv  # a set creates the key
server = dist.TCPStore("127.0.0.1", 0, is_master=True, wait_for_workers=False, use_libuv=False)


def client(seconds: float = 5) -> dist.TCPStore:
    limit = timedelta(seconds=seconds)
    return dist.TCPStore(
        "127.0.0.1", server.port, is_master=False, timeout=limit, wait_for_workers=False, use_libuv=False
    )


a, b = client(seconds=3), client()
result = ""


def get() -> None:
    global result
    try:
        result = f"returned {a.get('k')!r}"
    except dist.DistStoreError as error:
        result = f"raised {error}".splitlines()[0]


waiter = threading.Thread(target=get)
waiter.start()
time.sleep(0.5)  # A waits for k
if CONTROL:
    b.set("k", "v")
else:
    b.compare_set("k", "", "v")  # creates k
exists = b.check(["k"])
waiter.join()

print(f"k exists: {exists}; A's get of k with a timeout of 3 s {result}")
if exists and "timeout" in result:
    print("reproduced: get('k') timed out although compare_set had created k")
    sys.exit(1)
print("not reproduced: get('k') returned when k was created")
