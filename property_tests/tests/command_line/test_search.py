"""`trystate search` on real processes: its report is that of `trystate verify`, and a lost rank ends it in time."""

from __future__ import annotations

import json
import os
import re
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from trystate import cli
from trystate.exits import Exit
from trystate.model.checker.explicit.partitioned import PartitionedEngine
from trystate.model.checker.explicit.ranks import RankLost, Ranks
from trystate.property_tests.support.launched import Ended, Launcher
from trystate.property_tests.support.mutants import planted, replaced, rewritten
from trystate.property_tests.support.nightly import NIGHTLY
from trystate.search import ranks, spill
from trystate.search.ranks import TorchRanks, joined

pytest.importorskip("torch")

SMALL = ["tombstones", "--size", "peer=1"]  # 820 states in 16 levels; two properties are violated
LARGER = ["rendezvous", "--nodes", "2", "--fault", "crash"]
LIMIT = 5.0  # seconds of a collective


@pytest.fixture
def launcher(tmp_path: Path) -> Iterator[Launcher]:
    started = Launcher(tmp_path)
    yield started
    started.close()


def searching(*words: str, plant: Callable[[int], None] = lambda rank: None) -> Callable[[int], int]:
    """Carry out the command on each rank."""

    def do(rank: int) -> int:
        plant(rank)
        return cli.run(["search", *words, "--timeout", str(LIMIT)])

    return do


def report(folder: Path) -> dict[str, Any]:
    """The report, without times, bytes, and how the search was made."""
    text = json.loads((folder / "report.json").read_text())
    for run in (text, *text["runs"]):
        for name in ("seconds", "summary", "bytes_per_state", "choice"):
            run.pop(name, None)
    return dict(text)


def files(folder: Path) -> dict[str, bytes]:
    """The files of a report but the two that have times: each counterexample, and its picture."""
    names = [path.relative_to(folder).as_posix() for path in folder.rglob("*") if path.is_file()]
    return {name: (folder / name).read_bytes() for name in names if not name.startswith("report.")}


@pytest.fixture(scope="module")
def expected(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return of_one_process(SMALL, tmp_path_factory.mktemp("expected"))


def of_one_process(words: list[str], out: Path) -> Path:
    assert cli.run(["verify", *words, "--cores", "1", "--out", str(out)]) == Exit.OK
    return out


@pytest.mark.parametrize("count", [1, 2, 3] if NIGHTLY else [3])
@pytest.mark.parametrize("words", [SMALL, LARGER] if NIGHTLY else [SMALL], ids=" ".join)
def test_the_report_is_that_of_one_process(words: list[str], count: int, launcher: Launcher, tmp_path: Path) -> None:
    expected = of_one_process(words, tmp_path / "expected")
    first, *others = launcher.start(count, searching(*words, "--out", str(tmp_path / "found"))).ended()
    assert (first.code, " violated (known: " in first.out) == (Exit.OK, True), first.err
    assert others == [Ended(Exit.OK, "", "")] * (count - 1)
    assert report(tmp_path / "found") == report(expected)
    assert files(tmp_path / "found") == files(expected)


def at_level(level: int, rank: int, act: Callable[[], None]) -> Callable[[int], None]:
    """On this rank, do something before a level of this depth is searched."""
    right = PartitionedEngine._expand

    def plant(mine: int) -> None:
        def expand(engine: PartitionedEngine, watching: Any, at: int, chunk: Any) -> Any:
            if mine == rank and at == level:
                act()
            return right(engine, watching, at, chunk)

        PartitionedEngine._expand = expand  # type: ignore[method-assign, assignment]

    return plant


def send(number: signal.Signals) -> Callable[[], None]:
    return lambda: os.kill(os.getpid(), number)


SIGNALS = [(signal.SIGINT, Exit.INTERRUPTED), (signal.SIGTERM, Exit.TERMINATED)]


@pytest.mark.parametrize(("number", "code"), SIGNALS if NIGHTLY else SIGNALS[:1])
def test_a_signal_to_the_first_rank_ends_all_with_what_was_found(
    number: signal.Signals, code: Exit, launcher: Launcher, tmp_path: Path
) -> None:
    do = searching(*SMALL, "--out", str(tmp_path / "found"), plant=at_level(6, 0, send(number)))
    first, second = launcher.start(2, do).ended()
    assert (first.code, second.code) == (code, Exit.OK)
    assert f"1 not done: ended by {number.name}" in first.out
    assert f"stopped by {number.name} (rank 0)" in (tmp_path / "found/report.md").read_text()


def test_a_rank_that_is_killed_ends_the_others_at_once(launcher: Launcher, tmp_path: Path) -> None:
    do = searching(*SMALL, "--out", str(tmp_path / "found"), plant=at_level(6, 1, send(signal.SIGKILL)))
    began = time.monotonic()
    first, killed, third = launcher.start(3, do).ended()
    assert killed.code == -signal.SIGKILL and time.monotonic() - began < LIMIT + 20
    for one, rank in ((first, 0), (third, 2)):
        assert one.code == Exit.INCOMPLETE
        assert re.search(rf"trystate: rank {rank} of 3 has lost another rank, which is gone or gave no answer", one.err)
        assert "states were seen to depth 6" in one.err or "states were seen to depth 5" in one.err


def test_a_rank_that_stands_still_ends_the_others_when_the_timeout_is_over(launcher: Launcher, tmp_path: Path) -> None:
    do = searching(*SMALL, "--out", str(tmp_path / "found"), plant=at_level(6, 1, send(signal.SIGSTOP)))
    started = launcher.start(2, lambda rank: shortly(1.0, do, rank))
    first = ended_first(started.pids[0])
    os.kill(started.pids[1], signal.SIGKILL)
    os.waitpid(started.pids[1], 0)
    assert first == Exit.INCOMPLETE
    assert "gave no answer for 1 s" in started.said(0, "err")


def shortly(seconds: float, do: Callable[[int], int], rank: int) -> int:
    global LIMIT
    LIMIT = seconds
    return do(rank)


def ended_first(pid: int) -> int:
    """The exit code of a process, which is awaited for a minute."""
    for _ in range(6_000):
        done, status = os.waitpid(pid, os.WNOHANG)
        if done:
            return os.waitstatus_to_exitcode(status)
        time.sleep(0.01)
    os.kill(pid, signal.SIGKILL)
    os.waitpid(pid, 0)
    return 99


def test_a_search_of_which_a_rank_is_killed_goes_on_with_fewer(
    launcher: Launcher, tmp_path: Path, expected: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(spill, "SAVE_SECONDS", -1.0)
    words = (*SMALL, "--checkpoint", str(tmp_path / "kept"), "--max-memory", "600", "--out", str(tmp_path / "found"))
    do = searching(*words, plant=at_level(6, 2, send(signal.SIGKILL)))
    assert [one.code for one in launcher.start(3, do).ended()] == [Exit.INCOMPLETE] * 2 + [-signal.SIGKILL]
    do = searching(*words, plant=at_level(9, 0, send(signal.SIGKILL)))
    assert launcher.start(3, do).ended()[0].code == -signal.SIGKILL  # as many, started again by the launcher
    do = searching(*words, plant=at_level(3, 0, lambda: os._exit(98)))
    assert [one.code for one in launcher.start(2, do).ended()] == [Exit.OK] * 2  # level 3 is not searched again
    assert report(tmp_path / "found") == report(expected)
    assert files(tmp_path / "found") == files(expected)


def test_ranks_of_other_systems_or_releases_are_refused(
    launcher: Launcher, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def do(rank: int) -> int:
        return cli.run(["search", ("tombstones", "ids")[rank], "--out", str(tmp_path / "found"), "--timeout", "5"])

    first, second = launcher.start(2, do).ended()
    assert (first.code, second.code) == (Exit.USAGE, Exit.OK)
    assert "rank 1 has another system (Ids(" in first.err and second.err == ""

    def other(rank: int) -> int:
        vars(ranks)["__version__"] = f"0.{rank}"
        return cli.run(["search", *SMALL, "--timeout", "5"])

    for one in launcher.start(2, other).ended():
        assert one.code == Exit.USAGE and "is trystate 0." in one.err and "install one release on all hosts" in one.err


@pytest.mark.parametrize(("variable", "value", "said"), [
    ("RANK", "", "the environment has no RANK: start this command on several ranks"),
    ("WORLD_SIZE", "5000", "WORLD_SIZE is '5000' in the environment, where a launcher puts 1 to 4,096"),
    ("WORLD_SIZE", "two", "WORLD_SIZE is 'two' in the environment"),
    ("RANK", "1", "RANK is '1' in the environment, where a launcher puts 0 to 0"),
    ("MASTER_PORT", "99999", "MASTER_PORT is '99999' in the environment"),
    ("LOCAL_WORLD_SIZE", "-1", "LOCAL_WORLD_SIZE is '-1' in the environment"),
])  # fmt: skip
def test_a_process_that_no_launcher_has_started_is_told_how(
    variable: str, value: str, said: str, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    for name in ranks.NEEDED:
        monkeypatch.setenv(name, str(int(name != "RANK")))
    monkeypatch.setenv(variable, value)
    assert cli.run(["search", *SMALL]) == Exit.USAGE
    assert said in capsys.readouterr().err


def test_a_timeout_that_torch_cannot_wait_is_refused(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    for name in ranks.NEEDED:
        monkeypatch.setenv(name, str(int(name != "RANK")))
    assert cli.run(["search", *SMALL, "--timeout", "1e15"]) == Exit.USAGE
    assert "--timeout 1e+15 is too long: give at most 1,000,000 s" in capsys.readouterr().err


def test_a_rank_whose_others_do_not_come_gives_up(launcher: Launcher) -> None:
    def do(rank: int) -> int:
        os.environ["WORLD_SIZE"] = "2"
        return cli.run(["search", *SMALL, "--timeout", "0.5"])

    (one,) = launcher.start(1, do).ended()
    assert (one.code, "the ranks did not meet within 0.5 s" in one.err) == (Exit.INCOMPLETE, True), one.err


def test_a_process_that_waits_in_gloo_ends_with_its_exit_code() -> None:
    """The interpreter's end would otherwise abort it, with another code."""
    wait = "from trystate.search import ranks; import threading; held = threading.Event()"
    given_up = f"{wait}\ntry: ranks._within(0.1, held.wait)\nexcept RuntimeError as error: print(error)"
    ended = subprocess.run([sys.executable, "-c", given_up], capture_output=True, text=True, timeout=60)
    assert (ended.returncode, ended.stdout) == (Exit.INCOMPLETE, "not all of them are connected\n"), ended.stderr


# ---- notes and states between real ranks


def assert_meet(mine: Ranks) -> None:
    """Notes of any size arrive, and states of any width, each where it belongs."""
    for size in (0, 1, ranks.FRAME, 3 * ranks.FRAME):
        notes = mine.told([mine.rank, "x" * (size * (mine.rank + 1))])
        assert notes == [[rank, "x" * (size * (rank + 1))] for rank in range(mine.count)]
    rng = np.random.default_rng(7)
    for dtype in (np.int64, np.complex128, "U6"):
        words = np.dtype(dtype).itemsize // 8
        for most in (0, 1, 5, 40):
            table = [[int(n) for n in rng.integers(0, most + 1, mine.count)] for _ in range(mine.count)]
            parts = [made(mine.rank, to, n, words).view(dtype) for to, n in enumerate(table[mine.rank])]
            came = [key for piece in mine.swapped(parts) for key in piece.view(np.int64).tolist()]
            due = [made(of, mine.rank, table[of][mine.rank], words).tolist() for of in range(mine.count)]
            assert sorted(came) == sorted(key for keys in due for key in keys)


def made(of: int, to: int, count: int, words: int) -> Any:
    return np.arange(count * words, dtype=np.int64) + (100 * of + to) * 1_000


def meeting(rank: int) -> int:
    ranks.PIECE_KEYS = 9
    try:
        with joined(2.0) as mine:
            assert_meet(mine)
    except (AssertionError, RankLost, ValueError):
        return 1
    return 0


def test_notes_and_states_arrive_on_real_ranks(launcher: Launcher) -> None:
    assert [one.code for one in launcher.start(3, meeting).ended()] == [0] * 3


MUTANTS = {
    "each piece is the first": rewritten(TorchRanks.swapped, "part[start : start + n]", "part[:n]"),
    "pieces are counted by this rank alone": rewritten(
        TorchRanks.swapped, "int(table[:, 1].max())", "int(sizes.max())"
    ),
    "the own part is forgotten": rewritten(TorchRanks.swapped, "yield parts[self.rank]", "yield parts[self.rank][:0]"),
    "words are taken for states": rewritten(TorchRanks.swapped, "(giving * words).tolist()", "giving.tolist()"),
    "a long note is cut": rewritten(TorchRanks.told, "if max(sizes) > FRAME:", "if False:"),
}  # fmt: skip


@pytest.mark.parametrize("name", MUTANTS)
def test_a_planted_mistake_between_ranks_is_found(name: str, launcher: Launcher) -> None:
    with planted(MUTANTS[name]):
        assert any(one.code for one in launcher.start(2, meeting).ended())


def again(seconds: float, rank: int) -> int:
    time.sleep(seconds * rank)
    try:
        with joined(3.0):
            return 0
    except RankLost:
        return 1


def test_ranks_that_are_started_again_do_not_look_for_those_before(launcher: Launcher) -> None:
    """The store has the addresses of those before, and one of the ranks is late."""
    for seconds in (0.0, 1.5):
        assert [one.code for one in launcher.start(2, partial(again, seconds)).ended()] == [0, 0]


def test_ranks_that_look_for_those_before_end_in_time(launcher: Launcher) -> None:
    """gloo itself waits without a limit where one of its ranks has given up: keys of no name of their own show that."""
    with planted(replaced(ranks, "_attempt", lambda *_: "same")):
        for _ in range(12):  # about every second time they meet all the same
            launcher.start(2, partial(again, 0.0)).ended()
            began = time.monotonic()
            codes = [one.code for one in launcher.start(2, partial(again, 1.5)).ended()]
            assert time.monotonic() - began < 3.0 + 1.5 + 10
            if any(codes):
                return
    pytest.fail("the ranks have met each time: is the name of the keys needed?")


# ---- by night: under the launchers


@pytest.mark.skipif(not NIGHTLY, reason="two launchers, each of whose processes imports torch: ten seconds")
@pytest.mark.parametrize("launch", [("torchrun",), ("trystate", "run")], ids=["torchrun", "ours"])
def test_a_search_under_a_launcher_survives_a_killed_rank(
    launch: tuple[str, ...], tmp_path: Path, expected: Path
) -> None:
    script = tmp_path / "search.py"
    script.write_text(KILLED.format(root=str(tmp_path)))
    words = [*SMALL, "--checkpoint", str(tmp_path / "kept"), "--max-memory", "600", "--out", str(tmp_path / "found")]
    bin_ = Path(sys.executable).parent
    command = [
        str(bin_ / launch[0]),
        *launch[1:],
        "--nproc-per-node",
        "2",
        "--max-restarts",
        "1",
        str(script),
        "search",
    ]
    done = subprocess.run([*command, *words], capture_output=True, text=True, timeout=200)
    assert done.returncode == 0, done.stderr
    assert report(tmp_path / "found") == report(expected)


KILLED = """
import os, signal, sys
from pathlib import Path
from trystate.search import spill
from trystate import cli
from trystate.model.checker.explicit.partitioned import PartitionedEngine

spill.SAVE_SECONDS = -1.0
right = PartitionedEngine._expand
killed = Path("{root}/killed")

def expand(engine, watching, at, chunk):
    if at == 9 and os.environ["RANK"] == "1" and not killed.exists():
        killed.touch()
        os.kill(os.getpid(), signal.SIGKILL)
    return right(engine, watching, at, chunk)

PartitionedEngine._expand = expand
sys.exit(cli.run(sys.argv[1:]))
"""
