"""Schedules of findings on the shipped barrier, over torch's own TCPStore.

Rule: the schedule decides only whose operation is next. The output is what the calls of the barrier returned or raised,
and what is in the store.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import suppress
from datetime import timedelta
from pathlib import Path
from typing import Any

from trystate.model.nvrx.barrier import NvrxBarrier

from ...harness.subjects import Refused
from .nodes import Job

WAIT = timedelta(seconds=2)  # the store's timeout is 30 minutes
TURNS_MAX = 100


def tcp_job(port: int = 0, run: str = "job", file: Path | None = None, **sizes: Any) -> Job:
    """A job whose launchers have clients of a TCPStore of torch; the sizes have the names that the model gives them.

    `port`: of a store's server that runs already.
    """
    from torch._C._distributed_c10d import TCPStore

    server = None if port else TCPStore("127.0.0.1", 0, is_master=True, wait_for_workers=False)

    def connect() -> Any:
        client = TCPStore("127.0.0.1", port or server.port, is_master=False, wait_for_workers=False)  # type: ignore[union-attr]
        client.set_timeout(WAIT)
        return client

    job = Job(NvrxBarrier(**sizes), file, connect, run)
    job.server = server
    job.reset()
    return job


def take(job: Job, steps: str) -> None:
    """Take steps such as `take_slot(2)`; a step that the code does not take is printed and left out."""
    for label in steps.split():
        name, _, node = label.rstrip(")").partition("(")
        try:
            job.perform(name, (int(node),) if node else ())
        except Refused as why:
            print(f"{label} is not possible: {why}")


def settle(job: Job) -> None:
    """Let every launcher proceed in turn, until each has ended, trains, or only polls."""
    for _ in range(TURNS_MAX):
        proceeded = False
        for process in job.processes:
            with suppress(Refused):
                if process.is_running:
                    process.proceed(may_wait=True)
                    proceeded = True
        if not proceeded:
            return


def told(job: Job) -> Iterator[str]:
    """The result or the error of each launcher's call, or the place where it waits."""
    for process in job.processes:
        yield f"machine {process.number}: {process.outcome or f'waits, {process.place.value}'}"  # type: ignore[union-attr]
