"""Runs programs: all workers in this process on plain autograd, or each in its own on a library for RPC.

Rule: only the calls differ. Values that are sent are also copied locally, so workers share no memory.
"""

from __future__ import annotations

import hashlib
import itertools
import os
import threading
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from functools import partial
from typing import Any

import torch
from torch import Tensor
from torch.autograd.graph import get_gradient_edge

from ...adapters.worlds import Failed, Task, World
from ..rpc.worlds import eventually
from .operations import FOLDS, HOOKS, IN_PLACE, LAYOUTS, OPERATIONS
from .outcomes import Key, Outcome, Seen, mean
from .programs import Block, Leaf, Pending, Program
from .sides import SIDES, Side, worker

SECONDS = 120.0  # limit for a batch of programs, on a busy machine
PRELOAD = ("torch.distributed.rpc", "trystate.impl.autograd", __name__)  # imported by worker processes
_hooks = threading.Lock()  # torch may lose a hook if two are registered at once


class Tensors:
    """Does the steps of a program on plain autograd: of all workers in this process, unless calls differ."""

    def __init__(self, program: Program) -> None:
        self.program = program
        self.parameters: dict[Key, Tensor] = {}
        self.seen: dict[Key, list[Seen]] = {}  # the gradients that hooks of parameters have seen
        self._nodes: list[Any] = []  # nodes with hooks: a reference keeps each alive

    def sent(self, here: int, there: int, values: Sequence[Tensor]) -> list[Tensor]:
        """The tensors that arrive at worker `there`. A value that is sent twice arrives as one tensor."""
        copies = {id(each): each.clone() for each in values}
        return [copies[id(each)] for each in values]

    def block(self, number: int) -> Block:
        return self.program.blocks[number]

    def call(self, worker: int, block: int, operands: Sequence[Tensor]) -> Sequence[Tensor]:
        return self.sent(self.block(block).worker, worker, self.run(worker, block, operands))

    def run(self, worker: int, block: int, operands: Sequence[Tensor]) -> list[Tensor]:
        """The results of a block, on the worker that runs it."""
        callee = self.block(block)
        return callee.run(self.sent(worker, callee.worker, operands), self)

    def begin(self, worker: int, block: int, operands: Sequence[Tensor]) -> Pending:
        """Begin a call. The returned function waits for its results."""
        found = self.call(worker, block, operands)
        return lambda: found

    def stay(self, worker: int, block: int, operands: Sequence[Tensor]) -> Pending:
        """A call whose results stay there; each use of the handle returns a copy of them."""
        there, kept = self.block(block).worker, self.run(worker, block, operands)
        return lambda: kept if there == worker else self.sent(there, worker, kept)

    def leaf(self, worker: int, leaf: Leaf) -> Tensor:
        """The parameter of that name, the same each time."""
        key = worker, leaf.name
        found = self.parameters.get(key)
        return self.parameters.setdefault(key, initial(key, leaf)) if found is None else found  # atomic

    def do(self, worker: int, operation: str, operands: Sequence[Tensor]) -> Sequence[Tensor]:
        if operation in IN_PLACE:
            IN_PLACE[operation](*operands)
            return []
        return [FOLDS[operation](*operands)] if operation in FOLDS else OPERATIONS[operation](*operands)

    def hook(self, kind: str, value: Tensor) -> None:
        """From now on the gradient of the value passes through the hook."""
        with _hooks:
            value.register_hook(HOOKS[kind])  # type: ignore[no-untyped-call]

    def parameter_hook(self, kind: str, worker: int, name: str) -> None:
        """Record each accumulation of the parameter's gradient, and the gradient at that time.

        "node": record the gradient before and after the accumulation; a hook that is not linear changes it before.
        """
        parameter: Any = self.parameters[worker, name]
        seen = self.seen.setdefault((worker, name), [])
        with _hooks:
            if kind == "after":
                parameter.register_post_accumulate_grad_hook(lambda of: seen.append(("accumulated", mean(of.grad))))
                return
            node: Any = get_gradient_edge(parameter).node
            self._nodes.append(node)
            node.register_prehook(partial(_before, seen))
            node.register_hook(lambda made, gradients: seen.append(("after", mean(gradients[0]))))


def _before(seen: list[Seen], gradients: tuple[Tensor | None]) -> tuple[Tensor | None]:
    (gradient,) = gradients
    seen.append(("before", mean(gradient)))
    if gradient is None or gradient.is_sparse or gradient.is_complex():
        return gradients
    return (gradient.clamp(-0.05, 0.05),)


def initial(key: Key, leaf: Leaf) -> Tensor:
    """The parameter's value, the same in every process: between -1 and 1."""
    seed = int.from_bytes(hashlib.sha256(repr(key).encode()).digest()[:6], "big")
    dtype = getattr(torch, leaf.dtype)
    wide = torch.complex128 if dtype.is_complex else torch.float64
    numbers = torch.rand(leaf.shape, generator=torch.Generator().manual_seed(seed), dtype=wide) * 2 - 1
    return LAYOUTS[leaf.layout](numbers.to(dtype)).requires_grad_()


def run_locally(program: Program) -> Outcome:
    """On plain autograd, all workers in this process."""
    machine = Tensors(program)
    roots: list[Tensor] = []
    for each, retain in program.run(machine):
        torch.autograd.backward(each, retain_graph=retain)
        roots += (value.detach() for value in each)
    grads = {key: p.grad for key, p in machine.parameters.items() if p.grad is not None}
    return Outcome.of(grads, roots, machine.seen)


# ---- in real processes


class Calls(Tensors):
    """Does the steps of one worker, and calls the others."""

    def __init__(self, program: Program, side: Side, run: int) -> None:
        super().__init__(program)
        self._rpc, self._run_number = side.rpc, run

    def _asked(self, call: Callable[..., Any], block: int, operands: Sequence[Tensor]) -> Any:
        return call(worker(self.block(block).worker), execute, args=(self._run_number, block, *operands))

    def call(self, worker: int, block: int, operands: Sequence[Tensor]) -> Sequence[Tensor]:
        found: Sequence[Tensor] = self._asked(self._rpc.rpc_sync, block, operands)
        return found

    def begin(self, worker: int, block: int, operands: Sequence[Tensor]) -> Pending:
        wait: Pending = self._asked(self._rpc.rpc_async, block, operands).wait
        return wait

    def stay(self, worker: int, block: int, operands: Sequence[Tensor]) -> Pending:
        fetch: Pending = self._asked(self._rpc.remote, block, operands).to_here
        return fetch


machines: dict[int, Calls] = {}  # the calls of this process, by the number of a run


def execute(run: int, block: int, *operands: Tensor) -> list[Tensor]:
    """Run a block of a program that this process has learnt."""
    machine = machines[run]
    return machine.block(block).run(list(operands), machine)


def collected(run: int, context: int, side: str) -> Outcome:
    """This worker's part of a program's outcome."""
    machine = machines[run]
    grads = SIDES[side].autograd.get_gradients(context)
    return Outcome.of({key: grads[p] for key, p in machine.parameters.items() if p in grads}, (), machine.seen)


def join(rank: int, size: int, sides: Sequence[str], folder: str) -> None:
    torch.set_num_threads(1)
    for side in sides:
        SIDES[side].start(rank, size, folder)


def join_recorded(rank: int, size: int, folder: str, records: str) -> None:
    """Join on our library, with a record of the passes of each worker."""
    os.environ["TRYSTATE_AUTOGRAD_RECORD"] = records
    try:
        join(rank, size, ("ours",), folder)
    finally:
        del os.environ["TRYSTATE_AUTOGRAD_RECORD"]


def leave(rank: int, sides: Sequence[str]) -> None:
    for side in sides:
        SIDES[side].stop()


def learn(rank: int, programs: Mapping[int, Program], side: str) -> None:
    """Keep these programs, by the numbers of their runs, and forget all others."""
    machines.clear()
    machines.update({run: Calls(program, SIDES[side], run) for run, program in programs.items()})


def drive(
    rank: int, runs: Sequence[int], side: str, threads: int, options: Mapping[str, Any]
) -> list[Outcome | Failed]:
    """Worker 0 runs its programs, `threads` at a time; `options` are options of `backward`."""
    if rank:
        return []
    with ThreadPoolExecutor(threads) as pool:
        return list(pool.map(lambda run: _driven(run, SIDES[side], options), runs))


def _driven(run: int, side: Side, options: Mapping[str, Any]) -> Outcome | Failed:
    machine = machines[run]
    roots: list[Tensor] = []
    refused: list[str] = []
    found = Outcome({}, ())
    try:
        with side.autograd.context() as context:
            for each, retain in machine.program.run(machine):
                text = _backward(side, context, each, retain, options)
                refused += [text] if text else []
                roots += (value.detach() for value in each)
            for rank in range(machine.program.workers):
                found = found.joined(side.rpc.rpc_sync(worker(rank), collected, args=(run, context, side.name)))
    except Exception as error:
        return Failed(type(error).__name__, str(error))
    return replace(found, roots=tuple(roots), refused=tuple(refused))


def _backward(side: Side, context: int, roots: Sequence[Tensor], retain: bool, options: Mapping[str, Any]) -> str:
    """A pass. If FAST reports an unused call, the pass is run again with SMART, and the report is returned."""
    if options.get("mode") != "fast":
        side.autograd.backward(context, roots, retain_graph=retain, **options)
        return ""
    try:
        side.autograd.backward(context, roots, retain_graph=True, **options)
    except side.autograd.UnusedSendError as error:
        side.autograd.backward(context, roots, retain_graph=retain, **{**options, "mode": "smart"})
        return str(error)
    return ""


def contexts_left(rank: int, side: str) -> int:
    """The number of contexts that are still open at the limit, by which time all should be released."""
    eventually(lambda: not SIDES[side].contexts(), SECONDS)
    return SIDES[side].contexts()


class Runs:
    """A world that runs programs on the libraries that it has joined."""

    def __init__(self, world: World, folder: str, sides: Sequence[str]) -> None:
        self._world = world
        self._numbers = itertools.count()
        world.do(join, world.size, sides, folder, seconds=SECONDS)

    def run(self, programs: Sequence[Program], side: str, threads: int = 1, **options: Any) -> list[Outcome | Failed]:
        """The outcome of each program, or its failure.

        Raises:
            AssertionError: a worker keeps a context.
        """
        numbered = {next(self._numbers): program for program in programs}
        self._world.do(learn, numbered, side, seconds=SECONDS)
        found, *_ = self._world.do(drive, list(numbered), side, threads, options, seconds=SECONDS)
        left = self.everywhere(contexts_left, side)
        assert not any(left), f"so many contexts are left on each worker: {left}"
        return found  # type: ignore[no-any-return]

    def everywhere(self, task: Task, *arguments: object) -> list[Any]:
        """Each worker's answer to a task."""
        return self._world.do(task, *arguments, seconds=SECONDS)
