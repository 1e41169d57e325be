"""Codes of states of several words: a search with codes gives the same answers, to the last step of each run.

Words are made narrow, so small systems have many of them. Codes are used from the first level on.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from random import Random
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from trystate.model.checker.explicit import codes, visited
from trystate.model.checker.explicit.codes import Coded, CodedSuccessors, Codes, NextCodes, Table
from trystate.model.checker.explicit.engine import ExplicitEngine
from trystate.model.checker.explicit.packing import MARK, Layout
from trystate.model.checker.explicit.workers import Workers
from trystate.model.checker.kernel import Kernel, Limits
from trystate.model.language import System, integer
from trystate.property_tests.support.mutants import Mutant, replaced, rewritten, survivors
from trystate.property_tests.support.nightly import examples
from trystate.property_tests.support.runs import MANY
from trystate.property_tests.support.systems.two_phase_commit import TwoPhaseCommit
from trystate.property_tests.tests.checker.searches import answers, coded, narrow, tiny
from trystate.search.cores import Cores


def commit() -> System:
    return TwoPhaseCommit(rm=4)


def assert_alike(
    of: Callable[[], System], limits: Limits = MANY, counts: tuple[int, ...] = (1,), bits: int = 5, **options: Any
) -> int:
    """Returns how many words a state has."""
    with narrow(of, bits) as words, tiny(chunk=5):
        plain = answers(of(), 1, limits, **options)
        for bits in (codes.CODE_BITS, 14):
            with coded(bits):
                for count in counts:
                    assert answers(of(), count, limits, **options) == plain
    return words


def engine_of(limits: Limits = MANY) -> ExplicitEngine:
    """The engine after a search with codes, unless they do not fit."""
    with narrow(commit):
        engine = ExplicitEngine(Kernel(TwoPhaseCommit(rm=4)), limits)
        engine.explore([])
    return engine


def test_a_search_goes_on_without_codes_where_they_do_not_fit() -> None:
    with coded():
        assert isinstance(engine_of().visited, Coded)
    with coded(bits=14):
        assert not isinstance(engine_of().visited, Coded)


def test_a_search_goes_on_without_codes_where_there_are_many_values() -> None:
    with coded(), pytest.MonkeyPatch.context() as patch:
        patch.setattr(codes, "SHARE", 200)
        engine = engine_of()
    assert not isinstance(engine.visited, Coded) and engine.visited.count == 1_568


def test_the_memory_of_tables_and_states_counts() -> None:
    with coded():
        engine = engine_of()
        held = engine.visited.bytes
        assert isinstance(engine.visited, Coded)
        assert held > engine.visited.codes.bytes + 1_568 * (engine.layout.state_bytes + 8)
        stopped = engine_of(replace(MANY, memory_bytes=1 << 12)).stopped
    assert "MiB (limit 0 MiB" in stopped


Rows = list[tuple[int, ...]]
EDGES = (0, 1, 2, 1 << 31, 1 << 32, (1 << 32) + 1, (1 << 61) - 1)


@st.composite
def rows(draw: st.DrawFn) -> tuple[Rows, Rows]:
    words = draw(st.integers(2, 4))
    state = st.tuples(*[st.sampled_from(EDGES) | st.integers(0, (1 << 61) - 1)] * words)
    return draw(st.lists(state, min_size=1, max_size=20)), draw(st.lists(state, min_size=1, max_size=20))


@given(rows())
@settings(max_examples=examples(40))
def test_codes_give_back_the_states_in_the_order_of_their_keys(some: tuple[Rows, Rows]) -> None:
    assert_given_back(*some)


def assert_given_back(first: Rows, further: Rows) -> None:
    """The states have words of any value; some come later."""
    words = len(first[0])
    layout = Layout(type("Wide", (System,), {f"f{k}": integer(0, (1 << 61) - 1) for k in range(words)})().cells)
    begun, later = (layout.sort_unique(layout.keys(layout.pack(states)).copy()) for states in (first, further))
    with coded():
        made = Codes(layout, codes.distinct(layout, [begun]))
        before = made.of(begun)
        assert len(np.unique(before)) == len(begun) and made.keys(before).tobytes() == begun.tobytes()
        unknown = made.lacking(later)
        columns = zip(zip(*first, strict=True), zip(*further, strict=True), strict=True)
        wanted = [{value | MARK for value in new} - {value | MARK for value in old} for old, new in columns]
        assert [set(column.tolist()) for column in unknown] == wanted
        made.add(unknown)
        assert not any(map(len, made.lacking(later)))
        assert made.of(begun).tolist() == before.tolist(), "a number stays"
        assert made.keys(made.of(later)).tobytes() == later.tobytes()


# ---- planted mistakes

MISTAKES: dict[str, Mutant] = {
    "a slot is believed": rewritten(Table.codes, "!= column)", "!= column + 0 * slots) [:0]"),
    "a value that is not here is taken for another": rewritten(Table.codes, "others[~here]", "others[:0]"),
    "the halves of a word stand as they are": replaced(codes, "_ordered", lambda words, _: words.view(np.uint64)),
    "ranks are not made again": rewritten(Table.add, "self.ranks[self._numbers] = np", "self.ranks[:] = np"),
    "tables have room for any value": rewritten(Table.has_room, "<= self.ones + 1", ">= 0"),
    "a written word keeps its number": rewritten(CodedSuccessors.add, "after[j] is before[j]", "True"),
    "novel states are forgotten": rewritten(CodedSuccessors.finish, "novel.append", "list"),
    "the workers are not told": replaced(Cores, "tell", Workers.tell),
    "codes of novel states are not in the set": rewritten(NextCodes._numbered, "known = _ONE_WORD", "_ = _ONE_WORD"),
    "a limit looks at the known states only": replaced(NextCodes, "count", visited.NextLevel.count),
}  # fmt: skip


def test_planted_mistakes_are_noticed() -> None:
    def claim() -> None:
        assert_alike(commit, counts=(1, 2))
        assert_alike(commit, replace(MANY, states=500))
        rng = Random(7)
        for words in (2, 3, 4):
            assert_given_back(*([tuple(rng.choices(EDGES, k=words)) for _ in range(20)] for _ in range(2)))

    assert survivors(MISTAKES, claim) == []
