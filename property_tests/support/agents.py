"""Helpers of the agents' tests: a job whose workers succeed, a deaf worker, and a program in a session of its own."""

from __future__ import annotations

import contextlib
import os
import signal
import subprocess
import sys
from collections.abc import Iterator

from ..adapters.jobs import Agent

DEAF = """
import os, signal, sys, time
signal.signal(signal.SIGTERM, lambda *_: open(sys.argv[1] + ".got", "w").close())
open(sys.argv[1], "w").close()
while not os.path.exists(sys.argv[1] + ".end"):
    time.sleep(0.01)
os._exit(0)  # a function that returns waits for the others
"""


def runs_deaf(started: str) -> None:
    """A worker that is a function, and ignores SIGTERM; it stands where a spawned process can import it."""
    sys.argv = ["-c", started]
    exec(DEAF, {})


def succeed(*agents: Agent) -> None:
    """The workers of these agents succeed, and then the agents."""
    for agent in agents:
        agent.do("succeed")
    assert [agent.ends() for agent in agents] == [0] * len(agents)


@contextlib.contextmanager
def started(*argv: str) -> Iterator[subprocess.Popen[str]]:
    """A program in a session of its own; the end of the block kills all processes there."""
    process = subprocess.Popen(argv, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, start_new_session=True)
    try:
        yield process
    finally:
        with contextlib.suppress(ProcessLookupError):
            os.killpg(process.pid, signal.SIGKILL)
        process.communicate(timeout=10)
