"""Clients of a store in processes of their own, recorded together.

Their times can be compared because the monotonic clock is the system's. The processes are this module, run as a program
that is told what to do on stdin; both sides speak pickle, of data only. Rule: a process that is late is killed.
"""

from __future__ import annotations

import pickle
import select
import subprocess
import sys
from collections.abc import Sequence
from datetime import timedelta
from typing import IO, Any, Literal

from torch._C._distributed_c10d import Store
from torch._C._distributed_c10d import TCPStore as TorchTCPStore

from ...harness.stores.deviations import Deviation
from .recording import END_SECONDS, START_SECONDS, Plan, Recorded, record

Make = Literal["torch", "trystate"]
CONNECT = timedelta(seconds=20)
PROGRAM = (sys.executable, "-m", "trystate.property_tests.support.stores.recording_process")
READY, GO = b"r", b"g"


def open_client(make: Make, host: str, port: int) -> Store:
    """A client of torch's make, or of this package's."""
    if make == "torch":
        return TorchTCPStore(host, port, is_master=False, wait_for_workers=False, timeout=CONNECT)
    from trystate.store import TCPStore

    return TCPStore(host, port, is_master=False, wait_for_workers=False, timeout=CONNECT)


def record_processes(
    make: Make,
    host: str,
    port: int,
    work: Sequence[Sequence[Plan]],
    deviations: frozenset[Deviation] = frozenset(),
) -> list[Recorded]:
    """As `record`, with a process for each group of plans and a thread in it for each plan.

    Raises TimeoutError, subprocess.TimeoutExpired or RuntimeError if a process is late or fails.
    """
    processes: list[subprocess.Popen[bytes]] = []
    try:
        for k, group in enumerate(work):
            process = subprocess.Popen(PROGRAM, bufsize=0, stdin=subprocess.PIPE, stdout=subprocess.PIPE)
            processes.append(process)
            names = sorted(d.name for d in deviations)
            job = pickle.dumps((make, host, port, [list(plan) for plan in group], names, f"process {k} client"))
            _input(process).write(len(job).to_bytes(8, "little") + job)
        for process in processes:
            _ready(process)
        for process in processes:
            _input(process).write(GO)
        return [call for process in processes for call in _calls(process)]
    finally:
        for process in processes:
            with process:
                process.kill()


def _input(process: subprocess.Popen[bytes]) -> IO[bytes]:
    assert process.stdin is not None
    return process.stdin


def _ready(process: subprocess.Popen[bytes]) -> None:
    assert process.stdout is not None
    if not select.select([process.stdout], [], [], START_SECONDS)[0]:
        raise TimeoutError(f"a client process was not ready after {START_SECONDS:g} s")
    if process.stdout.read(1) != READY:
        raise RuntimeError(f"a client process ended with {process.wait(1)}: see its stderr")


def _calls(process: subprocess.Popen[bytes]) -> list[Recorded]:
    said, _ = process.communicate(timeout=END_SECONDS)
    if process.returncode:
        raise RuntimeError(f"a client process ended with {process.returncode}: see its stderr")
    calls: list[Recorded] = pickle.loads(said)
    return calls


def main() -> None:
    """Be one of the processes."""
    told, say = sys.stdin.buffer, sys.stdout.buffer
    job: tuple[Any, ...] = pickle.loads(told.read(int.from_bytes(told.read(8), "little")))
    make, host, port, work, names, name = job
    clients = [open_client(make, host, port) for _ in work]

    def start() -> None:
        say.write(READY)
        say.flush()
        told.read(1)

    calls = record(clients, work, frozenset(Deviation[d] for d in names), name=name, start=start)
    say.write(pickle.dumps(calls))
    say.flush()


if __name__ == "__main__":
    main()
