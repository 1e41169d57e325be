"""A search that keeps its states in files: its answers are those of a search in memory, however often it is stopped.

Blocks and chunks are made tiny, and memory has room for no state, so that small systems have many of each. The disk is
a real one; where it fails, or forgets what was not synced, it is one that does so at the call that the test chose.
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
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import replace
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import trystate
from trystate import cli
from trystate.exits import Exit
from trystate.impl.host.disk import Disk
from trystate.model.checker.check import check
from trystate.model.checker.explicit import storage
from trystate.model.checker.explicit.engine import ExplicitEngine
from trystate.model.checker.explicit.packing import MARK, Keys, Layout
from trystate.model.checker.explicit.storage import Run, union
from trystate.model.checker.explicit.visited import NextLevel, Visited
from trystate.model.checker.kernel import Kernel, Limits
from trystate.model.errors import LimitReached, UsageError
from trystate.model.language import System
from trystate.property_tests.adapters.our_store.disks import Crash, ForgetfulDisk
from trystate.property_tests.support.mutants import rewritten, survives
from trystate.property_tests.support.nightly import NIGHTLY, a_third, by_night, examples
from trystate.property_tests.support.systems.engine_samples import Ring, ThreeWords, TwoWords
from trystate.property_tests.support.systems.random_systems import Declaration, declarations, system
from trystate.property_tests.support.systems.two_phase_commit import TwoPhaseCommit
from trystate.property_tests.tests.checker.test_cores import MANY, SYSTEMS, answers, tiny
from trystate.property_tests.tests.checker.test_limits import Odometer
from trystate.property_tests.tests.checker.test_random_systems import assert_runs_show_what_they_claim, facts
from trystate.search import checkpoint, spill
from trystate.search.checkpoint import Directory, KeysFile
from trystate.search.spill import MEMORY_BYTES_MIN, Spill

ROOM = (0, 200, 2_000)  # bytes of memory for states: none, a few, those of some levels


@contextmanager
def small(chunk: int = 3, block: int = 4, seconds: float = 0.0) -> Iterator[None]:
    """Tiny chunks, ranges and blocks; a search saves at each level."""
    with tiny(chunk=chunk), pytest.MonkeyPatch.context() as patch:
        patch.setattr(storage, "BLOCK", block)
        patch.setattr(spill, "SAVE_SECONDS", seconds)
        yield


def kept(
    of: System,
    path: Path,
    room: int = 0,
    limits: Limits = MANY,
    count: int = 1,
    disk: Disk | None = None,
    **options: Any,
) -> dict[str, Any]:
    """Everything that a search says that keeps its states in a directory."""
    with Spill(str(path), room, disk) as place:
        return answers(of, count, limits, storage=place, **options)


# ---- the same answers


WIDE = a_third([(room, name) for room in ROOM for name in SYSTEMS])  # each room and each system, not each pair


@pytest.mark.parametrize(("room", "name"), WIDE)
def test_states_of_any_width_have_the_same_answers(room: int, name: str, tmp_path: Path) -> None:
    with small(chunk=64, block=100):
        assert kept(SYSTEMS[name](), tmp_path / "kept", room) == answers(SYSTEMS[name](), 1)


@given(declarations(), st.sampled_from(ROOM), st.integers(1, 2))
@settings(max_examples=examples(6))
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


@pytest.mark.parametrize(("states", "room"), [(1, 0), (7, 0), (100, 0), (200, 2_000), (287, 0), (287, 2_000), (288, 0)])
def test_a_limit_of_states_stops_at_the_same_state(states: int, room: int, tmp_path: Path) -> None:
    limits = replace(MANY, states=states)
    with small(block=16):
        assert kept(TwoPhaseCommit(rm=3), tmp_path / "kept", room, limits) == answers(TwoPhaseCommit(rm=3), 1, limits)


@pytest.mark.parametrize("name", ["large levels", "small levels"])
def test_memory_has_a_few_states_of_many(name: str, tmp_path: Path) -> None:
    of, states = (TwoPhaseCommit(rm=3), 200) if name == "large levels" else (Odometer(digit=2), 50)
    held: list[int] = []

    def following(of: NextLevel, *args: Any) -> None:
        right(of, *args)
        held.append(of.held + of._visited.held)

    right = NextLevel.add
    with small(chunk=8, block=16), pytest.MonkeyPatch.context() as patch:
        patch.setattr(NextLevel, "add", following)
        kept(of, tmp_path / "kept", 8 * states)
    assert 0 < max(held) <= states * 3 // 10  # new ones a tenth, the set a fifth


RESIDENT = """
import sys
from trystate.model.checker.explicit.engine import ExplicitEngine
from trystate.model.checker.kernel import Kernel, Limits
from trystate.property_tests.support.systems.two_phase_commit import TwoPhaseCommit
from trystate.search.spill import Spill

def most():
    with open("/proc/self/status") as file:
        return next(int(line.split()[1]) for line in file if line.startswith("VmHWM"))

ExplicitEngine(Kernel(TwoPhaseCommit(rm=5)), Limits()).explore([])
before = most()
storage = Spill(sys.argv[1], 4 << 20) if sys.argv[1:] else None
assert ExplicitEngine(Kernel(TwoPhaseCommit(rm=8)), Limits(), storage=storage).explore([]).distinct == 1_745_408
print((most() - before) >> 10)
"""


@pytest.mark.skipif(not NIGHTLY, reason="searches millions of states: under HYPOTHESIS_PROFILE=nightly")
def test_the_resident_memory_is_that_of_a_few_chunks(tmp_path: Path) -> None:
    """Mebibytes above those of a small search; in memory these states take 14, and their levels as much."""
    kept_, in_memory_ = (
        int(subprocess.run([sys.executable, "-c", RESIDENT, *where], capture_output=True, text=True, check=True).stdout)
        for where in ([str(tmp_path / "kept")], [])
    )
    assert kept_ < 25 < in_memory_


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
            states = 2 * found["graph"][0]
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
    return kept(TwoPhaseCommit(rm=2), path, 0, disk=disk)


def calls_of_a_search(path: Path) -> list[str]:
    disk = Counting()
    searched(path, disk)
    return disk.calls


@pytest.mark.parametrize("count", [1, 2])
def test_a_search_that_is_killed_goes_on_from_its_last_level(count: int, tmp_path: Path) -> None:
    """kill -9 at any call, then again at another one."""
    with small(chunk=4, block=8):
        expected = answers(TwoPhaseCommit(rm=2), 1)
        calls = len(calls_of_a_search(tmp_path / "whole"))
        for left in range(count, calls, 1 + calls // by_night("crashes of a search", 3)):
            path = tmp_path / str(left)
            for again in (left, calls // 3):
                child = os.fork()
                if child == 0:
                    kept(TwoPhaseCommit(rm=2), path, 0, count=count, disk=Killing(again))
                    os._exit(0)
                assert os.waitpid(child, 0)[1] in (0, signal.SIGKILL)
            assert searched(path) == expected


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


class Named(ForgetfulDisk):
    """Has the names of its calls."""

    def __init__(self) -> None:
        super().__init__()
        self.named: list[str] = []

    def _call(self, name: str) -> None:
        self.named.append(name)
        super()._call(name)


def test_a_loss_of_power_leaves_a_level_that_is_whole(tmp_path: Path) -> None:
    """Around the second manifest, and at other calls; of the writes and names that were not synced, any survive."""
    with small(chunk=4, block=8):
        expected = answers(TwoPhaseCommit(rm=2), 1)
        disk = Named()
        kept(TwoPhaseCommit(rm=2), tmp_path, disk=disk)
        rng = random.Random(7)
        _, second, *_ = (number for number, name in enumerate(disk.named) if name == "replace")
        others = rng.sample(range(disk.calls), min(disk.calls, by_night("crashes of a search", 6)))
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
] + [("open", errno.EIO), ("open", errno.EMFILE), ("read", errno.EIO), ("remove", errno.EIO)]


@pytest.mark.parametrize(("name", "error"), FAILURES)
def test_a_disk_that_fails_stops_the_search_and_loses_nothing(name: str, error: int, tmp_path: Path) -> None:
    with small(chunk=4, block=8):
        expected = answers(TwoPhaseCommit(rm=2), 1)
        calls = calls_of_a_search(tmp_path / "whole").count(name)
        for after in range(calls // 9, calls, 1 + calls // by_night("crashes of a search", 2)):
            path = tmp_path / str(after)
            found = stopped(path, Failing(name, after, error))
            if name == "remove":  # files that are left over take room, and do no harm
                assert found == expected
            elif found != expected:
                said = found if isinstance(found, str) else found["graph"][-1]
                assert os.strerror(error) in said and str(path) in said and "room" in said
            assert searched(path) == expected


def stopped(path: Path, disk: Disk, refused: type[Exception] = LimitReached) -> Any:
    """The answers of a search, or why it has none: it is refused, or the storage fails once it is over."""
    try:
        found = searched(path, disk)
    except (LimitReached, refused) as error:
        return str(error)
    return found["graph"][-1] if "remove the directory" in found["graph"][-1] else found


# ---- files that are not as they were written, and directories of something else


def damaged(path: Path, rng: random.Random) -> Iterator[Callable[[], object]]:
    """Functions that damage a file: one bit, the end, all, and so on."""
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
    others = [other for other in path.parent.glob("*.keys") if other != path]
    if others and path.suffix == ".keys":
        yield lambda: path.write_bytes(rng.choice(others).read_bytes())


def test_files_that_are_damaged_are_never_read_as_states(tmp_path: Path) -> None:
    rng = random.Random(3)
    noticed = 0
    with small(chunk=4, block=8):
        expected = answers(TwoPhaseCommit(rm=2), 1)
        kept(TwoPhaseCommit(rm=2), tmp_path, limits=replace(MANY, states=40))
        names = [path.name for path in tmp_path.iterdir() if path.name != "lock"]
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
    def ask(**changed: Any) -> None:
        given_: dict[str, Any] = {"of": Ring(node=2), **changed}
        kept(given_.pop("of"), tmp_path, **given_)

    with small(chunk=1 << 15, block=1 << 15):
        ask(limits=replace(MANY, states=300))
        before = {path.name: path.read_bytes() for path in tmp_path.iterdir()}
        for changed, part in (
            ({"of": Ring(node=3)}, "system"),
            ({"of": Ring(node=2, faults=["loss"])}, "system"),
            ({"of": Ring(node=2, faults={"loss": 2})}, "system"),
            ({"of": TwoPhaseCommit(rm=3)}, "system"),
            ({"of": renamed(Ring, "grow", lambda s, node: s.when(s.thirst[node] < 0))}, "declaration"),
        ):
            with pytest.raises(UsageError, match=f"has a search of another {part} .*it was left as it was"):
                ask(**changed)
        with (
            pytest.MonkeyPatch.context() as patch,
            pytest.raises(UsageError, match=r"another release \(.*, and not 0\)"),
        ):
            patch.setattr(spill, "__version__", "0")
            ask()
        with Spill(str(tmp_path), 0) as place, pytest.raises(UsageError, match="another set of properties"):
            check(Ring(node=2), limits=MANY, storage=place, properties=("full_trust",))
        assert {path.name: path.read_bytes() for path in tmp_path.iterdir()} == before
        ask()


def renamed(of: type[Ring], step: str, guard: Callable[..., Any]) -> System:
    """A system of the same name, sizes and fields, one step of which has another guard."""
    rule = vars(of)[step]

    def body(self: Any, s: Any, node: Any) -> None:
        guard(s, node)
        s.thirst[node] = s.thirst[node] + 1
        s.asked[node] = True

    return type(of.__name__, (of,), {step: replace(rule, body=body)})(node=2)  # type: ignore[no-any-return]


def test_the_fingerprint_does_not_depend_on_what_was_built_before() -> None:
    program = (
        "import sys; from trystate.model.checker.check import watches\n"
        "from trystate.model.checker.explicit.engine import Compiled\n"
        "from trystate.model.checker.explicit.storage import fingerprint\n"
        "from trystate.model.checker.kernel import Kernel\n"
        "from trystate.property_tests.support.systems.engine_samples import Ring, ThreeWords\n"
        "kept = [Ring(node=3), ThreeWords(rm=2)] if sys.argv[1:] else []\n"
        "kernel = Kernel(Ring(node=2, faults=['loss']))\n"
        "print(fingerprint(kernel, Compiled.of(kernel).layout, False, watches(kernel)))\n"
    )
    alone, after_others = (
        subprocess.run([sys.executable, "-c", program, *names], capture_output=True, text=True, check=True).stdout
        for names in ([], ["others"])
    )
    assert alone == after_others


@pytest.mark.parametrize("what", ["a file", "something else", "no parent", "not ours to write"])
def test_a_directory_that_cannot_be_used_is_refused_and_left_as_it_was(what: str, tmp_path: Path) -> None:
    path = tmp_path / "kept"
    if what == "a file":
        path.write_text("of somebody")
    elif what == "something else":
        path.mkdir()
        (path / "thesis.tex").write_text("of somebody")
    elif what == "no parent":
        path = path / "below"
    disk = Failing("create", 0, errno.EACCES) if what == "not ours to write" else Disk()
    with small():
        if what == "not ours to write":
            assert "Permission denied" in kept(TwoPhaseCommit(rm=2), path, disk=disk)["graph"][-1]
            return
        with pytest.raises(UsageError, match=r"give (an empty|a) directory|give one that is empty") as refused:
            kept(TwoPhaseCommit(rm=2), path)
    assert str(path) in str(refused.value)
    assert [p.name for p in tmp_path.rglob("*")] in ([], ["kept"], ["kept", "thesis.tex"])


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
    with small():
        kept(TwoPhaseCommit(rm=2), tmp_path)


# ---- runs and files


KEYS = st.lists(st.tuples(st.integers(0, 9), st.integers(0, 9), st.integers(0, 1 << 61)), max_size=60, unique=True)


@cache
def layout_of(words: int) -> Layout:
    of: dict[int, System] = {1: TwoPhaseCommit(rm=2), 2: TwoWords(rm=2), 6: ThreeWords(rm=3)}
    kernel = Kernel(of[words])
    layout = Layout(kernel.cells, kernel.frozen)
    assert layout.words == words
    return layout


def keys_of(rows: list[tuple[int, ...]], words: int) -> tuple[Layout, Keys]:
    """A layout of so many words, and sorted keys in it."""
    layout = layout_of(words)
    table = np.array([[MARK | value for value in (row * 2)[:words]] for row in rows], np.int64).reshape(-1, words)
    return layout, layout.sort_unique(layout.keys(tuple(table.T.copy())))


@given(st.lists(KEYS, min_size=1, max_size=4), st.sampled_from((1, 2, 6)), st.integers(1, 9), st.data())
@settings(max_examples=examples(30))
def test_runs_in_files_have_their_keys(
    tmp_path_factory: pytest.TempPathFactory,
    sets: list[list[tuple[int, ...]]],
    words: int,
    block: int,
    data: st.DataObject,
) -> None:
    layout, every = keys_of([row for rows in sets for row in rows], words)
    arrays = [keys_of(list(rows), words)[1] for rows in sets]
    with small(block=block), Spill(str(tmp_path_factory.mktemp("runs")), 0) as place:
        place.begin(layout, {})
        runs = place.write([storage.cut(keys) for keys in arrays])
        assert [run[:].tobytes() for run in runs] == [keys.tobytes() for keys in arrays]
        joined = [*union(layout, [*runs, *arrays])]
        assert b"".join(part.tobytes() for part in joined) == every.tobytes()
        assert all(0 < len(part) <= block for part in joined)
        for run, keys in zip(runs, arrays, strict=True):
            start, stop = sorted(data.draw(st.tuples(st.integers(0, len(keys)), st.integers(0, len(keys)))))
            assert run[start:stop].tobytes() == keys[start:stop].tobytes()
            there = {key.tobytes() for key in keys}
            assert run.has(every).tolist() == [key.tobytes() in there for key in every]


# ---- the command


def test_the_command_goes_on_with_a_search_that_a_limit_stopped(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    def verify(*options: str, systems: Sequence[str] = (COMMIT,)) -> tuple[int, str, str]:
        places = ("--out", str(tmp_path / "report"), "--spill", str(tmp_path / "kept"))
        code = cli.run(["verify", *systems, "--expect", "transactions_commit", *places, *options])
        said = capsys.readouterr()
        return code, said.out, said.err

    assert verify("--max-states", "50")[0] == Exit.INCOMPLETE
    assert saved_in(tmp_path / "kept")["over"] is False
    assert verify()[0] == Exit.OK
    assert saved_in(tmp_path / "kept")["over"] is True
    assert verify()[0] == Exit.OK
    for options, said in (
        (("--engine", "symbolic"), "use --engine explicit with --spill"),
        (
            ("--max-memory", "100"),
            f"needs {MEMORY_BYTES_MIN >> 20} MiB, and the limit is 100 MiB: raise it with --max-memory",
        ),
    ):
        code, _, error = verify(*options)
        assert (code, error.count("\n")) == (Exit.USAGE, 1) and said in error
    for systems, said in (
        ((), "is of a system: name it"),
        ((COMMIT, "watches"), "is of one search: name one system\n"),
    ):
        code, _, error = verify(systems=systems)
        assert code == Exit.USAGE and said in error


def test_check_takes_a_directory(tmp_path: Path) -> None:
    reports = [trystate.check.check(TwoPhaseCommit(rm=3), spill=tmp_path / "kept", cores=1) for _ in range(2)]
    assert [facts(report) for report in reports] == [facts(check(TwoPhaseCommit(rm=3), engine="explicit"))] * 2
    assert [report.choice.partition("; ")[2] for report in reports] == ["", "went on from 288 states"]


# ---- planted mistakes


MUTANTS = {
    "new states are not compared with those in files": rewritten(
        NextLevel._sift, "not self._sifted and self._visited.stored", "False"
    ),
    "new states are compared with them once": rewritten(NextLevel._settle, "self._sifted = False", "pass"),
    "batches are not merged": rewritten(NextLevel._batch, "[*self._batches, *self._new]", "self._batches"),
    "a batch is forgotten": rewritten(NextLevel._keep_within, "*self._batches, *batch", "*batch"),
    "an older run is forgotten": rewritten(Visited._store, "*self.stored, *merged", "*merged"),
    "memory is not emptied": rewritten(Visited.add, "self.held > self.keys_max", "False"),
    "memory has all new states": rewritten(NextLevel._keep_within, "self.held > self._keys_max:", "False:"),
    "a run is not looked up before its first key's block": rewritten(
        Run.has, "self._firsts)", "self._firsts, 'right')"
    ),
    "the last level is not added again": rewritten(ExplicitEngine._resume, "in saved.levels:", "in saved.levels[:-1]:"),
    "levels that are merged are added again": rewritten(
        ExplicitEngine._resume, "self._resumed > self.visited.count", "True"
    ),
    "steps are counted anew": rewritten(ExplicitEngine._resume, "saved.edges", "0"),
    "finds are forgotten": rewritten(ExplicitEngine._save, "whole.finds", "0"),
    "steps of a level that is not whole are saved": rewritten(ExplicitEngine._save, "whole.edges", "self.edges"),
    "a level that is not whole is saved": rewritten(
        ExplicitEngine._add, "if self.stopped:", "if self.stopped and self._storage is None:"
    ),
    "met steps are forgotten": rewritten(ExplicitEngine._resume, "self.steps[number].meet()", "pass"),
    "a block is not checked": rewritten(KeysFile.block, "zlib.crc32(data) != checksum", "False"),
    "an index is not checked": rewritten(checkpoint.read, "!= entry.digest", "!= entry.digest and False"),
    "a manifest is not checked": rewritten(Directory._load, 'text["digest"] == _digest(body)', "True"),
    "a fingerprint is not checked": rewritten(Directory._load, "found.get(part) != value", "False"),
    "a manifest is written in its place": rewritten(
        Directory.save, "os.path.join(self.path, NEW)", "os.path.join(self.path, MANIFEST)"
    ),
    "a file is not synced": rewritten(checkpoint._written, "disk.sync(fd)", "pass"),
    "files that are named are removed": rewritten(Directory._clean, "name in self.entries", "False"),
    "files that are in use are removed": rewritten(Directory._clean, "name in self._in_use", "False"),
    "files that are left over stay": rewritten(Directory._clean, "name == NEW or not needed", "False"),
    "files are written over": rewritten(Directory.write, "self._next + 1", "self._next"),
}


@cache
def in_memory(states: int) -> dict[str, Any]:
    return answers(Ring(node=2, faults=["loss"]), 1, replace(MANY, states=states))


def claim(tmp_path_factory: pytest.TempPathFactory) -> None:
    """The cheapest of the claims above that notice all of these."""

    def path(name: str) -> Path:
        return tmp_path_factory.mktemp(name)

    of = Ring(node=2, faults=["loss"])
    for seconds in (0.0, 1e9):
        with small(chunk=64, block=32, seconds=seconds):
            kept_there = path("kept")
            for states in (400, 2_000):
                assert kept(of, kept_there, 800, replace(MANY, states=states))["graph"] == in_memory(states)["graph"]
            assert kept(of, kept_there, 800) == in_memory(MANY.states)
            named = {place[0] for runs in ("levels", "merged") for place in saved_in(kept_there)[runs]}
            assert {name.name for name in kept_there.iterdir()} == {*named, "checkpoint.json", "lock"}
    test_memory_has_a_few_states_of_many("large levels", path("large"))
    test_memory_has_a_few_states_of_many("small levels", path("small"))
    test_a_directory_of_another_search_is_refused_and_left_as_it_was(path("other"))
    test_a_loss_of_power_leaves_a_level_that_is_whole(path("power"))
    test_files_that_are_damaged_are_never_read_as_states(path("damaged"))


def test_without_a_mistake_the_claims_hold(tmp_path_factory: pytest.TempPathFactory) -> None:
    claim(tmp_path_factory)


@pytest.mark.parametrize("name", MUTANTS)
def test_a_planted_mistake_is_found(name: str, tmp_path_factory: pytest.TempPathFactory) -> None:
    assert not survives(MUTANTS[name], lambda: claim(tmp_path_factory))
