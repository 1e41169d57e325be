"""A search that keeps its states in files: its answers are those of a search in memory, however often it is stopped.

Blocks and chunks are made tiny, and memory has room for no state, so that small systems have many of each. The disk is
a real one; where it fails, or forgets what was not synced, it is one that does so at the call that the test chose.
"""

from __future__ import annotations

import errno
import os
import random
import signal
import subprocess
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from trystate.impl.store.durable.disk import Disk
from trystate.model.checker.check import check
from trystate.model.checker.explicit import storage
from trystate.model.checker.explicit.engine import ExplicitEngine
from trystate.model.checker.explicit.packing import Keys
from trystate.model.checker.explicit.storage import Run, StorageFailed, union
from trystate.model.checker.explicit.visited import NextLevel, Visited
from trystate.model.checker.kernel import Kernel, Limits
from trystate.model.checker.verdicts import Status
from trystate.model.errors import LimitReached, UsageError
from trystate.model.language import System
from trystate.property_tests.adapters.our_store.disks import Crash, ForgetfulDisk
from trystate.property_tests.support.mutants import rewritten, survives
from trystate.property_tests.support.nightly import examples
from trystate.property_tests.support.systems.engine_samples import Ring, ThreeWords, TwoWords
from trystate.property_tests.support.systems.random_systems import Declaration, declarations, system
from trystate.property_tests.support.systems.two_phase_commit import TwoPhaseCommit
from trystate.property_tests.tests.checker.test_cores import MANY, SYSTEMS, answers, tiny
from trystate.property_tests.tests.checker.test_random_systems import assert_runs_show_what_they_claim, facts

import trystate
from trystate import checkpoint, cli, spill
from trystate.checkpoint import Directory, KeysFile
from trystate.exits import Exit
from trystate.spill import MEMORY_BYTES_MIN, Spill

ROOM = (0, 200, 2_000)  # bytes of memory for states: none, a few, those of some levels


@contextmanager
def small(chunk: int = 3, block: int = 4, seconds: float = 0.0) -> Iterator[None]:
    """Tiny chunks, ranges and blocks; a search saves at each level."""
    with tiny(chunk=chunk), pytest.MonkeyPatch.context() as patch:
        patch.setattr(storage, "BLOCK", block)
        patch.setattr(spill, "SAVE_SECONDS", seconds)
        yield


def kept(
    of: System, path: Path, room: int = 0, limits: Limits = MANY, count: int = 1, disk: Disk | None = None, **options: Any
) -> dict[str, Any]:
    """Everything that a search says that keeps its states in a directory."""
    with Spill(str(path), room, disk) as place:
        return answers(of, count, limits, storage=place, **options)


# ---- the same answers


@pytest.mark.parametrize("room", ROOM)
@pytest.mark.parametrize("name", SYSTEMS)
def test_states_of_any_width_have_the_same_answers(name: str, room: int, tmp_path: Path) -> None:
    with small(chunk=64, block=100):
        assert kept(SYSTEMS[name](), tmp_path / "kept", room) == answers(SYSTEMS[name](), 1)


@given(declarations(), st.sampled_from(ROOM), st.integers(1, 2))
@settings(max_examples=examples(12))
def test_random_systems_have_the_same_answers(
    tmp_path_factory: pytest.TempPathFactory, declared: Declaration, room: int, count: int
) -> None:
    path = tmp_path_factory.mktemp("spill") / "kept"
    with small(chunk=8, block=16), Spill(str(path), room) as place:
        report = check(system(declared), engine="explicit", storage=place)
        assert facts(report) == facts(check(system(declared), engine="interpret"))
        assert_runs_show_what_they_claim(report)
        assert answers(system(declared), count, storage=place) == answers(system(declared), 1)  # it is over


def test_symmetry_and_several_cores_give_the_same_answers(tmp_path: Path) -> None:
    with small(chunk=16, block=16):
        assert kept(TwoPhaseCommit(rm=4), tmp_path / "two", 300, count=2) == answers(TwoPhaseCommit(rm=4), 1)
        reduced = kept(TwoPhaseCommit(rm=6), tmp_path / "reduced", symmetry=True)
        assert reduced == answers(TwoPhaseCommit(rm=6), 1, symmetry=True)


@pytest.mark.parametrize("states", [1, 7, 100, 200, 287, 288])
@pytest.mark.parametrize("room", ROOM[::2])
def test_a_limit_of_states_stops_at_the_same_state(states: int, room: int, tmp_path: Path) -> None:
    limits = replace(MANY, states=states)
    with small(block=16):
        assert kept(TwoPhaseCommit(rm=3), tmp_path / "kept", room, limits) == answers(TwoPhaseCommit(rm=3), 1, limits)


def test_memory_has_a_few_states_of_many(tmp_path: Path) -> None:
    held = []

    def following(of: NextLevel, *args: Any) -> None:
        right(of, *args)
        held.append(of.held + of._visited.held)

    right = NextLevel.add
    with small(chunk=8, block=16), pytest.MonkeyPatch.context() as patch:
        patch.setattr(NextLevel, "add", following)
        kept(TwoPhaseCommit(rm=3), tmp_path / "kept", 8 * 200)
    assert 0 < max(held) <= 60  # new ones a tenth, the set a fifth


LIVE: dict[str, Callable[[], System]] = {"ring": lambda: Ring(node=2), "loss": lambda: Ring(node=2, faults=["loss"])}


@pytest.mark.parametrize("name", LIVE)
def test_liveness_is_decided_on_the_states_that_were_kept(name: str, tmp_path: Path) -> None:
    with small(chunk=64, block=64), Spill(str(tmp_path / "kept"), 0) as place:
        for _ in range(2):  # at once, and of a search that is over
            report = check(LIVE[name](), limits=MANY, storage=place)
            assert facts(report) == facts(check(LIVE[name](), engine="explicit", limits=MANY))
            assert_runs_show_what_they_claim(report)


def test_liveness_that_does_not_fit_is_not_decided_and_says_why(tmp_path: Path) -> None:
    limits = replace(MANY, memory_bytes=4_000)
    with small(chunk=64, block=64), Spill(str(tmp_path / "kept"), 0) as place:
        report = check(Ring(node=2), limits=limits, storage=place)
    assert report.exploration.complete
    (open_,) = report.undecided
    assert open_.reason.startswith("liveness is decided with all states in memory, at least 0 MiB (limit 0 MiB")


# ---- stopped, and gone on with


@pytest.mark.parametrize("name", SYSTEMS)
def test_a_search_that_is_stopped_again_and_again_has_the_same_answers(name: str, tmp_path: Path) -> None:
    of = SYSTEMS[name]()
    with small(chunk=64, block=50, seconds=1e9):  # it saves when it is stopped
        expected = answers(of, 1)
        states = 1
        for _ in range(30):
            found = kept(of, tmp_path / "kept", 100, replace(MANY, states=states))
            if not found["graph"][-1]:
                break
            states = 1 + found["graph"][0] * 5 // 4
        assert found == expected
        assert kept(of, tmp_path / "kept", 1 << 20) == expected  # with more memory, on one that is over


def saved_in(path: Path) -> Any:
    """The content of the manifest, whatever search it is of."""
    directory = Directory(str(path), {})
    directory.close()
    return directory.saved


def test_nothing_is_searched_twice_but_the_level_in_which_it_stopped(tmp_path: Path) -> None:
    expanded: list[int] = []

    def expand(of: ExplicitEngine, watching: Any, level: int, chunk: Any) -> Any:
        expanded.append(level)
        return right(of, watching, level, chunk)

    right = ExplicitEngine._expand
    with small(chunk=1 << 15), pytest.MonkeyPatch.context() as patch:
        patch.setattr(ExplicitEngine, "_expand", expand)
        kept(TwoPhaseCommit(rm=4), tmp_path / "kept", limits=replace(MANY, states=700))
        last = expanded[-1]
        kept(TwoPhaseCommit(rm=4), tmp_path / "kept")
        kept(TwoPhaseCommit(rm=4), tmp_path / "kept")
    depth = answers(TwoPhaseCommit(rm=4), 1)["graph"][2]
    assert expanded == [*range(last + 1), *range(last, depth + 1)]


def test_ctrl_c_saves_the_last_level_and_is_not_lost(tmp_path: Path) -> None:
    def interrupted(of: ExplicitEngine, *args: Any) -> Any:
        if len(of.levels) == 5:
            raise KeyboardInterrupt
        return right(of, *args)

    right = ExplicitEngine._successors
    with small(seconds=1e9), pytest.MonkeyPatch.context() as patch:
        patch.setattr(ExplicitEngine, "_successors", interrupted)
        for name, disk in {"good": Disk(), "bad": Failing("sync", 0)}.items():
            with pytest.raises(KeyboardInterrupt):
                kept(TwoPhaseCommit(rm=3), tmp_path / name, 1 << 20, disk=disk)
    assert len(saved_in(tmp_path / "good")["levels"]) == 5
    assert saved_in(tmp_path / "bad") is None


# ---- crashes


class Counting(Disk):
    """Counts the calls that change something."""

    def __init__(self) -> None:
        self.calls: list[str] = []

    def _call(self, name: str) -> None:
        self.calls.append(name)

    def create(self, path: str) -> int:
        self._call("create")
        return super().create(path)

    def open(self, path: str) -> int:
        self._call("open")
        return super().open(path)

    def read(self, fd: int, count: int, at: int) -> bytes:
        self._call("read")
        return super().read(fd, count, at)

    def write(self, fd: int, data: bytes, at: int) -> None:
        self._call("write")
        super().write(fd, data, at)

    def sync(self, fd: int) -> None:
        self._call("sync")
        super().sync(fd)

    def replace(self, path: str, by: str) -> None:
        self._call("replace")
        super().replace(path, by)

    def remove(self, path: str) -> None:
        self._call("remove")
        super().remove(path)

    def sync_directory(self, directory: str) -> None:
        self._call("sync_directory")
        super().sync_directory(directory)


class Killing(Counting):
    """Kills its process at a call; of a write the first half is done."""

    def __init__(self, left: int) -> None:
        super().__init__()
        self._left = left

    def _call(self, name: str) -> None:
        super()._call(name)
        if len(self.calls) > self._left:
            os.kill(os.getpid(), signal.SIGKILL)

    def write(self, fd: int, data: bytes, at: int) -> None:
        if len(self.calls) == self._left:
            Disk.write(self, fd, data[: len(data) // 2], at)
        super().write(fd, data, at)


class Failing(Counting):
    """From its n-th call of this name on, the call fails."""

    def __init__(self, name: str, after: int, error: int = errno.ENOSPC) -> None:
        super().__init__()
        self._name, self._after, self._error = name, after, error

    def _call(self, name: str) -> None:
        super()._call(name)
        if name == self._name and self.calls.count(name) > self._after:
            raise OSError(self._error, os.strerror(self._error))


def searched(path: Path, disk: Disk | None = None) -> dict[str, Any]:
    """A small search, with a directory that has room for nothing in memory, and files of several runs."""
    return kept(TwoPhaseCommit(rm=3), path, 0, disk=disk)


def calls_of_a_search(path: Path) -> list[str]:
    disk = Counting()
    searched(path, disk)
    return disk.calls


@pytest.mark.parametrize("count", [1, 2])
def test_a_search_that_is_killed_goes_on_from_its_last_level(count: int, tmp_path: Path) -> None:
    """kill -9 at any call, then again at another one."""
    with small(chunk=8, block=16):
        expected = answers(TwoPhaseCommit(rm=3), 1)
        calls = len(calls_of_a_search(tmp_path / "whole"))
        for left in range(count, calls, calls // 12):
            path = tmp_path / str(left)
            for again in (left, calls // 3):
                child = os.fork()
                if child == 0:
                    kept(TwoPhaseCommit(rm=3), path, 0, count=count, disk=Killing(again))
                    os._exit(0)
                assert os.waitpid(child, 0)[1] in (0, signal.SIGKILL)
            assert searched(path) == expected


def test_a_command_that_is_killed_goes_on_from_its_last_level(tmp_path: Path) -> None:
    program = "import sys, trystate.spill; trystate.spill.SAVE_SECONDS = 0; from trystate.__main__ import main; sys.exit(main(sys.argv[1:]))"
    command = ["verify", "rendezvous", "--nodes", "3", "--max", "3", "--spill", str(tmp_path / "kept"), "--out", str(tmp_path / "report")]
    process = subprocess.Popen([sys.executable, "-c", program, *command], stdout=subprocess.PIPE, stderr=subprocess.PIPE)
    while process.poll() is None and not (tmp_path / "kept" / "checkpoint.json").exists():
        pass
    process.kill()
    process.communicate()
    assert process.returncode == -signal.SIGKILL
    assert saved_in(tmp_path / "kept")["levels"]


def test_a_loss_of_power_leaves_a_level_that_is_whole(tmp_path: Path) -> None:
    """At any call; of the writes and names that were not synced, any survive."""
    with small(chunk=8, block=16):
        expected = answers(TwoPhaseCommit(rm=3), 1)
        disk = ForgetfulDisk()
        kept(TwoPhaseCommit(rm=3), tmp_path, disk=disk)
        rng = random.Random(7)
        for left in range(0, disk.calls, max(1, disk.calls // 40)):
            broken = ForgetfulDisk()
            broken.calls_left = left
            with pytest.raises(Crash):
                kept(TwoPhaseCommit(rm=3), tmp_path, disk=broken)
            found = broken.after_crash(lambda: rng.random() < 0.7)
            assert kept(TwoPhaseCommit(rm=3), tmp_path, disk=found) == expected


FAILURES = [
    (name, error)
    for name in ("create", "write", "sync", "replace", "sync_directory")
    for error in (errno.ENOSPC, errno.EIO)
] + [("open", errno.EIO), ("open", errno.EMFILE), ("read", errno.EIO), ("remove", errno.EIO)]


@pytest.mark.parametrize(("name", "error"), FAILURES)
def test_a_disk_that_fails_stops_the_search_and_loses_nothing(name: str, error: int, tmp_path: Path) -> None:
    with small(chunk=8, block=16):
        expected = answers(TwoPhaseCommit(rm=3), 1)
        calls = calls_of_a_search(tmp_path / "whole").count(name)
        for after in {*range(0, calls, 1 + calls // 5), calls - 1} if calls else ():
            path = tmp_path / str(after)
            found = stopped(path, Failing(name, after, error))
            if name == "remove":  # files that are left over take room, and do no harm
                assert found == expected
            elif found != expected:
                said = found if isinstance(found, str) else found["graph"][-1]
                assert os.strerror(error) in said and str(path) in said and "room" in said
            assert searched(path) == expected


def stopped(path: Path, disk: Disk) -> Any:
    """What a search says; or its error, if the storage fails once it is over."""
    try:
        return searched(path, disk)
    except LimitReached as error:  # of the graph for liveness, whose states cannot be read
        return str(error)
