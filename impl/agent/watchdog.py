"""The watchdog of an agent: kills the workers of its node when the node's lease ends. Run as a program, by its path.

    python -I -S watchdog.py PID SPARED...    the process PID is the agent and the parent; SPARED are no workers

Rule: standard library only, and nothing of this package: it starts quickly, and depends on nothing that can stand still
with the agent.

Theory of operation. A node may run workers for as long as its lease lasts: `Settings.lease_seconds` from before a
heartbeat was written to the store. The others expel it at the earliest `Settings.expiry_seconds` after they have read
that heartbeat, and then begin a round without it. `lease_seconds` is less than `expiry_seconds` by half an interval,
and by 4 % at least. Two clocks that each go wrong by 1 % take 2 % of that. The rest is the time for the kill, most of
which is the process table: 15 µs of processor time for each process of the host.

An agent that goes on stops its workers itself when its lease ends. An agent that is stopped (SIGSTOP, Ctrl-Z, a
debugger) cannot, and its workers are in other sessions, so that nothing stops them with it. Therefore the watchdog is
another process, in a session of its own, with nothing to wait for but its clock.

- The agent sends one line for each heartbeat that the store has acknowledged: the moment at which the lease ends. The
  watchdog reads all lines that have come before it judges, so that a late watchdog kills nobody wrongly.
- The clock is CLOCK_BOOTTIME, as that of the lease is. CLOCK_MONOTONIC stands still while the host is suspended: the
  lease would hold when the host comes back, and the others have gone on. `poll` counts CLOCK_MONOTONIC: a wait is never
  longer than `CLOCK_POLL_SECONDS`, so that a host that comes back is looked at by then.
- The workers are the agent's descendants in sessions of their own, looked up when the lease has ended. A list that the
  agent sent would lack the worker that it was starting when it was stopped. Until the lease is renewed, or the agent
  says that nothing runs, the watchdog looks again: a worker that was being started appears in its session later.
- Between the look and the kill it reads its lines once more: if the agent has come back and renewed its lease, the
  processes found may be new workers. A process is killed only if the table still has it with the same start time.
- It tells the agent before it kills: an agent that comes back to dead workers reads the reason, and takes them for a
  lost lease, and not for workers that have failed.

Three things can go wrong. The agent dies: workers have a parent-death signal (`parent_death.py`), and the watchdog
ends. The watchdog dies, or answers no more: the agent starts another one (`watchdog_client.py`). A worker is stuck in
the kernel: its SIGKILL is pending, and it does not come back to its program.
"""

from __future__ import annotations

import contextlib
import math
import os
import select
import signal
import sys
import time
from collections.abc import Collection
from typing import NamedTuple

CLOCK_POLL_SECONDS = 0.1  # between two looks at the clock
SWEEP_SECONDS_MIN, SWEEP_SECONDS_MAX = 0.05, 1.0  # between two looks at the process table when the lease is over
SWEEP_SHARE = 20  # a look at a large table is followed by a wait of so many times as long: 5 % of a core
LINES_BYTES_MAX = 1 << 16  # read at once: the capacity of a pipe
PIDS_MAX = 32  # in a log line, which a pipe must take in one piece
STAT_BYTES_MAX = 4096
PROC = "/proc"
STATES = {"T": "is stopped", "t": "is stopped by a debugger", "D": "waits in the kernel"}  # proc_pid_stat(5)


# ---- what it knows


class Watch:
    """Whether the workers may run. Owns no clock and no process; times in seconds of CLOCK_BOOTTIME."""

    def __init__(self) -> None:
        self.ends = -math.inf  # of the lease
        self.group: int | None = None  # which group of workers may run; None: none does

    def renew(self, ends: float) -> None:
        """A heartbeat was acknowledged; an older one that is heard of later shortens nothing."""
        self.ends = max(self.ends, ends)

    def guard(self, group: int) -> None:
        """Workers are about to be started."""
        self.group = group

    def rest(self) -> None:
        """They have ended."""
        self.group = None

    def over(self, now: float) -> bool:
        """Workers may exist, and must not."""
        return self.group is not None and now >= self.ends

    def pause(self, now: float) -> float:
        """Seconds until the next look at the clock."""
        left = self.ends - now if self.group is not None else math.inf
        return min(CLOCK_POLL_SECONDS, max(0.0, left))

    def hear(self, line: str) -> None:
        """A line of the agent's. Raises ValueError: it is none."""
        match line.split():
            case ["until", ends]:
                self.renew(float(ends))
            case ["guard", group]:
                self.guard(int(group))
            case ["rest"]:
                self.rest()
            case _:
                raise ValueError(f"{line!r} is no line of an agent's")


# ---- the processes of workers


class Process(NamedTuple):
    """A line of the process table."""

    pid: int
    parent: int
    session: int
    state: str = "R"  # Z, X: it has ended, and its parent has not asked how
    start: int = 0  # in ticks since boot: with the number it names a process for good


def table() -> dict[int, Process]:
    """All processes that can be seen; none where there is no /proc."""
    names = os.listdir(PROC) if os.path.isdir(PROC) else []
    found = (look(int(name)) for name in names if name.isdigit())
    return {process.pid: process for process in found if process is not None}


def look(pid: int) -> Process | None:
    """One process; None: it has ended."""
    with contextlib.suppress(OSError, ValueError, IndexError):
        file = os.open(f"{PROC}/{pid}/stat", os.O_RDONLY)  # a file object would cost as much as all the rest
        try:
            data = os.read(file, STAT_BYTES_MAX)
        finally:
            os.close(file)
        # pid (name) state parent group session ...: a name may have blanks and brackets in it
        fields = data.rpartition(b")")[2].split()
        return Process(pid, int(fields[1]), int(fields[3]), fields[0].decode(), int(fields[19]))
    return None


def left_behind(processes: dict[int, Process], agent: int, spared: Collection[int] = ()) -> list[Process]:
    """The agent's descendants in sessions of their own, and theirs; but not the children that are `spared`."""
    mine = processes.get(agent)
    if mine is None:
        return []
    below: dict[int, list[Process]] = {}
    for process in processes.values():
        below.setdefault(process.parent, []).append(process)
    found, rest = [], [(child, False) for child in below.get(agent, ()) if child.pid not in spared]
    while rest:
        process, apart = rest.pop()
        apart = apart or process.session != mine.session
        if apart:
            found.append(process)
        rest += [(child, apart) for child in below.get(process.pid, ())]
    return found


def kill(process: Process) -> None:
    """SIGKILL, unless the number is another process's by now."""
    now = look(process.pid)
    if now is not None and now.start == process.start:
        with contextlib.suppress(ProcessLookupError, PermissionError):
            os.kill(process.pid, signal.SIGKILL)


# ---- the program


class Program:
    """Reads the agent's lines, looks at the clock, and kills."""

    def __init__(self, agent: int, spared: Collection[int], lines: int = 0, answers: int = 1) -> None:
        self._agent, self._spared = agent, {*spared, os.getpid()}
        self._watch = Watch()
        self._rest = b""  # of a line that has not come whole
        self._told: int | None = None  # the group whose end the agent was told of
        self._killed: set[tuple[int, int]] = set()  # processes by number and start: one that is stuck is logged once
        self._lines, self._answers = lines, answers
        self._news = select.poll()
        self._news.register(lines, select.POLLIN)
        for file in (lines, answers):  # ours alone: the other end of a pipe has its own flag
            os.set_blocking(file, False)

    def run(self) -> None:
        """Until the agent has ended, or closes its end."""
        pause = CLOCK_POLL_SECONDS
        while self._listen(pause) and os.getppid() == self._agent:
            pause = self._sweep() if self._watch.over(now()) else self._watch.pause(now())

    def _listen(self, seconds: float) -> bool:
        """Wait for lines, take in all that have come, and answer each. False: the agent has closed its end."""
        self._news.poll(math.ceil(seconds * 1000))
        try:
            data = os.read(self._lines, LINES_BYTES_MAX)
        except BlockingIOError:
            return True
        *lines, self._rest = (self._rest + data).split(b"\n")
        for line in lines:
            self._watch.hear(line.decode())
            self._say("ok")
        return data != b""

    def _say(self, line: str) -> None:
        """Drops the line if the agent does not read: the watchdog waits for nobody."""
        with contextlib.suppress(BlockingIOError, BrokenPipeError):
            os.write(self._answers, line.encode() + b"\n")

    def _sweep(self) -> float:
        """Kill the workers that there are; seconds until the next look."""
        began, processes = now(), table()
        left = left_behind(processes, self._agent, self._spared)
        found = [process for process in left if process.state not in "ZX"]
        pause = min(SWEEP_SECONDS_MAX, max(SWEEP_SECONDS_MIN, SWEEP_SHARE * (now() - began)))
        if not found:
            return pause
        if not self._listen(0.0) or not self._watch.over(now()):
            return 0.0  # the agent has come back, or has ended
        if self._told != self._watch.group:
            self._told = self._watch.group
            self._say(f"killed {self._watch.group}")
        for process in found:
            kill(process)
        fresh = {(process.pid, process.start) for process in found} - self._killed
        if not fresh:
            return pause  # it takes its time to die, or is stuck in the kernel
        self._killed |= fresh
        self._log(processes.get(self._agent), sorted(pid for pid, _ in fresh))
        return 0.0  # one of them may have started another meanwhile

    def _log(self, agent: Process | None, pids: list[int]) -> None:
        """After the kill, and only if it does not block: an agent's output may be a pipe that nobody reads."""
        state = STATES.get(agent.state if agent is not None else "", "goes on, but has not reached the store")
        more = f" and {len(pids) - PIDS_MAX} more" if len(pids) > PIDS_MAX else ""
        line = (
            f"trystate watchdog: the lease of this node ended {now() - self._watch.ends:.3f} s ago, not renewed; its "
            f"agent (process {self._agent}) {state}. Killed its workers (processes "
            f"{' '.join(map(str, pids[:PIDS_MAX]))}{more}), since the other nodes may go on without this one\n"
        )
        writable = select.poll()
        writable.register(2, select.POLLOUT)
        with contextlib.suppress(OSError):
            if any(event & select.POLLOUT for _, event in writable.poll(0)):
                os.write(2, line.encode())


def now() -> float:
    """The clock of the lease."""
    return time.clock_gettime(time.CLOCK_BOOTTIME)


def main(argv: list[str]) -> None:
    """Watch until the agent ends. A signal to a whole group of processes ends agents, and those end their watchdogs."""
    for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP, signal.SIGQUIT, signal.SIGPIPE):
        signal.signal(number, signal.SIG_IGN)
    agent, *spared = map(int, argv)
    Program(agent, spared).run()


if __name__ == "__main__":
    main(sys.argv[1:])
