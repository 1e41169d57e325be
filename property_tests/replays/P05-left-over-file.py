"""FileStore: a file that a crashed job has left is taken for the new job's: its keys are read, and it is never deleted

Versions: torch 2.13.0 and 2.15.0; Python 3.11, Linux, CPU.

Steps:
1. A process opens a FileStore of two users, sets a key, and is killed.
2. Two users of another job open the same path; one of them gets the key. Both close it.

Expected:
get waits for the key of its own job, and the file is deleted when both have closed it.

Seen:
get('address') in the second job, which has not set it: 'of the first job'
after both users of the second job have closed the file, it is there
reproduced: the second job reads a key of the first, and the file stays

Cause:
`torch/csrc/distributed/c10d/FileStore.cpp`: the constructor adds 1 to `refcount/`, the destructor takes 1 away and
deletes the file when that gives 0. The users that were killed stay counted, so that it never does.

Fix:
Write who has opened the file (process id, start time, host), and begin anew when none of them lives.
"""

import multiprocessing
import os
import sys
import tempfile
from datetime import timedelta

import torch.distributed as dist

CONTROL = "--control" in sys.argv  # the first job closes its file
path = os.path.join(tempfile.mkdtemp(), "store")
context = multiprocessing.get_context("fork")
ours, theirs = context.Pipe()


def first() -> None:
    store = dist.FileStore(path, 1 if CONTROL else 2)
    store.set("address", "of the first job")
    if CONTROL:
        del store
    os._exit(1)  # as if killed


def second() -> None:
    stores = [dist.FileStore(path, 2), dist.FileStore(path, 2)]  # both users of the second job
    stores[0].set_timeout(timedelta(seconds=1))
    try:
        theirs.send(stores[0].get("address").decode())
    except RuntimeError as error:
        theirs.send(type(error).__name__)
    del stores
    theirs.send(os.path.exists(path))


for job in (first, second):
    process = context.Process(target=job)
    process.start()
    process.join(20)

value, kept = ours.recv(), ours.recv()
print(f"get('address') in the second job, which has not set it: {value!r}")
print(f"after both users of the second job have closed the file, it is {'there' if kept else 'deleted'}")
if value == "of the first job" and kept:
    print("reproduced: the second job reads a key of the first, and the file stays", flush=True)
    os._exit(1)
print("not reproduced: nothing of the first job is read")
