"""The search of a system on this machine: its options, and its share of the machine's memory and cores.

Theory of operation. The checker is pure: it has one worker and gets its limits. From a `SearchOptions`, `searched`
makes the machine's part of a search (cores or a device, a share of the memory, files) and passes it to the checker.
`check`, which users call, `decide` and every command that searches go through it.
"""

from __future__ import annotations

import importlib.util
import os
from collections.abc import Collection, Mapping
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass
from typing import TYPE_CHECKING

from trystate.model.checker import check as checker
from trystate.model.checker.engine import OnProgress, quiet
from trystate.model.checker.kernel import Limits
from trystate.model.checker.verdicts import Report, Status, Verdict
from trystate.model.errors import LimitReached, UnavailableError, UsageError, unknown
from trystate.model.language import System

from .memory import SHARE, available_bytes

if TYPE_CHECKING:
    from trystate.model.checker.explicit.ranks import Ranks
    from trystate.model.checker.explicit.storage import Storage
    from trystate.model.checker.explicit.workers import Workers

MEMORY_BYTES_MIN = 64 << 20
LIMITS = Limits()
CPU = "cpu"  # the device of a search with NumPy


@dataclass(frozen=True, slots=True)
class SearchOptions:
    """How this machine searches a system; made once, and passed on.

    `memory_bytes`: by default three quarters of the free memory of the machine or the device. `searches`: the number of
    searches that share that memory and the cores at a time. `cores`: the cores of each search. `spill`: the directory
    for states that do not fit in memory.

    Raises:
        UsageError: a directory and a device are given.
    """

    engine: str = "auto"
    symmetry: bool | tuple[str, ...] = False
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
        """The workers that share a search, and its limits.

        Raises:
            UsageError: the machine has no such device, or the engine cannot use it.
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
    workers, limits = options.workers()
    with _storage(options.spill, limits, ranks) as storage:
        return checker.check(
            system, engine=options.engine, symmetry=options.symmetry, limits=limits, on_progress=on_progress,
            expect=expect, properties=properties, workers=workers if ranks is None else None, storage=storage,
            ranks=ranks,
        )  # fmt: skip


def _storage(
    path: str | os.PathLike[str] | None, limits: Limits, ranks: Ranks | None = None
) -> AbstractContextManager[Storage | None]:
    """The storage of a search with these limits in the directory `path`, or a rank's part of it; None without a path.

    Raises:
        UsageError: the limit of memory is too small; as `rank_storage.opened`.
    """
    if path is None:
        return nullcontext()
    from .rank_storage import opened  # loads numpy
    from .spill import Spill, bytes_for_states

    if ranks is not None:
        return opened(path, ranks, limits)
    return Spill(os.fspath(path), bytes_for_states(path, limits))


def check(
    system: System, *, engine: str = "auto", symmetry: bool | tuple[str, ...] = False,
    limits: Limits | None = None, on_progress: OnProgress = quiet, expect: Mapping[str, str] | None = None,
    properties: Collection[str] | None = None,
    cores: int | None = None, device: str = CPU, spill: str | os.PathLike[str] | None = None,
) -> Report:  # fmt: skip
    """Decide the properties of a system, within the memory that this machine has left unless `limits` are given.

    `expect` maps each property that is known to be violated to the reason, in a few words. `properties` names the
    properties to decide (default: all). With `symmetry`, states that differ only by the numbers of the members of the
    one index, or of the indices with the given names, are explored once. `cores` is the number of cores that share a
    large search (default: all that this process may use). Or a `device` takes it: `cuda` or `cuda:N`, whose free memory
    is then the limit. States that do not fit in memory are kept in the directory `spill`; the same search resumes from
    there if it is stopped.

    Raises:
        DeclarationError, UsageError, UnavailableError: for the reasons that `model/checker/check` lists.
        UsageError: the directory is of another search, in use, or damaged; or a device is given as well.
    """
    own = limits or Limits()
    options = SearchOptions(
        engine, symmetry, own.states, own.seconds, limits.memory_bytes if limits else None, cores=cores, device=device,
        spill=spill,
    )  # fmt: skip
    return searched(system, options, on_progress=on_progress, expect=expect, properties=properties)


def decide(system: System, name: str, on_progress: OnProgress = quiet) -> Verdict:
    """The verdict on one property alone.

    Raises:
        UsageError: the system has no such property.
    """
    known = [p.name for p in checker.decided(system)]
    if name not in known:
        raise UsageError(unknown("property", name, known))
    return searched(system, SearchOptions(), on_progress=on_progress, properties=(name,)).verdict(name)


def decided(system: System, name: str, on_progress: OnProgress = quiet) -> Verdict:
    """Like `decide`; the property holds or is violated.

    Raises:
        LimitReached: it is not decided.
    """
    verdict = decide(system, name, on_progress)
    if verdict.status is Status.NOT_DECIDED:
        raise LimitReached(f"{name} is not decided in {system.label}: {verdict.reason}")
    return verdict


def machine_limits(searches: int = 1) -> Limits:
    """The default limits: three quarters of the memory that this process can still get, divided by `searches`."""
    return Limits(memory_bytes=max(MEMORY_BYTES_MIN, int(SHARE * available_bytes()) // searches))


def available_cores() -> int:
    """The number of cores that this process may use; all of the machine's, if the system does not report it."""
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1
