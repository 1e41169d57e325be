"""FileStore: get() returns a key of a job that has crashed."""

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
