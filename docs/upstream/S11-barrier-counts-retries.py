"""TCPStore: a client that tries a barrier again after a timeout passes it alone."""

import sys
from datetime import timedelta

import torch.distributed as dist

CONTROL = "--control" in sys.argv  # the second try is at another barrier
server = dist.TCPStore("127.0.0.1", 0, is_master=True, wait_for_workers=False)


def client(seconds: float = 5) -> dist.TCPStore:
    limit = timedelta(seconds=seconds)
    return dist.TCPStore("127.0.0.1", server.port, is_master=False, timeout=limit, wait_for_workers=False)


a = client()
tries = []
for name in ("b", "c" if CONTROL else "b"):
    try:
        a.barrier(name, 2, timedelta(seconds=1))
        tries.append("passed")
    except dist.DistStoreError:
        tries.append("timed out")

print(f"A, alone at a barrier of two: first try {tries[0]}, second try {tries[1]}")
if tries[1] == "passed":
    print("reproduced: the second try of one client passed a barrier of two alone")
    sys.exit(1)
print("not reproduced: one client alone does not pass a barrier of two")
