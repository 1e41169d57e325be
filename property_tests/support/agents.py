"""What the tests of agents begin and end: a job whose workers succeed, and a program in a session of its own."""

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
    """A program, which is killed in the end with all that it started in its session."""
    process = subprocess.Popen(argv, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, start_new_session=True)
    try:
        yield process
    finally:
        with contextlib.suppress(ProcessLookupError):
            os.killpg(process.pid, signal.SIGKILL)
        process.communicate(timeout=10)
