"""Helpers of the agents' tests: jobs whose workers succeed, a deaf worker, programs in sessions and groups."""

from __future__ import annotations

import contextlib
import os
import signal
import subprocess
import sys
import urllib.request
from collections.abc import Iterator

from ..adapters.jobs import Agent

DEAF = """
import os, signal, sys, time
signal.signal(signal.SIGTERM, lambda *_: open(sys.argv[1] + ".got", "w").close())
open(sys.argv[1], "w").close()
while not os.path.exists(sys.argv[1] + ".end"):
    time.sleep(0.01)
os._exit(0)  # a worker function that returned would wait for the others
"""


def runs_deaf(started: str) -> None:
    """A worker that is a function and ignores SIGTERM; a spawned process can import it from here."""
    sys.argv = ["-c", started]
    exec(DEAF, {})


def succeed(*agents: Agent) -> None:
    """Make the workers of these agents succeed, and wait until the agents have succeeded."""
    for agent in agents:
        agent.do("succeed")
    assert [agent.ends() for agent in agents] == [0] * len(agents)


@contextlib.contextmanager
def started(*argv: str) -> Iterator[subprocess.Popen[str]]:
    """A program in its own session; the end of the block kills all processes of the session."""
    process = subprocess.Popen(argv, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, start_new_session=True)
    try:
        yield process
    finally:
        with contextlib.suppress(ProcessLookupError):
            os.killpg(process.pid, signal.SIGKILL)
        process.communicate(timeout=10)


def numbers(port: int) -> dict[str, float]:
    """The metrics that are served on a port; none if it is free."""
    try:
        with urllib.request.urlopen(f"http://127.0.0.1:{port}/metrics", timeout=5) as answer:
            lines = answer.read().decode().splitlines()
    except OSError:
        return {}
    return {name: float(value) for name, _, value in (x.rpartition(" ") for x in lines if not x.startswith("#"))}
