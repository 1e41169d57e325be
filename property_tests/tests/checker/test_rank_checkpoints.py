"""A search on several ranks that is stopped continues from its checkpoint on any number of ranks, to the same answers.

The ranks are threads of one process that meet in memory; the files are real ones.
"""

from __future__ import annotations

import json
from collections.abc import Callable
from dataclasses import replace
from itertools import count
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from trystate.impl.host.disk import Disk
from trystate.model.checker.explicit.partitioned import PartitionedEngine
from trystate.model.checker.explicit.ranks import RankLost
from trystate.model.checker.explicit.storage import StorageFailed
from trystate.model.checker.kernel import Kernel, Limits
from trystate.model.errors import LimitReached, UsageError
from trystate.model.language import System
from trystate.property_tests.support.mutants import planted, replaced
from trystate.property_tests.support.nightly import examples
from trystate.property_tests.support.ranks import InMemory, alone, answers, together
from trystate.property_tests.support.runs import MANY
from trystate.property_tests.support.systems.engine_samples import leaves
from trystate.property_tests.support.systems.random_systems import Declaration, declarations, system
from trystate.property_tests.support.systems.two_phase_commit import TwoPhaseCommit
from trystate.search import rank_storage, spill
from trystate.search.rank_storage import RankSpill

MEMORY = 1 << 26


@pytest.fixture(autouse=True)
def saved_at_every_level(monkeypatch: pytest.MonkeyPatch) -> None:
    """Save at every level, without sync: these tests kill processes but do not simulate a power failure."""
    monkeypatch.setattr(spill, "SAVE_SECONDS", -1.0)
    for name in ("sync", "sync_directory"):
        monkeypatch.setattr(Disk, name, lambda *_: None)


def kept(
    make: Callable[[], System], count: int, root: Path, limits: Limits = MANY, memory: int = MEMORY
) -> list[dict[str, Any]]:  # fmt: skip
    """The answers of each rank of a search with a checkpoint."""
    root.mkdir(exist_ok=True)
    return together(count, lambda mine: searched(mine, make, root, limits, memory))


def searched(
    mine: InMemory, make: Callable[[], System], root: Path, limits: Limits = MANY, memory: int = MEMORY
) -> dict[str, Any]:
    with RankSpill(str(root), mine.rank, mine.count, memory) as storage:
        return answers(PartitionedEngine(Kernel(make()), limits, ranks=mine, storage=storage))


def assert_goes_on(make: Callable[[], System], states: int, before: int, after: int, root: Path) -> None:
    """Stopped at `states` states on some ranks, the search ends on others as if it had not been stopped."""
    (stopped, *_) = kept(make, before, root, replace(MANY, states=states))
    assert stopped["graph"][3].startswith("stopped at")
    expected = alone(make())
    assert kept(make, after, root) == [expected] * after
    for _ in range(2):  # the search is over: nothing is searched
        assert kept(make, before, root) == [expected] * before


@pytest.mark.parametrize(("before", "after"), [(2, 2), (2, 3), (3, 1), (1, 2)])
def test_a_search_goes_on_with_any_number_of_ranks(before: int, after: int, tmp_path: Path) -> None:
    assert_goes_on(lambda: TwoPhaseCommit(rm=3), 100, before, after, tmp_path / "checkpoint")
    folders = {path.name for path in (tmp_path / "checkpoint").iterdir()}
    assert folders == {"ranks.json", f"of-{before}"}  # each group has removed the previous one's folder


@given(declarations(), st.integers(1, 3), st.integers(1, 3), st.integers(1, 40))
@settings(max_examples=examples(6))
def test_random_systems_go_on_to_the_same_answers(declared: Declaration, before: int, after: int, states: int) -> None:
    with TemporaryDirectory() as folder:
        root = Path(folder) / "checkpoint"
        kept(lambda: system(declared), before, root, replace(MANY, states=states))
        assert kept(lambda: system(declared), after, root) == [alone(system(declared))] * after


def test_states_that_have_no_room_in_memory_are_kept_in_files(tmp_path: Path) -> None:
    few = 200 * 8  # bytes of a rank; the set has a fifth of them
    expected = alone(TwoPhaseCommit(rm=4))
    assert kept(lambda: TwoPhaseCommit(rm=4), 2, tmp_path / "checkpoint", memory=few) == [expected] * 2
    assert list((tmp_path / "checkpoint/of-2/0").glob("*.keys"))


# ---- ranks that are lost, and disks that fail


class Killed(Exception):
    """Planted: the process of a rank has ended."""


@pytest.mark.parametrize("after", [False, True])
@pytest.mark.parametrize("rank", [0, 1])
def test_a_rank_that_is_killed_while_it_saves_costs_a_level(rank: int, after: bool, tmp_path: Path) -> None:
    """Some ranks have saved one level more than others: the search continues from the last level that all have."""
    root = tmp_path / "checkpoint"
    right, times = RankSpill.save, count()

    def save(part: RankSpill, *args: Any) -> Any:
        number = next(times) if part._rank == rank else 0
        if number < 3 or (after and number == 3):
            right(part, *args)
        if number == 3:
            raise Killed

    with planted(replaced(RankSpill, "save", save)), pytest.raises((Killed, RankLost)):
        kept(lambda: TwoPhaseCommit(rm=3), 3, root)
    saved = {len(manifest(root, 3, k)["levels"]) for k in range(3)}
    assert max(saved) - min(saved) in (0, 1)
    assert kept(lambda: TwoPhaseCommit(rm=3), 2, root) == [alone(TwoPhaseCommit(rm=3))] * 2


def manifest(root: Path, count: int, rank: int) -> Any:
    return json.loads((root / f"of-{count}/{rank}/checkpoint.json").read_text())["body"]["content"]


@pytest.mark.parametrize("attribute", ["save", "commit", "forget", "write"])
def test_a_rank_that_is_killed_while_states_are_shared_out_loses_nothing(attribute: str, tmp_path: Path) -> None:
    root = tmp_path / "checkpoint"
    kept(lambda: TwoPhaseCommit(rm=3), 2, root, replace(MANY, states=100))

    def kill(self: RankSpill, *_: Any) -> Any:
        raise Killed

    with pytest.MonkeyPatch.context() as patch, pytest.raises((Killed, RankLost)):
        patch.setattr(RankSpill, attribute, kill)
        kept(lambda: TwoPhaseCommit(rm=3), 3, root)
    assert kept(lambda: TwoPhaseCommit(rm=3), 1, root) == [alone(TwoPhaseCommit(rm=3))]


@pytest.mark.parametrize("attribute", ["save", "write"])
def test_a_full_disk_of_one_rank_stops_all_of_them(attribute: str, tmp_path: Path) -> None:
    root = tmp_path / "checkpoint"
    right = getattr(RankSpill, attribute)

    def full(self: RankSpill, *args: Any) -> Any:
        if self._rank == 1 and (root / "ranks.json").exists():
            raise StorageFailed("planted: no space left")
        return right(self, *args)

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(RankSpill, attribute, full)
        said = kept(lambda: TwoPhaseCommit(rm=3), 2, root)
    assert [one["graph"][3].partition(":")[0] for one in said] == ["planted"] * 2
    assert kept(lambda: TwoPhaseCommit(rm=3), 2, root) == [alone(TwoPhaseCommit(rm=3))] * 2


def test_a_signal_while_states_are_shared_out_leaves_the_checkpoint(tmp_path: Path) -> None:
    root = tmp_path / "checkpoint"
    kept(lambda: TwoPhaseCommit(rm=3), 2, root, replace(MANY, states=100))

    def search(mine: InMemory) -> None:
        mine.signal = "stopped by SIGINT" if mine.rank == 1 else ""
        searched(mine, lambda: TwoPhaseCommit(rm=3), root)

    with pytest.raises(LimitReached, match=r"stopped by SIGINT \(rank 1\) while the checkpoint was shared out"):
        together(3, search)
    assert kept(lambda: TwoPhaseCommit(rm=3), 2, root) == [alone(TwoPhaseCommit(rm=3))] * 2


# ---- refusals


@pytest.mark.parametrize("count", [1, 2, 3])
def test_the_checkpoint_of_another_search_is_refused_by_every_rank(count: int, tmp_path: Path) -> None:
    """The checkpoint is unchanged."""
    kept(lambda: TwoPhaseCommit(rm=3), 2, tmp_path)
    before = sorted(tmp_path.rglob("*.keys"))

    def search(mine: InMemory) -> None:
        with pytest.raises(UsageError, match="has a search with another system"):
            searched(mine, lambda: TwoPhaseCommit(rm=2), tmp_path)

    together(count, search)
    assert sorted(tmp_path.rglob("*.keys")) == before


def open_on(count: int, place: Callable[[int], Path]) -> list[str]:
    """The text with which each rank refuses its directory, or an empty text."""

    def search(mine: InMemory) -> str:
        try:
            rank_storage.opened(place(mine.rank), mine, MANY).close()
        except UsageError as refused:
            return str(refused)
        return ""

    return together(count, search)


@pytest.mark.parametrize("count", [2, 3])
def test_a_find_at_a_line_that_has_moved_is_refused_by_every_rank(count: int, tmp_path: Path) -> None:
    kept(lambda: leaves(0), 2, tmp_path)

    def search(mine: InMemory) -> None:
        with pytest.raises(UsageError, match="at a line that has moved since"):
            searched(mine, lambda: leaves(1), tmp_path)

    together(count, search)


def test_a_directory_that_the_hosts_do_not_share_is_refused(tmp_path: Path) -> None:
    assert open_on(2, lambda _: tmp_path / "shared") == ["", ""]
    said = open_on(3, lambda rank: tmp_path / f"host-{rank // 2}")
    assert all("is not the directory of rank 0 on rank 2: give one that all hosts share" in text for text in said)


def test_two_searches_cannot_have_one_checkpoint(tmp_path: Path) -> None:
    """While one group searches with a checkpoint, others are refused; afterwards they are accepted."""

    def search(mine: InMemory) -> dict[str, Any]:
        with rank_storage.opened(tmp_path, mine, MANY) as storage:
            found = answers(PartitionedEngine(Kernel(TwoPhaseCommit(rm=2)), MANY, ranks=mine, storage=storage))
            if mine.rank == 0:
                assert all("is in use by another search" in text for text in open_on(3, lambda _: tmp_path))
            return found

    assert together(2, search) == [alone(TwoPhaseCommit(rm=2))] * 2
    assert open_on(3, lambda _: tmp_path) == [""] * 3
