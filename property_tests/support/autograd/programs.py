"""Distributed programs as values: blocks of steps that run on workers and call each other.

Rule: a program determines everything that happens: a second run, or a run on another library, does the same. Block 0 is
the main program, on worker 0, and runs its passes. Any other block runs on its `worker` whenever it is called. Values
of a block are numbered: first what it takes, then what its steps make. So are calls that it does not wait for.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from torch import Tensor

if TYPE_CHECKING:
    from .running import Tensors

PLANTED = "planted"  # the text of the error that a block raises
Pending = Callable[[], Sequence[Tensor]]  # waits for a call and returns its results


class Values(list[Tensor]):
    """The values of a block that runs, and the calls that it has not waited for."""

    def __init__(self, values: Sequence[Tensor] = ()) -> None:
        super().__init__(values)
        self.pending: list[Pending] = []

    def at(self, places: Sequence[int]) -> list[Tensor]:
        return [self[k] for k in places]


class Step(ABC):
    @abstractmethod
    def take(self, values: Values, worker: int, machine: Tensors) -> None:
        """Take the step. Its results are appended to `values`."""


@dataclass(frozen=True)
class Leaf(Step):
    """A parameter of the worker on which the block runs; blocks share parameters of the same name."""

    name: str
    shape: tuple[int, ...]
    dtype: str
    layout: str = ""  # a name in `operations.LAYOUTS`

    def take(self, values: Values, worker: int, machine: Tensors) -> None:
        values.append(machine.leaf(worker, self))


@dataclass(frozen=True)
class Do(Step):
    """An operation; one in place changes its first operand."""

    operation: str
    operands: tuple[int, ...]

    def take(self, values: Values, worker: int, machine: Tensors) -> None:
        values.extend(machine.do(worker, self.operation, values.at(self.operands)))


@dataclass(frozen=True)
class Call(Step):
    """`how`: "call" waits for the results; "begin" does not; "stay" does not, and its results are a reference."""

    block: int
    operands: tuple[int, ...]
    how: str = "call"

    def take(self, values: Values, worker: int, machine: Tensors) -> None:
        made = getattr(machine, self.how)(worker, self.block, values.at(self.operands))
        if self.how == "call":
            values.extend(made)
        else:
            values.pending.append(made)


@dataclass(frozen=True)
class Finish(Step):
    """Wait for the results of a call that was begun."""

    pending: int

    def take(self, values: Values, worker: int, machine: Tensors) -> None:
        values.extend(values.pending[self.pending]())


@dataclass(frozen=True)
class Raise(Step):
    """The end of a block that is called by Try."""

    def take(self, values: Values, worker: int, machine: Tensors) -> None:
        raise ValueError(PLANTED)


@dataclass(frozen=True)
class Try(Step):
    """A call that raises. Its only effect is that its operands have been sent."""

    block: int
    operands: tuple[int, ...]

    def take(self, values: Values, worker: int, machine: Tensors) -> None:
        try:
            machine.call(worker, self.block, values.at(self.operands))
        except ValueError as error:
            if PLANTED not in str(error):
                raise
        else:
            raise AssertionError(f"block {self.block} has not raised")


@dataclass(frozen=True)
class Hook(Step):
    """A hook on a value, or on the parameter of a name."""

    kind: str
    on: int | str

    def take(self, values: Values, worker: int, machine: Tensors) -> None:
        if isinstance(self.on, int):
            machine.hook(self.kind, values[self.on])
        else:
            machine.parameter_hook(self.kind, worker, self.on)


@dataclass(frozen=True)
class Block:
    worker: int
    steps: tuple[Step, ...]
    gives: tuple[int, ...]  # values that are the results

    def run(self, taken: Sequence[Tensor], machine: Tensors) -> list[Tensor]:
        values = Values(taken)
        for step in self.steps:
            step.take(values, self.worker, machine)
        return values.at(self.gives)


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

    def run(self, machine: Tensors) -> Iterator[tuple[list[Tensor], bool]]:
        """Run the main block; yields the roots of each pass, and whether to retain its graph, when it is due."""
        values = Values()
        done = 0
        for each in self.passes:
            for step in self.blocks[0].steps[done : each.steps]:
                step.take(values, 0, machine)
            done = each.steps
            yield values.at(each.roots), each.retain

    def __str__(self) -> str:
        lines = [f"{self.workers} workers"]
        for number, block in enumerate(self.blocks):
            lines.append(f"block {number} on worker {block.worker}, gives {block.gives}:")
            lines += [f"    {step}" for step in block.steps]
        return "\n".join([*lines, *map(str, self.passes)])
