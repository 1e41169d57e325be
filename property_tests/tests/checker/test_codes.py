"""Codes of states of several words: a search with codes gives the same answers, to the last step of each run.

Words are made narrow, so small systems have many of them. Codes are used from the first level on.
"""

from __future__ import annotations

from trystate.model.checker.explicit.codes import Coded
from trystate.model.checker.explicit.engine import ExplicitEngine
from trystate.model.checker.kernel import Kernel, Limits
from trystate.model.language import System
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
