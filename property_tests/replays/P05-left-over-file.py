"""FileStore: a new job takes over the file of a crashed job, reads the old keys, and never deletes the file

Versions: torch 2.13.0 and 2.15.0; Python 3.11, Linux, CPU.

Steps:
1. A process opens a FileStore of two users, sets a key, and is killed.
2. Two users of another job open the same path. One of them gets the key. Both close the file.

Expected:
get waits for its own job's key, and the file is deleted when both have closed it.

Seen:
get('address') in the second job, which has not set it: 'of the first job'
after both users of the second job have closed the file, it is kept
reproduced: the second job reads a key of the first, and does not delete the file

Cause:
`torch/csrc/distributed/c10d/FileStore.cpp`: the constructor adds 1 to `refcount/`, the destructor subtracts 1
and deletes the file at 0. Users that were killed are never subtracted, so the count does not reach 0.

Fix:
Record the users that have opened the file (process id, start time, host), and start with an empty file when none of
them lives.
"""

import multiprocessing
import os
import tempfile
from datetime import timedelta

import torch.distributed as dist
from ending import CONTROL, end

# With --control, the first job closes its file.
path = os.path.join(tempfile.mkdtemp(), "store")
context = multiprocessing.get_context("fork")
ours, theirs = context.Pipe()


def first() -> None:
    store = dist.FileStore(path, 1 if CONTROL else 2)
    store.set("address", "of the first job")
    if CONTROL:
        del store
    os._exit(1)  # ends like a killed process


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
print(f"after both users of the second job have closed the file, it is {'kept' if kept else 'deleted'}")
end(value == "of the first job" and kept, "the second job reads a key of the first, and does not delete the file")
