"""A system whose sizes are symbols: the same declarations, traced once for all sizes.

*Theory of operation.* A constant becomes a read of a field that no step writes, and so does the number of members of an
index. Both have an open sort, whose bounds are not numbers: the constructors of the language fold nothing with them,
and a declaration that uses one as a Python number, in `range(self.limit)`, `len(s.node)` or an `if`, is refused with
its line. A fault that is switched on has such a bound too, so it may happen any number of times. Nothing else in a
declaration changes: its functions run on such a system as on any other, and their trees hold for all sizes at once.

A proof assumes the conditions on the sizes that each system checks when it is built: its `sizes_allowed`, that an index
has a member, that a constant is not negative, and that each field begins in its range.

An index or a constant that the system's `sizes_in_proofs` names keeps the size that it has there: its members are
constants, and a quantifier over it is expanded. The proof holds only for that size, and for the tables of the system:
constants that are tuples and the like.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping
from typing import Any

from ..language import Sort, System, bodies, source
from ..language.expressions import MEMBERS, symbol
from ..language.fields import Constant, Index
from ..language.properties import Claim
from ..language.sorts import index_sort
from ..language.transitions import Rule


def any_size(
    cls: type[System],
    lemmas: type[System] | None = None,
    *,
    edition: Any = None,
    faults: Iterable[str] | None = None,
) -> System:
    """Build a system for all sizes.

    cls: the class of the system, or of one edition.
    lemmas: a class that adds properties to it, for the proof.
    edition: the same as for `System`.
    faults: the names of the faults that are switched on, without a bound; by default all that the edition has.
    Raises UsageError for an edition, a fault or a size that the system does not have, and DeclarationError for a
    declaration that uses a size as a Python number.
    """
    found = cls.for_edition(edition)
    bases = (_AnySize, found) if lemmas is None or issubclass(found, lemmas) else (_AnySize, lemmas, found)
    made: type[System] = type(found.__name__, bases, {"__doc__": found.__doc__, "__module__": found.__module__})
    made.__family__ = found.__family__
    return made(faults=fault_names(found) if faults is None else faults)


def fault_names(cls: type[System]) -> list[str]:
    """The faults that a class of one edition has a step for."""
    mine = cls.__family__.edition
    rules = (v for v in cls.declarations().values() if isinstance(v, Rule) and v.fault)
    return sorted({rule.fault for rule in rules if not rule.editions or mine in rule.editions})


class _AnySize(System):
    """A system with symbols for its sizes."""

    def _sizes(self, body: dict[str, Any], given: dict[str, Any]) -> dict[str, Any]:
        fixed = self.sizes_in_proofs
        sizes: dict[str, Any] = super()._sizes(body, {**given, **fixed})
        for name in (name for name in sizes if name not in fixed):  # keeps the order, in which trees are made
            is_index = isinstance(body[name], Index)
            sizes[name] = symbol(f"{name}{MEMBERS}", 1) if is_index else symbol(name)
            if not is_index:
                setattr(self, name, sizes[name])
        return sizes

    def _index_sort(self, name: str) -> Sort:
        return index_sort(name, self.sizes_in_proofs.get(name, math.inf))

    def _faults(self, faults: Iterable[str] | Mapping[str, int], together: int | None) -> dict[str, Any]:
        return {name: symbol(f"{name}.bound", 1) for name in super()._faults(faults, together)}

    @property
    def faults(self) -> dict[str, Any]:
        """The faults that are switched on, with symbols for their bounds; a declaration must not depend on them."""
        if at := bodies.line_of_author():
            source.refuse("self.faults is read, but a proof is for runs without faults too: declare a @fault", at=at)
        return self._switched_on

    @faults.setter
    def faults(self, bounds: dict[str, Any]) -> None:
        self._switched_on = bounds

    def _check_sizes(self) -> None:
        """Check nothing: the proof assumes the conditions that are checked for given sizes."""


def constants(system: System) -> list[str]:
    """The names of the constants that the proof leaves open."""
    declared = system.declarations().items()
    fixed = {**system.sizes_in_proofs, **system.tables}
    return [name for name, what in declared if isinstance(what, Constant) and name not in fixed]


def lemma_names(lemmas: type[System]) -> frozenset[str]:
    """The properties that only the proof needs: those that the class and its bases in the same module declare."""
    classes = (cls for cls in lemmas.__mro__ if cls.__module__ == lemmas.__module__)
    return frozenset(name for cls in classes for name, declared in vars(cls).items() if isinstance(declared, Claim))


def is_counter(system: System, field: str) -> bool:
    """Whether the field counts how often a fault may still happen."""
    return field in {system.fault_counter(fault) for fault in system.faults}
