"""FileStore: set and get wait for the lock of the file without a limit, whatever the timeout

Versions: torch 2.13.0 and 2.15.0; Python 3.11, Linux, CPU.

Steps:
1. A process holds the lock of the file and does not release it.
2. Another process, with a timeout of 1 s, calls set.

Expected:
set raises DistStoreError after about 1 s.

Seen:
another process has the file locked
set('key', 'value') with a timeout of 1 s, after 10 s: still waiting
reproduced: set() with a timeout of 1 s had not returned after 10 s

Cause:
`torch/csrc/distributed/c10d/FileStore.cpp`: `Lock` calls `flock` without `LOCK_NB`, and has no deadline.

Fix:
Retry with `LOCK_NB` until the store's timeout has passed.
"""

import fcntl
import multiprocessing
import os
import tempfile
import time
from datetime import timedelta

import torch.distributed as dist
from ending import CONTROL, end
from stores import Call

# With --control, the other process has released the lock.
path = os.path.join(tempfile.mkdtemp(), "store")
context = multiprocessing.get_context("fork")
ours, theirs = context.Pipe()


def lock() -> None:  # stands for a process that is stopped within set or get
    with open(path, "rb+") as file:
        fcntl.flock(file, fcntl.LOCK_EX)
        if not CONTROL:
            theirs.send("locked")
            time.sleep(60)
    theirs.send("unlocked")


store = dist.FileStore(path, 1)
store.set_timeout(timedelta(seconds=1))
store.set("before", "1")
other = context.Process(target=lock, daemon=True)
other.start()
print(f"another process has the file {ours.recv()}")
hangs = Call(store.set, "key", "value", begins=0).hangs()

print(f"set('key', 'value') with a timeout of 1 s, after 10 s: {'still waiting' if hangs else 'over'}")
end(hangs, "set() with a timeout of 1 s had not returned after 10 s")
