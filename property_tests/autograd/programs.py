"""Distributed programs as values: blocks of steps that run on workers and call each other.

Rule: a program says everything that happens; running it twice, or on another library, does the same. Block 0 is the
main program, on worker 0, and runs its passes; another block runs where its `worker` says, whenever it is called.
Values of a block are numbered: first what it takes, then what its steps make.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from typing import Any, Generic, TypeVar

V = TypeVar("V")


class Machine(ABC, Generic[V]):
    """What steps are told to: tensors, or nodes of a graph."""

    @abstractmethod
    def leaf(self, worker: int, leaf: Leaf) -> V:
        """The parameter of that name, the same each time."""

    @abstractmethod
    def do(self, worker: int, operation: str, operands: Sequence[V]) -> Sequence[V]: ...

    @abstractmethod
    def change(self, worker: int, operation: str, value: V, operand: V) -> V:
        """What the value is after an operation in place."""

    @abstractmethod
    def call(self, worker: int, block: int, operands: Sequence[V]) -> Sequence[V]: ...

    def hook(self, kind: str, value: V) -> None:
        """From now on the gradient of the value passes through the hook."""

    def after_hook(self, worker: int, name: str) -> None:
        """From now on it is counted how often the gradient of the parameter is accumulated."""


class Step(ABC):
    @abstractmethod
    def take(self, values: list[Any], worker: int, machine: Machine[Any]) -> None:
        """Do it: what it makes is appended to `values`."""


@dataclass(frozen=True)
class Leaf(Step):
    """A parameter of the worker on which the block runs; blocks share those of the same name."""

    name: str
    shape: tuple[int, ...]
    dtype: str

    def take(self, values: list[Any], worker: int, machine: Machine[Any]) -> None:
        values.append(machine.leaf(worker, self))


@dataclass(frozen=True)
class Do(Step):
    operation: str
    operands: tuple[int, ...]

    def take(self, values: list[Any], worker: int, machine: Machine[Any]) -> None:
        values.extend(machine.do(worker, self.operation, [values[k] for k in self.operands]))


@dataclass(frozen=True)
class Change(Step):
    operation: str
    value: int
    operand: int

    def take(self, values: list[Any], worker: int, machine: Machine[Any]) -> None:
        values[self.value] = machine.change(worker, self.operation, values[self.value], values[self.operand])


@dataclass(frozen=True)
class Call(Step):
    block: int
    operands: tuple[int, ...]

    def take(self, values: list[Any], worker: int, machine: Machine[Any]) -> None:
        values.extend(machine.call(worker, self.block, [values[k] for k in self.operands]))


@dataclass(frozen=True)
class Hook(Step):
    kind: str
    value: int

    def take(self, values: list[Any], worker: int, machine: Machine[Any]) -> None:
        machine.hook(self.kind, values[self.value])


@dataclass(frozen=True)
class AfterHook(Step):
    name: str

    def take(self, values: list[Any], worker: int, machine: Machine[Any]) -> None:
        machine.after_hook(worker, self.name)


@dataclass(frozen=True)
class Block:
    worker: int
    steps: tuple[Step, ...]
    gives: tuple[int, ...]  # values that are the results

    def run(self, taken: Sequence[V], machine: Machine[V]) -> list[V]:
        values = list(taken)
        for step in self.steps:
            step.take(values, self.worker, machine)
        return [values[k] for k in self.gives]


@dataclass(frozen=True)
class Pass:
    """A backward pass from values of the main block, when `steps` of its steps are done."""

    steps: int
    roots: tuple[int, ...]
    retain: bool = False


@dataclass(frozen=True)
class Program:
    workers: int
    blocks: tuple[Block, ...]
    passes: tuple[Pass, ...]
    notes: frozenset[str] = field(default=frozenset(), compare=False)  # names of the features that it has

    def run(self, machine: Machine[V]) -> Iterator[tuple[list[V], bool]]:
        """Run the main block; yields the roots of each pass, and whether to retain its graph, when it is due."""
        values: list[V] = []
        done = 0
        for each in self.passes:
            for step in self.blocks[0].steps[done : each.steps]:
                step.take(values, 0, machine)
            done = each.steps
            yield [values[k] for k in each.roots], each.retain

    def __str__(self) -> str:
        lines = [f"{self.workers} workers"]
        for number, block in enumerate(self.blocks):
            lines.append(f"block {number} on worker {block.worker}, gives {block.gives}:")
            lines += [f"    {step}" for step in block.steps]
        return "\n".join([*lines, *map(str, self.passes)])
