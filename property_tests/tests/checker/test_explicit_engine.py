"""The explicit engine against the reference engine, and against published counts."""

from __future__ import annotations

import random
from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings

from trystate.model.checker.check import check, watches
from trystate.model.checker.engine import quiet
from trystate.model.checker.explicit import packing, symmetry
from trystate.model.checker.explicit.engine import ExplicitEngine
from trystate.model.checker.explicit.packing import Layout
from trystate.model.checker.explicit.symmetry import sorting_network
from trystate.model.checker.interpret import Interpreter
from trystate.model.checker.kernel import Exploration, Kernel, Lasso, Limits
from trystate.model.checker.reference.engine import ReferenceEngine
from trystate.model.checker.verdicts import Status
from trystate.model.errors import LimitReached, UsageError
from trystate.model.language import Expr, System
from trystate.property_tests.support.nightly import examples
from trystate.property_tests.support.runs import assert_is_a_fair_lasso, assert_is_a_run
from trystate.property_tests.support.systems.declarations import declared
from trystate.property_tests.support.systems.random_systems import Declaration, declarations, system
from trystate.property_tests.support.systems.two_phase_commit import TwoPhaseCommit


def explore(system: System, engine: Any, **options: Any) -> tuple[Any, Exploration]:
    kernel = Kernel(system)
    searcher = engine(kernel, options.pop("limits", Limits()), options.pop("on_progress", quiet), **options)
    return searcher, searcher.explore([replace(watch, path=True) for watch in watches(kernel)])


@pytest.mark.parametrize("quick", [True, False])
def test_words_are_sorted_in_any_way_and_looked_up_in_blocks(quick: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    """Keys are compared in blocks of five; none, some or all keys are in the run."""
    for name, value in (("BLOCK", 5), ("QUICK_MIN", 2), ("quick_is_fast", lambda: quick)):
        monkeypatch.setattr(packing, name, value)
    rng = random.Random(5)
    layout = Layout(TwoPhaseCommit(rm=3).cells)
    for size in [*range(1, 40), 1_000]:
        values = [rng.getrandbits(rng.choice((3, 10, 61))) for _ in range(size)]
        keys = layout.sort_unique(np.array(values, np.int64))
        assert keys.tolist() == sorted(set(values))
        run = np.unique([*rng.choices(values, k=1 + size // 4), rng.getrandbits(10)]).astype(np.int64)
        assert layout.seen(keys, run).tolist() == np.isin(keys, run).tolist()


@given(declarations())
@settings(max_examples=examples(10))
def test_lassos_of_random_systems_are_as_short_as_those_of_the_reference(declared: Declaration) -> None:
    of = system(declared)
    plain, _ = explore(of, ReferenceEngine)
    explicit, _ = explore(of, ExplicitEngine)
    for p in of.properties:
        if not p.form.live:
            continue
        for k in range(p.params[0].sort.size if p.params else 1):
            binding = dict.fromkeys(p.params, k)
            expected, found = (e.lasso(*p.exprs, binding) for e in (plain, explicit))
            assert (expected is None) == (found is None), p.name
            if found is not None:
                begins = [assert_fair_lasso(of, x, p.exprs, binding) for x in (expected, found)]
                assert begins[0] == begins[1], "the stem is a shortest one"


def assert_fair_lasso(system: System, lasso: Lasso, exprs: Sequence[Expr], binding: dict[Expr, int]) -> int:
    """Returns the position where the premise first holds; the goal is false from there on."""
    assert_is_a_fair_lasso(system, lasso)
    interpreter = Interpreter(system)
    premise, goal = exprs
    avoiding = [not interpreter.holds(goal, s, binding) for s in lasso.path.states]
    begins = next(
        k for k, s in enumerate(lasso.path.states) if interpreter.holds(premise, s, binding) and all(avoiding[k:])
    )
    assert all(avoiding[min(begins, lasso.loop) :])
    return begins


def test_a_repeated_search_finds_paths_longer_than_the_first_was_deep() -> None:
    system = TwoPhaseCommit(rm=4)
    engine, first = explore(system, ExplicitEngine, limits=Limits(states=300))
    wanted = [replace(watch, path=True) for watch in watches(engine.kernel)]
    again = ExplicitEngine(engine.kernel, Limits(), compiled=engine.compiled).explore(wanted)
    assert any(first.found.values())
    assert max(len(path.steps) for path in again.found.values()) > first.depth + 1
    for path in again.found.values():
        assert_is_a_run(system, path)


@pytest.mark.parametrize(
    ("options", "words"),
    [({"limits": Limits(states=100)}, "explore completely"), ({"symmetry": True}, "not decided under symmetry")],
)
def test_liveness_of_a_part_of_the_states_is_refused(options: Any, words: str) -> None:
    engine, _ = explore(TwoPhaseCommit(rm=4), ExplicitEngine, **options)
    with pytest.raises(UsageError, match=words):
        engine.lasso(*engine.kernel.system.claim("transactions_commit").exprs, {})


def test_a_graph_beyond_the_memory_limit_is_refused() -> None:
    engine, _ = explore(TwoPhaseCommit(rm=6), ExplicitEngine)
    engine.limits = Limits(memory_bytes=1 << 20)
    with pytest.raises(LimitReached, match=r"search of the graph stopped at .* MiB"):
        engine.lasso(*engine.kernel.system.claim("transactions_commit").exprs, {})


STEP = "@transition(each={})\ndef {}: 'A step.'; {}"
UNSOUND = {
    "@sometimes()\ndef first_commits(self, s): 'The first commits.'; return s.sent[0]": "first_commits names rm 0",
    STEP.format("('rm', 'rm')", "overtake(self, s, a, b)", "s.when(a < b, s.sent[a]); s.sent[b] = True"):
        "overtake orders the members of rm",
    "leader = integer(0, 2)\n" + STEP.format("'rm'", "lead(self, s, rm)", "s.leader = ord_(rm)"):
        r"lead uses the number of a rm \(ord\)",
    "knows = flag(per=('rm', 'rm'))": "knows is indexed by pairs",
    "key = index(2)\nlocked = flag(per='key')": "exactly one index",
}  # fmt: skip


@pytest.mark.parametrize("text", UNSOUND)
def test_unsound_symmetry_is_refused_with_the_reason(text: str) -> None:
    with pytest.raises(UsageError, match=f"(?s){UNSOUND[text]}.*without symmetry"):
        check(declared(text, TwoPhaseCommit)(), engine="explicit", symmetry=True)


def test_symmetry_refuses_an_operator_that_it_does_not_judge(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(symmetry, "JUDGED", symmetry.JUDGED - {"and"})
    with pytest.raises(UsageError, match="uses the operator and, which may order members"):
        symmetry.interchangeable(TwoPhaseCommit(rm=2))


@pytest.mark.parametrize("size", range(1, 10))
def test_the_sorting_network_sorts_every_order(size: int) -> None:
    # The zero-one principle: a network that sorts all sequences of 0 and 1 sorts everything.
    for bits in range(1 << size):
        values = [bits >> k & 1 for k in range(size)]
        for a, b in sorting_network(size):
            values[a], values[b] = min(values[a], values[b]), max(values[a], values[b])
        assert values == sorted(values)


Crowd = declared(
    """
member = index(default=3_500)
round = integer(0, 2, per=member)
@transition(each=member)
def begin(self, s, m): 'The first member begins a round.'; s.when(m == s.member[0], s.round[m] < 2); s.round[m] += 1
@always()
def early(self, s): 'All members are in an early round.'; return all_(s.round[m] < 2 for m in s.member)
""", System, name="Crowd",
)  # fmt: skip


def test_a_condition_may_have_thousands_of_operators() -> None:
    """Python refuses to compile 3,500 operators in a row."""
    report = check(Crowd(), engine="explicit", properties=("early",))
    assert (report.verdict("early").status, report.exploration.distinct) == (Status.VIOLATED, 3)
