"""The processes that use a store's file, and whether they still live.

Rule: a process counts as ended only if this host is sure of it. A process of another host counts as living.
"""

from __future__ import annotations

import functools
import os
import socket
from dataclasses import dataclass
from pathlib import Path

ZOMBIE = b"ZX"  # states in /proc/PID/stat of a process that has ended, but was not collected by its parent yet


@dataclass(frozen=True, slots=True)
class User:
    """A process. Since the kernel reuses pids, it is identified by its pid, its start time and its host."""

    pid: int
    started: bytes  # clock ticks since the boot; empty if /proc is missing
    host: bytes

    @property
    def shown(self) -> str:
        return f"process {self.pid}" if self.host == here() else f"process {self.pid} on {self.host.decode()}"

    def lives(self) -> bool:
        """Whether the process lives. False if it has ended, even if another process has its pid now."""
        if self.host != here():
            return True
        try:
            return start_of(self.pid) == self.started
        except OSError:  # this process has no descriptor left, for example
            return True


def start_of(pid: int) -> bytes:
    """The start time of a process; b"" if it has ended, and of all processes if /proc is missing. Raises OSError."""
    try:
        stat = Path(f"/proc/{pid}/stat").read_bytes()
    except (FileNotFoundError, ProcessLookupError):
        return b""
    fields = stat[stat.rindex(b")") + 2 :].split()  # the name before it may contain anything
    return b"" if fields[0] in ZOMBIE else fields[19]  # proc(5): state is field 3, starttime field 22


@functools.cache
def here() -> bytes:
    """An identity of this host, its boot, and its pid namespace (containers have their own)."""
    parts = [socket.gethostname()]
    for path in ("/proc/sys/kernel/random/boot_id", "/proc/self/ns/pid"):
        try:
            parts.append(os.readlink(path) if path.startswith("/proc/self") else Path(path).read_text().strip())
        except OSError:
            continue  # /proc is missing: the host's name has to suffice
    return "/".join(parts).encode()


def myself() -> User:
    """The calling process."""
    return User(os.getpid(), start_of(os.getpid()), here())
