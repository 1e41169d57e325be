"""Codes of states of several words: a search with codes gives the same answers, to the last step of each run.

Words are made narrow, so small systems have many of them. Codes are used from the first level on.
"""

from __future__ import annotations

import numpy as np
from hypothesis import given, settings
from hypothesis import strategies as st

from trystate.model.checker.explicit import codes
from trystate.model.checker.explicit.codes import Coded, Codes
from trystate.model.checker.explicit.engine import ExplicitEngine
from trystate.model.checker.explicit.packing import MARK, Layout
from trystate.model.checker.kernel import Kernel, Limits
from trystate.model.language import System, integer
from trystate.property_tests.support.nightly import examples
from trystate.property_tests.support.runs import MANY
from trystate.property_tests.support.systems.two_phase_commit import TwoPhaseCommit
from trystate.property_tests.tests.checker.searches import coded, narrow


def commit() -> System:
    return TwoPhaseCommit(rm=4)


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
