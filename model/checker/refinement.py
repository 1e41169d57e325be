"""Refinement: whether every step of a finer system is a step of a coarser system, or changes nothing there.

Theory of operation (Abadi and Lamport, "The existence of refinement mappings", 1991). A mapping gives each field of the
coarser system as an expression over the state of the finer one. So each finer state has an image, a coarser state. The
finer system is explored completely. Its initial states must have initial images, and a finer step must leave the image
unchanged or move it like some step of the coarser system. Each pair of images is looked up once, even if several finer
steps make it. Then a property of coarser states and steps that holds in the coarser system also holds for the images.
This is only safety: fairness is not compared, and the finer system need not make every coarser step.

With `several`, a finer step may also be several coarser steps in sequence (a forward simulation: Lynch and Vaandrager,
"Forward and backward simulations", 1995). The search considers only sequences in which each step sets every cell that
it changes to its final value. It may miss a sequence, and then it reports a finer step as broken that is not.

`trystate verify` calls it (property_tests/adapters/refinements.py), in one thread.

Failures:

- A limit ends the search before it is complete: LimitReached, without a result.
- An image is broken. This is a result: `broken` names the finer step and what it changes in the coarser state, or the
  cell whose range an image leaves.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np

from ..errors import UsageError
from ..language.expressions import Expr, const, fields_read, lift
from ..language.properties import Property
from ..language.systems import State, System
from .interpret import Interpreter
from .kernel import Exploration, Limits, Path
from .whole import explore_whole

if TYPE_CHECKING:
    from .explicit.engine import ExplicitEngine
    from .explicit.graph import Explored


@dataclass(frozen=True, slots=True)
class Refinement:
    """The result of a check of refinement. `broken` describes the finer steps that no coarser step matches.

    `run` is a shortest run of the finer system that ends with one of these steps, or None.
    """

    fine_states: int
    fine_steps: int
    coarse_states: int
    visible_steps: int
    broken: tuple[str, ...]
    run: Path | None = None


def refines(
    fine: System, coarse: System, mapping: Mapping[str, Expr], limits: Limits | None = None, *, several: bool = False
) -> Refinement:
    """Check every step of the finer system's whole graph.

    `mapping` gives fields of the coarser system as trees over the finer state (with `@0`, `@1` for indices);
    fields left out keep their initial value. With `several`, a finer step may be several coarser ones.

    Raises:
        UsageError: a name in `mapping` is not a field of the coarser system, or its value does not fit that field.
        DeclarationError: a step of the finer system leaves a field's range.
        LimitReached: the finer system has not been explored completely.
    """
    values = {name: _value(fine, coarse, name, value) for name, value in mapping.items()}  # mistakes, before the search
    return refines_searched(fine, coarse, values, *explore_whole(fine, limits), several=several)


def refines_searched(
    fine: System, coarse: System, mapping: Mapping[str, Expr], engine: ExplicitEngine, seen: Exploration, *,
    several: bool = False,
) -> Refinement:  # fmt: skip
    """`refines` on the engine that has explored the finer system completely, and its exploration."""
    values = {name: _value(fine, coarse, name, value) for name, value in mapping.items()}
    explored = engine.explored()
    images = _Images(fine, coarse, values)
    image = np.array([images.of(explored.state(k)) for k in range(seen.distinct)], np.int64)
    steps = _Steps(coarse)
    starts = map(images.map, fine.initial_states)
    broken = [f"initial state {coarse.decode(s)}" for s in starts if not steps.begins(s)]
    broken += _outside(coarse, images.states)
    graph = explored.graph
    pairs: dict[tuple[int, int], tuple[int, int]] = {}
    for number, origins in graph.origins.items():
        before, after = image[origins], image[graph.targets[number]]
        moved = np.flatnonzero(before != after)
        _, first = np.unique(before[moved] * len(images.states) + after[moved], return_index=True)
        for row in moved[first]:
            pairs.setdefault((int(before[row]), int(after[row])), (number, int(origins[row])))
    unmatched: dict[int, int] = {}  # finer state -> a step from it
    for (a, b), (number, origin) in pairs.items():
        if not steps.lead(images.states[a], images.states[b], several):
            label = engine.kernel.instances[number].label
            broken.append(_describe(coarse, label, images.states[a], images.states[b]))
            unmatched.setdefault(origin, number)
    run = _run(engine, explored, unmatched) if unmatched else None
    return Refinement(seen.distinct, seen.edges, len(images.states), len(pairs), tuple(broken), run)


def _run(engine: ExplicitEngine, explored: Explored, unmatched: Mapping[int, int]) -> Path:
    """A shortest run to a state of `unmatched`, and the step from it."""
    stem = engine.nearest([*unmatched])
    number = unmatched[explored.number(stem.states[-1])]
    after = Interpreter(engine.kernel.system).apply(engine.kernel.instances[number], stem.states[-1])
    return Path((*stem.states, after), (*stem.steps, number))


def _value(fine: System, coarse: System, name: str, given: Any) -> Expr:
    """The tree that a mapping gives for a field of the coarser system.

    Raises:
        UsageError: the coarser system has no such field, or the tree does not fit it.
    """
    slot = coarse.slots.get(name)
    if slot is None:
        raise UsageError(
            f"mapping has {name!r}, which is not a field of {coarse.name}: it has {', '.join(coarse.slots)}"
        )
    value = lift(given)
    if value.sort.kind != slot.sort.kind or (slot.sort.kind == "enum" and value.sort is not slot.sort):
        raise UsageError(f"mapping gives {name} {value}, of sort {value.sort.name}: {name} is of sort {slot.sort.name}")
    unbound = value.free - {*slot.placeholders()}
    if unbound:
        names = ", ".join(map(str, slot.placeholders())) or "none"
        raise UsageError(
            f"mapping gives {name} {value}, with the index {', '.join(map(str, unbound))}: the indices of {name} are "
            f"{names}; write the map as assignments to a state of {coarse.name}"
        )
    missing = sorted(fields_read(value) - {*fine.slots})
    if missing:
        raise UsageError(f"mapping gives {name} {value}: {', '.join(missing)} is not a field of {fine.name}")
    return value


def _outside(coarse: System, images: Sequence[State]) -> Iterator[str]:
    """For each cell of the coarser system, describe the first image that leaves its range."""
    for k, cell in enumerate(coarse.cells):
        low, high = cell.sort.low, cell.sort.high
        for image in images:
            if not low <= image[k] <= high:
                yield f"{cell.name} is {image[k]} in an image: it goes from {low} to {high}"
                break


class Simulation:
    """Judges single states and steps of a run by a declared refinement."""

    def __init__(self, fine: System, p: Property) -> None:
        assert p.coarse is not None and p.mapping is not None
        self._images, self._steps = _Images(fine, p.coarse, p.mapping), _Steps(p.coarse)

    def keeps(self, before: State | None, after: State) -> bool:
        """Whether a step is a step of the coarser system, or a state without a step before it is an initial state."""
        image = self._images.map(after)
        if before is None:
            return self._steps.begins(image)
        there = self._images.map(before)
        return image == there or self._steps.lead(there, image, several=False)


class _Images:
    """Numbers the coarser states that finer states map to."""

    def __init__(self, fine: System, coarse: System, mapping: Mapping[str, Expr]) -> None:
        self.states: list[State] = []
        self._numbers: dict[State, int] = {}
        self._fine = Interpreter(fine)
        self._values = [
            (
                mapping.get(cell.slot.name, const(cell.initial[0], cell.sort)),
                dict(zip(cell.slot.placeholders(), cell.indices, strict=True)),
            )
            for cell in coarse.cells
        ]

    def map(self, state: State) -> State:
        return tuple(self._fine.value(tree, state, places) for tree, places in self._values)

    def of(self, state: State) -> int:
        image = self.map(state)
        number = self._numbers.setdefault(image, len(self.states))
        if number == len(self.states):
            self.states.append(image)
        return number


class _Steps:
    """The steps of the coarser system, cached for each state that was looked up."""

    def __init__(self, coarse: System) -> None:
        self._steps, self._cells, self._condition = Interpreter(coarse), coarse.cells, coarse.initial_condition
        self._known: dict[State, set[State]] = {}

    def begins(self, image: State) -> bool:
        """Whether a state is an initial one; they may be too many to list."""
        allowed = all(value in cell.initial for value, cell in zip(image, self._cells, strict=True))
        return allowed and self._steps.holds(self._condition, image, {})

    def lead(self, before: State, after: State, several: bool) -> bool:
        """Whether a step leads there, or with `several`, a sequence that sets cells only to their final values."""
        todo, seen = [before], {before}
        while todo:
            here = todo.pop()
            found = self._from(here)
            if after in found:
                return True
            if several:
                nearer = {one for one in found if all(x in (y, z) for x, y, z in zip(one, here, after, strict=True))}
                todo += nearer - seen
                seen |= nearer
        return False

    def _from(self, state: State) -> set[State]:
        if state not in self._known:
            inside = all(c.sort.low <= value <= c.sort.high for value, c in zip(state, self._cells, strict=True))
            self._known[state] = {found for _, found in self._steps.successors(state)} if inside else set()
        return self._known[state]


def _describe(coarse: System, label: str, before: State, after: State) -> str:
    a, b = coarse.decode(before), coarse.decode(after)
    changes = ", ".join(f"{k}: {a[k]} -> {b[k]}" for k in a if a[k] != b[k])
    return f"{label} has no counterpart: {changes}"
