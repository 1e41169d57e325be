"""A property that is proved of a random system holds at small sizes; a mistake of the prover breaks that."""

import time
from collections.abc import Mapping
from dataclasses import replace
from typing import Any

import pytest

from trystate.model.language import System, expressions, fields, quantifiers, systems
from trystate.model.language.expressions import Expr, lift, read
from trystate.model.language.sorts import int_sort
from trystate.model.prover import conditions, counting, sizes
from trystate.model.prover.conditions import INIT
from trystate.model.prover.induction import Prover
from trystate.property_tests.support.mutants import Mutant, planted, replaced
from trystate.property_tests.support.nightly import NIGHTLY, NUMBERS
from trystate.property_tests.support.systems.random_proofs import judged

MANY = 10**6  # the number that once stood for any


def test_a_proved_property_of_a_random_system_holds_at_small_sizes() -> None:
    """By night for an hour."""
    end, seed, proved = time.monotonic() + NUMBERS["seconds of random proofs"], 0, 0
    while seed < 12 or (NIGHTLY and time.monotonic() < end):
        found = judged(seed)
        assert not found.refuted, f"{found.refuted}\n{found.text}"
        proved += bool(found.proved)
        seed += 1
    assert proved >= seed // 4


# ---- mutants: each of the mistakes, planted again


def assumes_itself(self: Prover, condition: Any, kept: Mapping[str, Expr]) -> tuple[Expr, ...]:
    return (kept[condition.what],) if condition.what in kept else ()


def assumes_all(patch: pytest.MonkeyPatch) -> None:
    """A question about an initial state assumes the invariant."""
    original = Prover.base

    def base(self: Prover, condition: Any, kept: Any, left_out: Any) -> Any:
        as_step = replace(condition, where="a step") if condition.where == INIT else condition
        return original(self, as_step, kept, left_out)

    patch.setattr(Prover, "base", base)


def first_value_alone(patch: pytest.MonkeyPatch) -> None:
    """Of several initial values a proof looks at the first."""
    original = fields.make_slot

    def make_slot(*given: Any) -> fields.Slot:
        made = original(*given)
        return replace(made, initial=made.initial[:1]) if is_any(given[2]) else made

    patch.setattr(systems, "make_slot", make_slot)


def is_any(given: Mapping[str, Any]) -> bool:
    return any(isinstance(value, Expr) for value in given.values())


def slots(changed: Any) -> Mutant:
    """Each field of a system of any size is another."""
    original = fields.make_slot

    def make_slot(name: str, declared: fields.Field, given: Any, dims: Any) -> fields.Slot:
        made = original(name, declared, given, dims)
        return changed(declared, made) if is_any(given) else made

    return replaced(systems, "make_slot", make_slot)


def high_low(declared: fields.Field, made: fields.Slot) -> fields.Slot:
    if declared.low != "low":
        return made
    return replace(made, sort=int_sort(MANY, made.sort.most), bounds=(0, made.bounds[1]))


def begins_at_many(declared: fields.Field, made: fields.Slot) -> fields.Slot:
    if all(isinstance(v, int) for v in made.initial) or made.name not in ("x", "y"):
        return made
    return replace(made, initial=tuple(v if isinstance(v, int) else MANY for v in made.initial), bounds=(0, MANY))


def size_of_many(index: Any) -> Expr:
    return lift(MANY if index.is_open else index.size)


def long_index(self: quantifiers.IndexSet) -> int:
    return MANY if self.sort.is_open else self.sort.size


def below_many(name: str, least: int = 0) -> Expr:
    return read(name, (), int_sort(least, MANY))


def no_order_at_all(self: Any, v: Expr, x: Expr, before: Expr) -> bool:
    """Any condition on two members that is irreflexive and transitive: it need not be total."""
    original: Any = ORIGINAL_IS_ORDER
    return bool(original(self, v, x, before)) or before.op == "lt"


ORIGINAL_IS_ORDER = counting.Counting._is_order

# Each with the first seed that shows it: all are found within a minute.
MUTANTS: Mapping[str, tuple[Mutant, int]] = {
    "a question about an initial state assumes its property": (replaced(Prover, "_own", assumes_itself), 0),
    "a question about an initial state assumes the invariant": (assumes_all, 0),
    "the first of several initial values alone": (first_value_alone, 0),
    "the length of an index is a number": (replaced(quantifiers.IndexSet, "__len__", long_index), 37),
    "a count of all members is a number": (replaced(expressions, "members", size_of_many), 0),
    "a counter of a fault may be read": (replaced(conditions, "_refuse_counters", lambda system: None), 28),
    "a lowest value that is a constant is a large number": (slots(high_low), 0),
    "an initial value that is a size is a large number": (slots(begins_at_many), 76),
    "an order may depend on another loop": (replaced(counting, "_around", lambda *given: []), 24),
    "an order need not be total": (replaced(counting.Counting, "_is_order", no_order_at_all), 97),
    "a symbol is at most a million": (replaced(sizes, "symbol", below_many), 24),
    "sizes that are not allowed are built": (replaced(System, "_check_sizes", lambda self: None), 2),
    "sizes that contradict each other": (replaced(Prover, "_refuse_no_sizes", lambda self: None), 1),
}


@pytest.mark.parametrize("name", MUTANTS)
def test_a_mistake_of_the_prover_is_found(name: str) -> None:
    mutant, seed = MUTANTS[name]
    without = judged(seed)
    assert not without.refuted
    with planted(mutant):
        found = judged(seed)
    assert found.refuted, found.text
