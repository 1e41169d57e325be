"""A control group for the workers of an agent and all their children, whatever session or parent these have.

Rule: it is made only if this process's own group was delegated to its user, as systemd does for a scope or a service
with `Delegate=yes`; otherwise no group is used, which is not an error. The kernel kills a group at once (Linux 5.14).
"""

from __future__ import annotations

import contextlib
import os
import secrets
from pathlib import Path

MARKS = ("user.delegate", "trusted.delegate")  # extended attributes of a delegated group, systemd.resource-control(5)


def made() -> str:
    """The folder of a new group below this process's group; empty if it may not make one."""
    with contextlib.suppress(OSError):
        own = folder()
        if own is not None and is_delegated(own):
            found = own / f"trystate-{os.getpid()}-{secrets.token_hex(4)}"
            found.mkdir()
            if (found / "cgroup.kill").exists():
                return str(found)
            found.rmdir()
    return ""


def folder() -> Path | None:
    """The folder of this process's group in version 2 of control groups; None: it has none."""
    mounts = [line.split() for line in Path("/proc/self/mountinfo").read_text().splitlines()]
    roots = [mount[4] for mount in mounts if mount[3] == "/" and mount[mount.index("-") + 1] == "cgroup2"]
    groups = [line[3:] for line in Path("/proc/self/cgroup").read_text().splitlines() if line.startswith("0::/")]
    return Path(roots[0] + groups[0]) if roots and groups else None


def is_delegated(own: Path) -> bool:
    """Whether this process may make groups below its own; for root, which may write anywhere, the mark decides."""
    for mark in MARKS:
        with contextlib.suppress(OSError):
            if os.getxattr(own, mark) == b"1":
                return True
    return os.geteuid() != 0 and os.access(own, os.W_OK) and os.access(own / "cgroup.procs", os.W_OK)
