"""FileStore: after a set() that met a full disk, the constructor of the next process never returns."""

import multiprocessing
import os
import resource
import sys
import tempfile

import torch.distributed as dist

CONTROL = "--control" in sys.argv  # the disk has room
path = os.path.join(tempfile.mkdtemp(), "store")
context = multiprocessing.get_context("fork")
ours, theirs = context.Pipe()


def write() -> None:
    store = dist.FileStore(path, 2)
    limit = os.path.getsize(path) + 40  # as a full disk, or a quota
    if not CONTROL:
        resource.setrlimit(resource.RLIMIT_FSIZE, (limit, resource.RLIM_INFINITY))
    try:
        store.set("address", "x" * 100)
        theirs.send("returned")
    except dist.DistStoreError as error:
        theirs.send(str(error))
    os._exit(1)


def read() -> None:
    dist.FileStore(path, 2)
    theirs.send("opened")


writer = context.Process(target=write)
writer.start()
writer.join(20)
print(f"set: {ours.recv()}")
reader = context.Process(target=read)
reader.start()
hangs = not ours.poll(10)
reader.kill()

print(f"the next FileStore(path, 2), after 10 s: {'still in its constructor' if hangs else 'opened'}")
if hangs:
    print("reproduced: the constructor does not return", flush=True)
    os._exit(1)
print("not reproduced: the file is opened")
