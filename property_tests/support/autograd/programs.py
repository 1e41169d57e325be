"""Distributed programs as values: blocks of steps that run on workers and call each other.

Rule: a program says everything that happens; running it twice, or on another library, does the same. Block 0 is the
main program, on worker 0, and runs its passes; another block runs where its `worker` says, whenever it is called.
Values of a block are numbered: first what it takes, then what its steps make. So are calls that it does not wait for.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from typing import Any, Generic, TypeVar

V = TypeVar("V")
PLANTED = "planted"  # the text of what a block raises that is to raise
Pending = Callable[[], Sequence[V]]  # the results of a call, when they are there


class Values(list[V]):
    """The values of a block that runs, and the calls that it has not waited for."""

    def __init__(self, values: Iterable[V] = ()) -> None:
        super().__init__(values)
        self.pending: list[Pending[V]] = []


class Machine(ABC, Generic[V]):
    """The machine of a program's steps: tensors or nodes of a graph, of all workers in one process unless calls
    differ."""

    def __init__(self, program: Program) -> None:
        self.program = program

    @abstractmethod
    def leaf(self, worker: int, leaf: Leaf) -> V:
        """The parameter of that name, the same each time."""

    @abstractmethod
    def do(self, worker: int, operation: str, operands: Sequence[V]) -> Sequence[V]: ...

    @abstractmethod
    def change(self, worker: int, operation: str, value: V, operand: V) -> V:
        """The value after an operation in place."""

    @abstractmethod
    def sent(self, here: int, there: int, values: Sequence[V]) -> Sequence[V]:
        """The values that arrive there when these are sent here; a value that is there twice is so again."""

    def block(self, number: int) -> Block:
        return self.program.blocks[number]

    def call(self, worker: int, block: int, operands: Sequence[V]) -> Sequence[V]:
        there = self.block(block).worker
        return self.sent(there, worker, self.run(worker, block, operands))

    def run(self, worker: int, block: int, operands: Sequence[V]) -> list[V]:
        """The block's results, where it runs."""
        callee = self.block(block)
        return callee.run(self.sent(worker, callee.worker, operands), self)

    def begin(self, worker: int, block: int, operands: Sequence[V]) -> Pending[V]:
        """A call that is not waited for; its results, once."""
        found = self.call(worker, block, operands)
        return lambda: found

    def stay(self, worker: int, block: int, operands: Sequence[V]) -> Pending[V]:
        """A call whose results stay there; a copy of them, as often as it is asked for."""
        there, kept = self.block(block).worker, self.run(worker, block, operands)
        return lambda: kept if there == worker else self.sent(there, worker, kept)

    def hook(self, kind: str, value: V) -> None:
        """From now on the gradient of the value passes through the hook."""

    def after_hook(self, worker: int, name: str) -> None:
        """From now on it is noted when the gradient of the parameter is accumulated, and what it is then."""

    def node_hook(self, worker: int, name: str) -> None:
        """The same of the gradient before and after that; before, a hook that is not linear changes it."""


class Step(ABC):
    @abstractmethod
    def take(self, values: Values[Any], worker: int, machine: Machine[Any]) -> None:
        """Do it: what it makes is appended to `values`."""


@dataclass(frozen=True)
class Leaf(Step):
    """A parameter of the worker on which the block runs; blocks share those of the same name."""

    name: str
    shape: tuple[int, ...]
    dtype: str
    layout: str = ""  # of `operations.LAYOUTS`

    def take(self, values: Values[Any], worker: int, machine: Machine[Any]) -> None:
        values.append(machine.leaf(worker, self))


@dataclass(frozen=True)
class Do(Step):
    operation: str
    operands: tuple[int, ...]

    def take(self, values: Values[Any], worker: int, machine: Machine[Any]) -> None:
        values.extend(machine.do(worker, self.operation, [values[k] for k in self.operands]))


@dataclass(frozen=True)
class Change(Step):
    operation: str
    value: int
    operand: int

    def take(self, values: Values[Any], worker: int, machine: Machine[Any]) -> None:
        values[self.value] = machine.change(worker, self.operation, values[self.value], values[self.operand])


@dataclass(frozen=True)
class Call(Step):
    block: int
    operands: tuple[int, ...]

    def take(self, values: Values[Any], worker: int, machine: Machine[Any]) -> None:
        values.extend(machine.call(worker, self.block, [values[k] for k in self.operands]))


@dataclass(frozen=True)
class Begin(Step):
    """A call that goes on while the block does; `stays`: its results are a reference."""

    block: int
    operands: tuple[int, ...]
    stays: bool

    def take(self, values: Values[Any], worker: int, machine: Machine[Any]) -> None:
        begin = machine.stay if self.stays else machine.begin
        values.pending.append(begin(worker, self.block, [values[k] for k in self.operands]))


@dataclass(frozen=True)
class Finish(Step):
    """Wait for the results of a call that was begun."""

    pending: int

    def take(self, values: Values[Any], worker: int, machine: Machine[Any]) -> None:
        values.extend(values.pending[self.pending]())


@dataclass(frozen=True)
class Raise(Step):
    """The end of a block that is called by Try."""

    def take(self, values: Values[Any], worker: int, machine: Machine[Any]) -> None:
        raise ValueError(PLANTED)


@dataclass(frozen=True)
class Try(Step):
    """A call that raises, which changes nothing but that its operands have been sent."""

    block: int
    operands: tuple[int, ...]

    def take(self, values: Values[Any], worker: int, machine: Machine[Any]) -> None:
        try:
            machine.call(worker, self.block, [values[k] for k in self.operands])
        except ValueError as error:
            if PLANTED not in str(error):
                raise
        else:
            raise AssertionError(f"block {self.block} has not raised")


@dataclass(frozen=True)
class Hook(Step):
    kind: str
    value: int

    def take(self, values: Values[Any], worker: int, machine: Machine[Any]) -> None:
        machine.hook(self.kind, values[self.value])


@dataclass(frozen=True)
class AfterHook(Step):
    name: str

    def take(self, values: Values[Any], worker: int, machine: Machine[Any]) -> None:
        machine.after_hook(worker, self.name)


@dataclass(frozen=True)
class NodeHook(Step):
    name: str

    def take(self, values: Values[Any], worker: int, machine: Machine[Any]) -> None:
        machine.node_hook(worker, self.name)


@dataclass(frozen=True)
class Block:
    worker: int
    steps: tuple[Step, ...]
    gives: tuple[int, ...]  # values that are the results

    def run(self, taken: Sequence[V], machine: Machine[V]) -> list[V]:
        values = Values(taken)
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
        values = Values[V]()
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
