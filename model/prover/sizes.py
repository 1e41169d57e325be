"""A system whose sizes are symbols: the same declarations, traced once for every size.

*Theory of operation.* A constant becomes a read of a field that no step writes; an index has so many members that no
comparison of ranges can fold. A fault that is on has no bound, so that it may happen any number of times. Nothing else
of a declaration changes: its functions run on such a system as on any other, and the trees that they leave hold for
every size at once. A proof assumes that the sizes are as the system's `sizes_allowed` says, that an index has a member,
and that a constant is not negative, which every system checks when it is built.

An index that the system's `sizes_in_proofs` names keeps the size that stands there: its members are constants, and a
quantifier over it is written out. The proof is for that size alone.

One thing can go wrong: a declaration computes with a size as with a Python number (`range(self.limit)`). That is
refused with its line, as every use of a symbol as a number is.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from ..errors import UsageError
from ..language import Expr, Sort, System
from ..language.expressions import read
from ..language.fields import Constant
from ..language.properties import Claim
from ..language.sorts import int_sort
from ..language.transitions import Rule

MEMBERS = ".members"  # ends the name of the number of members of an index
MANY = 10**6  # above every number in a declaration, so that no range folds


def any_size(
    cls: type[System],
    lemmas: type[System] | None = None,
    *,
    edition: Any = None,
    faults: Iterable[str] | None = None,
) -> System:
    """Build a system for every size.

    cls: the class of the system, or of one edition.
    lemmas: a class that adds properties to it, for the proof.
    edition: as `System` takes it.
    faults: the names of those that are on, without a bound; by default all that the edition has.
    Raises UsageError for an edition or a fault that the system does not have, and for a loop of Python over a size.
    """
    found = cls.for_edition(edition)
    bases = (_AnySize, found) if lemmas is None or issubclass(found, lemmas) else (_AnySize, lemmas, found)
    made: type[System] = type(found.__name__, bases, {"__doc__": found.__doc__, "__module__": found.__module__})
    made.__family__ = found.__family__
    try:
        return made(faults=dict.fromkeys(fault_names(found) if faults is None else faults, MANY))
    except RecursionError:
        raise UsageError(
            f"{found.__name__} makes a part of a condition for each number below a size: a proof for any size has no "
            "such number, write any_(), all_() or count() over the index"
        ) from None


def fault_names(cls: type[System]) -> list[str]:
    """The faults that a class of one edition has a step for."""
    mine = cls.__family__.edition
    rules = (v for v in cls.declarations().values() if isinstance(v, Rule) and v.fault)
    return sorted({rule.fault for rule in rules if not rule.editions or mine in rule.editions})


class _AnySize(System):
    """The sizes as symbols."""

    def _sizes(self, body: dict[str, Any], given: dict[str, int]) -> dict[str, int]:
        fixed = {**self.sizes_in_proofs}
        sizes = {**dict.fromkeys(super()._sizes(body, {**given, **fixed}), MANY), **fixed}
        for name, declared in body.items():
            if isinstance(declared, Constant):
                setattr(self, name, size(name))
        return sizes

    def size_of(self, name: str) -> Any:
        sort = self.index_sorts.get(name)
        if sort is None:
            return size(name)
        return sort.size if is_fixed(sort) else members(sort)


def size(name: str) -> Expr:
    """The constant of this name, as a tree."""
    return read(name, (), int_sort(0, MANY))


def is_fixed(index: Sort) -> bool:
    """Has the index the one size that a proof has for it?"""
    return index.size < MANY


def members(index: Sort) -> Expr:
    """How many members an index has, as a tree."""
    return read(f"{index.name}{MEMBERS}", (), int_sort(1, MANY))


def constants(system: System) -> list[str]:
    """The names of its constants."""
    return [name for name, declared in system.declarations().items() if isinstance(declared, Constant)]


def lemma_names(lemmas: type[System]) -> frozenset[str]:
    """The properties that only the proof needs."""
    return frozenset(name for name, declared in vars(lemmas).items() if isinstance(declared, Claim))


def is_counter(system: System, field: str) -> bool:
    """Does the field say how often a fault may still happen?"""
    return field in {system.fault_counter(fault) for fault in system.faults}
