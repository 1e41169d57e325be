"""Steps taken for all members at once, and successors dropped before a sort: the search is the same without both."""

from __future__ import annotations

import random
from contextlib import AbstractContextManager

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from trystate.model.checker.explicit import engine as explicit
from trystate.model.checker.explicit import visited
from trystate.model.checker.explicit.packing import Columns
from trystate.model.checker.explicit.visited import NextLevel, Recent, Successors
from trystate.model.checker.kernel import Kernel
from trystate.model.language import System
from trystate.property_tests.support.mutants import rewritten, survivors
from trystate.property_tests.support.nightly import examples
from trystate.property_tests.support.runs import MANY
from trystate.property_tests.support.systems.declarations import declared
from trystate.property_tests.support.systems.engine_samples import Ring
from trystate.property_tests.support.systems.random_systems import Declaration, declarations, system
from trystate.property_tests.support.systems.small_rendezvous import small_rendezvous
from trystate.property_tests.support.systems.two_phase_commit import TwoPhaseCommit
from trystate.property_tests.tests.checker.searches import answers, narrow, patched

# The members of one field have different constant values, and a step names a member.
Uneven = declared(
    """
node = index(3)
weight = integer(0, 2, per="node", initial=lambda node: node)
held, lit = integer(0, 2), flag(per="node")
@transition()
def lift(self, s, node): 'Hold the weight of a node.'; s.held = s.weight[node]; s.lit[node] = True
@transition()
def drop(self, s, node): 'The first node lets go.'; s.when(s.lit[0]); s.lit[node] = False
""",
    System,
)
# A field holds a member, or none.
Owned = declared(
    """
node = index(3)
owner, done = one_of(node, optional=True), flag(per="node")
@transition()
def own(self, s, node): 'A node owns it.'; s.when(s.owner.absent); s.owner = node
@transition()
def release(self, s, node): 'The owner has done its work.'; s.when(s.owner == node); s.done[node] = True; s.owner = None
""",
    System,
)


def crowded() -> AbstractContextManager[pytest.MonkeyPatch]:
    """Tables of two to eight recent states, which are used for every chunk."""
    values = {"RECENT_MIN": 2, "RECENT_MAX": 8, "PIECE": 3, "descents": len}
    return patched(*((visited, name, value) for name, value in values.items()))


@given(declarations(symmetric=True) | declarations(), st.sampled_from((61, 5)))
@settings(max_examples=examples(30))
def test_the_steps_of_members_of_random_systems_are_the_same_together(declared: Declaration, bits: int) -> None:
    with narrow(lambda: system(declared, members=3), bits):
        # Each step is taken by itself, and no successor is dropped before a sort.
        with patched((explicit, "SMALL", -1), (visited, "RECENT_RUN", 0)):
            expected = answers(system(declared, members=3), 1)
        with crowded():
            assert answers(system(declared, members=3), 1) == expected


def test_only_steps_that_do_not_distinguish_members_are_taken_together() -> None:
    def together(of: System) -> set[str]:
        kernel = Kernel(of)
        found = explicit.Compiled.of(kernel).members._alike
        return {kernel.instances[steps.numbers[0]].transition.name for each in found for steps in each if steps.sort}

    assert together(small_rendezvous(3)) == {t.name for t in small_rendezvous(3).transitions} - {"pass_deadline"}
    assert together(Ring(node=3)) == {"grow"}
    assert together(Uneven()) == together(Owned()) == set()


def assert_no_state_is_lost() -> None:
    """Each state is returned once or more, and a state that was returned may be dropped."""
    rng = random.Random(3)
    for words in (1, 2, 3):
        recent, dropped = Recent(), 0
        returned: set[tuple[int, ...]] = set()
        for _ in range(60):
            states = [tuple(rng.choice((1, 2, 3)) << 40 * rng.randint(0, 1) for _ in range(words)) for _ in range(9)]
            columns = tuple(np.array(column, np.int64) for column in zip(*states, strict=True))
            kept = [*zip(*(column.tolist() for column in recent.unknown(columns)), strict=True)]
            assert {*states} - returned <= {*kept} <= {*states}
            returned |= {*kept}
            dropped += len(states) - len(kept)
        assert dropped > 0


def test_a_state_is_dropped_only_if_it_was_returned() -> None:
    with crowded():
        assert_no_state_is_lost()
        mutants = {
            "only the first words are compared": rewritten(Recent.unknown, "differs |=", "differs &="),
            "a state is not added": rewritten(Recent.unknown, "self._put(at.take(rows), part)", "pass"),
        }
        assert survivors(mutants, assert_no_state_is_lost) == []


def test_each_chunk_has_a_table_that_no_other_has() -> None:
    visited = explicit.ExplicitEngine(Kernel(TwoPhaseCommit(rm=2)), MANY).visited
    one, other = visited.table(), visited.table()
    assert isinstance(one, Recent) and one is not other
    visited.recent.append(one)
    assert visited.table() is one


def two_states() -> tuple[explicit.ExplicitEngine, Columns]:
    kernel = Kernel(TwoPhaseCommit(rm=2))
    engine = explicit.ExplicitEngine(kernel, MANY)
    return engine, engine.layout.pack([tuple(getattr(c.sort, end) for c in kernel.cells) for end in ("high", "low")])


def test_a_chunk_drops_the_successors_that_its_table_has_from_another() -> None:
    (engine, columns), recent = two_states(), Recent()
    for new in (2, 0):
        gathered = Successors(engine.layout, recent)
        gathered.add(columns)
        assert len(gathered.finish()[0]) == new


@pytest.mark.parametrize(("room", "counted"), [(1, 2), (9, 0)])
def test_near_the_limit_alone_a_small_batch_is_compared_at_once(room: int, counted: int) -> None:
    engine, columns = two_states()
    following = NextLevel(engine.layout, engine.visited, room, engine._workers)
    following.add(engine.layout.sort_unique(engine.layout.joined([columns])))
    assert (following.count, following.waiting) == (counted, 2 - counted)
