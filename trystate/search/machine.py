"""The search of a system on this machine: its options, and the memory and the cores that the machine leaves for it.

Theory of operation. The checker is pure: it knows one worker, and gets its limits. `searched` makes what a search has
of this machine from a `SearchOptions` (cores or a device, a share of the memory, files), and gives it to the checker.
`check`, which users call, `decide` and every command that searches go through it. Only this module reads how much
memory there is, and how many cores.
"""

from __future__ import annotations

import importlib.util
import os
import resource
from collections.abc import Collection, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from trystate.model.checker import check as checker
from trystate.model.checker.engine import OnProgress, quiet
from trystate.model.checker.kernel import Limits
from trystate.model.checker.verdicts import Report, Verdict
from trystate.model.errors import UnavailableError, UsageError, unknown
from trystate.model.language import System

if TYPE_CHECKING:
    from trystate.model.checker.explicit.ranks import Ranks
    from trystate.model.checker.explicit.workers import Workers

SHARE = 0.75  # of the available memory: an engine counts the states that it holds, and few temporaries
MEMORY_BYTES_MIN = 64 << 20
LIMITS = Limits()
CPU = "cpu"  # the device of a search with NumPy

# Files of a control group, version 2 and 1: its limit, its use, and the part of that which the kernel frees on demand.
CGROUPS = (
    ("", "sys/fs/cgroup", "memory.max", "memory.current", "inactive_file"),
    ("memory", "sys/fs/cgroup/memory", "memory.limit_in_bytes", "memory.usage_in_bytes", "total_inactive_file"),
)


@dataclass(frozen=True, slots=True)
class SearchOptions:
    """How this machine searches a system; made once, and passed on.

    `memory_bytes`: without it three quarters of what the machine or the device has left. So many `searches` at a time
    share that memory, and the cores. `cores`: those of each. `spill`: the directory of states without room in memory.

    Raises:
        UsageError: a directory and a device are given.
    """

    engine: str = "auto"
    symmetry: bool = False
    states: int = LIMITS.states
    seconds: float = LIMITS.seconds
    memory_bytes: int | None = None
    searches: int = 1
    cores: int | None = None
    device: str = CPU
    spill: str | os.PathLike[str] | None = None

    def __post_init__(self) -> None:
        if self.spill is not None and self.device != CPU:
            raise UsageError(
                f"device {self.device}: a search there keeps no states in files; leave out the device, or {self.spill}"
            )

    def workers(self) -> tuple[Workers, Limits]:
        """Those that share a search, and where it stops.

        Raises:
            UsageError: there is no such device, or the engine has no use for it.
            UnavailableError: torch is not installed.
        """
        if self.device == CPU:
            from .cores import Cores  # loads numpy

            cores = max(1, available_cores() // self.searches) if self.cores is None else self.cores
            shared = machine_limits(self.searches).memory_bytes if self.memory_bytes is None else self.memory_bytes
            return Cores(cores), Limits(self.states, shared, self.seconds)
        if self.engine not in ("auto", "explicit"):
            raise UsageError(
                f"device {self.device}: the engine {self.engine} has none; use the engine explicit, or leave the "
                "device out"
            )
        if importlib.util.find_spec("torch") is None:
            raise UnavailableError(
                f"device {self.device} needs torch: pip install 'trystate[torch]', or leave the device out"
            )
        from .device import Device  # loads torch

        found = Device(self.device, self.memory_bytes)
        return found, Limits(self.states, found.memory_bytes, self.seconds)


def searched(
    system: System, options: SearchOptions, *, on_progress: OnProgress = quiet,
    expect: Mapping[str, str] | None = None, properties: Collection[str] | None = None, ranks: Ranks | None = None,
) -> Report:  # fmt: skip
    """The one way from a system to its report: what the machine has for the search, and `model/checker/check`."""
    from .spill import spilling  # loads numpy

    workers, limits = options.workers()
    with spilling(options.spill, limits, ranks) as storage:
        return checker.check(
            system, engine=options.engine, symmetry=options.symmetry, limits=limits, on_progress=on_progress,
            expect=expect, properties=properties, workers=workers if ranks is None else None, storage=storage,
            ranks=ranks,
        )  # fmt: skip


def check(
    system: System, *, engine: str = "auto", symmetry: bool = False, limits: Limits | None = None,
    on_progress: OnProgress = quiet, expect: Mapping[str, str] | None = None, properties: Collection[str] | None = None,
    cores: int | None = None, device: str = CPU, spill: str | os.PathLike[str] | None = None,
) -> Report:  # fmt: skip
    """Decide the properties of a system, within the memory that this machine has left unless `limits` are given.

    `expect` declares what is known to be violated, and why: property -> a few words; `properties` names those to
    decide (without it all); so many `cores` share a large search (without it all that this process may use), or a
    `device` takes it: `cuda` or `cuda:N`, whose free memory is then the limit. States that have no room in memory are
    kept in the directory `spill`, from which the same search goes on if it is stopped.

    Raises:
        DeclarationError, UsageError, UnavailableError: as `model/checker/check` says.
        UsageError: the directory is of another search, in use, or damaged; or a device is given as well.
    """
    own = limits or Limits()
    options = SearchOptions(
        engine, symmetry, own.states, own.seconds, limits.memory_bytes if limits else None, cores=cores, device=device,
        spill=spill,
    )  # fmt: skip
    return searched(system, options, on_progress=on_progress, expect=expect, properties=properties)


def decide(system: System, name: str, on_progress: OnProgress = quiet) -> Verdict:
    """The verdict on one property, without asking any other.

    Raises:
        UsageError: the system has no such property.
    """
    known = [p.name for p in (*system.properties, checker.DEADLOCK_FREEDOM)]
    if name not in known:
        raise UsageError(unknown("property", name, known))
    return searched(system, SearchOptions(), on_progress=on_progress, properties=(name,)).verdict(name)


def machine_limits(searches: int = 1) -> Limits:
    """The default limits: three quarters of the memory that this process can still get, shared by so many searches."""
    return Limits(memory_bytes=max(MEMORY_BYTES_MIN, int(SHARE * available_bytes()) // searches))


def available_cores() -> int:
    """How many cores this process may use; where the system does not say, all that the machine has."""
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1


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
    """The lines of a file; none if there is no such file, or it may not be read."""
    try:
        return path.read_text(encoding="ascii").splitlines()
    except OSError:
        return []
