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
            os.kill(self.pid, 0)
        except ProcessLookupError:
            return False
        except PermissionError:
            pass  # the process exists and belongs to another user
        started = start_of(self.pid)
        return started == self.started if started is not None and self.started else started != b""


def start_of(pid: int) -> bytes | None:
    """The start time of a process; b"" if it has ended; None if this system does not report it."""
    try:
        stat = Path(f"/proc/{pid}/stat").read_bytes()
    except (FileNotFoundError, ProcessLookupError):
        return b"" if Path("/proc/self/stat").exists() else None
    except OSError:
        return None
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
            continue  # not Linux: the host's name has to suffice
    return "/".join(parts).encode()


def myself() -> User:
    """The calling process."""
    return User(os.getpid(), start_of(os.getpid()) or b"", here())
