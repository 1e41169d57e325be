"""The processes that use a store's file, and whether they still live.

Rule: a process counts as gone only when this host is sure of it; a process of another host is believed to live.
"""

from __future__ import annotations

import functools
import os
import socket
from dataclasses import dataclass
from pathlib import Path

ZOMBIE = b"ZX"  # states in /proc/PID/stat of a process that is over, but not yet collected by its parent


@dataclass(frozen=True, slots=True)
class User:
    """A process: its number is given out again, so that it takes the moment of its start and its host to name it."""

    pid: int
    started: bytes  # clock ticks since the boot; empty where /proc is missing
    host: bytes

    @property
    def shown(self) -> str:
        return f"process {self.pid}" if self.host == here() else f"process {self.pid} on {self.host.decode()}"

    def lives(self) -> bool:
        """False if it ended, whatever its number stands for now."""
        if self.host != here():
            return True
        try:
            os.kill(self.pid, 0)
        except ProcessLookupError:
            return False
        except PermissionError:
            pass  # it is somebody else's, and exists
        started = start_of(self.pid)
        return started == self.started if started is not None and self.started else started != b""


def start_of(pid: int) -> bytes | None:
    """When a process started; b"" if it is over; None if this system does not tell."""
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
    """This host, since its boot, and the table of processes that numbers refer to (containers have their own)."""
    parts = [socket.gethostname()]
    for path in ("/proc/sys/kernel/random/boot_id", "/proc/self/ns/pid"):
        try:
            parts.append(os.readlink(path) if path.startswith("/proc/self") else Path(path).read_text().strip())
        except OSError:
            continue  # not Linux: the name has to do
    return "/".join(parts).encode()


def myself() -> User:
    """The process that asks."""
    return User(os.getpid(), start_of(os.getpid()) or b"", here())
