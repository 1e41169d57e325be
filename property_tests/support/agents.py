"""Helpers of the agents' tests: a job whose workers succeed, and a program in a session of its own."""

from __future__ import annotations

import contextlib
import os
import signal
import subprocess
from collections.abc import Iterator

from ..adapters.jobs import Agent


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
