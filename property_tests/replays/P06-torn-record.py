"""FileStore: a record that was cut off (disk full, writer killed) makes every later process hang in the constructor
with a busy CPU

Versions: torch 2.13.0 and 2.15.0; Python 3.11, Linux, CPU.

Steps:
1. A process sets a value for which the disk has no room: set raises.
2. Another process opens the same file.

Expected:
The second process opens the file without the record that was cut off.

Seen:
set: File too large
the next FileStore(path, 2), after 10 s: still in its constructor
reproduced: the constructor does not return

Cause:
`torch/csrc/distributed/c10d/FileStore.cpp`: set writes a length, the key, a length and the value one by one, and leaves
what it has written. `File::read` goes on as long as bytes are missing, and does not tell the end of the file (`read`
returns 0) from progress. The constructor reads within the lock and with the interpreter lock.

Fix:
Raise at the end of the file in `File::read`; cut the file back when a write fails; and let the next writer cut off part
of a record.
"""

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
