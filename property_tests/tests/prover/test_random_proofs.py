"""A proved property of a random system holds at small sizes; a mistake of the prover breaks that."""

import time
from collections.abc import Mapping
from dataclasses import replace
from typing import Any

import pytest

from trystate.model.language import expressions, fields, quantifiers, systems
from trystate.model.language.expressions import Expr, read
from trystate.model.language.sorts import int_sort
from trystate.model.prover import sizes
from trystate.model.prover.induction import Prover
from trystate.model.prover.sums import Sums
from trystate.property_tests.support.mutants import Mutant, planted, replaced, rewritten
from trystate.property_tests.support.nightly import NIGHTLY, NUMBERS
from trystate.property_tests.support.systems.random_proofs import judged

MANY = 10**6  # a number that the prover once used for any size


def test_a_proved_property_of_a_random_system_holds_at_small_sizes() -> None:
    """By night this runs for eight minutes."""
    end, seed, proved = time.monotonic() + NUMBERS["seconds of random proofs"], 0, 0
    while seed < 12 or (NIGHTLY and time.monotonic() < end):
        found = judged(seed)
        assert not found.refuted, f"{found.refuted}\n{found.text}"
        proved += bool(found.proved)
        seed += 1
    assert proved >= seed // 4


# ---- mutants: known mistakes, planted again


def slots(changed: Any) -> Mutant:
    """Each field of a system of any size is changed."""
    original = fields.make_slot

    def make_slot(name: str, declared: fields.Field, sizes: fields.Sizes) -> fields.Slot:
        made = original(name, declared, sizes)
        return changed(declared, made) if any(isinstance(value, Expr) for value in sizes.values.values()) else made

    return replaced(systems, "make_slot", make_slot)


def high_low(declared: fields.Field, made: fields.Slot) -> fields.Slot:
    if declared.low != "low":
        return made
    return replace(made, sort=int_sort(MANY, made.sort.most), bounds=(0, made.bounds[1]))


def begins_at_many(declared: fields.Field, made: fields.Slot) -> fields.Slot:
    if all(isinstance(v, int) for v in made.initial) or made.name not in ("x", "y"):
        return made
    return replace(made, initial=tuple(v if isinstance(v, int) else MANY for v in made.initial), bounds=(0, MANY))


# The first seed that shows a mutant -> the mutants; all are found within a minute.
MUTANTS: Mapping[int, Mapping[str, Mutant]] = {
    0: {
        "a question about an initial state assumes its property": rewritten(
            Prover._own, "condition.where != INIT and ", ""
        ),
        "a question about an initial state assumes the invariant": rewritten(
            Prover.base, "condition.where != INIT", "True"
        ),
        "the first of several initial values alone": slots(
            lambda declared, made: replace(made, initial=made.initial[:1])
        ),
        "a count of all members is a number": rewritten(
            expressions.members, 'symbol(f"{index.name}{MEMBERS}", 1)', "lift(10**6)"
        ),
        "a lowest value that is a constant is a large number": slots(high_low),
    },
    12: {"a part of a sum is positive": rewritten(Sums._laws, "part >= 0", "part > 0")},
    24: {
        "a symbol is at most a million": replaced(
            sizes, "symbol", lambda name, least=0: read(name, (), int_sort(least, MANY))
        ),
    },
    37: {
        "the length of an index is a number": rewritten(
            quantifiers.IndexSet.__len__, "self.sort.size", "10**6 if self.sort.is_open else self.sort.size"
        )
    },
    47: {"every part of a sum is zero": rewritten(Sums._laws, "z3.Implies(z3.Not(some), part == 0)", "part == 0")},
    76: {"an initial value that is a size is a large number": slots(begins_at_many)},
}
CASES = [(mutant, seed) for seed, mutants in MUTANTS.items() for mutant in mutants.values()]


@pytest.mark.parametrize(("mutant", "seed"), CASES, ids=[name for mutants in MUTANTS.values() for name in mutants])
def test_a_mistake_of_the_prover_is_found(mutant: Mutant, seed: int) -> None:
    without = judged(seed)
    assert not without.refuted
    with planted(mutant):
        found = judged(seed)
    assert found.refuted, found.text
