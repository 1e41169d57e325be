"""A worker's heartbeat: a training loop calls it at each step, and its agent can distinguish work from a hang.

Rule: standard library only, and quick: a worker calls it in its loop. Without an agent that uses it, it does nothing.
"""

from __future__ import annotations

import faulthandler
import os
import signal
from typing import IO

VARIABLE = "TRYSTATE_HEARTBEAT_FILE"  # the file of this worker, set by an agent with --heartbeat-limit
STACKS = ".stacks"  # suffix of the file into which a worker writes its stacks on request
# The request for the stacks: the last real-time signal, which no known library of a training job uses.
SIGNAL = getattr(signal, "SIGRTMAX", None)


class _Beating:
    """The open files of the process that beats."""

    file = -1
    stacks: IO[bytes] | None = None


def heartbeat() -> None:
    """Report progress to the agent, which kills a worker without a heartbeat for `--heartbeat-limit` seconds.

    The first call also lets the agent request the stacks of all threads, by the signal SIGRTMAX. Costs a microsecond.

    Raises:
        OSError: the file cannot be made.
    """
    if _Beating.file < 0:
        path = os.environ.get(VARIABLE)
        if not path:
            return
        _begin(path)
    os.utime(_Beating.file)


def _begin(path: str) -> None:
    _Beating.file = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_TRUNC | os.O_CLOEXEC, 0o600)
    if SIGNAL is not None and hasattr(faulthandler, "register"):
        _Beating.stacks = open(path + STACKS, "wb", buffering=0)  # noqa: SIM115 (for as long as the process lives)
        faulthandler.register(SIGNAL, _Beating.stacks, all_threads=True, chain=False)
    os.write(_Beating.file, b"%d\n" % os.getpid())
