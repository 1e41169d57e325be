"""Helpers of the agents' tests: jobs whose workers succeed, a deaf worker, programs in sessions and groups."""

from __future__ import annotations

import atexit
import contextlib
import os
import runpy
import signal
import subprocess
import sys
from collections.abc import Iterator, Mapping
from pathlib import Path

from trystate.impl.agent import watchdog

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


def one_group(folder: Path, agents: Mapping[str, list[str]]) -> None:
    """In a child: `trystate run` for each, in this process's group; `pid.NAME`, `log.NAME`, `code.NAME` say of it."""
    running = {}
    for name, argv in agents.items():
        pid = os.fork()
        if pid == 0:
            _be_agent(folder, name, argv)
        (folder / f"pid.{name}").write_text(str(pid))
        running[pid] = name
    signal.signal(signal.SIGTERM, lambda *_: None)  # of the whole group; not ignored, which children would inherit
    while running:
        pid, status = os.wait()
        (folder / f"code.{running.pop(pid)}").write_text(str(os.waitstatus_to_exitcode(status)))


def _be_agent(folder: Path, name: str, argv: list[str]) -> None:
    code: object = 70
    try:
        log = os.open(folder / f"log.{name}", os.O_WRONLY | os.O_CREAT)
        os.dup2(log, 1)
        os.dup2(log, 2)
        os.environ["AGENT"] = name
        sys.argv = ["trystate", "run", *argv]
        runpy.run_module("trystate", run_name="__main__")
    except SystemExit as end:
        code = end.code or 0
    finally:
        atexit._run_exitfuncs()
        sys.stderr.flush()
        os._exit(code if isinstance(code, int) else 1)


def dogs(agent: int) -> list[int]:
    """The watchdogs of an agent that run."""
    found = []
    for process in watchdog.table().values():
        with contextlib.suppress(OSError):
            line = Path("/proc", str(process.pid), "cmdline").read_bytes()
            if process.parent == agent and process.state != "Z" and b"watchdog.py" in line:
                found.append(process.pid)
    return found
