"""The symbolic engine answers as the plain engine does, and its runs are real runs."""

from __future__ import annotations

import enum
import gc
import importlib
import subprocess
import sys
from collections.abc import Iterator
from itertools import pairwise, product
from types import ModuleType
from typing import Any

import pytest

from trystate.model.checker.engine import Progress
from trystate.model.checker.interpret import Interpreter
from trystate.model.checker.kernel import Exploration, Kernel, Lasso, Limits, Path, Watch
from trystate.model.checker.plain import PlainEngine
from trystate.model.checker.symbolic import SymbolicEngine
from trystate.model.errors import LimitReached, UnavailableError
from trystate.model.language import (
    System,
    all_,
    any_,
    choice,
    count,
    environment,
    fault,
    flag,
    index,
    integer,
    ite,
    leads_to,
    transition,
)
from trystate.model.language.expressions import TRUE, and_, const, equal, not_, or_
from trystate.model.language.properties import Form

pytest.importorskip("dd.cudd")


class Participant(enum.Enum):
    WORKING = "at work"
    PREPARED = "has promised to commit"
    COMMITTED = "committed"
    ABORTED = "aborted"


class Coordinator(enum.Enum):
    COLLECTING = "collects promises"
    COMMITTED = "has decided to commit"
    ABORTED = "has decided to abort"


class TwoPhaseCommit(System):
    """Gray and Lamport, Consensus on Transaction Commit, 2006; the counts are those of its TLA+ module."""

    node = index(3)
    coordinator = choice(Coordinator)
    promised = flag(per="node")
    state = choice(Participant, per="node")
    sent_prepared = flag(per="node")
    sent_commit = flag()
    sent_abort = flag()

    @transition(each="node")
    def receive_prepared(self, s: Any, node: Any) -> None:
        """The coordinator takes a promise."""
        s.when(s.coordinator == Coordinator.COLLECTING, s.sent_prepared[node])
        s.promised[node] = True

    @transition()
    def decide_commit(self, s: Any) -> None:
        """All have promised."""
        s.when(s.coordinator == Coordinator.COLLECTING, all_(s.promised[j] for j in s.node))
        s.coordinator = Coordinator.COMMITTED
        s.sent_commit = True

    @transition()
    def decide_abort(self, s: Any) -> None:
        """The coordinator gives up."""
        s.when(s.coordinator == Coordinator.COLLECTING)
        s.coordinator = Coordinator.ABORTED
        s.sent_abort = True

    @transition(each="node")
    def prepare(self, s: Any, node: Any) -> None:
        """A participant promises."""
        s.when(s.state[node] == Participant.WORKING)
        s.state[node] = Participant.PREPARED
        s.sent_prepared[node] = True

    @environment(each="node")
    def refuse(self, s: Any, node: Any) -> None:
        """A participant aborts on its own."""
        s.when(s.state[node] == Participant.WORKING)
        s.state[node] = Participant.ABORTED

    @transition(each="node")
    def receive_commit(self, s: Any, node: Any) -> None:
        """A participant commits."""
        s.when(s.sent_commit)
        s.state[node] = Participant.COMMITTED

    @transition(each="node")
    def receive_abort(self, s: Any, node: Any) -> None:
        """A participant aborts as told."""
        s.when(s.sent_abort)
        s.state[node] = Participant.ABORTED

    @leads_to(each="node")
    def decides(self, s: Any, node: Any) -> Any:
        """Whoever has promised learns the decision."""
        final = s.state[node].isin([Participant.COMMITTED, Participant.ABORTED])
        return s.state[node] == Participant.PREPARED, final

    @leads_to()
    def commits(self, s: Any) -> Any:
        """Not so: the coordinator may abort."""
        return s.coordinator == Coordinator.COLLECTING, s.coordinator == Coordinator.COMMITTED


class Mood(enum.Enum):
    CALM = "calm"
    BUSY = "busy"
    TIRED = "tired"
    CROSS = "cross"
    GONE = "gone"


class Market(System):
    """Numbers with lows of either sign, sums, differences, counts, and enums that do not fill their bits."""

    trader = index(2)
    purse = integer(-3, 3, per="trader", initial=(0, 1))
    stock = integer(2, 7, initial=(4, 5))
    mood = choice(Mood, per="trader")
    light = choice(Coordinator, initial=(Coordinator.COLLECTING, Coordinator.ABORTED))
    steady = flag()

    @transition(each="trader")
    def buy(self, s: Any, trader: Any) -> None:
        """One good for as much money as the market is short of five."""
        price = ite(s.stock < 5, 6 - s.stock, 1)
        s.when(s.purse[trader] - price >= -3, s.stock > 2, s.mood[trader] != Mood.GONE)
        s.purse[trader] = s.purse[trader] - price
        s.stock = s.stock - 1

    @transition(each=("trader", "trader"))
    def lend(self, s: Any, trader0: Any, trader1: Any) -> None:
        """The richer gives half of what divides them, at most one."""
        s.when(s.purse[trader0] - s.purse[trader1] > 1)
        s.purse[trader0] = s.purse[trader0] - 1
        s.purse[trader1] = s.purse[trader1] + 1

    @transition(each="trader", fair=False)
    def sell(self, s: Any, trader: Any) -> None:
        """A good comes back, if all purses together are not full."""
        s.when(s.purse[0] + s.purse[1] + 3 < s.stock, s.stock < 7, s.purse[trader] < 3)
        s.stock = s.stock + 1
        s.purse[trader] = s.purse[trader] + 1
        s.mood[trader] = ite(s.mood[trader] == Mood.CALM, Mood.BUSY, s.mood[trader])

    @transition(each="trader")
    def tire(self, s: Any, trader: Any) -> None:
        """Work tires, and then all the others who are busy."""
        s.when(s.mood[trader] == Mood.BUSY, s.stock + count(m == Mood.BUSY for m in s.mood) > 5)
        for j in s.trader:
            s.mood[j] = ite(s.mood[j] == Mood.BUSY, Mood.TIRED, s.mood[j])

    @transition(each="trader")
    def leave(self, s: Any, trader: Any) -> None:
        """Who is tired goes, unless the light is red."""
        s.when(s.mood[trader] == Mood.TIRED, s.light != Coordinator.ABORTED)
        s.mood[trader] = Mood.GONE

    @environment()
    def switch(self, s: Any) -> None:
        """The light goes round."""
        s.when(~s.steady, any_(m == Mood.TIRED for m in s.mood))
        s.light = ite(
            s.light == Coordinator.COLLECTING,
            Coordinator.COMMITTED,
            ite(s.light == Coordinator.COMMITTED, Coordinator.ABORTED, Coordinator.COLLECTING),
        )

    @fault("jam", bound=1)
    def jam(self, s: Any) -> None:
        """The light stays as it is."""
        s.steady = True

    @leads_to(each="trader")
    def goes(self, s: Any, trader: Any) -> Any:
        """Not so: the light may stay red."""
        return s.mood[trader] == Mood.TIRED, s.mood[trader] == Mood.GONE

    @leads_to(each="trader")
    def tires_or_waits(self, s: Any, trader: Any) -> Any:
        """Holds of the traders at a full market."""
        return and_(s.mood[trader] == Mood.BUSY, s.stock > 6), or_(s.mood[trader] != Mood.BUSY, s.stock < 7)


class Flags(System):
    """More states than a double can count."""

    switch = index(70)
    on = flag(per="switch")

    @transition(each="switch")
    def flip(self, s: Any, switch: Any) -> None:
        """A switch is flipped."""
        s.on[switch] = ~s.on[switch]


class Twins(System):
    """Two numbers that are compared in an order of bits that is bad for diagrams."""

    one = integer(0, (1 << 20) - 1)
    two = integer(0, (1 << 20) - 1)

    @transition()
    def follow(self, s: Any) -> None:
        """The first goes ahead of the second."""
        s.when(s.one == s.two)
        s.one = ite(s.one < 1000, s.one + 1, 0)


class Overflow(System):
    """A number that is counted beyond its range."""

    number = integer(1, 3)

    @transition()
    def grow(self, s: Any) -> None:
        """Nothing stops it."""
        s.number = s.number + 1


class Ring(System):
    """A token that goes round for ever past places that may be asleep: its fair runs are loops."""

    place = index(4)
    token = integer(1, 4, initial=(1, 2))
    asleep = flag(per="place", initial=(False, True))
    served = flag()

    @transition()
    def pass_on(self, s: Any) -> None:
        """The token moves on by one."""
        s.token = ite(s.token == 4, 1, s.token + 1)
        s.served = False

    @transition(each="place")
    def wake(self, s: Any, place: Any) -> None:
        """Whoever has the token wakes up."""
        s.when(s.asleep[place], s.token == 1)
        s.asleep[place] = False

    @environment()
    def serve(self, s: Any) -> None:
        """Nobody has to."""
        s.when(s.token == 3)
        s.served = True

    @leads_to()
    def served_again(self, s: Any) -> Any:
        """Not so: the token goes round without."""
        return s.token == 2, s.served

    @leads_to(each="place")
    def wakes(self, s: Any, place: Any) -> Any:
        """Not so: the token may always leave before."""
        return s.asleep[place], not_(s.asleep[place])

    @leads_to()
    def moves(self, s: Any) -> Any:
        """The token comes to its last place."""
        return s.token == 1, s.token == 4


SYSTEMS = {
    "two-phase commit": TwoPhaseCommit(node=3),
    "market": Market(),
    "market with a jam": Market(faults=["jam"]),
    "ring": Ring(),
    "smaller ring": Ring(place=2),
}
systems = pytest.mark.parametrize("system", SYSTEMS.values(), ids=SYSTEMS.keys())


def watches(kernel: Kernel) -> Iterator[Watch]:
    """Each cell's values, alone and with each step; cells that agree (many watches, one key); deadlock; steps."""
    reads = [(cell, kernel.cell_read(*cell.key)) for cell in kernel.cells]
    for cell, read in reads:
        for value in range(cell.sort.low, cell.sort.high + 1):
            here = equal(read, const(value, cell.sort))
            yield Watch(f"{cell.name} is {value}", here, {})
            for i in kernel.instances:
                yield Watch(f"{cell.name} is {value} before {i.label}", here, {}, i)
    for (a, x), (b, y) in product(reads, reads):
        if a.sort == b.sort and a is not b:
            yield Watch(f"{a.slot.name} and {b.slot.name} agree", x == y, {})
    can = or_(*(and_(kernel.guard(i), kernel.changes(i)) for i in kernel.instances))
    yield Watch("deadlock", not_(can), {})
    for i in kernel.instances:
        yield Watch(f"fired {i.transition.name}", TRUE, {}, i)


def both(system: System) -> tuple[Exploration, Exploration, PlainEngine, SymbolicEngine]:
    kernel = Kernel(system)
    plain, symbolic = PlainEngine(kernel, Limits()), SymbolicEngine(kernel, Limits())
    return plain.explore([*watches(kernel)]), symbolic.explore([*watches(kernel)]), plain, symbolic


def assert_run(interpreter: Interpreter, path: Path) -> None:
    assert path.states[0] in interpreter.system.initial_states
    assert len(path.states) == len(path.steps) + 1
    for number, (before, after) in zip(path.steps, pairwise(path.states), strict=True):
        assert interpreter.step(interpreter.kernel.instances[number], before) == after


def assert_fair_lasso(interpreter: Interpreter, lasso: Lasso, premise: Any, goal: Any, binding: Any) -> None:
    assert_run(interpreter, lasso.path)
    states, steps, loop = lasso.path.states, lasso.path.steps, lasso.loop
    assert states[loop] == states[-1]
    avoiding = [not interpreter.holds(goal, s, binding) for s in states]
    assert any(interpreter.holds(premise, states[k], binding) and all(avoiding[k:]) for k in range(loop + 1))
    for instance in interpreter.kernel.instances:
        disabled = any(interpreter.step(instance, s) is None for s in states[loop:])
        assert not instance.fair or disabled or instance.number in steps[loop:], instance.label


@pytest.mark.parametrize(
    ("nodes", "distinct"), [(3, 288), (4, 1568), (5, 8832), (6, 50816), (7, 296448), (8, 1745408)]
)
def test_two_phase_commit_has_its_published_counts(nodes: int, distinct: int) -> None:
    exploration = SymbolicEngine(Kernel(TwoPhaseCommit(node=nodes)), Limits()).explore([])
    assert exploration.complete
    assert (exploration.distinct, exploration.depth) == (distinct, 3 * nodes + 1)


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
        if path is None or "agree" in watch.key or "fired" in watch.key:
            continue
        assert_run(interpreter, path)
        assert interpreter.holds(watch.expr, path.states[-1 if watch.instance is None else -2], watch.binding)
        assert watch.instance is None or path.steps[-1] == watch.instance.number


@systems
def test_a_lasso_is_found_where_the_plain_engine_finds_one_and_is_fair(system: System) -> None:
    _, _, plain, symbolic = both(system)
    verdicts = set()
    for p in system.properties:
        assert p.form is Form.LEADS_TO
        for indices in product(*(range(v.sort.size) for v in p.params)):
            binding = dict(zip(p.params, indices, strict=True))
            expected, lasso = (engine.lasso(*p.exprs, binding) for engine in (plain, symbolic))
            assert (lasso is None) == (expected is None), p.name
            verdicts.add(lasso is None)
            if lasso is not None:
                assert_fair_lasso(plain.interpreter, lasso, *p.exprs, binding)
    assert verdicts == {True, False}


def test_some_lasso_goes_round_and_some_lasso_rests() -> None:
    ring, market = (SymbolicEngine(Kernel(system), Limits()) for system in (Ring(), Market()))
    for engine in (ring, market):
        engine.explore([])
    served, goes = ring.kernel.system.claim("served_again"), market.kernel.system.claim("goes")
    round_ = ring.lasso(*served.exprs, {})
    rest = market.lasso(*goes.exprs, {goes.params[0]: 0})
    assert round_ is not None and len(round_.path.steps) - round_.loop == 4
    assert rest is not None and rest.loop == len(rest.path.steps)


def test_the_market_stalls_in_a_state_without_steps() -> None:
    plain, symbolic, _, engine = both(Market(faults=["jam"]))
    path = symbolic.found["deadlock"]
    assert len(path.steps) == len(plain.found["deadlock"].steps)
    assert not [*engine.interpreter.successors(path.states[-1])]


def test_counts_beyond_a_double_are_exact() -> None:
    exploration = SymbolicEngine(Kernel(Flags()), Limits(states=1 << 80)).explore([])
    assert (exploration.distinct, exploration.edges, exploration.depth) == (1 << 70, 70 << 70, 70)


def test_reordering_changes_no_answer() -> None:
    kernel = Kernel(Market(faults=["jam"]))
    engines = [SymbolicEngine(kernel, Limits(), reorder=reorder) for reorder in (False, True)]
    fixed, sifted = (engine.explore([*watches(kernel)]) for engine in engines)
    assert (fixed.distinct, fixed.edges, fixed.depth) == (sifted.distinct, sifted.edges, sifted.depth)
    assert fixed.found == sifted.found


def test_a_step_out_of_range_is_found_and_leads_nowhere() -> None:
    kernel = Kernel(Overflow())
    (instance,) = kernel.instances
    ((line, bad),) = kernel.out_of_range(instance)
    exploration = SymbolicEngine(kernel, Limits()).explore([Watch(line, bad, {}, instance)])
    assert exploration.found[line].states == ((1,), (2,), (3,), (4,))
    assert (exploration.distinct, exploration.edges) == (3, 3)


@pytest.mark.parametrize(
    ("system", "limits", "reason"),
    [
        (Market(), Limits(states=100), "limit 100"),
        (Market(), Limits(seconds=0.0), "limit 0 s"),
        (Market(), Limits(memory_bytes=1 << 20), "limit 1 MiB"),
        (Twins(), Limits(memory_bytes=24 << 20), "24 MiB"),
    ],
)
def test_a_search_stops_at_each_limit_and_says_which(system: System, limits: Limits, reason: str) -> None:
    exploration = SymbolicEngine(Kernel(system), limits).explore([])
    assert not exploration.complete
    assert reason in exploration.stopped


def test_what_was_found_before_a_limit_is_reported() -> None:
    kernel = Kernel(Market())
    exploration = SymbolicEngine(kernel, Limits(states=100)).explore([*watches(kernel)])
    assert 100 < exploration.distinct < 4784
    assert len(exploration.found["fired buy"].steps) == 1


def test_a_lasso_stops_at_the_limit_of_seconds() -> None:
    engine = SymbolicEngine(Kernel(Ring()), Limits())
    engine.explore([])
    engine.limits = Limits(seconds=0.0)
    with pytest.raises(LimitReached, match="limit 0 s"):
        engine.lasso(*engine.kernel.system.claim("served_again").exprs, {})


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
    plain, symbolic, _, engine = both(TwoPhaseCommit(node=2))
    assert "without CUDD" in symbolic.engine
    assert (symbolic.distinct, symbolic.edges, symbolic.depth) == (plain.distinct, plain.edges, plain.depth)
    assert symbolic.found.keys() == plain.found.keys()
    assert engine.lasso(*engine.kernel.system.claim("commits").exprs, {}) is not None


def test_without_dd_the_error_names_the_remedy(monkeypatch: pytest.MonkeyPatch) -> None:
    hide(monkeypatch, "dd.cudd", "dd.autoref")
    with pytest.raises(UnavailableError, match=r"pip install 'trystate\[symbolic\]'"):
        SymbolicEngine(Kernel(Ring()), Limits())


def test_an_engine_in_a_reference_cycle_is_collected_without_complaint() -> None:
    engine: Any = SymbolicEngine(Kernel(Ring()), Limits())
    engine.explore([])
    engine.itself = engine
    del engine
    gc.collect()  # a complaint of CUDD's manager would be an unraisable exception, and so an error


def test_an_interpreter_exits_without_complaint_while_engines_are_alive() -> None:
    code = (
        "from trystate.property_tests.test_symbolic_engine import *\n"
        "engine = SymbolicEngine(Kernel(Ring()), Limits())\n"
        "engine.explore([*watches(engine.kernel)])\n"
        "engine.lasso(*engine.kernel.system.claim('served_again').exprs, {})\n"
        "other = SymbolicEngine(Kernel(Market()), Limits())\n"
        "other.itself = [other]\n"
        "other.explore([])\n"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, timeout=60)
    assert (done.returncode, done.stderr) == (0, "")
