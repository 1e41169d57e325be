"""The control and the end of a replay."""

from __future__ import annotations

import atexit
import multiprocessing
import os
import sys
from typing import NoReturn

CONTROL = "--control" in sys.argv


def end(shown: object, reproduced: str) -> NoReturn:
    """Print whether the defect shows, and end with its exit code even if threads and processes still run."""
    print(f"reproduced: {reproduced}" if shown else "not reproduced", flush=True)
    for process in multiprocessing.active_children():
        process.kill()
    atexit._run_exitfuncs()  # delete temporary folders
    os._exit(int(bool(shown)))


def end_of(call: str, said: list[str], reproduced: str) -> None:
    """Print the outcome of a call on each rank, and end: it must be "created"."""
    for rank, outcome in enumerate(said):
        print(f"rank {rank}: {call}: {outcome}")
    end(said != ["created"] * len(said), reproduced)
