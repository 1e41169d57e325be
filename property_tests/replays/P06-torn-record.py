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
`torch/csrc/distributed/c10d/FileStore.cpp`: set writes a length, the key, a length and the value one by one, and does
not remove an incomplete record. `File::read` repeats `read` while bytes are missing, and does not distinguish the end
of the file (`read` returns 0) from progress. The constructor reads while it holds the file's lock and the interpreter
lock.

Fix:
Raise at the end of the file in `File::read`. Truncate the file when a write fails, and let the next writer remove an
incomplete record.
"""

import multiprocessing
import os
import resource
import tempfile

import torch.distributed as dist
from ending import CONTROL, end

# With --control, the disk has room.
path = os.path.join(tempfile.mkdtemp(), "store")
context = multiprocessing.get_context("fork")
ours, theirs = context.Pipe()


def write() -> None:
    store = dist.FileStore(path, 2)
    limit = os.path.getsize(path) + 40  # stands for a full disk or a quota
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
end(hangs, "the constructor does not return")
