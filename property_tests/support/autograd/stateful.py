"""Distributed autograd as a hypothesis state machine: each step goes to plain autograd, to us and to torch.

A rule draws a step of the main program, which worker 0 does; blocks that it calls are drawn with it. Compared are all
values that a step makes, and after passes the gradients of all workers; at the end of a context, none is left.
torch is asked for a pass only if it can come to its end: every call is used, and no pass has freed the graph before.
"""

from __future__ import annotations

import contextlib
import itertools
import re
from collections.abc import Callable, Iterator, Sequence
from typing import Any, ClassVar

import torch
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, precondition, rule
from torch import Tensor

from . import sessions
from .building import Builder, Draft, Options
from .graphs import Drawing, Edge, Graph, Kind
from .operations import Feature
from .outcomes import Outcome, dense, differences
from .programs import Block, Program, Values
from .running import Runs, Tensors

SECONDS = 30.0  # for a pass, and until a context is over everywhere, on a busy machine
ALWAYS = {Feature.ASYNC, Feature.REMOTE, Feature.HOOKS, Feature.IN_PLACE}
OPTIONAL = [feature for feature in Feature if feature not in {*ALWAYS, Feature.AFTER_HOOKS, Feature.SEVERAL_PASSES}]
FEATURES = st.sets(st.sampled_from([*OPTIONAL, *[Feature.UNUSED] * 5]), max_size=3)
# What a step is, some more often: all by one rule, since hypothesis does without some rules for a whole run.
KINDS = ["leaf", *["operation"] * 2, *["call"] * 2, *["begin"] * 2, "finish", "change", "hook", "call_that_raises"]
CALLS_MIN = 2  # before a pass
MODES = st.sampled_from(["fast", "smart"])
_runs = itertools.count(1 << 32)  # apart from those of programs


class Writer(Builder):
    """Writes the main program step by step."""

    def __init__(self, workers: int) -> None:
        super().__init__(self._draw, Options(workers, frozenset(), depth=2, steps=4))
        self._data: Any = None
        self._blocks.append(Block(0, (), ()))
        self.forget()

    def _draw(self, n: int) -> int:
        return int(self._data.draw(st.integers(0, n - 1)))

    def write(self, data: Any, step: Callable[[Draft], Any]) -> Any:
        """Let a method write, by what hypothesis draws."""
        self._data = data
        return step(self.main)

    # Steps; those that cannot be done now are none.

    def leaf(self, draft: Draft) -> None:
        self._leaf(draft)

    def operation(self, draft: Draft) -> None:
        self._do_something(draft)

    def call(self, draft: Draft) -> None:
        self._call(draft)

    def begin(self, draft: Draft) -> None:
        """By rpc_async or remote."""
        self._begin(draft)

    def finish(self, draft: Draft) -> None:
        self._finish(draft)

    def change(self, draft: Draft) -> None:
        self._change(draft)

    def hook(self, draft: Draft) -> None:
        self._hook(draft)

    def call_that_raises(self, draft: Draft) -> None:
        if Feature.UNUSED in self._features:
            self._try(draft)

    def roots(self, draft: Draft) -> tuple[int, ...]:
        return self._pass(draft).roots

    # Contexts.

    def enter(self, features: frozenset[Feature]) -> None:
        """A new context, without values."""
        self._features = features | ALWAYS
        self._machine.calls = 0
        self.forget()

    def forget(self) -> None:
        """No value can be used any more."""
        self.main = Draft(0, 0, self._options.depth, Values())

    @property
    def blocks(self) -> tuple[Block, ...]:
        return tuple(block for block in self._blocks if block is not None)

    @property
    def notes(self) -> frozenset[str]:
        return frozenset(feature.name for feature in self._features)


class Distributed(RuleBasedStateMachine):
    """Our workers and torch's beside plain autograd; subclasses have the world."""

    runs: ClassVar[Runs]
    workers: ClassVar[int]
    sides: ClassVar[Sequence[str]]
    seconds: ClassVar[float]

    def __init__(self) -> None:
        super().__init__()
        for side in self.sides:
            self.runs.everywhere(sessions.begin, next(_runs), self.workers, side)
        self._writer = Writer(self.workers)
        self._plain = Tensors(Program(self.workers, self._writer.blocks, ()))
        self._contexts: dict[str, int] = {}
        self._sound = True  # until something has raised

    # Contexts.

    @initialize(features=FEATURES)
    def enter(self, features: set[Feature]) -> None:
        self._writer.enter(frozenset(features))
        for parameter in self._plain.parameters.values():
            parameter.grad = None
        self._values = Values[Tensor]()
        self._drawing = Drawing(Program(self.workers, self._writer.blocks, ()))
        self._edges = Values[Edge | None]()
        self._told = self._passes = 0  # steps that have been told, passes that were tried
        self._dropped: set[int] = set()  # sends of an earlier pass, which are no more
        self._exact = dict.fromkeys(self.sides, True)  # whether it has had all passes of this context
        self._contexts = {side: self.runs.everywhere(sessions.enter, side)[0] for side in self.sides}

    @precondition(lambda self: self._passes)
    @rule(features=FEATURES, abandon=st.booleans())
    def leave(self, features: set[Feature], abandon: bool) -> None:
        """With or without waiting for calls that were begun; on torch a late one would bring the context back."""
        with self._checked():
            self._compare_gradients()
            for side in self.sides:
                self.runs.everywhere(sessions.leave, side, side != "ours" or not abandon)
            for side in self.sides:
                left = self.runs.everywhere(sessions.left, side, self.seconds)
                assert not any(left), f"{side}: so many contexts are left on each worker: {left}"
            self.enter(features)

    def teardown(self) -> None:
        if self._contexts and self._sound:
            self.leave(set(), abandon=False)

    # Steps.

    @rule(data=st.data(), kind=st.sampled_from(KINDS))
    def step(self, data: Any, kind: str) -> None:
        self._write(data, getattr(self._writer, kind))

    # Passes.

    @property
    def _calls(self) -> int:
        """Messages of this context."""
        return sum(node.kind is Kind.SEND for node in self._drawing.nodes)

    @precondition(lambda self: self._calls >= CALLS_MIN)
    @rule(data=st.data(), mode=MODES, retain=st.booleans(), look=st.booleans())
    def backward(self, data: Any, mode: str, retain: bool, look: bool) -> None:
        roots = self._write(data, self._writer.roots)
        with self._checked():
            graph = self._graph([self._edges[k] for k in roots])
            unused = [send for send in graph.unused(0) if send not in self._dropped]
            self._passes += 1
            retain = retain or (mode == "fast" and bool(unused))  # what fails is tried again
            for side in self.sides:
                self._run_pass(side, roots, mode, retain, bool(unused))
            if mode == "smart" or not unused:
                torch.autograd.backward([self._values[k] for k in roots], retain_graph=retain)
            if look:
                self._compare_gradients()
            if not retain:
                self._drop(graph)

    def _graph(self, roots: Sequence[Edge | None]) -> Graph:
        nodes = tuple(self._drawing.nodes)
        return Graph(self.workers, nodes, (tuple(edge for edge in roots if edge is not None),), (len(nodes),))

    def _run_pass(self, side: str, roots: tuple[int, ...], mode: str, retain: bool, unused: bool) -> None:
        ours = side == "ours"
        if not ours and (unused or not self._exact[side]):
            self._exact[side] = self._exact[side] and mode == "fast"
            return
        options = {"mode": mode, "timeout": self.seconds} if ours else {}
        error, text = self.runs.everywhere(sessions.backward, side, roots, retain, options)[0]
        # Behind a call that is not used there may be what an earlier pass has freed: then FAST cannot even count.
        fails = "UnusedSendError|.*GraphFreedError" if self._dropped else "UnusedSendError"
        right = re.match(fails, f"{error} {text}") if unused and mode == "fast" else not error
        assert right, f"{side}: {error} {text}"

    def _drop(self, graph: Graph) -> None:
        """A pass has freed the graph: no value can be used any more, and torch runs no other in this context."""
        self._dropped |= {node for node in graph.reached(0) if graph.nodes[node].kind is Kind.SEND}
        self._writer.forget()
        self._values, self._edges, self._told = Values(), Values(), 0
        self.runs.everywhere(sessions.forget, self.sides)
        self._exact |= {side: False for side in self.sides if side != "ours"}

    # Telling, and comparing.

    def _write(self, data: Any, step: Callable[[Draft], Any]) -> Any:
        """A step, or some, on all sides: they make the same."""
        with self._checked():
            written = self._writer.write(data, step)
            main, blocks, before = self._writer.main, self._writer.blocks, len(self._values)
            if len(blocks) > len(self._plain.program.blocks):
                self._plain.program = self._drawing.program = Program(self.workers, blocks, ())
                self.runs.everywhere(sessions.learn, blocks, self.sides)
            steps, self._told = main.steps[self._told :], len(main.steps)
            for each in steps:
                each.take(self._values, 0, self._plain)
                each.take(self._edges, 0, self._drawing)
            made = self.runs.everywhere(sessions.take, steps, self.sides)[0] if steps else []
            right = Outcome({}, tuple(value.detach() for value in self._values[before:]))
            for side, values in zip(self.sides, made, strict=bool(steps)):
                self._compare(side, right, Outcome({}, tuple(values)))
            return written

    def _compare_gradients(self) -> None:
        grads = {key: dense(p.grad) for key, p in self._plain.parameters.items() if p.grad is not None}
        for side in self.sides:
            if self._exact[side]:
                each = self.runs.everywhere(sessions.gradients, side, self._contexts[side])
                found = {key: grad for mine in each for key, grad in mine.items()}
                self._compare(side, Outcome(grads, ()), Outcome(found, ()))

    def _compare(self, side: str, right: Outcome, found: Outcome) -> None:
        program = Program(self.workers, (), (), self._writer.notes)
        wrong = differences(program, right, found, zeros_are_none=side == "torch")
        assert not wrong, f"{side}: {wrong}"

    @contextlib.contextmanager
    def _checked(self) -> Iterator[None]:
        self._sound = False
        yield
        self._sound = True


def machine(runs: Runs, workers: int, sides: Sequence[str], seconds: float = SECONDS) -> type[Distributed]:
    """The state machine in a world."""
    body = {"runs": runs, "workers": workers, "sides": tuple(sides), "seconds": seconds}
    return type("DistributedMachine", (Distributed,), body)
