"""Members of a process group over one store, each a process, for the replays of groups."""

from __future__ import annotations

import multiprocessing
import sys
from collections.abc import Callable
from datetime import timedelta
from typing import Any

import torch.distributed as dist

TIMEOUT = timedelta(seconds=30 if "--control" in sys.argv else 2)  # the default of gloo is 30 minutes


def join(rank: int, size: int, port: int, timeout: timedelta = TIMEOUT) -> Any:
    store = dist.TCPStore("127.0.0.1", port, is_master=False, wait_for_workers=False)
    dist.init_process_group("gloo", store=store, rank=rank, world_size=size, timeout=timeout)
    store.set_timeout(timeout)
    return store


def created(make: Callable[[], object]) -> str:
    try:
        make()
    except (RuntimeError, ValueError) as error:
        return type(error).__name__
    return "created"


def members(work: Callable[[int, Any, int], None], size: int) -> tuple[list[Any], Any]:
    """Start processes that call work(rank, line, port of a store); returns their lines and the store."""
    context = multiprocessing.get_context("fork")
    lines = [context.Pipe() for _ in range(size)]

    def member(rank: int, line: Any) -> None:
        work(rank, line, line.recv())
        line.recv()  # keeps the process alive

    for rank, (_, theirs) in enumerate(lines):
        context.Process(target=member, args=(rank, theirs), daemon=True).start()
    server = dist.TCPStore("127.0.0.1", 0, is_master=True, wait_for_workers=False)  # it has threads: after the forks
    for ours, _ in lines:
        ours.send(server.port)
    return [ours for ours, _ in lines], server
