"""The explicit search on several ranks gives the answers of one process, to the last step of each run.

The ranks are threads of one process that meet in memory. Chunks and batches are tiny, so small systems have many
rounds.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from contextlib import AbstractContextManager
from dataclasses import replace
from typing import Any

import numpy as np
import pytest

from trystate.model.checker.check import check
from trystate.model.checker.explicit import engine as explicit
from trystate.model.checker.explicit import partitioned, paths
from trystate.model.checker.explicit.packing import Layout
from trystate.model.checker.explicit.partitioned import PartitionedEngine
from trystate.model.checker.explicit.ranks import RankLost, owners
from trystate.model.checker.kernel import Kernel, Limits
from trystate.model.checker.verdicts import Report, Status
from trystate.model.language import Form, System
from trystate.property_tests.support.ranks import InMemory, alone, answers, together
from trystate.property_tests.support.runs import MANY
from trystate.property_tests.support.systems.declarations import declared
from trystate.property_tests.support.systems.engine_samples import Ring
from trystate.property_tests.support.systems.two_phase_commit import TwoPhaseCommit
from trystate.property_tests.tests.checker.searches import SYSTEMS, patched


def tiny(chunk: int = 3, batch: int = 9) -> AbstractContextManager[pytest.MonkeyPatch]:
    """Chunks of `chunk` states, and rounds of `batch` successors."""
    modules = (explicit, partitioned, paths)
    return patched((partitioned, "BATCH", batch), *((module, "CHUNK", chunk) for module in modules))


def shared(make: Callable[[], System], limits: Limits = MANY) -> list[dict[str, Any]]:
    return together(3, lambda mine: answers(PartitionedEngine(Kernel(make()), limits, ranks=mine)))


def reports(make: Callable[[], System], limits: Limits = MANY) -> list[Report]:
    return together(2, lambda mine: check(make(), engine="explicit", ranks=mine, limits=limits))


@pytest.mark.parametrize("name", ["two words", "several initial states"])
def test_tiny_chunks_give_the_same_graph_and_runs_as_long(name: str) -> None:
    expected = alone(SYSTEMS[name]())
    with tiny(chunk=32, batch=50):
        for found in shared(SYSTEMS[name]):
            assert found["graph"] == expected["graph"]
            assert lengths(found) == lengths(expected)


def lengths(found: dict[str, Any]) -> dict[Any, int]:
    return {key: len(path.steps) for key, path in found["found"].items()}


def test_liveness_that_does_not_fit_the_first_rank_is_not_decided(monkeypatch: pytest.MonkeyPatch) -> None:
    right = PartitionedEngine._agree

    def agree(engine: PartitionedEngine, *args: Any) -> Any:
        engine._clock._limits = replace(engine.limits, memory_bytes=1 << 40)  # memory does not limit a level
        return right(engine, *args)

    monkeypatch.setattr(PartitionedEngine, "_agree", agree)
    limits = replace(MANY, memory_bytes=1 << 12)
    for report in reports(lambda: Ring(node=2), limits):
        (undecided,) = report.undecided
        assert undecided.property.form is Form.LEADS_TO
        assert undecided.reason.startswith("liveness is decided by the first rank alone") or report.system is None


def test_a_violation_of_liveness_is_of_the_first_rank_alone() -> None:
    lost = declared("x = integer(0, 1)\n@eventually()\ndef never(self, s): 'No.'; return s.x == 1", System)
    first, other = reports(lost)
    assert first.verdict("never").status is Status.VIOLATED
    assert other.verdict("never").reason == "liveness is decided by the first rank"


@pytest.mark.parametrize("states", [1, 7, 100, 500, 1_567, 1_568])
def test_a_limit_of_states_stops_all_ranks_with_what_was_found(states: int) -> None:
    whole = alone(TwoPhaseCommit(rm=4))
    with tiny():
        first, *others = shared(lambda: TwoPhaseCommit(rm=4), replace(MANY, states=states))
    assert others == [first, first]
    distinct, _, _, stopped = first["graph"]
    assert (distinct > states) == bool(stopped) == (states < 1_568)
    assert not stopped or (stopped.startswith("stopped at") and distinct < states + 100)
    assert first["found"].items() <= whole["found"].items() or lengths(first).items() <= lengths(whole).items()


def interrupted(mine: InMemory) -> dict[str, Any]:
    engine = PartitionedEngine(Kernel(TwoPhaseCommit(rm=4)), MANY, ranks=mine)
    right = engine._expand

    def expand(*args: Any) -> Any:
        if mine.rank == 1 and len(engine.levels) > 3:
            mine.signal = "stopped by SIGINT"
        return right(*args)

    engine._expand = expand  # type: ignore[method-assign, assignment]
    return answers(engine)


def test_a_signal_to_one_rank_stops_all_of_them() -> None:
    with tiny():
        first, *others = together(3, interrupted)
    assert others == [first, first]
    assert first["graph"][3] == "stopped by SIGINT (rank 1)" and 0 < first["graph"][0] < 1_568
    assert first["found"]


def test_a_lost_rank_ends_the_search_and_the_others_name_the_finds(monkeypatch: pytest.MonkeyPatch) -> None:
    right = PartitionedEngine._expand

    def expand(engine: PartitionedEngine, *args: Any) -> Any:
        if engine._ranks.rank == 1 and len(engine.levels) > 8:
            raise RuntimeError("planted")
        return right(engine, *args)

    def search(mine: InMemory) -> str:
        try:
            answers(PartitionedEngine(Kernel(TwoPhaseCommit(rm=4)), MANY, ranks=mine))
        except RankLost as lost:
            return str(lost)
        except RuntimeError as planted:
            mine._barrier.abort()
            return str(planted)
        return ""

    monkeypatch.setattr(PartitionedEngine, "_expand", expand)
    with tiny():
        said = together(3, search)
    assert said[1] == "planted"
    for rank in (0, 2):
        assert said[rank].startswith(f"rank {rank} has lost another rank; ")
        # A rank that has not left the last meeting when the search ends has not counted level 8.
        assert re.search("states were seen to depth [78], and found until then, without their runs: a", said[rank])


# ---- owners


def test_owners_are_the_same_in_every_release() -> None:
    """A checkpoint records which rank holds which states: another hash would look for them elsewhere."""
    layout = Layout(Kernel(TwoPhaseCommit(rm=2)).cells)
    assert owners(layout, np.arange(12, dtype=np.int64) * 977, 5).tolist() == OWNERS


OWNERS = [0, 3, 4, 4, 3, 3, 2, 0, 2, 3, 2, 3]
