"""Computes, for the documents, where the operators of two editions decide differently."""

from __future__ import annotations

import enum
from collections.abc import Iterator
from dataclasses import dataclass
from itertools import product

from ..language import Atom, DecisionTable
from .operators import OPERATORS
from .vocabulary import Edition

Valuation = tuple[bool, ...]
Cube = tuple[bool | None, ...]  # None: this atom does not matter


@dataclass(frozen=True, slots=True)
class Difference:
    """For these values of the atoms, SEED always decides `seed` and TORCH always decides `torch`."""

    operator: str
    when: tuple[tuple[Atom, bool], ...]
    seed: enum.Enum
    torch: enum.Enum

    def __str__(self) -> str:
        when = " ∧ ".join(atom.label if value else f"¬({atom.label})" for atom, value in self.when)
        return f"{self.operator}: {when}: SEED {self.seed.name}, TORCH {self.torch.name}"


def seed_differences() -> tuple[Difference, ...]:
    """Returns all differences between SEED and TORCH as a small number of cubes that cover exactly them."""
    seed, torch = OPERATORS[Edition.SEED], OPERATORS[Edition.TORCH]
    return tuple(d for name in torch for d in differences(name, seed[name], torch[name]))


def differences(name: str, seed: DecisionTable, torch: DecisionTable) -> Iterator[Difference]:
    """Yields the differences of one operator; a table ignores an atom that it does not have."""
    atoms = tuple(dict.fromkeys((*torch.atoms, *seed.atoms)))
    names = tuple(a.name for a in atoms)
    impossible = (*seed.impossible, *torch.impossible)
    differ: dict[tuple[enum.Enum, enum.Enum], set[Valuation]] = {}
    free: set[Valuation] = set()  # cannot occur: a cube may contain it or not
    for valuation in product((False, True), repeat=len(atoms)):
        held = dict(zip(names, valuation, strict=True))
        if any(cube.items() <= held.items() for cube in impossible):
            free.add(valuation)
            continue
        pair = seed.decide(held), torch.decide(held)
        if pair[0] is not pair[1]:
            differ.setdefault(pair, set()).add(valuation)
    for (one, other), valuations in differ.items():
        for cube in _cover(valuations, free):
            when = tuple((a, v) for a, v in zip(atoms, cube, strict=True) if v is not None)
            yield Difference(name, when, one, other)


def _cover(wanted: set[Valuation], free: set[Valuation]) -> list[Cube]:
    """Returns few cubes that cover all of `wanted`, some of `free` and nothing else; each cube is needed."""
    allowed = wanted | free
    cubes: list[Cube] = []
    left = set(wanted)
    while left:
        cube = _grown(min(left), allowed)
        cubes.append(cube)
        left -= _members(cube)
    for cube in list(cubes):
        others = set[Valuation]().union(*(_members(c) for c in cubes if c is not cube))
        if wanted <= others:
            cubes.remove(cube)
    return cubes


def _grown(valuation: Valuation, allowed: set[Valuation]) -> Cube:
    """Drops atoms from the valuation, the last one first, while the cube stays within `allowed`."""
    cube: Cube = valuation
    for k in reversed(range(len(valuation))):
        wider = (*cube[:k], None, *cube[k + 1 :])
        if _members(wider) <= allowed:
            cube = wider
    return cube


def _members(cube: Cube) -> set[Valuation]:
    return set(product(*((False, True) if value is None else (value,) for value in cube)))
