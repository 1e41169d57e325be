"""The memory that this process can still get. Rule: only this module reads how much there is."""

from __future__ import annotations

import os
import resource
from collections.abc import Iterator
from pathlib import Path

SHARE = 0.75  # share of the available memory: an engine counts the states that it holds and few temporaries

# Files of a control group, version 2 and 1: its limit, its use, and the part of that which the kernel frees on demand.
CGROUPS = (
    ("", "sys/fs/cgroup", "memory.max", "memory.current", "inactive_file"),
    ("memory", "sys/fs/cgroup/memory", "memory.limit_in_bytes", "memory.usage_in_bytes", "total_inactive_file"),
)


def available_bytes(root: Path = Path("/")) -> int:
    """The memory that this process can still get: the least left by the machine, its control groups and RLIMIT_AS.

    `root` has the folders `proc` and `sys`. Without them the answer is all memory of the machine.
    """
    return max(0, min([*_of_the_machine(root), *_of_control_groups(root), *_of_the_process()]))


def _of_the_machine(root: Path) -> Iterator[int]:
    for line in _lines(root / "proc/meminfo"):
        if line.startswith("MemAvailable:"):
            yield int(line.split()[1]) << 10
            return
    yield os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE")


def _of_control_groups(root: Path) -> Iterator[int]:
    """The memory left in each group that this process is in, and in the groups above, whose limits hold as well."""
    for line in _lines(root / "proc/self/cgroup"):
        _, controllers, path = line.split(":", 2)
        for controller, mount, *names in CGROUPS:
            if controller not in controllers.split(","):
                continue
            inside = Path(path.strip("/"))
            for group in (inside, *inside.parents):
                yield from _left(root / mount / group, *names)


def _left(group: Path, limit: str, used: str, given_back: str) -> Iterator[int]:
    limits, uses = _lines(group / limit), _lines(group / used)
    if limits and uses and limits[0] != "max":
        cached = sum(int(line.split()[1]) for line in _lines(group / "memory.stat") if line.split()[0] == given_back)
        yield int(limits[0]) - int(uses[0]) + cached


def _of_the_process() -> Iterator[int]:
    limit, _ = resource.getrlimit(resource.RLIMIT_AS)
    held = _lines(Path("/proc/self/statm"))
    if limit != resource.RLIM_INFINITY and held:
        yield limit - int(held[0].split()[0]) * resource.getpagesize()


def _lines(path: Path) -> list[str]:
    """The lines of a file; an empty list if it does not exist or may not be read."""
    try:
        return path.read_text(encoding="ascii").splitlines()
    except OSError:
        return []
