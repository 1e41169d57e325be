"""new_group: rank 2 does not call it for a group without rank 2; the next group of all is never made."""

import multiprocessing
import os
import sys
from datetime import timedelta
from typing import Any

import torch.distributed as dist

CONTROL = "--control" in sys.argv  # rank 2 calls it too
TIMEOUT = timedelta(seconds=30 if CONTROL else 2)  # the default of gloo is 30 minutes


def join(rank: int, size: int, port: int) -> Any:
    store = dist.TCPStore("127.0.0.1", port, is_master=False, wait_for_workers=False)
    dist.init_process_group("gloo", store=store, rank=rank, world_size=size, timeout=TIMEOUT)
    store.set_timeout(TIMEOUT)
    return store


def created(make: Any) -> str:
    try:
        make()
    except RuntimeError as error:
        return type(error).__name__
    return "created"


def member(rank: int, line: Any) -> None:
    port = line.recv()
    join(rank, 3, port)
    if rank < 2 or CONTROL:  # rank 2 is not in it
        dist.new_group([0, 1], timeout=TIMEOUT)
    line.send(created(lambda: dist.new_group([0, 1, 2], timeout=TIMEOUT)))
    line.recv()


context = multiprocessing.get_context("fork")
lines = [context.Pipe() for _ in range(3)]
processes = [context.Process(target=member, args=(rank, theirs), daemon=True) for rank, (_, theirs) in enumerate(lines)]
for process in processes:
    process.start()
server = dist.TCPStore("127.0.0.1", 0, is_master=True, wait_for_workers=False)  # it has threads: after the forks
for ours, _ in lines:
    ours.send(server.port)
said = [lines[rank][0].recv() for rank in (0, 1)]  # rank 2 takes 20 s to give up
for process in processes:
    process.kill()

for rank, outcome in enumerate(said):
    print(f"rank {rank}: new_group([0, 1, 2]), which all three call: {outcome}")
if said != ["created"] * 2:
    print("reproduced: a group that all of its members call for is not made", flush=True)
    os._exit(1)
print("not reproduced: the group is made")
