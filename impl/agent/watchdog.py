"""The watchdog of an agent kills the workers of its node when the node's lease ends. When the agent is killed, it kills
the processes that the workers have started. It is run as a program, by its path.

    python -I -S watchdog.py PID MARK GROUP SPARED...

PID is the process of the agent, which is the parent. MARK is in the environment of all processes that the agent's
workers start. GROUP is the folder of the workers' control group, or empty. SPARED are processes that are not workers.

Rule: this program uses only the standard library and imports nothing of this package. So it starts quickly and uses
nothing that can hang with the agent.

Theory of operation. A node may run workers for as long as its lease lasts: `Settings.lease_seconds` from before a
heartbeat was written to the store. The other nodes expel this node at the earliest `Settings.expiry_seconds` after they
have read the heartbeat, and then begin a round without it. `lease_seconds` is less than `expiry_seconds` by half an
interval, and by 4 % at least. If both clocks are wrong by 1 %, this uses 2 % of the difference. The rest is the time
for the kill. Most of this time is needed to read the process table: 15 µs of processor time for each process of the
host.

An agent that runs stops its workers itself when its lease ends. An agent that is stopped (SIGSTOP, Ctrl-Z, a debugger)
cannot do that, while its workers, which are in other sessions, keep running. Therefore the watchdog is another process,
in its own session, which waits only for its clock.

- The agent sends one line for each heartbeat that the store has acknowledged: the moment at which the lease ends. The
  watchdog reads all available lines before it decides, so a late watchdog does not kill a worker wrongly.
- The clock is CLOCK_BOOTTIME, as for the lease. CLOCK_MONOTONIC does not advance while the host is suspended: by this
  clock the lease would still hold when the host resumes, but the other nodes have continued. `poll` uses
  CLOCK_MONOTONIC. So a wait is never longer than `CLOCK_POLL_SECONDS`, and the lease is checked soon after the host has
  resumed.
- The workers are the agent's descendants in other sessions. The watchdog looks them up when the lease has ended. A list
  from the agent would lack the worker that the agent was starting when it was stopped. This worker appears in its
  session later. So the watchdog looks again until the lease is renewed or the agent reports that no worker runs.
- Between the look and the kill, the watchdog reads its lines once more. If the agent has resumed and renewed its lease,
  the processes found may be new workers. A process is killed only if it still has the same start time.
- The watchdog informs the agent before the kill. An agent that resumes and finds dead workers reads this reason. It
  treats the workers as stopped by a lost lease, not as failed.

If an agent is killed, its workers die too, by a parent-death signal (`parent_death.py`). The children of the workers
(the program that a launch script runs, a worker of a DataLoader) have no such signal. They have another parent by then,
so the tree of processes does not lead to them. The watchdog kills the processes in the sessions of the workers, which
the agent has sent; the processes with the agent's mark in their environment; and the control group of the workers, if
one may be made (`cgroup.py`). An agent that ends in order sends a line first, and then the watchdog kills nothing.

Failures:

- The agent and its watchdog are killed at the same time. Only the workers die.
- The watchdog dies, or does not answer. The agent starts another one (`watchdog_client.py`).
- A worker is stuck in the kernel. Its SIGKILL is pending, and it does not return to its program.
"""

from __future__ import annotations

import contextlib
import math
import os
import select
import signal
import sys
import time
from collections.abc import Collection, Mapping
from typing import NamedTuple

CLOCK_POLL_SECONDS = 0.1  # polling interval of the clock
SWEEP_SECONDS_MIN, SWEEP_SECONDS_MAX = 0.05, 1.0  # polling interval of the process table when the lease is over
SWEEP_SHARE = 20  # the pause after a read of the table is this many times as long as the read: 5 % of a core
LINES_BYTES_MAX = 1 << 16  # read at once: the capacity of a pipe
PIDS_MAX = 32  # limit in a log line, which must fit into a pipe in one piece
STAT_BYTES_MAX = 4096
ENVIRONMENT_BYTES_MAX = 1 << 20
END_SECONDS = 10.0  # a killed process that still exists after this time is stuck in the kernel
QUIET_LOOKS = 2  # empty looks before the end: a process that executes a program has no environment for a moment
MARK = "TRYSTATE_AGENT"  # a variable of workers, of health commands, and of the processes that they start
PROC = "/proc"
STATES = {"T": "is stopped", "t": "is stopped by a debugger", "D": "waits in the kernel"}  # proc_pid_stat(5)


# ---- the lease


class LeaseWatch:
    """Decides whether the workers may run. Owns no clock and no process; times in seconds of CLOCK_BOOTTIME."""

    def __init__(self) -> None:
        self.ends = -math.inf  # the end of the lease
        self.group: int | None = None  # the group of workers that may run; None: no worker runs
        self.sessions: dict[int, int] = {}  # the workers' sessions, with the start time of each leader
        self.ended = False  # the agent has ended in order

    def over(self, now: float) -> bool:
        """Whether workers may exist although the lease has ended."""
        return self.group is not None and now >= self.ends

    def pause(self, now: float) -> float:
        """Seconds until the next look at the clock."""
        left = self.ends - now if self.group is not None else math.inf
        return min(CLOCK_POLL_SECONDS, max(0.0, left))

    def hear(self, line: str) -> None:
        """Take a line of the agent. Raises ValueError for any other line."""
        match line.split():
            case ["until", ends]:
                self.ends = max(self.ends, float(ends))  # a late, older heartbeat does not shorten the lease
            case ["guard", group]:  # workers are about to be started
                self.group, self.sessions = int(group), {}
            case ["runs", pid, start]:  # a worker, which leads a session
                self.sessions[int(pid)] = int(start)
            case ["rest"]:  # the workers have ended
                self.group = None
            case ["end"]:
                self.ended = True
            case _:
                raise ValueError(f"{line!r} is not a line of an agent")


# ---- the processes of workers


class Process(NamedTuple):
    """A line of the process table."""

    pid: int
    parent: int
    session: int
    state: str = "R"  # Z, X: it has ended, and its parent has not collected it
    start: int = 0  # ticks since boot; together with the pid it identifies a process permanently


def table() -> dict[int, Process]:
    """All visible processes; empty without /proc."""
    names = os.listdir(PROC) if os.path.isdir(PROC) else []
    found = (look(int(name)) for name in names if name.isdigit())
    return {process.pid: process for process in found if process is not None}


def look(pid: int) -> Process | None:
    """One process; None: it has ended."""
    with contextlib.suppress(OSError, ValueError, IndexError):
        file = os.open(f"{PROC}/{pid}/stat", os.O_RDONLY)  # a file object would double the cost
        try:
            data = os.read(file, STAT_BYTES_MAX)
        finally:
            os.close(file)
        # pid (name) state parent group session ...: a name may have blanks and brackets in it
        fields = data.rpartition(b")")[2].split()
        return Process(pid, int(fields[1]), int(fields[3]), fields[0].decode(), int(fields[19]))
    return None


def left_behind(processes: dict[int, Process], agent: int, spared: Collection[int] = ()) -> list[Process]:
    """The agent's descendants in other sessions, and their descendants, without the `spared` children."""
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


def outliving(processes: dict[int, Process], sessions: Mapping[int, int], mark: str) -> list[Process]:
    """The processes that the workers of a killed agent have started, found by their sessions and by their mark.

    If the leader of a session has another start time, the number belongs to another session.
    """
    found = []
    for process in processes.values():
        start = sessions.get(process.session)
        leader = processes.get(process.session)
        if (start is not None and (leader is None or leader.start == start)) or is_marked(process.pid, mark):
            found.append(process)
    return found


def is_marked(pid: int, mark: str) -> bool:
    """Whether the environment with which a process began has the mark; False if it may not be read."""
    with contextlib.suppress(OSError), open(f"{PROC}/{pid}/environ", "rb", buffering=0) as file:
        return mark != "" and mark.encode() in (file.read(ENVIRONMENT_BYTES_MAX) or b"")
    return False


def kill(process: Process) -> None:
    """Send SIGKILL, unless the pid belongs to another process by now."""
    now = look(process.pid)
    if now is not None and now.start == process.start:
        with contextlib.suppress(ProcessLookupError, PermissionError):
            os.kill(process.pid, signal.SIGKILL)


# ---- the program


class Program:
    """Reads the agent's lines, watches the clock, and kills."""

    def __init__(
        self, agent: int, spared: Collection[int], lines: int = 0, answers: int = 1, *, mark: str, group: str = ""
    ) -> None:  # fmt: skip
        self._agent, self._spared = agent, {*spared, os.getpid()}
        self._mark, self._folder = mark, group
        self._watch = LeaseWatch()
        self._rest = b""  # the part of a line that has arrived so far
        self._told: int | None = None  # the group whose end was reported to the agent
        self._killed: set[tuple[int, int]] = set()  # processes by number and start: one that is stuck is logged once
        self._lines, self._answers = lines, answers
        self._news = select.poll()
        self._news.register(lines, select.POLLIN)
        for file in (lines, answers):  # our end alone: the other end of a pipe has its own flag
            os.set_blocking(file, False)

    def run(self) -> None:
        """Run until the agent has ended; if it sent no line before, kill the processes that its workers started."""
        pause = CLOCK_POLL_SECONDS
        while self._listen(pause) and os.getppid() == self._agent:
            pause = self._sweep() if self._watch.over(now()) else self._watch.pause(now())
        self._listen(0.0)  # its last lines may have come since
        if not self._watch.ended:
            self._end_what_outlives()

    def _listen(self, seconds: float) -> bool:
        """Wait for lines, read all available ones, and answer each. False: the agent has closed its end."""
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
        """Write a line to the agent, or drop it if the agent does not read: the watchdog never waits for the agent."""
        with contextlib.suppress(BlockingIOError, BrokenPipeError):
            os.write(self._answers, line.encode() + b"\n")

    def _sweep(self) -> float:
        """Kill the existing workers; returns the seconds until the next look."""
        began, processes = now(), table()
        left = left_behind(processes, self._agent, self._spared)
        found = [process for process in left if process.state not in "ZX"]
        pause = min(SWEEP_SECONDS_MAX, max(SWEEP_SECONDS_MIN, SWEEP_SHARE * (now() - began)))
        if not found:
            return pause
        if not self._listen(0.0) or not self._watch.over(now()):
            return 0.0  # the agent has resumed, or has ended
        if self._told != self._watch.group:
            self._told = self._watch.group
            self._say(f"killed {self._watch.group}")
        for process in found:
            kill(process)
        fresh = {(process.pid, process.start) for process in found} - self._killed
        if not fresh:
            return pause  # a killed process takes its time to die, or is stuck in the kernel
        self._killed |= fresh
        self._log(processes.get(self._agent), sorted(pid for pid, _ in fresh))
        return 0.0  # a killed process may have started another one meanwhile

    def _end_what_outlives(self) -> None:
        """Kill the processes that the workers of a killed agent started, until none is left."""
        until, quiet, killed = now() + END_SECONDS, 0, set[int]()
        kill_group(self._folder)
        while quiet < QUIET_LOOKS and now() < until:
            left = outliving(table(), self._watch.sessions, self._mark)
            found = [process for process in left if process.state not in "ZX" and process.pid not in self._spared]
            for process in found:
                kill(process)
            killed.update(process.pid for process in found)
            quiet = 0 if found else quiet + 1
            time.sleep(SWEEP_SECONDS_MIN)
        remove_group(self._folder)
        if killed:
            self._write(
                f"the agent of this node (process {self._agent}) was killed. Killed the processes that its workers had "
                f"started ({_listed(sorted(killed))})"
            )

    def _log(self, agent: Process | None, pids: list[int]) -> None:
        state = STATES.get(agent.state if agent is not None else "", "runs, but has not reached the store")
        self._write(
            f"the lease of this node ended {now() - self._watch.ends:.3f} s ago, not renewed; its agent (process "
            f"{self._agent}) {state}. Killed its workers (processes {_listed(pids)}), because the other nodes may "
            "continue without this one"
        )

    def _write(self, text: str) -> None:
        """Write to stderr unless it would block, after the kill: an agent's output may be a pipe without a reader."""
        writable = select.poll()
        writable.register(2, select.POLLOUT)
        with contextlib.suppress(OSError):
            if any(event & select.POLLOUT for _, event in writable.poll(0)):
                os.write(2, f"trystate watchdog: {text}\n".encode())


def _listed(pids: list[int]) -> str:
    more = f" and {len(pids) - PIDS_MAX} more" if len(pids) > PIDS_MAX else ""
    return " ".join(map(str, pids[:PIDS_MAX])) + more


def kill_group(folder: str) -> None:
    """Kill all processes of a control group and of the groups below it; nothing if `folder` is empty."""
    if folder:
        with contextlib.suppress(OSError), open(f"{folder}/cgroup.kill", "w") as file:
            file.write("1")


def remove_group(folder: str) -> None:
    """Remove a control group; nothing if it does not exist or has processes."""
    with contextlib.suppress(OSError):
        os.rmdir(folder)


def now() -> float:
    """The clock of the lease."""
    return time.clock_gettime(time.CLOCK_BOOTTIME)


def main(argv: list[str]) -> None:
    """Watch until the agent ends. A signal to a whole process group ends agents, which end their watchdogs."""
    for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP, signal.SIGQUIT, signal.SIGPIPE):
        signal.signal(number, signal.SIG_IGN)
    agent, mark, group, *spared = argv
    Program(int(agent), [int(pid) for pid in spared], mark=mark, group=group).run()


if __name__ == "__main__":
    main(sys.argv[1:])
