"""The explicit engine against the reference engine, and against published counts."""

from __future__ import annotations

import enum
import random
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
import pytest

from trystate.model.errors import UsageError
from trystate.model.checker.check import _watches, check
from trystate.model.checker.engine import Progress, quiet
from trystate.model.checker.explicit import ExplicitEngine
from trystate.model.checker.interpret import Interpreter
from trystate.model.checker.kernel import Exploration, Kernel, Lasso, Limits, Path, Watch
from trystate.model.checker.packing import Layout
from trystate.model.checker.plain import PlainEngine
from trystate.model.checker.symmetry import sorting_network
from trystate.model.language import (
    Expr, Form, SymbolicState, System, all_, always, any_, as_int, choice, count, environment, fault, flag, index,
    integer, ite, leads_to, machine, ord_, sometimes, step, terminal, transition,
)  # fmt: skip


class Manager(enum.Enum):
    """A resource manager."""

    WORKING = "has not decided"
    PREPARED = "waits for the decision"
    COMMITTED = "has committed"
    ABORTED = "has aborted"


class Decision(enum.Enum):
    """What the transaction manager has decided."""

    NONE = "nothing yet"
    COMMIT = "to commit"
    ABORT = "to abort"


class TwoPhase(System):
    """Lamport's TwoPhase: two-phase commit over a set of messages that are never lost."""

    rm = index(3)
    state = choice(Manager, per="rm")
    decision = choice(Decision)
    noted = flag(per="rm")
    sent = flag(per="rm")
    commit = flag()
    abort = flag()

    @machine(Manager, each="rm")
    def manager(self, s: SymbolicState, rm: Expr) -> Any:
        """A resource manager."""
        return s.state[rm]

    @transition(each="rm")
    def receive_prepared(self, s: SymbolicState, rm: Expr) -> None:
        """The transaction manager notes that a resource manager has prepared."""
        s.when(s.decision == Decision.NONE, s.sent[rm])
        s.noted[rm] = True

    @transition()
    def decide_commit(self, s: SymbolicState) -> None:
        """All have prepared."""
        s.when(s.decision == Decision.NONE, all_(s.noted[j] for j in s.rm))
        s.decision = Decision.COMMIT
        s.commit = True

    @transition()
    def decide_abort(self, s: SymbolicState) -> None:
        """The transaction manager may give up at any time."""
        s.when(s.decision == Decision.NONE)
        s.decision = Decision.ABORT
        s.abort = True

    @transition(each="rm", source=Manager.WORKING, dest=Manager.PREPARED)
    def prepare(self, s: SymbolicState, rm: Expr) -> None:
        """A resource manager is ready to commit."""
        s.when(s.state[rm] == Manager.WORKING)
        s.state[rm] = Manager.PREPARED
        s.sent[rm] = True

    @transition(each="rm", source=Manager.WORKING, dest=Manager.ABORTED)
    def give_up(self, s: SymbolicState, rm: Expr) -> None:
        """A resource manager aborts on its own."""
        s.when(s.state[rm] == Manager.WORKING)
        s.state[rm] = Manager.ABORTED

    @transition(
        each="rm", source=(Manager.WORKING, Manager.PREPARED, Manager.ABORTED), dest=Manager.COMMITTED
    )
    def receive_commit(self, s: SymbolicState, rm: Expr) -> None:
        """The decision arrives."""
        s.when(s.commit)
        s.state[rm] = Manager.COMMITTED

    @transition(
        each="rm", source=(Manager.WORKING, Manager.PREPARED, Manager.COMMITTED), dest=Manager.ABORTED
    )
    def receive_abort(self, s: SymbolicState, rm: Expr) -> None:
        """The decision arrives."""
        s.when(s.abort)
        s.state[rm] = Manager.ABORTED

    @always(witness="all_commit")
    def consistent(self, s: SymbolicState) -> Any:
        """No two resource managers decide differently."""
        return ~(
            any_(s.state[i] == Manager.COMMITTED for i in s.rm)
            & any_(s.state[i] == Manager.ABORTED for i in s.rm)
        )

    @sometimes()
    def all_commit(self, s: SymbolicState) -> Any:
        """Everybody commits."""
        return all_(s.state[i] == Manager.COMMITTED for i in s.rm)

    @sometimes()
    def some_prepared_while_another_aborted(self, s: SymbolicState) -> Any:
        """One is ready, another has given up."""
        return any_(s.state[i] == Manager.PREPARED for i in s.rm) & any_(
            s.state[i] == Manager.ABORTED for i in s.rm
        )

    @step(witness="all_commit", each="rm")
    def final(self, before: SymbolicState, after: SymbolicState, rm: Expr) -> Any:
        """Who has committed stays so."""
        return ~(before.state[rm] == Manager.COMMITTED) | (after.state[rm] == Manager.COMMITTED)

    @leads_to(each="rm")
    def ends(self, s: SymbolicState, rm: Expr) -> Any:
        """Who has prepared learns the decision."""
        return s.state[rm] == Manager.PREPARED, s.state[rm].isin((Manager.COMMITTED, Manager.ABORTED))

    @leads_to()
    def commits(self, s: SymbolicState) -> Any:
        """Wrong: a prepared group may still abort."""
        return all_(s.state[i] == Manager.PREPARED for i in s.rm), any_(
            s.state[i] == Manager.COMMITTED for i in s.rm
        )

    @terminal
    def done(self, s: SymbolicState) -> Any:
        return all_(s.state[i].isin((Manager.COMMITTED, Manager.ABORTED)) for i in s.rm)


class TwoWords(TwoPhase):
    """Padded to more than 64 bits, with a wide field that moves."""

    wide = integer(-7, 1 << 40, per="rm", initial=-7)

    @environment(each="rm")
    def jump(self, s: SymbolicState, rm: Expr) -> None:
        """A wide field takes its greatest value, then a small one."""
        s.when(s.state[rm] == Manager.COMMITTED)
        s.wide[rm] = ite(s.wide[rm] < 0, 1 << 40, 3)


class ThreeWords(TwoWords):
    """Padded to more than 128 bits."""

    wider = integer(5, 1 << 50, per="rm")

    @environment(each="rm")
    def leap(self, s: SymbolicState, rm: Expr) -> None:
        """The wider field follows the wide one."""
        s.when(s.state[rm] == Manager.COMMITTED)
        s.wider[rm] = ite(s.wide[rm] < 0, 1 << 50, s.wide[rm] + 5)


class Ring(System):
    """A token goes round; clients ask for it. Bounds that do not begin at 0, pairs, counts, faults, several starts."""

    node = index(3)
    holder = integer(0, 2, initial=(0, 2))
    thirst = integer(-2, 1, per="node", initial=-2)
    trusts = flag(per=("node", "node"))
    asked = flag(per="node", initial=(False, True))
    level = integer(3, 6, initial=4)

    @transition(each="node")
    def pass_on(self, s: SymbolicState, node: Expr) -> None:
        """The holder hands the token to the next node."""
        s.when(s.holder == ord_(node))
        s.holder = ite(s.holder == 2, 0, s.holder + 1)

    @transition(each="node")
    def drink(self, s: SymbolicState, node: Expr) -> None:
        """A thirsty holder drinks."""
        s.when(s.holder == ord_(node), s.asked[node], s.thirst[node] > -2)
        s.thirst[node] = s.thirst[node] - 1
        s.asked[node] = s.thirst[node] > -2

    @environment(each="node")
    def grow(self, s: SymbolicState, node: Expr) -> None:
        """Thirst grows, and then it asks."""
        s.when(s.thirst[node] < 1, count(s.asked[j] for j in s.node) + as_int(s.asked[node]) < 3)
        s.thirst[node] = s.thirst[node] + 1
        s.asked[node] = True

    @environment(each=("node", "node"))
    def meet(self, s: SymbolicState, node0: Expr, node1: Expr) -> None:
        """Two nodes come to trust each other, when the level is high."""
        s.when(s.asked[node0], ~s.asked[node1], s.level > 4 + as_int(s.trusts[node1, node0]))
        s.trusts[node0, node1] = ~s.trusts[node0, node1]

    @transition()
    def move_level(self, s: SymbolicState) -> None:
        """The level follows the number of those who ask."""
        s.level = 3 + s.asked.count()

    @fault("loss", bound=1)
    def lose(self, s: SymbolicState) -> None:
        """The token returns to the start."""
        s.holder = 0
        for i in s.node:
            for j in s.node:
                s.trusts[i, j] = s.trusts[j, i]

    @sometimes()
    def full_trust(self, s: SymbolicState) -> Any:
        """One trusts two others."""
        return any_(s.trusts[i, j] & s.trusts[j, i] for i in s.node for j in s.node)

    @leads_to(each="node")
    def served(self, s: SymbolicState, node: Expr) -> Any:
        """Who asks drinks."""
        return s.asked[node], s.thirst[node] == -2


SMALL: list[Callable[[], System]] = [
    lambda: TwoPhase(rm=3), lambda: TwoPhase(rm=4), lambda: TwoWords(rm=2), lambda: ThreeWords(rm=3),
    lambda: Ring(node=2), lambda: Ring(node=2, faults=["loss"]),
]  # fmt: skip


def explore(system: System, engine: Any, **options: Any) -> tuple[Any, Exploration]:
    kernel = Kernel(system)
    searcher = engine(kernel, options.pop("limits", Limits()), options.pop("report", quiet), **options)
    return searcher, searcher.explore(list(_watches(kernel)))


def assert_a_run(system: System, path: Path) -> None:
    interpreter = Interpreter(system)
    assert path.states[0] in system.initial_states
    for before, number, after in zip(path.states, path.steps, path.states[1:], strict=False):
        assert interpreter.step(interpreter.kernel.instances[number], before) == after
    assert len(path.states) == len(path.steps) + 1


def assert_same(system: System) -> None:
    """Same counts, same finds at the same distance, and every path is a run that ends as its watch says."""
    _, plain = explore(system, PlainEngine)
    _, explicit = explore(system, ExplicitEngine)
    assert (explicit.distinct, explicit.edges, explicit.depth) == (plain.distinct, plain.edges, plain.depth)
    assert {k: len(p.steps) for k, p in explicit.found.items()} == {
        k: len(p.steps) for k, p in plain.found.items()
    }
    assert_paths(system, explicit.found)


def assert_paths(system: System, found: dict[str, Path]) -> None:
    interpreter = Interpreter(system)
    by_key: dict[str, list[Watch]] = {}
    for watch in _watches(interpreter.kernel):
        by_key.setdefault(watch.key, []).append(watch)
    for key, path in found.items():
        assert_a_run(system, path)
        assert any(_shows(interpreter, path, watch) for watch in by_key[key]), key


def _shows(interpreter: Interpreter, path: Path, watch: Watch) -> bool:
    if watch.instance is None:
        return interpreter.holds(watch.expr, path.states[-1], watch.binding)
    same = path.steps[-1:] == (watch.instance.number,)
    return same and interpreter.holds(watch.expr, path.states[-2], watch.binding)


@pytest.mark.parametrize("make", SMALL)
def test_counts_and_shortest_finds_equal_the_reference(make: Callable[[], System]) -> None:
    assert_same(make())


@pytest.mark.parametrize(
    ("rm", "distinct"), [(3, 288), (4, 1568), (5, 8832), (6, 50816), (7, 296448), (8, 1745408)]
)
def test_two_phase_commit_has_the_published_number_of_states(rm: int, distinct: int) -> None:
    _, seen = explore(TwoPhase(rm=rm), ExplicitEngine)
    assert (seen.distinct, seen.depth) == (distinct, 3 * rm + 1)
    assert seen.bytes_per_state < 60


def test_the_padded_systems_need_two_and_three_words() -> None:
    assert [Layout(s.cells).words for s in (TwoPhase(rm=3), TwoWords(rm=2), ThreeWords(rm=3))] == [1, 2, 6]


@pytest.mark.parametrize("words", [1, 2, 3])
def test_keys_of_any_bits_are_told_apart_and_found(words: int) -> None:
    rng = random.Random(words)
    edge = [0, 1, 2, (1 << 61) - 1, 1 << 60, 1 << 52, (1 << 52) - 1, 0x7FF << 50]
    fields = {f"f{k}": integer(0, (1 << 61) - 1) for k in range(words)}
    layout = Layout(type("Wide", (System,), fields)().cells)
    states = [tuple(rng.choice([*edge, rng.getrandbits(61)]) for _ in range(words)) for _ in range(3000)]
    keys = layout.sort_unique(layout.keys(layout.pack(states)).copy())
    assert layout.words == words
    assert sorted(layout.unpack(layout.words_of(keys, row)) for row in range(len(keys))) == sorted(
        set(states)
    )
    _, there = layout.find(layout.keys(layout.pack(states)), keys)
    assert there.all()
    _, there = layout.find(
        layout.keys(layout.pack([states[0]])),
        keys[layout.differ(keys, layout.keys(layout.pack([states[0]] * len(keys))))],
    )
    assert not there.any()


def random_system(seed: int) -> System:
    """Fields of every kind, and transitions with random guards and effects that stay within range."""
    rng = random.Random(seed)

    def number(s: SymbolicState, k: Expr) -> Any:
        a = rng.choice(
            [s.small, s.per[k], s.off, ite(s.flag, 2, 2), count(s.up[j] for j in s.node), as_int(s.up[k])]
        )
        b = rng.choice([s.small, s.per[k], ite(s.flag, -1, -1), as_int(s.flag)])
        return rng.choice([a, a + b, a - b, ite(s.flag, a, b)])

    def condition(s: SymbolicState, k: Expr, depth: int = 2) -> Any:
        if depth and rng.random() < 0.7:
            a, b = condition(s, k, depth - 1), condition(s, k, depth - 1)
            return rng.choice([lambda: a & b, lambda: a | b, lambda: ~a])()
        return rng.choice([
            lambda: s.flag == s.up[k], lambda: s.up[k], lambda: s.colour == rng.choice(list(Decision)),
            lambda: number(s, k) < number(s, k), lambda: number(s, k) == s.small, lambda: any_(s.up[j] for j in s.node),
            lambda: all_(s.per[j] < 2 for j in s.node), lambda: s.small == rng.randint(1, 4), lambda: ord_(k) < 1,
        ])()  # fmt: skip

    def clamp(value: Any, low: int, high: int) -> Any:
        return ite(value < low, low, ite(value > high, high, value))

    def body(self: System, s: SymbolicState, node: Expr) -> None:
        """Something random."""
        s.when(condition(s, node, 1))
        for write in rng.sample(range(6), rng.randint(1, 3)):
            if write == 0:
                s.flag = condition(s, node)
            elif write == 1:
                s.small = clamp(number(s, node), 1, 4)
            elif write == 2:
                s.per[node] = clamp(number(s, node), -1, 2)
            elif write == 3:
                s.up[node] = ~s.up[node]
            elif write == 4:
                s.colour = ite(condition(s, node), rng.choice(list(Decision)), s.colour)
            else:
                for j in s.node:
                    s.up[j] = s.per[j] > s.off

    def leads(self: System, s: SymbolicState, node: Expr) -> Any:
        """Something random."""
        return condition(s, node, 1), condition(s, node, 1)

    members: dict[str, Any] = {
        "node": index(2), "flag": flag(), "small": integer(1, 4, initial=(2, 4)), "per": integer(-1, 2, per="node"),
        "off": integer(0, 0), "up": flag(per="node"), "colour": choice(Decision),
        "leads": leads_to(each="node")(leads),
    }  # fmt: skip
    for k in range(7):
        members[f"t{k}"] = rng.choice([transition, environment])(each="node")(body)
    return type(f"Random{seed}", (System,), members)()


@pytest.mark.parametrize("seed", range(40))
def test_random_systems_agree_with_the_reference(seed: int) -> None:
    system = random_system(seed)
    assert_same(system)
    assert_lassos_agree(system)


def assert_lassos_agree(system: System) -> int:
    """Returns how many lassos there were."""
    plain, _ = explore(system, PlainEngine)
    explicit, _ = explore(system, ExplicitEngine)
    lassos = 0
    for p in system.properties:
        if p.form is not Form.LEADS_TO:
            continue
        for k in range(p.params[0].sort.size if p.params else 1):
            binding = {v: k for v in p.params}
            expected, found = (e.lasso(*p.exprs, binding) for e in (plain, explicit))
            assert (expected is None) == (found is None), p.name
            if found is not None:
                begins = [assert_fair_lasso(system, x, p.exprs, binding) for x in (expected, found)]
                assert begins[0] == begins[1], "the stem is a shortest one"
                lassos += 1
    return lassos


def assert_fair_lasso(system: System, lasso: Lasso, exprs: Sequence[Expr], binding: dict[Expr, int]) -> int:
    """Returns where the premise holds first, with the goal false ever after."""
    assert_a_run(system, lasso.path)
    interpreter = Interpreter(system)
    premise, goal = exprs
    states, steps = lasso.path.states, lasso.path.steps
    assert states[-1] == states[lasso.loop]
    avoiding = [not interpreter.holds(goal, s, binding) for s in states]
    begins = next(
        k for k, s in enumerate(states) if interpreter.holds(premise, s, binding) and all(avoiding[k:])
    )
    assert all(avoiding[min(begins, lasso.loop) :])
    for instance in (i for i in interpreter.kernel.instances if i.fair):
        disabled = any(interpreter.step(instance, s) is None for s in states[lasso.loop :])
        assert disabled or instance.number in steps[lasso.loop :], f"{instance.label} is treated unfairly"
    return begins


@pytest.mark.parametrize("make", SMALL)
def test_lassos_are_fair_closed_and_shortest(make: Callable[[], System]) -> None:
    assert_lassos_agree(make())


def test_a_violated_liveness_gives_a_lasso_and_a_kept_one_none() -> None:
    engine, _ = explore(TwoPhase(rm=3), ExplicitEngine)
    ends, commits = (p for p in engine.kernel.system.properties if p.form is Form.LEADS_TO)
    assert engine.lasso(*ends.exprs, {ends.params[0]: 1}) is None
    assert engine.lasso(*commits.exprs, {}) is not None


def test_some_lasso_goes_round() -> None:
    engine, _ = explore(Ring(node=3), ExplicitEngine)
    (served,) = (p for p in engine.kernel.system.properties if p.form is Form.LEADS_TO)
    lasso = engine.lasso(*served.exprs, {served.params[0]: 0})
    assert lasso is not None and lasso.loop < len(lasso.path.steps)


@pytest.mark.parametrize(
    ("limits", "words"),
    [
        (Limits(states=5_000), "states (limit 5,000"),
        (Limits(memory_bytes=1 << 20), "MiB (limit 1 MiB"),
        (Limits(seconds=0.0), "s (limit 0 s"),
    ],
)
def test_a_limit_stops_the_search_and_says_so(limits: Limits, words: str) -> None:
    _, seen = explore(TwoPhase(rm=8), ExplicitEngine, limits=limits)
    assert words in seen.stopped and not seen.complete
    assert 0 < seen.distinct < 200_000


def test_a_stopped_search_still_has_what_it_found() -> None:
    system = TwoPhase(rm=7)
    _, seen = explore(system, ExplicitEngine, limits=Limits(states=20_000))
    assert len(seen.found) > 10
    assert_paths(system, seen.found)


def test_liveness_of_a_stopped_search_is_refused() -> None:
    engine, _ = explore(TwoPhase(rm=6), ExplicitEngine, limits=Limits(states=100))
    p = engine.kernel.system.claim("commits")
    with pytest.raises(UsageError, match="explore completely"):
        engine.lasso(*p.exprs, {})


def test_progress_is_reported_while_it_runs() -> None:
    seen: list[Progress] = []
    _, exploration = explore(TwoPhase(rm=8), ExplicitEngine, report=seen.append)
    assert len(seen) <= exploration.seconds / 0.12 + 1
    assert seen == sorted(seen, key=lambda p: p.distinct)


@pytest.mark.parametrize(("rm", "orbits"), [(3, None), (4, None), (7, 920), (8, 1461)])
def test_symmetry_visits_one_state_per_orbit(rm: int, orbits: int | None) -> None:
    system = TwoPhase(rm=rm)
    _, reduced = explore(system, ExplicitEngine, symmetry=True)
    if orbits is None:
        plain, _ = explore(system, PlainEngine)
        orbits = len({_orbit(system, state) for state in plain.graph})
    assert reduced.distinct == orbits
    assert_paths(system, reduced.found)


def _orbit(system: System, state: Sequence[int]) -> tuple[Any, ...]:
    shared = tuple(v for c, v in zip(system.cells, state, strict=True) if not c.indices)
    lanes = [
        tuple(v for c, v in zip(system.cells, state, strict=True) if c.indices == (k,))
        for k in range(system.index_sorts["rm"].size)
    ]
    return shared, tuple(sorted(lanes))


def test_symmetry_over_several_words_gives_the_same_orbits() -> None:
    system = TwoWords(rm=3)
    plain, _ = explore(system, PlainEngine)
    _, reduced = explore(system, ExplicitEngine, symmetry=True)
    assert reduced.distinct == len({_orbit(system, state) for state in plain.graph})
    assert_paths(system, reduced.found)


def test_symmetry_finds_each_kind_of_find_at_the_same_distance() -> None:
    _, full = explore(TwoPhase(rm=4), ExplicitEngine)
    _, reduced = explore(TwoPhase(rm=4), ExplicitEngine, symmetry=True)

    def kinds(seen: Exploration) -> dict[str, int]:
        out: dict[str, int] = {}
        for key, path in seen.found.items():
            kind = key.rstrip("0123456789")
            out[kind] = min(out.get(kind, 1 << 30), len(path.steps))
        return out

    assert kinds(full) == kinds(reduced)


class Numbered(TwoPhase):
    """Names one of its members."""

    @sometimes()
    def first_commits(self, s: SymbolicState) -> Any:
        """The first one commits."""
        return s.state[0] == Manager.COMMITTED


class Ordered(TwoPhase):
    """Orders its members."""

    @transition(each=("rm", "rm"))
    def overtake(self, s: SymbolicState, rm0: Expr, rm1: Expr) -> None:
        """A lower one aborts a higher one."""
        s.when(rm0 < rm1, s.state[rm0] == Manager.ABORTED)
        s.abort = True


class Paired(TwoPhase):
    """A field per pair."""

    knows = flag(per=("rm", "rm"))


class TwoIndices(TwoPhase):
    """Fields per two indices."""

    key = index(2)
    locked = flag(per="key")


@pytest.mark.parametrize(
    ("make", "words"),
    [
        (lambda: Numbered(), "first_commits names rm 0"),
        (lambda: Ordered(), "overtake orders the members of rm"),
        (lambda: Paired(), "knows is indexed by pairs"),
        (lambda: TwoIndices(), "exactly one index"),
    ],
)
def test_unsound_symmetry_is_refused_with_the_reason(make: Callable[[], System], words: str) -> None:
    with pytest.raises(UsageError, match=words) as refusal:
        check(make(), engine="explicit", symmetry=True)
    assert "without symmetry" in str(refusal.value)


def test_a_number_of_a_member_refuses_symmetry() -> None:
    class Numbering(System):
        """A field that holds the number of a member."""

        node = index(3)
        leader = integer(0, 2)
        up = flag(per="node")

        @transition(each="node")
        def lead(self, s: SymbolicState, node: Expr) -> None:
            """A node leads."""
            s.leader = ord_(node)

    with pytest.raises(UsageError, match=r"lead uses the number of a node \(ord\)"):
        check(Numbering(), engine="explicit", symmetry=True)


@pytest.mark.parametrize("size", range(1, 10))
def test_the_sorting_network_sorts_every_order(size: int) -> None:
    # The zero-one principle: a network that sorts all sequences of 0 and 1 sorts everything.
    for bits in range(1 << size):
        values = [bits >> k & 1 for k in range(size)]
        for a, b in sorting_network(size):
            values[a], values[b] = min(values[a], values[b]), max(values[a], values[b])
        assert values == sorted(values)


class Overflowing(System):
    """An effect leaves its field's range."""

    n = integer(0, 3)
    up = flag()

    @transition()
    def rise(self, s: SymbolicState) -> None:
        """Rises without end."""
        s.n = s.n + 1

    @transition()
    def flip(self, s: SymbolicState) -> None:
        """Changes something else."""
        s.up = ~s.up


def test_a_step_out_of_range_is_found_and_not_followed() -> None:
    _, seen = explore(Overflowing(), ExplicitEngine)
    assert seen.distinct == 8
    (key,) = (k for k in seen.found if k.startswith("range"))
    assert [state[0] for state in seen.found[key].states] == [0, 1, 2, 3, 4]


def test_a_cell_wider_than_a_word_is_refused() -> None:
    class TooWide(System):
        """One field of 62 bits."""

        n = integer(0, 1 << 61)

        @transition()
        def rise(self, s: SymbolicState) -> None:
            """Makes it a variable."""
            s.n = 1 << 61

    with pytest.raises(UsageError, match="n takes 62 bits"):
        ExplicitEngine(Kernel(TooWide()), Limits())


@pytest.mark.parametrize("make", SMALL)
def test_check_gives_the_same_verdicts_with_both_engines(make: Callable[[], System]) -> None:
    plain, explicit = (check(make(), engine=name) for name in ("interpret", "explicit"))
    assert [(v.property.name, v.status) for v in explicit.verdicts] == [
        (v.property.name, v.status) for v in plain.verdicts
    ]
    assert (explicit.never_fired, explicit.unreached) == (plain.never_fired, plain.unreached)


def test_the_levels_are_the_states_by_distance() -> None:
    engine, seen = explore(TwoPhase(rm=4), ExplicitEngine)
    assert sum(map(len, engine.levels)) == seen.distinct == len(np.unique(np.concatenate(engine.levels)))
