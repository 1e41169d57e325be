"""TCPStore: a barrier that has opened once lets every client through for good."""

import sys
import threading
from datetime import timedelta

import torch.distributed as dist

CONTROL = "--control" in sys.argv  # A comes to another barrier the second time
server = dist.TCPStore("127.0.0.1", 0, is_master=True, wait_for_workers=False)


def client(seconds: float = 5) -> dist.TCPStore:
    limit = timedelta(seconds=seconds)
    return dist.TCPStore("127.0.0.1", server.port, is_master=False, timeout=limit, wait_for_workers=False)


a, b = client(), client()
both = [threading.Thread(target=each.barrier, args=("b", 2, timedelta(seconds=5))) for each in (a, b)]
for thread in both:
    thread.start()
for thread in both:
    thread.join()
try:
    a.barrier("new" if CONTROL else "b", 2, timedelta(seconds=1))
    second = "passed"
except dist.DistStoreError:
    second = "timed out"

print(f"A and B passed the barrier together; then A, alone at {'a new' if CONTROL else 'that'} barrier, {second}")
if second == "passed":
    print("reproduced: at the second use of a barrier of two one client passed alone")
    sys.exit(1)
print("not reproduced: one client alone did not pass a barrier of two")
