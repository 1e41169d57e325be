"""The symbolic engine gives the answers of the plain engine, and its runs are real runs."""

from __future__ import annotations

import importlib
from dataclasses import replace
from types import ModuleType
from typing import Any

import pytest

from trystate.model.checker.check import check, watches
from trystate.model.checker.kernel import Kernel, Lasso, Limits, Watch
from trystate.model.checker.reference.engine import ReferenceEngine
from trystate.model.checker.symbolic.engine import SymbolicEngine
from trystate.model.errors import LimitReached, UnavailableError
from trystate.model.language import all_, always, any_, flag, index, sometimes, transition
from trystate.model.language.expressions import add, const
from trystate.model.language.sorts import int_sort
from trystate.model.language.systems import System
from trystate.property_tests.support.systems.engine_samples import Ring
from trystate.property_tests.support.systems.two_phase_commit import TwoPhaseCommit

pytest.importorskip("dd.cudd")

UNLIMITED = Limits()


def asked(kernel: Kernel) -> list[Watch]:
    return [replace(watch, path=True) for watch in watches(kernel)]


def explored_lasso(system: System, claim: str, indices: tuple[int, ...], limits: Limits = UNLIMITED) -> Lasso | None:
    engine = SymbolicEngine(Kernel(system), Limits())
    engine.explore([])
    engine.limits = limits
    p = system.claim(claim)
    premise, goal = p.exprs
    return engine.lasso(premise, goal, dict(zip(p.params, indices, strict=True)))


def test_sifting_changes_no_answer() -> None:
    kernel = Kernel(Ring(node=2, faults=["loss"]))
    engines = [SymbolicEngine(kernel, Limits(), sift_nodes=nodes) for nodes in (10**9, 50)]
    fixed, sifted = (engine.explore(asked(kernel)) for engine in engines)
    assert (fixed.distinct, fixed.edges, fixed.depth) == (sifted.distinct, sifted.edges, sifted.depth)
    assert fixed.found == sifted.found
    bits = engines[0].diagrams.bits
    levels = [[e.diagrams.bdd.level_of_var(bit) for bit in bits] for e in engines]
    assert levels[0] != levels[1]


class Rooks(System):
    """Rooks on a board, none attacking another: too many states for any memory, as a list or as diagrams.

    No order of the squares makes the diagram small. Row by row, for example, it has to remember which columns are
    taken, which is one of 2^12 sets.
    """

    line = index(12)
    rook = flag(per=("line", "line"))

    @transition(each=("line", "line"))
    def place(self, s: Any, row: Any, column: Any) -> None:
        """A rook is put where no other attacks it."""
        s.when(~any_(s.rook[row, k] | s.rook[k, column] for k in s.line))
        s.rook[row, column] = True

    @sometimes()
    def one_is_there(self, s: Any) -> Any:
        """One step away."""
        return any_(s.rook[i, j] for i in s.line for j in s.line)

    @sometimes()
    def every_row_has_one(self, s: Any) -> Any:
        """12 steps away."""
        return all_(any_(s.rook[i, j] for j in s.line) for i in s.line)


def test_a_search_stops_at_the_memory_and_says_so() -> None:
    exploration = SymbolicEngine(Kernel(Rooks()), Limits(memory_bytes=24 << 20)).explore([])
    assert not exploration.complete and "24 MiB" in exploration.stopped


class OneRook(Rooks):
    """Few states, but the diagram of a property is too large."""

    free = flag(initial=True)

    @transition(each=("line", "line"))
    def place(self, s: Any, row: Any, column: Any) -> None:
        """Only one rook is placed."""
        s.when(s.free)
        s.free = False
        s.rook[row, column] = True

    @always(witness="one_is_there")
    def a_column_is_free(self, s: Any) -> Any:
        """A diagram that goes row by row has to remember the free columns."""
        return any_(all_(~s.rook[i, j] for i in s.line) for j in s.line)


def test_one_property_that_is_too_large_leaves_the_others_decided() -> None:
    report = check(OneRook(), engine="symbolic", limits=Limits(memory_bytes=24 << 20))
    assert report.exploration.complete and report.exploration.distinct == 145
    assert {v.property.name: v.status.value for v in report.verdicts} == {
        "one_is_there": "holds",
        "every_row_has_one": "violated",
        "a_column_is_free": "not decided",
        "deadlock_freedom": "violated",
    }
    assert "24 MiB" in report.verdict("a_column_is_free").reason
    assert report.never_fired == []


def test_the_seconds_end_a_condition_that_is_being_built() -> None:
    engine = SymbolicEngine(Kernel(Ring(node=2)), Limits())
    engine.clock.restart(Limits(seconds=0.0))
    with pytest.raises(LimitReached, match="limit 0 s"):
        engine.trees.number(add(const(1, int_sort(1, 1)), engine.kernel.cell_read("level", ())))


def test_a_lasso_stops_at_the_limit_of_seconds() -> None:
    with pytest.raises(LimitReached, match="limit 0 s"):
        explored_lasso(Ring(node=2), "served", (0,), Limits(seconds=0.0))


def hide(monkeypatch: pytest.MonkeyPatch, *hidden: str) -> None:
    real = importlib.import_module

    def load(name: str, package: str | None = None) -> ModuleType:
        if name in hidden:
            raise ModuleNotFoundError(name)
        return real(name, package)

    monkeypatch.setattr(importlib, "import_module", load)


def test_without_cudd_the_answers_are_the_same_and_the_name_says_so(monkeypatch: pytest.MonkeyPatch) -> None:
    hide(monkeypatch, "dd.cudd")
    kernel = Kernel(TwoPhaseCommit(rm=2))
    plain = ReferenceEngine(kernel, UNLIMITED).explore(asked(kernel))
    symbolic = SymbolicEngine(kernel, UNLIMITED).explore(asked(kernel))
    assert "without CUDD" in symbolic.engine
    assert (symbolic.distinct, symbolic.edges, symbolic.depth) == (plain.distinct, plain.edges, plain.depth)
    assert symbolic.found.keys() == plain.found.keys()
    assert explored_lasso(TwoPhaseCommit(rm=2), "transactions_commit", ()) is not None


def test_without_dd_the_error_names_the_remedy(monkeypatch: pytest.MonkeyPatch) -> None:
    hide(monkeypatch, "dd.cudd", "dd.autoref")
    with pytest.raises(UnavailableError, match=r"pip install 'trystate\[symbolic\]'"):
        SymbolicEngine(Kernel(Ring(node=2)), Limits())
