"""Proofs in tests: of a whole system, of some steps, and of the steps in which one system differs from another."""

from __future__ import annotations

import time
from collections.abc import Iterable, Mapping
from typing import Any

from trystate.model.language import Expr, System
from trystate.model.prover.conditions import Claims
from trystate.model.prover.induction import Answer, Proof, Prover
from trystate.model.prover.sizes import lemma_names

SECONDS = 600.0  # limit of one proof, on a busy machine


def proved(
    system: System, only: Iterable[str] = (), effort: int = 2_000_000, lemmas: Any = None, **options: Any
) -> Proof:
    """The proof of a system, or of some properties with the others assumed."""
    names = lemma_names(lemmas) if lemmas is not None else frozenset[str]()
    return Prover(system, names, clock=time.monotonic, seconds=SECONDS, effort=effort, only=only, **options).prove()


def kept(system: System, steps: Iterable[str], only: Iterable[str] = (), *, effort: int, stop: bool = False) -> Proof:
    """Whether these steps keep each property, with the whole invariant assumed."""
    return proved(system, only, effort, steps=steps, stop=stop)


def changed(system: System, right: System) -> list[str]:
    """The steps of a system that differ from the right system's; all other conditions are the same trees."""
    one, other = Claims(system), Claims(right)  # both are alive while their trees are compared
    assert trees(one.invariant) == trees(other.invariant)
    own = {t.name: (id(t.guard), trees(t.effects)) for t in right.transitions}
    return [t.name for t in system.transitions if own.get(t.name) != (id(t.guard), trees(t.effects))]


def trees(named: Mapping[str, Expr]) -> dict[str, int]:
    """Trees that are equal are one object."""
    return {name: id(tree) for name, tree in named.items()}


def assert_breaks(broken: Proof, steps: Iterable[str]) -> None:
    """Exactly one condition is not proved, and it belongs to one of these steps."""
    assert not broken.complete
    (question,) = (q for q in broken.asked if q.answer is not Answer.REFUTED and q.smt2)
    assert question.condition.where in steps
