"""The symbolic engine answers as the plain engine does, and its runs are real runs."""

from __future__ import annotations

import functools
import gc
import importlib
import subprocess
import sys
from collections.abc import Iterator
from itertools import product
from types import ModuleType
from typing import Any

import pytest

from trystate.model.checker.check import check
from trystate.model.checker.engine import Progress
from trystate.model.checker.kernel import Exploration, Kernel, Lasso, Limits, Watch, WatchKey, WatchKind
from trystate.model.checker.reference.engine import ReferenceEngine
from trystate.model.checker.symbolic.diagrams import Diagrams
from trystate.model.checker.symbolic.engine import SymbolicEngine
from trystate.model.errors import LimitReached, UnavailableError
from trystate.model.language import all_, always, any_, flag, transition
from trystate.model.language.expressions import TRUE, add, and_, const, equal, not_, or_
from trystate.model.language.properties import Form
from trystate.model.language.sorts import int_sort
from trystate.model.language.systems import System
from trystate.property_tests.support.runs import assert_is_a_fair_lasso, assert_is_a_run
from trystate.property_tests.support.systems.symbolic_samples import Flags, Market, Overflow, Ring, Rooks
from trystate.property_tests.support.systems.two_phase_commit import TwoPhaseCommit
from trystate.property_tests.support.systems.wide_systems import Totals

pytest.importorskip("dd.cudd")

UNLIMITED = Limits()


SYSTEMS = {
    "two-phase commit": TwoPhaseCommit(rm=3),
    "market": Market(),
    "market with a jam": Market(faults=["jam"]),
    "ring": Ring(),
    "smaller ring": Ring(place=2),
}
systems = pytest.mark.parametrize("system", SYSTEMS.values(), ids=SYSTEMS.keys())


def asked(subject: str) -> WatchKey:
    return WatchKey(WatchKind.SOMETIMES, subject)


def watches(kernel: Kernel) -> Iterator[Watch]:
    """Each cell's values, alone and with each step; cells that agree (one key for many watches); steps."""
    reads = [(cell, kernel.cell_read(*cell.key)) for cell in kernel.cells]
    for cell, read in reads:
        for value in range(cell.sort.low, cell.sort.high + 1):
            here = equal(read, const(value, cell.sort))
            yield Watch(asked(f"{cell.name} is {value}"), here, {})
            for i in kernel.instances:
                yield Watch(asked(f"{cell.name} is {value} before {i.label}"), here, {}, i)
    for (a, x), (b, y) in product(reads, reads):
        if a.sort == b.sort and a is not b:
            yield Watch(asked(f"{a.slot.name} and {b.slot.name} agree"), x == y, {})
    can = or_(*(and_(kernel.guard(i), kernel.changes(i)) for i in kernel.instances))
    yield Watch(asked("deadlock"), not_(can), {})
    for i in kernel.instances:
        yield Watch(asked(f"fired {i.transition.name}"), TRUE, {}, i)


@functools.cache
def both(system: System) -> tuple[Exploration, Exploration, ReferenceEngine, SymbolicEngine]:
    kernel = Kernel(system)
    plain, symbolic = ReferenceEngine(kernel, Limits()), SymbolicEngine(kernel, Limits())
    return plain.explore([*watches(kernel)]), symbolic.explore([*watches(kernel)]), plain, symbolic


def explored_lasso(system: System, claim: str, indices: tuple[int, ...], limits: Limits = UNLIMITED) -> Lasso | None:
    engine = SymbolicEngine(Kernel(system), Limits())
    engine.explore([])
    engine.limits = limits
    p = system.claim(claim)
    premise, goal = p.exprs
    return engine.lasso(premise, goal, dict(zip(p.params, indices, strict=True)))


def test_a_million_states_of_two_phase_commit_are_counted() -> None:
    exploration = SymbolicEngine(Kernel(TwoPhaseCommit(rm=8)), Limits()).explore([])
    assert exploration.complete
    assert (exploration.distinct, exploration.depth) == (1_745_408, 25)


@systems
def test_counts_and_shortest_paths_are_those_of_the_plain_engine(system: System) -> None:
    plain, symbolic, _, _ = both(system)
    assert symbolic.complete
    assert (symbolic.distinct, symbolic.edges, symbolic.depth) == (plain.distinct, plain.edges, plain.depth)
    lengths = [{k: len(path.steps) for k, path in e.found.items()} for e in (plain, symbolic)]
    assert lengths[0] == lengths[1]


@systems
def test_every_path_is_a_run_that_ends_with_what_was_watched_for(system: System) -> None:
    _, symbolic, plain_engine, _ = both(system)
    interpreter = plain_engine.interpreter
    for watch in watches(interpreter.kernel):
        path = symbolic.found.get(watch.key)
        if path is None or "agree" in watch.key.subject or "fired" in watch.key.subject:
            continue
        assert_is_a_run(system, path)
        assert not any(interpreter.step(instance, path.states[-1]) for instance in watch.idle)
        assert interpreter.holds(watch.expr, path.states[-1 if watch.instance is None else -2], watch.binding)
        assert watch.instance is None or path.steps[-1] == watch.instance.number


@systems
def test_a_lasso_is_found_where_the_plain_engine_finds_one_and_is_fair(system: System) -> None:
    _, _, plain, symbolic = both(system)
    verdicts = set()
    for p in (p for p in system.properties if p.form is Form.LEADS_TO):
        for indices in product(*(range(v.sort.size) for v in p.params)):
            binding = dict(zip(p.params, indices, strict=True))
            premise, goal = p.exprs
            expected, lasso = (engine.lasso(premise, goal, binding) for engine in (plain, symbolic))
            assert (lasso is None) == (expected is None), p.name
            verdicts.add(lasso is None)
            if lasso is not None:
                assert_is_a_fair_lasso(system, lasso)
                avoiding = [not plain.interpreter.holds(goal, s, binding) for s in lasso.path.states]
                waits = [plain.interpreter.holds(premise, s, binding) for s in lasso.path.states[: lasso.loop + 1]]
                assert any(waiting and all(avoiding[k:]) for k, waiting in enumerate(waits))
    assert verdicts == {True, False}


def test_some_lasso_goes_round_and_some_lasso_rests() -> None:
    round_ = explored_lasso(Ring(), "served_again", ())
    rest = explored_lasso(Market(), "goes", (0,))
    assert round_ is not None and len(round_.path.steps) - round_.loop == 4
    assert rest is not None and rest.loop == len(rest.path.steps)


def test_the_market_stalls_in_a_state_without_steps() -> None:
    plain, symbolic, _, engine = both(SYSTEMS["market with a jam"])
    path = symbolic.found[asked("deadlock")]
    assert len(path.steps) == len(plain.found[asked("deadlock")].steps)
    assert not [*engine.interpreter.successors(path.states[-1])]


def test_counts_beyond_a_double_are_exact() -> None:
    exploration = SymbolicEngine(Kernel(Flags()), Limits(states=100)).explore([])
    assert exploration.complete, "no number of states is too large: none of them is listed"
    assert (exploration.distinct, exploration.edges, exploration.depth) == (1 << 70, 70 << 70, 70)


def test_more_levels_than_python_has_frames_are_counted() -> None:
    diagrams = Diagrams([f"b{k}" for k in range(1_200)], 1 << 28)
    odd = diagrams.false
    for name in diagrams.bits:
        odd = diagrams.xor(odd, diagrams.bit(name))
    assert (diagrams.count(odd), diagrams.count(~odd)) == (1 << 1_199, 1 << 1_199)


def test_sifting_changes_no_answer() -> None:
    kernel = Kernel(Market(faults=["jam"]))
    engines = [SymbolicEngine(kernel, Limits(), sift_nodes=nodes) for nodes in (10**9, 50)]
    fixed, sifted = (engine.explore([*watches(kernel)]) for engine in engines)
    assert (fixed.distinct, fixed.edges, fixed.depth) == (sifted.distinct, sifted.edges, sifted.depth)
    assert fixed.found == sifted.found
    bits = engines[0].diagrams.bits
    levels = [[e.diagrams.bdd.level_of_var(bit) for bit in bits] for e in engines]
    assert levels[0] != levels[1]


def test_a_step_out_of_range_is_found_and_leads_nowhere() -> None:
    kernel = Kernel(Overflow())
    (instance,) = kernel.instances
    ((line, bad),) = kernel.out_of_range(instance)
    exploration = SymbolicEngine(kernel, Limits()).explore([Watch(asked(line), bad, {}, instance)])
    assert exploration.found[asked(line)].states == ((1,), (2,), (3,), (4,))
    assert (exploration.distinct, exploration.edges) == (3, 3)


@pytest.mark.parametrize(
    ("system", "limits", "reason"),
    [
        (Market(), Limits(seconds=0.0), "limit 0 s"),
        (Market(), Limits(memory_bytes=1 << 20), "limit 1 MiB"),
        (Rooks(), Limits(memory_bytes=24 << 20), "24 MiB"),
    ],
)
def test_a_search_stops_at_each_limit_and_says_which(system: System, limits: Limits, reason: str) -> None:
    exploration = SymbolicEngine(Kernel(system), limits).explore([])
    assert not exploration.complete
    assert reason in exploration.stopped


def test_what_was_found_before_a_limit_is_reported() -> None:
    kernel = Kernel(Market())
    engine = SymbolicEngine(kernel, Limits(), lambda p: engine.clock.restart(Limits(seconds=60.0 * (p.distinct < 100))))
    exploration = engine.explore([*watches(kernel)])
    assert "limit 0 s" in exploration.stopped
    assert 100 < exploration.distinct < 4784
    assert len(exploration.found[asked("fired buy")].steps) == 1


class OneRook(Rooks):
    """Few states, and a property whose diagram is too large all the same."""

    free = flag(initial=True)

    @transition(each=("line", "line"))
    def place(self, s: Any, row: Any, column: Any) -> None:
        """Only one is put."""
        s.when(s.free)
        s.free = False
        s.rook[row, column] = True

    @always(witness="one_is_there")
    def a_column_is_free(self, s: Any) -> Any:
        """Row by row it would have to remember which are."""
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
    engine = SymbolicEngine(Kernel(Market()), Limits())
    engine.clock.restart(Limits(seconds=0.0))
    with pytest.raises(LimitReached, match="limit 0 s"):
        engine.trees.number(add(const(1, int_sort(1, 1)), engine.kernel.cell_read("stock", ())))


def test_a_lasso_stops_at_the_limit_of_seconds() -> None:
    with pytest.raises(LimitReached, match="limit 0 s"):
        explored_lasso(Ring(), "served_again", (), Limits(seconds=0.0))


def test_progress_is_reported_once_a_layer() -> None:
    seen: list[Progress] = []
    exploration = SymbolicEngine(Kernel(TwoPhaseCommit()), Limits(), seen.append).explore([])
    assert [p.depth for p in seen] == list(range(exploration.depth + 1))
    assert seen[-1].distinct == exploration.distinct


def hide(monkeypatch: pytest.MonkeyPatch, *hidden: str) -> None:
    real = importlib.import_module

    def load(name: str, package: str | None = None) -> ModuleType:
        if name in hidden:
            raise ModuleNotFoundError(name)
        return real(name, package)

    monkeypatch.setattr(importlib, "import_module", load)


def test_without_cudd_the_answers_are_the_same_and_the_name_says_so(monkeypatch: pytest.MonkeyPatch) -> None:
    hide(monkeypatch, "dd.cudd")
    plain, symbolic, _, _ = both(TwoPhaseCommit(rm=2))
    assert "without CUDD" in symbolic.engine
    assert (symbolic.distinct, symbolic.edges, symbolic.depth) == (plain.distinct, plain.edges, plain.depth)
    assert symbolic.found.keys() == plain.found.keys()
    assert explored_lasso(TwoPhaseCommit(rm=2), "transactions_commit", ()) is not None


def test_without_dd_the_error_names_the_remedy(monkeypatch: pytest.MonkeyPatch) -> None:
    hide(monkeypatch, "dd.cudd", "dd.autoref")
    with pytest.raises(UnavailableError, match=r"pip install 'trystate\[symbolic\]'"):
        SymbolicEngine(Kernel(Ring()), Limits())


def test_diagrams_too_deep_for_autoref_leave_the_rest_not_decided(monkeypatch: pytest.MonkeyPatch) -> None:
    hide(monkeypatch, "dd.cudd")
    report = check(Totals(), engine="symbolic")
    assert "too deep for dd.autoref (take a Python for which dd has CUDD" in report.exploration.stopped
    assert report.undecided


@pytest.mark.parametrize("hidden", [(), ("dd.cudd",)], ids=["cudd", "autoref"])
def test_an_engine_in_a_reference_cycle_is_collected_without_complaint(
    monkeypatch: pytest.MonkeyPatch, hidden: tuple[str, ...]
) -> None:
    hide(monkeypatch, *hidden)
    engine: Any = SymbolicEngine(Kernel(Ring()), Limits())
    engine.explore([])
    engine.itself = engine
    del engine
    gc.collect()  # a complaint of CUDD's manager would be an unraisable exception, and so an error


def test_an_interpreter_exits_without_complaint_while_engines_are_alive() -> None:
    code = (
        "from trystate.property_tests.tests.checker.test_symbolic_engine import *\n"
        "engine = SymbolicEngine(Kernel(Ring()), Limits())\n"
        "engine.explore([*watches(engine.kernel)])\n"
        "engine.lasso(*engine.kernel.system.claim('served_again').exprs, {})\n"
        "other = SymbolicEngine(Kernel(Market()), Limits())\n"
        "other.itself = [other]\n"
        "other.explore([])\n"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, timeout=60)
    assert (done.returncode, done.stderr) == (0, "")
