"""`trystate search` on real processes: its report equals `trystate verify`'s, and a lost rank ends it in time."""

from __future__ import annotations

import faulthandler
import itertools
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

import pytest

pytest.importorskip("torch")

import torch.distributed as dist

from trystate import cli
from trystate.exits import Exit
from trystate.model.checker.explicit import packing
from trystate.model.checker.explicit.partitioned import PartitionedEngine
from trystate.property_tests.adapters.forked import Program
from trystate.property_tests.adapters.jobs import Agent
from trystate.property_tests.adapters.torch_store.isolated import preload
from trystate.property_tests.support.nightly import NIGHTLY
from trystate.property_tests.tests.command_line.setting import written
from trystate.search import ranks, spill

preload("trystate.commands.search", "trystate.property_tests.support.mutants")

SMALL = ["tombstones", "--size", "peer=1"]  # 820 states in 16 levels; two properties are violated
LARGER = ["rendezvous", "--nodes", "2", "--fault", "crash"]
LIMIT = 5.0  # seconds of a collective
WORD_BITS = 12  # states of several words
MODULE = "trystate.property_tests.tests.command_line.test_search"  # pytest has another name for it


# ---- ranks: each is a process, and they meet over gloo on 127.0.0.1 as torchrun's ranks do. The store outlives them.

WAIT_SECONDS = 40.0  # limit for a rank; ranks that still run at the end of a test are killed
Do = Callable[[int], int]  # the work of a rank: from its number to its exit code
Start = Callable[[int, Do], list[Program]]


@pytest.fixture
def start(tmp_path: Path) -> Iterator[Start]:
    """Starts groups of ranks, one after the other."""
    store: Any = dist
    server = store.TCPStore("127.0.0.1", 0, is_master=True, wait_for_workers=False)
    groups: list[list[Program]] = []

    def begin(size: int, do: Do) -> list[Program]:
        folder = tmp_path / f"group-{len(groups)}"
        folder.mkdir()
        common = {
            "WORLD_SIZE": str(size), "LOCAL_WORLD_SIZE": str(size), "MASTER_ADDR": "127.0.0.1",
            "MASTER_PORT": str(server.port), "TORCHELASTIC_USE_AGENT_STORE": "True",
        }  # fmt: skip
        groups.append([
            Program(folder / f"log.{rank}", be_rank, do, variables={**common, "RANK": str(rank)})
            for rank in range(size)
        ])  # fmt: skip
        return groups[-1]

    yield begin
    for one in itertools.chain(*groups):
        one.kill()


def be_rank(do: Do) -> None:
    faulthandler.dump_traceback_later(WAIT_SECONDS - 5)  # where a rank hangs
    sys.exit(do(int(os.environ["RANK"])))


def codes(ranks: list[Program]) -> list[int]:
    """The exit code of each rank, or minus the signal that killed it."""
    return [one.ends(WAIT_SECONDS) for one in ranks]


# ---- the command


def searching(*words: str, plant: Callable[[int], None] | None = None) -> Do:
    """Carry out the command on each rank."""
    return partial(search, words, plant)


def search(words: tuple[str, ...], plant: Callable[[int], None] | None, rank: int) -> int:
    spill.SAVE_SECONDS = -1.0  # saves a checkpoint at each level
    ranks.FRAME, ranks.PIECE_KEYS, packing.WORD_BITS = 64, 9, WORD_BITS  # long notes, many pieces
    if plant is not None:
        plant(rank)
    return cli.run(["search", "--timeout", str(LIMIT), *words])


def report(folder: Path) -> dict[str, str]:
    """The report, without how the search was made."""
    return written(folder, "choice")


@pytest.fixture(scope="module")
def expected(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return of_one_process(SMALL, tmp_path_factory.mktemp("expected"))


def of_one_process(words: list[str], out: Path) -> Path:
    """The report of states with the same words: the order of states decides which of several runs is found."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(packing, "WORD_BITS", WORD_BITS)
        assert cli.run(["verify", *words, "--cores", "1", "--out", str(out)]) == Exit.OK
    return out


@pytest.mark.parametrize("count", [1, 2, 3] if NIGHTLY else [3])
@pytest.mark.parametrize("words", [SMALL, LARGER] if NIGHTLY else [SMALL], ids=" ".join)
def test_the_report_is_that_of_one_process(words: list[str], count: int, start: Start, tmp_path: Path) -> None:
    expected = of_one_process(words, tmp_path / "expected")
    group = start(count, searching(*words, "--out", str(tmp_path / "found")))
    assert codes(group) == [Exit.OK] * count
    first, *others = group
    assert " violated (known: " in first.said
    assert [one.said for one in others] == [""] * (count - 1)
    assert report(tmp_path / "found") == report(expected)


def at_level(level: int, rank: int, act: Callable[[], None], mine: int) -> None:
    """On this rank, call `act` before each chunk of this level is searched."""
    right = PartitionedEngine._expand

    def expand(engine: PartitionedEngine, watching: Any, at: int, chunk: Any) -> Any:
        if mine == rank and at == level:
            act()
        return right(engine, watching, at, chunk)

    PartitionedEngine._expand = expand  # type: ignore[method-assign, assignment]


def sends(level: int, rank: int, number: signal.Signals) -> Callable[[int], None]:
    return partial(at_level, level, rank, partial(signal.raise_signal, number))


SIGNALS = [(signal.SIGINT, Exit.INTERRUPTED), (signal.SIGTERM, Exit.TERMINATED)]


@pytest.mark.parametrize(("number", "code"), SIGNALS if NIGHTLY else SIGNALS[:1])
def test_a_signal_to_the_first_rank_ends_all_with_what_was_found(
    number: signal.Signals, code: Exit, start: Start, tmp_path: Path
) -> None:
    group = start(2, searching(*SMALL, "--out", str(tmp_path / "found"), plant=sends(6, 0, number)))
    assert codes(group) == [code, Exit.OK]
    assert f"1 not done: ended by {number.name}" in group[0].said
    assert f"stopped by {number.name} (rank 0)" in (tmp_path / "found/report.md").read_text()


def test_a_rank_that_is_killed_ends_the_others_at_once(start: Start, tmp_path: Path) -> None:
    group = start(3, searching(*SMALL, "--out", str(tmp_path / "found"), plant=sends(6, 1, signal.SIGKILL)))
    began = time.monotonic()
    assert codes(group) == [Exit.INCOMPLETE, -signal.SIGKILL, Exit.INCOMPLETE]
    assert time.monotonic() - began < LIMIT + 20
    for rank in (0, 2):
        said = group[rank].said
        assert re.search(rf"trystate: rank {rank} of 3 has lost another rank, which has ended or did", said)
        assert re.search("states were seen to depth [56]", said)


def test_a_search_of_which_a_rank_is_killed_goes_on_with_fewer(start: Start, tmp_path: Path, expected: Path) -> None:
    words = (*SMALL, "--checkpoint", str(tmp_path / "kept"), "--max-memory", "600", "--out", str(tmp_path / "found"))
    killed = start(3, searching(*words, plant=sends(6, 2, signal.SIGKILL)))
    assert codes(killed) == [Exit.INCOMPLETE] * 2 + [-signal.SIGKILL]
    again = start(3, searching(*words, plant=sends(9, 0, signal.SIGKILL)))  # the launcher restarts all 3
    assert codes(again)[0] == -signal.SIGKILL
    fewer = start(2, searching(*words, plant=partial(at_level, 3, 0, partial(os._exit, 98))))
    assert codes(fewer) == [Exit.OK] * 2  # level 3 is not searched again
    assert report(tmp_path / "found") == report(expected)


def of_two_systems(rank: int) -> int:
    return cli.run(["search", ("tombstones", "ids")[rank], "--timeout", "5"])


def of_two_releases(rank: int) -> int:
    vars(ranks)["__version__"] = f"0.{rank}"
    return cli.run(["search", *SMALL, "--timeout", "5"])


def test_ranks_of_other_systems_or_releases_are_refused(start: Start) -> None:
    group = first, second = start(2, of_two_systems)
    assert codes(group) == [Exit.USAGE, Exit.OK]
    assert "rank 1 has another system (Ids(" in first.said and second.said == ""
    others = start(2, of_two_releases)
    assert codes(others) == [Exit.USAGE] * 2
    for one in others:
        assert "is trystate 0." in one.said and "install one release on all hosts" in one.said


@pytest.mark.parametrize(("variable", "value", "said"), [
    ("RANK", "", "the environment has no RANK: start this command on several ranks"),
    ("WORLD_SIZE", "5000", "WORLD_SIZE is '5000' in the environment; a launcher sets 1 to 4,096"),
    ("WORLD_SIZE", "two", "WORLD_SIZE is 'two' in the environment"),
    ("RANK", "1", "RANK is '1' in the environment; a launcher sets 0 to 0"),
    ("MASTER_PORT", "99999", "MASTER_PORT is '99999' in the environment"),
    ("LOCAL_WORLD_SIZE", "-1", "LOCAL_WORLD_SIZE is '-1' in the environment"),
    ("TIMEOUT", "1e15", "--timeout 1e+15 is too long: give at most 1,000,000 s"),  # longer than torch's maximum
])  # fmt: skip
def test_a_process_that_no_launcher_has_started_is_told_how(
    variable: str, value: str, said: str, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    for name in ranks.NEEDED:
        monkeypatch.setenv(name, str(int(name != "RANK")))
    monkeypatch.setenv(variable, value)
    assert cli.run(["search", *SMALL, "--timeout", os.environ.get("TIMEOUT", "5")]) == Exit.USAGE
    assert said in capsys.readouterr().err


def of_two(rank: int) -> int:
    os.environ["WORLD_SIZE"] = "2"
    return cli.run(["search", *SMALL, "--timeout", "0.5"])


def test_a_rank_whose_others_do_not_come_gives_up(start: Start) -> None:
    (one,) = start(1, of_two)
    assert one.ends(WAIT_SECONDS) == Exit.INCOMPLETE
    assert "the ranks did not meet within 0.5 s" in one.said


def test_a_process_that_waits_in_gloo_ends_with_its_exit_code() -> None:
    """Otherwise the interpreter would abort with another code."""
    wait = "from trystate.search import ranks; import threading; held = threading.Event()"
    given_up = f"{wait}\ntry: ranks._within(0.1, held.wait)\nexcept RuntimeError as error: print(error)"
    ended = subprocess.run([sys.executable, "-c", given_up], capture_output=True, text=True, timeout=60)
    assert (ended.returncode, ended.stdout) == (Exit.INCOMPLETE, "not all ranks are connected\n"), ended.stderr


# ---- by night: under the launchers


@pytest.mark.skipif(not NIGHTLY, reason="two launchers, each of whose processes imports torch: ten seconds")
@pytest.mark.parametrize("launch", ["torchrun", "trystate run"])
def test_a_search_under_a_launcher_survives_a_killed_rank(launch: str, tmp_path: Path, expected: Path) -> None:
    (tmp_path / "search.py").write_text(KILLED_ONCE.format(module=MODULE, root=str(tmp_path)))
    words = [*SMALL, "--checkpoint", str(tmp_path / "kept"), "--max-memory", "600", "--out", str(tmp_path / "found")]
    argv = ["--standalone", "--nproc-per-node=2", "--max-restarts=1", str(tmp_path / "search.py"), *words]
    with Agent("a", tmp_path, argv, launch) as agent:
        assert agent.ends() == 0, agent.said
    assert report(tmp_path / "found") == report(expected)


KILLED_ONCE = """
import os, signal, sys
from pathlib import Path
from {module} import search, sends

rank, killed, plant = int(os.environ["RANK"]), Path("{root}/killed"), None
if rank == 1 and not killed.exists():
    killed.touch()
    plant = sends(9, rank, signal.SIGKILL)
sys.exit(search(tuple(sys.argv[1:]), plant, rank))
"""
