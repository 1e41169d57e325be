"""The explicit engine against the reference engine, and against published counts."""

from __future__ import annotations

import random
from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import Any

import numpy as np
import pytest

from trystate.model.checker.check import check, watches
from trystate.model.checker.engine import Progress, quiet
from trystate.model.checker.explicit import packing, vectorise
from trystate.model.checker.explicit.engine import ExplicitEngine
from trystate.model.checker.explicit.packing import Layout
from trystate.model.checker.explicit.symmetry import sorting_network
from trystate.model.checker.explicit.vectorise import Emitter, Step
from trystate.model.checker.interpret import Interpreter
from trystate.model.checker.kernel import Exploration, Kernel, Lasso, Limits, Path, Watch, WatchKey, WatchKind
from trystate.model.checker.reference.engine import ReferenceEngine
from trystate.model.errors import LimitReached, UsageError
from trystate.model.language import Expr, Form, SymbolicState, System, flag, index, integer, ite, ord_, transition
from trystate.property_tests.support.mutants import rewritten, survives, survivors
from trystate.property_tests.support.runs import assert_is_a_fair_lasso, assert_is_a_run
from trystate.property_tests.support.systems.engine_samples import (
    Numbered,
    Ordered,
    Overflowing,
    Paired,
    Ring,
    ThreeWords,
    TwoIndices,
    TwoWords,
    random_system,
)
from trystate.property_tests.support.systems.two_phase_commit import TwoPhaseCommit

SMALL: list[Callable[[], System]] = [
    lambda: TwoPhaseCommit(rm=3), lambda: TwoPhaseCommit(rm=4), lambda: TwoWords(rm=2), lambda: ThreeWords(rm=3),
    lambda: Ring(node=2), lambda: Ring(node=2, faults=["loss"]),
]  # fmt: skip


def explore(system: System, engine: Any, **options: Any) -> tuple[Any, Exploration]:
    kernel = Kernel(system)
    searcher = engine(kernel, options.pop("limits", Limits()), options.pop("on_progress", quiet), **options)
    return searcher, searcher.explore([replace(watch, path=True) for watch in watches(kernel)])


def assert_same(system: System) -> None:
    """Same counts, same finds at the same distance, and every path is a run that ends as its watch says."""
    _, plain = explore(system, ReferenceEngine)
    _, explicit = explore(system, ExplicitEngine)
    assert (explicit.distinct, explicit.edges, explicit.depth) == (plain.distinct, plain.edges, plain.depth)
    assert {k: len(p.steps) for k, p in explicit.found.items()} == {k: len(p.steps) for k, p in plain.found.items()}
    assert_paths(system, explicit.found)


def assert_paths(system: System, found: dict[WatchKey, Path]) -> None:
    interpreter = Interpreter(system)
    by_key: dict[WatchKey, list[Watch]] = {}
    for watch in watches(interpreter.kernel):
        by_key.setdefault(watch.key, []).append(watch)
    for key, path in found.items():
        assert_is_a_run(system, path)
        assert any(_shows(interpreter, path, watch) for watch in by_key[key]), key


def _shows(interpreter: Interpreter, path: Path, watch: Watch) -> bool:
    if any(interpreter.step(instance, path.states[-1]) for instance in watch.idle):
        return False
    if watch.instance is None:
        return interpreter.holds(watch.expr, path.states[-1], watch.binding)
    taken = path.steps[-1:] == (watch.instance.number,)
    return taken and interpreter.holds(watch.expr, path.states[-2], watch.binding)


@pytest.mark.parametrize("make", SMALL)
def test_counts_and_shortest_finds_equal_the_reference(make: Callable[[], System]) -> None:
    assert_same(make())


def test_a_million_states_of_two_phase_commit_take_less_than_60_bytes_each() -> None:
    _, seen = explore(TwoPhaseCommit(rm=8), ExplicitEngine)
    assert (seen.distinct, seen.depth) == (1_745_408, 25)
    assert seen.bytes_per_state < 60


def test_the_padded_systems_take_two_words_and_more() -> None:
    assert [Layout(s.cells).words for s in (TwoPhaseCommit(rm=3), TwoWords(rm=2), ThreeWords(rm=3))] == [1, 2, 6]


@pytest.mark.parametrize("words", [1, 2, 3])
def test_keys_of_any_bits_are_told_apart_and_found(words: int) -> None:
    rng = random.Random(words)
    edge = [0, 1, 2, (1 << 61) - 1, 1 << 60, 1 << 52, (1 << 52) - 1, 0x7FF << 50]
    fields = {f"f{k}": integer(0, (1 << 61) - 1) for k in range(words)}
    layout = Layout(type("Wide", (System,), fields)().cells)
    states = [tuple(rng.choice([*edge, rng.getrandbits(61)]) for _ in range(words)) for _ in range(3000)]
    keys = layout.sort_unique(layout.keys(layout.pack(states)).copy())
    assert layout.words == words
    unpacked = [layout.unpack(layout.words_of(keys, row)) for row in range(len(keys))]
    assert sorted(unpacked) == sorted(set(states))
    _, there = layout.find(layout.keys(layout.pack(states)), keys)
    assert there.all()
    one = layout.keys(layout.pack([unpacked[7]]))
    _, there = layout.find(one, np.delete(keys, 7))
    assert not there.any()


def test_keys_that_are_compared_without_their_last_word_are_noticed() -> None:
    mutant = rewritten(Layout.differ, "range(1, self.words)", "range(1, self.words - 1)")
    assert not survives(mutant, lambda: test_keys_of_any_bits_are_told_apart_and_found(3))


def assert_words_are_sorted_and_seen() -> None:
    """In blocks of five keys, from none to all of which are in the run."""
    rng = random.Random(5)
    layout = Layout(TwoPhaseCommit(rm=3).cells)
    for size in [*range(1, 40), 1_000]:
        values = [rng.getrandbits(rng.choice((3, 10, 61))) for _ in range(size)]
        keys = layout.sort_unique(np.array(values, np.int64))
        assert keys.tolist() == sorted(set(values))
        run = np.unique([*rng.choices(values, k=1 + size // 4), rng.getrandbits(10)]).astype(np.int64)
        assert layout.seen(keys, run).tolist() == np.isin(keys, run).tolist()


@pytest.fixture
def small_blocks(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(packing, "BLOCK", 5)
    monkeypatch.setattr(packing, "QUICK_MIN", 2)


@pytest.mark.parametrize("quick", [True, False])
def test_words_are_sorted_in_any_way_and_looked_up_in_blocks(
    quick: bool, small_blocks: None, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(packing, "quick_is_fast", lambda: quick)
    assert_words_are_sorted_and_seen()


def test_mistakes_of_blocks_are_noticed(small_blocks: None) -> None:
    mutants = {
        "the last key of a window is left out": rewritten(Layout.seen, "last + 1", "last"),
        "a window begins one late": rewritten(Layout.seen, "min(first,", "min(first + 1,"),
        "the last block is not looked at": rewritten(Layout.seen, "*np.searchsorted", "*0 * np.searchsorted"),
        "half of the words are sorted": rewritten(packing.sort_words, "keys.sort()", "keys[::2].sort()"),
    }
    assert survivors(mutants, assert_words_are_sorted_and_seen) == []


class Keeping(System):
    """Effects that keep cells under conditions, some of which share one, and a negation that two of them share."""

    a, b, c = flag(), flag(), flag()
    m, n = integer(0, 5), integer(-2, 3)

    @transition()
    def clear(self, s: Any) -> None:
        """Where two numbers differ, flags go; where they do not, numbers begin anew."""
        s.c = ~(s.a & s.b & (s.m != s.n) & ~s.c)
        s.a, s.b = s.a & (s.m == s.n), s.b & (s.m == s.n)
        s.m, s.n = ite(s.m == s.n, 3, s.m), ite(s.m != s.n, s.n, 1)

    @transition()
    def set(self, s: Any) -> None:
        """Flags come back."""
        s.when(~(s.a & (s.m < 3)) | s.c)
        s.a, s.b, s.c = ~s.c, True, s.a

    @transition()
    def count(self, s: Any) -> None:
        """Numbers rise to their ends."""
        s.when((s.m < 5) & ~(s.b & (s.n == 3)))
        s.m, s.n = s.m + 1, ite(s.n < 2, s.n + 2, s.n)


def test_cells_that_keep_their_values_are_those_of_the_reference() -> None:
    assert_same(Keeping())


def test_mistakes_in_the_text_of_a_step_are_noticed() -> None:
    mutants = {
        "a cell is kept where it is not": rewritten(vectorise._kept, "return holds,", "return not_(holds),"),
        "sides are not exchanged": rewritten(Step._emit_effects, "sides if holds else sides[::-1]", "sides"),
        "what is kept is not cleared": rewritten(Step._emit_effects, "clear.get(word, 0) | mask", "clear.get(word, 0)"),
        "one pattern takes the place of another": rewritten(
            Step._emit_effects, "pattern | p.pattern(constant)", "pattern"
        ),
        "a disjunction denies the wrong part": rewritten(
            Emitter._none_of, "self._text(x.args[0])[0]", "self._text(x)[0]"
        ),
        "cells that are fixed stay so in a negation": rewritten(Emitter._none_of, "facts, '!='", "facts, '=='"),
    }
    assert survivors(mutants, test_cells_that_keep_their_values_are_those_of_the_reference) == []


@pytest.mark.parametrize("seed", range(40))
def test_random_systems_agree_with_the_reference(seed: int) -> None:
    system = random_system(seed)
    assert_same(system)
    assert_lassos_agree(system)


def assert_lassos_agree(system: System) -> int:
    """Returns how many lassos there were."""
    plain, _ = explore(system, ReferenceEngine)
    explicit, _ = explore(system, ExplicitEngine)
    lassos = 0
    for p in system.properties:
        if p.form is not Form.LEADS_TO:
            continue
        for k in range(p.params[0].sort.size if p.params else 1):
            binding = dict.fromkeys(p.params, k)
            expected, found = (e.lasso(*p.exprs, binding) for e in (plain, explicit))
            assert (expected is None) == (found is None), p.name
            if found is not None:
                begins = [assert_fair_lasso(system, x, p.exprs, binding) for x in (expected, found)]
                assert begins[0] == begins[1], "the stem is a shortest one"
                lassos += 1
    return lassos


def assert_fair_lasso(system: System, lasso: Lasso, exprs: Sequence[Expr], binding: dict[Expr, int]) -> int:
    """Returns where the premise holds first, with the goal false ever after."""
    assert_is_a_fair_lasso(system, lasso)
    interpreter = Interpreter(system)
    premise, goal = exprs
    avoiding = [not interpreter.holds(goal, s, binding) for s in lasso.path.states]
    begins = next(
        k for k, s in enumerate(lasso.path.states) if interpreter.holds(premise, s, binding) and all(avoiding[k:])
    )
    assert all(avoiding[min(begins, lasso.loop) :])
    return begins


@pytest.mark.parametrize("make", SMALL)
def test_lassos_are_fair_closed_and_shortest(make: Callable[[], System]) -> None:
    assert_lassos_agree(make())


def test_a_violated_liveness_gives_a_lasso_and_a_kept_one_none() -> None:
    engine, _ = explore(TwoPhaseCommit(rm=3), ExplicitEngine)
    answered, commits = (p for p in engine.kernel.system.properties if p.form is Form.LEADS_TO)
    assert engine.lasso(*answered.exprs, {answered.params[0]: 1}) is None
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
    _, seen = explore(TwoPhaseCommit(rm=8), ExplicitEngine, limits=limits)
    assert words in seen.stopped and not seen.complete
    assert 0 < seen.distinct < 200_000


def test_a_stopped_search_still_has_what_it_found() -> None:
    system = TwoPhaseCommit(rm=7)
    _, seen = explore(system, ExplicitEngine, limits=Limits(states=20_000))
    assert len(seen.found) > 10
    assert_paths(system, seen.found)


def test_a_search_made_again_finds_paths_that_are_longer_than_the_first_search_was_deep() -> None:
    system = TwoPhaseCommit(rm=4)
    engine, first = explore(system, ExplicitEngine, limits=Limits(states=300))
    wanted = [replace(watch, path=True) for watch in watches(engine.kernel)]
    again = ExplicitEngine(engine.kernel, Limits(), compiled=engine.compiled).explore(wanted)
    assert any(first.found.values())
    assert max(len(path.steps) for path in again.found.values()) > first.depth + 1
    assert_paths(system, again.found)


def test_liveness_of_a_stopped_search_is_refused() -> None:
    engine, _ = explore(TwoPhaseCommit(rm=6), ExplicitEngine, limits=Limits(states=100))
    p = engine.kernel.system.claim("transactions_commit")
    with pytest.raises(UsageError, match="explore completely"):
        engine.lasso(*p.exprs, {})


def test_liveness_under_symmetry_is_refused() -> None:
    engine, _ = explore(TwoPhaseCommit(rm=3), ExplicitEngine, symmetry=True)
    with pytest.raises(UsageError, match="not decided under symmetry"):
        engine.lasso(*engine.kernel.system.claim("transactions_commit").exprs, {})


def test_watches_of_one_key_are_found_once_and_without_the_others() -> None:
    kernel = Kernel(TwoPhaseCommit(rm=3))
    watch = next(w for w in watches(kernel) if w.key == WatchKey(WatchKind.SOMETIMES, "all_commit"))
    assert len(ExplicitEngine(kernel, Limits()).explore([watch, watch]).found[watch.key].steps) == 10


def test_a_limit_holds_to_within_a_chunk() -> None:
    _, seen = explore(TwoPhaseCommit(rm=8), ExplicitEngine, limits=Limits(states=600_000))
    assert 600_000 < seen.distinct < 700_000


def test_a_graph_beyond_the_memory_limit_is_refused() -> None:
    engine, _ = explore(TwoPhaseCommit(rm=6), ExplicitEngine)
    engine.limits = Limits(memory_bytes=1 << 20)
    with pytest.raises(LimitReached, match=r"graph for liveness stopped at .* MiB"):
        engine.lasso(*engine.kernel.system.claim("transactions_commit").exprs, {})


def test_progress_is_reported_while_it_runs() -> None:
    seen: list[Progress] = []
    _, exploration = explore(TwoPhaseCommit(rm=8), ExplicitEngine, on_progress=seen.append)
    assert len(seen) <= exploration.seconds / 0.12 + 1
    assert seen == sorted(seen, key=lambda p: p.distinct)


@pytest.mark.parametrize(("rm", "orbits"), [(3, None), (4, None), (7, 920), (8, 1461)])
def test_symmetry_visits_one_state_per_orbit(rm: int, orbits: int | None) -> None:
    system = TwoPhaseCommit(rm=rm)
    _, reduced = explore(system, ExplicitEngine, symmetry=True)
    if orbits is None:
        plain, _ = explore(system, ReferenceEngine)
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
    plain, _ = explore(system, ReferenceEngine)
    _, reduced = explore(system, ExplicitEngine, symmetry=True)
    assert reduced.distinct == len({_orbit(system, state) for state in plain.graph})
    assert_paths(system, reduced.found)


def test_symmetry_finds_each_kind_of_find_at_the_same_distance() -> None:
    _, full = explore(TwoPhaseCommit(rm=4), ExplicitEngine)
    _, reduced = explore(TwoPhaseCommit(rm=4), ExplicitEngine, symmetry=True)

    def kinds(seen: Exploration) -> dict[WatchKey, int]:
        out: dict[WatchKey, int] = {}
        for key, path in seen.found.items():
            kind = key._replace(instance=None)
            out[kind] = min(out.get(kind, 1 << 30), len(path.steps))
        return out

    assert kinds(full) == kinds(reduced)


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


def test_a_step_out_of_range_is_found_and_not_followed() -> None:
    _, seen = explore(Overflowing(), ExplicitEngine)
    assert seen.distinct == 8
    (key,) = (k for k in seen.found if k.kind is WatchKind.RANGE)
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
    engine, seen = explore(TwoPhaseCommit(rm=4), ExplicitEngine)
    assert sum(map(len, engine.levels)) == seen.distinct == len(np.unique(np.concatenate(engine.levels)))
