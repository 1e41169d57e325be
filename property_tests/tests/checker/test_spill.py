"""A search that keeps its states in files gives the answers of a search in memory, however often it is stopped.

Blocks and chunks are tiny, and memory has room for no state, so small systems have many of each. The disk is
a real one. A disk that fails, or forgets what was not synced, does so at the call that the test chose.
"""

from __future__ import annotations

import errno
import os
import random
import re
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from dataclasses import replace
from functools import partialmethod
from pathlib import Path
from typing import Any

import pytest

import trystate
from trystate import cli
from trystate.exits import Exit
from trystate.impl.host.disk import Disk
from trystate.model.checker.check import check
from trystate.model.checker.explicit.engine import ExplicitEngine
from trystate.model.checker.kernel import Limits
from trystate.model.errors import DeclarationError, LimitReached, UsageError
from trystate.model.language import System
from trystate.property_tests.adapters.our_store.disks import Crash, ForgetfulDisk
from trystate.property_tests.support.mutants import altered
from trystate.property_tests.support.nightly import by_night
from trystate.property_tests.support.runs import MANY, facts
from trystate.property_tests.support.systems.engine_samples import Ring, leaves
from trystate.property_tests.support.systems.two_phase_commit import TwoPhaseCommit
from trystate.property_tests.tests.checker.searches import answers, small
from trystate.search import checkpoint, spill
from trystate.search.checkpoint import Directory
from trystate.search.spill import Spill


def kept(
    of: System,
    path: Path,
    room: int = 0,
    limits: Limits = MANY,
    count: int = 1,
    disk: Disk | None = None,
    **options: Any,
) -> dict[str, Any]:
    """The complete result of a search that keeps its states in a directory."""
    with Spill(str(path), room, disk) as place:
        return answers(of, count, limits, storage=place, **options)


# ---- the same answers


def test_liveness_that_does_not_fit_is_not_decided_and_says_why(tmp_path: Path) -> None:
    limits = replace(MANY, memory_bytes=4_000)
    with small(chunk=64, block=64), Spill(str(tmp_path / "kept"), 0) as place:
        report = check(Ring(node=2), limits=limits, storage=place)
    assert report.exploration.complete
    (open_,) = report.undecided
    assert open_.reason.startswith("liveness is decided with all states in memory, at least 0 MiB (limit 0 MiB")


# ---- stopped and resumed


def test_a_find_at_a_line_that_has_moved_since_is_refused(tmp_path: Path) -> None:
    with small():
        with pytest.raises(DeclarationError, match=":3: up leaves"), Spill(str(tmp_path), 0) as place:
            check(leaves(0), engine="explicit", storage=place)
        with pytest.raises(UsageError, match="at a line that has moved since"), Spill(str(tmp_path), 0) as place:
            check(leaves(1), engine="explicit", storage=place)


def saved_in(path: Path) -> Any:
    """The content of the manifest, for any search."""
    directory = Directory(str(path), {})
    directory.close()
    return directory.saved


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


class Failing(Disk):
    """Records the names of its calls. Every call of the name `fails` raises an error after the first `after`."""

    def __init__(self, fails: str = "", after: int = 0, error: int = errno.ENOSPC) -> None:
        self.calls: list[str] = []
        self._fails, self._after, self._error = fails, after, error

    def _call(self, name: str, *args: Any) -> Any:
        self.calls.append(name)
        if name == self._fails and self.calls.count(name) > self._after:
            raise OSError(self._error, os.strerror(self._error))
        return getattr(Disk, name)(self, *args)


for _name in ("create", "open", "read", "write", "sync", "replace", "remove", "sync_directory"):
    setattr(Failing, _name, partialmethod(Failing._call, _name))


def searched(path: Path, disk: Disk | None = None) -> dict[str, Any]:
    """A small search without memory for states; its files have several runs."""
    return kept(TwoPhaseCommit(rm=2), path, 0, disk=disk)


def calls_of_a_search(path: Path) -> list[str]:
    disk = Failing()
    searched(path, disk)
    return disk.calls


COMMIT = "trystate.property_tests.support.systems.two_phase_commit:TwoPhaseCommit"


def test_a_command_that_is_killed_goes_on_from_its_last_level(tmp_path: Path) -> None:
    program = (
        "import sys; from trystate.search import spill; spill.SAVE_SECONDS = 0; "
        "from trystate.__main__ import *; main(sys.argv[1:])"
    )
    places = ["--spill", str(tmp_path / "kept"), "--out", str(tmp_path / "report")]
    argv = [sys.executable, "-c", program, "verify", COMMIT, "--expect", "transactions_commit", *places]
    with subprocess.Popen(argv, stdout=subprocess.PIPE, stderr=subprocess.PIPE) as process:
        while process.poll() is None and not (tmp_path / "kept" / "checkpoint.json").exists():
            time.sleep(0.001)
        process.kill()
    assert process.returncode == -signal.SIGKILL
    saved = saved_in(tmp_path / "kept")
    assert not saved["over"]
    assert cli.run(["verify", *argv[4:]]) == Exit.OK
    assert saved_in(tmp_path / "kept")["levels"][: len(saved["levels"])] == saved["levels"]


def test_a_loss_of_power_leaves_a_level_that_is_whole(tmp_path: Path) -> None:
    """Power fails around the second manifest and at other calls. Any of the unsynced writes and names survive."""
    with small(chunk=4, block=8):
        expected = answers(TwoPhaseCommit(rm=2), 1)
        calls = [name for name in calls_of_a_search(tmp_path / "whole") if name not in ("open", "read")]
        rng = random.Random(7)
        _, second, *_ = (number for number, name in enumerate(calls) if name == "replace")
        others = rng.sample(range(len(calls)), min(len(calls), by_night("crashes of a search", 6)))
        for left in (*range(second - 5, second + 3), *others):
            broken = ForgetfulDisk()
            broken.calls_left = left
            with pytest.raises(Crash):
                kept(TwoPhaseCommit(rm=2), tmp_path, disk=broken)
            found = broken.after_crash(lambda: rng.random() < 0.7)
            assert kept(TwoPhaseCommit(rm=2), tmp_path, disk=found) == expected


FAILURES = [
    (name, error)
    for name in ("create", "write", "sync", "replace", "sync_directory")
    for error in (errno.ENOSPC, errno.EIO)
] + [("create", errno.EACCES), ("open", errno.EIO), ("open", errno.EMFILE), ("read", errno.EIO), ("remove", errno.EIO)]


@pytest.mark.parametrize(("name", "error"), FAILURES)
def test_a_disk_that_fails_stops_the_search_and_loses_nothing(name: str, error: int, tmp_path: Path) -> None:
    with small(chunk=4, block=8):
        expected = answers(TwoPhaseCommit(rm=2), 1)
        calls = calls_of_a_search(tmp_path / "whole").count(name)
        for after in range(calls // 9, calls, 1 + calls // by_night("crashes of a search", 2)):
            path = tmp_path / str(after)
            found = stopped(path, Failing(name, after, error))
            if name == "remove":  # left-over files take room but do no harm
                assert found == expected
            elif found != expected:
                said = found if isinstance(found, str) else found["graph"][-1]
                assert os.strerror(error) in said and str(path) in said and "room" in said
            assert searched(path) == expected


def stopped(path: Path, disk: Disk, refused: type[Exception] = LimitReached) -> Any:
    """The answers of a search, or the text of its failure: a refusal, or a storage that fails after the end."""
    try:
        found = searched(path, disk)
    except (LimitReached, refused) as error:
        return str(error)
    return found["graph"][-1] if "remove the directory" in found["graph"][-1] else found


# ---- damaged files, and directories with other contents


def damaged(path: Path, rng: random.Random) -> Iterator[Callable[[], object]]:
    """Functions that damage a file: one bit, its end, all of it, and so on."""
    whole = path.read_bytes()

    def flipped() -> None:
        at = rng.randrange(len(whole))
        path.write_bytes(whole[:at] + bytes((whole[at] ^ 1 << rng.randrange(8),)) + whole[at + 1 :])

    yield flipped
    yield lambda: path.write_bytes(whole[: rng.randrange(len(whole))])
    if path.suffix == ".json":
        yield lambda: path.write_bytes(re.sub(rb'"edges": \d', b'"edges": 9', whole))
    yield lambda: path.write_bytes(whole + b"!")
    yield lambda: path.write_bytes(bytes(len(whole)))
    yield path.unlink
    others = sorted(other for other in path.parent.glob("*.keys") if other != path)
    if others and path.suffix == ".keys":
        yield lambda: path.write_bytes(rng.choice(others).read_bytes())


def test_files_that_are_damaged_are_never_read_as_states(tmp_path: Path) -> None:
    rng = random.Random(3)
    noticed = 0
    with small(chunk=4, block=8):
        expected = answers(TwoPhaseCommit(rm=2), 1)
        kept(TwoPhaseCommit(rm=2), tmp_path, limits=replace(MANY, states=40))
        names = sorted(path.name for path in tmp_path.iterdir() if path.name != "lock")
        contents = {name: (tmp_path / name).read_bytes() for name in names}
        assert len(names) > 3
        for name in names:
            for damage in damaged(tmp_path / name, rng):
                damage()
                said = stopped(tmp_path, Disk(), refused=UsageError)
                assert said == expected or "remove the directory" in said
                noticed += said != expected
                for path in tmp_path.iterdir():
                    path.unlink()
                for other, data in contents.items():
                    (tmp_path / other).write_bytes(data)
    assert noticed >= 5 * (len(names) - 1)


def test_a_directory_of_another_search_is_refused_and_left_as_it_was(tmp_path: Path) -> None:
    with small(chunk=1 << 15, block=1 << 15):
        kept(Ring(node=2), tmp_path, limits=replace(MANY, states=300))
        before = {path.name: path.read_bytes() for path in tmp_path.iterdir()}
        for of, part in (
            (Ring(node=3), "system"),
            (Ring(node=2, faults=["loss"]), "system"),
            (TwoPhaseCommit(rm=3), "system"),
            (altered("Ring", Ring, "grow", "s.thirst[node] < 1", "s.thirst[node] < 0")(node=2), "declaration"),
        ):
            with pytest.raises(UsageError, match=f"has a search with another {part} .*it was left as it was"):
                kept(of, tmp_path)
        with (
            pytest.MonkeyPatch.context() as patch,
            pytest.raises(UsageError, match=r"another release \(.* instead of 0\)"),
        ):
            patch.setattr(spill, "__version__", "0")
            kept(Ring(node=2), tmp_path)
        with Spill(str(tmp_path), 0) as place, pytest.raises(UsageError, match="another set of properties"):
            check(Ring(node=2), limits=MANY, storage=place, properties=("full_trust",))
        assert {path.name: path.read_bytes() for path in tmp_path.iterdir()} == before
        kept(Ring(node=2), tmp_path)


@pytest.mark.parametrize("there", ["", "kept", "kept/thesis.tex"])
def test_a_directory_that_cannot_be_used_is_refused_and_left_as_it_was(there: str, tmp_path: Path) -> None:
    """A directory without a parent, a file, and a directory with something else."""
    path = tmp_path / "kept" if there else tmp_path / "kept" / "below"
    if there:
        (tmp_path / there).parent.mkdir(exist_ok=True)
        (tmp_path / there).write_text("")
    before = [*tmp_path.rglob("*")]
    with small(), pytest.raises(UsageError, match=r"give (an empty|a) directory|give one that is empty") as refused:
        kept(TwoPhaseCommit(rm=2), path)
    assert str(path) in str(refused.value) and [*tmp_path.rglob("*")] == before


def test_a_directory_in_use_is_refused(tmp_path: Path) -> None:
    with Spill(str(tmp_path), 0) as place, small():
        answers(TwoPhaseCommit(rm=2), 1, storage=place)
        with pytest.raises(UsageError, match="in use by another search of this process"):
            kept(TwoPhaseCommit(rm=2), tmp_path)
        child = os.fork()
        if child == 0:
            checkpoint._OPEN.clear()
            try:
                kept(TwoPhaseCommit(rm=2), tmp_path)
            except UsageError as refused:
                os._exit(0 if f"in use by another search (process {os.getppid()})" in str(refused) else 1)
            os._exit(2)
        assert os.waitpid(child, 0)[1] == 0


# ---- the command


def test_check_takes_a_directory(tmp_path: Path) -> None:
    reports = [trystate.check.check(TwoPhaseCommit(rm=3), spill=tmp_path / "kept", cores=1) for _ in range(2)]
    assert [facts(report) for report in reports] == [facts(check(TwoPhaseCommit(rm=3), engine="explicit"))] * 2
    assert [report.choice.partition("; ")[2] for report in reports] == ["", "resumed from 288 states"]
