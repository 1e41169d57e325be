"""The watchdog of an agent: kills the workers of its node when the node's lease ends, and what they started when the
agent is killed. Run as a program, by its path.

    python -I -S watchdog.py PID MARK GROUP SPARED...

The process PID is the agent and the parent; MARK is in the environment of all that its workers start; GROUP is the
folder of the workers' control group, or empty; SPARED are processes that are not workers.

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

An agent that is killed takes its workers with it: they have a parent-death signal (`parent_death.py`). Their
children have none (the program that a launch script runs, a worker of a DataLoader), and by then another parent, so
that the tree of processes does not lead to them. The watchdog kills what is in the sessions of the workers, which the
agent has sent it, what has the agent's mark in its environment, and the control group of the workers, where one may be
made (`cgroup.py`). An agent that ends in order says so first.

Three things can go wrong. The agent and its watchdog are killed at once: only the workers die. The watchdog dies, or
answers no more: the agent starts another one (`watchdog_client.py`). A worker is stuck in the kernel: its SIGKILL is
pending, and it does not come back to its program.
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

CLOCK_POLL_SECONDS = 0.1  # between two looks at the clock
SWEEP_SECONDS_MIN, SWEEP_SECONDS_MAX = 0.05, 1.0  # between two looks at the process table when the lease is over
SWEEP_SHARE = 20  # a look at a large table is followed by a wait of so many times as long: 5 % of a core
LINES_BYTES_MAX = 1 << 16  # read at once: the capacity of a pipe
PIDS_MAX = 32  # in a log line, which a pipe must take in one piece
STAT_BYTES_MAX = 4096
ENVIRONMENT_BYTES_MAX = 1 << 20
END_SECONDS = 10.0  # a killed process that is not gone by then is stuck in the kernel
QUIET_LOOKS = 2  # that find nothing: a process that begins another program has no environment for a moment
MARK = "TRYSTATE_AGENT"  # a variable of workers, of health commands, and of what they start
PROC = "/proc"
STATES = {"T": "is stopped", "t": "is stopped by a debugger", "D": "waits in the kernel"}  # proc_pid_stat(5)


# ---- what it knows


class Watch:
    """Whether the workers may run. Owns no clock and no process; times in seconds of CLOCK_BOOTTIME."""

    def __init__(self) -> None:
        self.ends = -math.inf  # of the lease
        self.group: int | None = None  # which group of workers may run; None: none does
        self.sessions: dict[int, int] = {}  # of the workers, with the start of the process that leads each
        self.ended = False  # the agent has ended in order

    def renew(self, ends: float) -> None:
        """A heartbeat was acknowledged; an older one that is heard of later shortens nothing."""
        self.ends = max(self.ends, ends)

    def guard(self, group: int) -> None:
        """Workers are about to be started."""
        self.group, self.sessions = group, {}

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
            case ["runs", pid, start]:  # a worker, which leads a session
                self.sessions[int(pid)] = int(start)
            case ["rest"]:
                self.rest()
            case ["end"]:
                self.ended = True
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


def outliving(processes: dict[int, Process], sessions: Mapping[int, int], mark: str) -> list[Process]:
    """The processes that the workers of a killed agent have started: by their sessions, and by their mark.

    A number names another session if the process that leads it has started at another time.
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
    """SIGKILL, unless the number is another process's by now."""
    now = look(process.pid)
    if now is not None and now.start == process.start:
        with contextlib.suppress(ProcessLookupError, PermissionError):
            os.kill(process.pid, signal.SIGKILL)


# ---- the program


class Program:
    """Reads the agent's lines, looks at the clock, and kills."""

    def __init__(
        self, agent: int, spared: Collection[int], lines: int = 0, answers: int = 1, *, mark: str, group: str = ""
    ) -> None:  # fmt: skip
        self._agent, self._spared = agent, {*spared, os.getpid()}
        self._mark, self._folder = mark, group
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
        """Until the agent has ended; if it did not say so first, kill what its workers started."""
        pause = CLOCK_POLL_SECONDS
        while self._listen(pause) and os.getppid() == self._agent:
            pause = self._sweep() if self._watch.over(now()) else self._watch.pause(now())
        self._listen(0.0)  # its last lines may have come since
        if not self._watch.ended:
            self._end_what_outlives()

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

    def _end_what_outlives(self) -> None:
        """The agent was killed, in whatever it did: kill what its workers started, until none is left."""
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
                f"the agent of this node (process {self._agent}) was killed. Killed what its workers had started "
                f"(processes {_listed(sorted(killed))})"
            )

    def _log(self, agent: Process | None, pids: list[int]) -> None:
        state = STATES.get(agent.state if agent is not None else "", "goes on, but has not reached the store")
        self._write(
            f"the lease of this node ended {now() - self._watch.ends:.3f} s ago, not renewed; its agent (process "
            f"{self._agent}) {state}. Killed its workers (processes {_listed(pids)}), since the other nodes may go on "
            "without this one"
        )

    def _write(self, text: str) -> None:
        """After the kill, and only if it does not block: an agent's output may be a pipe that nobody reads."""
        writable = select.poll()
        writable.register(2, select.POLLOUT)
        with contextlib.suppress(OSError):
            if any(event & select.POLLOUT for _, event in writable.poll(0)):
                os.write(2, f"trystate watchdog: {text}\n".encode())


def _listed(pids: list[int]) -> str:
    more = f" and {len(pids) - PIDS_MAX} more" if len(pids) > PIDS_MAX else ""
    return " ".join(map(str, pids[:PIDS_MAX])) + more


def kill_group(folder: str) -> None:
    """Kill all processes of a control group, and of those below it; nothing if `folder` is empty."""
    if folder:
        with contextlib.suppress(OSError), open(f"{folder}/cgroup.kill", "w") as file:
            file.write("1")


def remove_group(folder: str) -> None:
    """Remove a control group without processes; nothing if there is none, or it has some."""
    with contextlib.suppress(OSError):
        os.rmdir(folder)


def now() -> float:
    """The clock of the lease."""
    return time.clock_gettime(time.CLOCK_BOOTTIME)


def main(argv: list[str]) -> None:
    """Watch until the agent ends. A signal to a whole group of processes ends agents, and those end their watchdogs."""
    for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP, signal.SIGQUIT, signal.SIGPIPE):
        signal.signal(number, signal.SIG_IGN)
    agent, mark, group, *spared = argv
    Program(int(agent), [int(pid) for pid in spared], mark=mark, group=group).run()


if __name__ == "__main__":
    main(sys.argv[1:])
