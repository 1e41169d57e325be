"""The model as one of the sides: the graphs of programs as the model's, what it counts there, and random runs of it.

Rule: what is compared with the model is the runtime's; this module knows nothing of how that counts or runs.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from random import Random
from typing import Any

from trystate.model.autograd import graphs as model
from trystate.model.autograd.backward import Backward
from trystate.model.autograd.backward.fields import Call, Outcome
from trystate.model.autograd.vocabulary import Edition, Mode, NodeKind
from trystate.model.checker.interpret import Interpreter
from trystate.model.checker.kernel import Instance
from trystate.model.language import State, SymbolicState

from .graphs import Graph, Kind, Node
from .outcomes import Key

KINDS = {Kind.PLAIN: NodeKind.OP, Kind.LEAF: NodeKind.ACCUMULATE, Kind.SEND: NodeKind.SEND, Kind.RECV: NodeKind.RECV}
EDITIONS = {Mode.FAST: Edition.TRYSTATE, Mode.SMART: Mode.SMART}
LIKELY = 0.05  # that a fault which may happen does, at a step
MAX_STEPS = 20_000


def modelled(graph: Graph, number: int) -> model.Graph:
    """The graph of one pass; its nodes keep their numbers, and the root comes last."""
    nodes = graph.nodes[: graph.sizes[number]]
    own = [model.Node(n.worker, KINDS[n.kind], f"{n.name}{k}", ends(n.edges)) for k, n in enumerate(nodes)]
    root = model.Node(0, NodeKind.ROOT, "root", ends(graph.roots[number]))
    pairs = tuple(model.Pair(k, graph.recv_of(k)) for k, n in enumerate(nodes) if n.kind is Kind.SEND)
    calls = tuple(f"call {nodes[pair.send].message}" for pair in pairs)
    return model.Graph("program", "a random program", (*own, root), pairs, calls)


def ends(edges: Iterable[tuple[int, int]]) -> tuple[int, ...]:
    return tuple(to for to, _ in edges)


def waits(graph: model.Graph, mode: Mode) -> dict[int, int]:
    """How many gradients each node waits for that a pass counts, roots left out; on the workers that it comes to."""
    counts, root = graph.counts(mode), graph.root
    return {k: n for k, n in enumerate(counts) if n and k != root and graph.nodes[k].worker in graph.taking_part}


def totalled(graph: Graph) -> Graph:
    """The graph of the program that sends one value where this one sends several: their total, which stands for each.

    So that nothing of it is lost in the model, where a message carries one gradient.
    """
    several = {n.message for n in graph.nodes if n.kind is Kind.SEND and len(n.edges) > 1}
    nodes: list[Node] = []
    place: dict[int, int] = {}
    sizes = {0: 0}

    def moved(edges: Iterable[tuple[int, int]]) -> tuple[tuple[int, int], ...]:
        return tuple((place[to], 0 if graph.nodes[to].message in several else at) for to, at in edges)

    for k, node in enumerate(graph.nodes):
        edges = moved(node.edges)
        if node.kind is Kind.SEND and node.message in several:
            nodes.append(Node(node.worker, Kind.PLAIN, edges, name="total"))
            edges = ((len(nodes) - 1, 0),)
        place[k] = len(nodes)
        nodes.append(dataclasses.replace(node, edges=edges))
        sizes[k + 1] = len(nodes)
    roots = tuple(moved(each) for each in graph.roots)
    return Graph(graph.workers, tuple(nodes), roots, tuple(sizes[size] for size in graph.sizes))


@dataclass(frozen=True)
class Upset:
    """The fault in the first pass, at a place that does not depend on the schedule; gradients may come twice."""

    raises: int | None = None  # the node, when it is to run
    loses: int | None = None  # the message, when its gradient is to arrive
    dies: int | None = None  # the worker, when a gradient or a mark is to arrive there
    twice: int = 0


@dataclass(frozen=True)
class Told:
    """The outcomes of calls of backward() over one graph, and the gradients that they left, as numbers of ways."""

    outcomes: tuple[Outcome, ...]
    gradients: Mapping[Key, int]


class Model:
    """The model on the first pass of a graph, called so often, in one mode."""

    def __init__(self, graph: Graph, mode: Mode, upset: Upset, calls: int, system: type[Backward] = Backward) -> None:
        self._graph, self._shape, self._upset = graph, modelled(graph, 0), upset
        chosen = {"error": upset.raises, "lose": upset.loses, "die": upset.dies, "copy": upset.twice or None}
        faults = {name: upset.twice or 1 for name, at in chosen.items() if at is not None}
        self.system: Any = system.over(self._shape)(edition=EDITIONS[mode], attempt=calls, faults=faults)
        self._interpreter = Interpreter(self.system)

    def run(self, rng: Random) -> Told:
        """A run to its end: whatever may happen next, in some order."""
        state, instances = self.system.initial_states[0], list(self._interpreter.kernel.instances)
        for _ in range(MAX_STEPS):
            copies = rng.random() < LIKELY
            rng.shuffle(instances)
            due = sorted((i for i in instances if copies or not is_copy(i)), key=lambda i: not is_copy(i))
            after = next((after for each in due if (after := self._stepped(each, state)) is not None), None)
            if after is None:
                return self._told(state)
            state = after
        raise AssertionError(f"still busy after {MAX_STEPS} steps")

    def _stepped(self, instance: Instance, state: State) -> State | None:
        """The step, if it is one now; what is chosen to go wrong does so instead of what would come next there."""
        due = self._upsetting(instance, state)
        fault = instance.transition.fault
        if due if not fault else not due and not is_copy(instance):
            return None
        return self._interpreter.step(instance, state)

    def _upsetting(self, instance: Instance, state: State) -> bool:
        """Whether this is the place where it goes wrong: of the fault, and of what it is instead of."""
        name, *at = instance.transition.name, *instance.indices
        upset = self._upset
        if upset.raises is not None and name in ("run", "raise_error"):
            return at == [upset.raises] and bool(self._value(state, "error_left"))
        if upset.loses is not None and name in ("take_gradient", "lose"):
            out = self._value(state, "call", *at) == list(Call).index(Call.OUT)
            return out and self._message(at[1]) == upset.loses and bool(self._value(state, "lose_left"))
        if upset.dies is not None and name in ("take_gradient", "take_mark"):
            return self._taker(at[1]) == upset.dies and bool(self._value(state, "die_left"))
        if upset.dies is not None and name == "die":
            return at == [upset.dies] and self._is_called(state)
        return False

    def _is_called(self, state: State) -> bool:
        """Whether a gradient or a mark is on its way to the worker that is to die."""
        fields = ["call", "mark"] if self.system.edition is Mode.SMART else ["call"]
        pairs = [p for p in self.system.pairs() if self._taker(p) == self._upset.dies]
        out = list(Call).index(Call.OUT)
        return any(self._value(state, field, 0, p) == out for field in fields for p in pairs)

    def _message(self, pair: int) -> int | None:
        return self._graph.nodes[self._shape.pairs[pair].send].message

    def _taker(self, pair: int) -> int:
        return self._shape.ends(pair)[1]

    def _value(self, state: State, field: str, *at: int) -> int:
        return state[self._interpreter.kernel.position[field, at]]

    def _told(self, state: State) -> Told:
        ended = tuple(list(Outcome)[self._value(state, "outcome", call)] for call in self.system.attempts())
        shown = SymbolicState(self.system)
        totals = {k: self._interpreter.value(self.system.total(shown, k), state) for k in self.system.leaves()}
        leaves = {k: self._graph.nodes[k] for k, total in totals.items() if total}
        return Told(ended, {(leaf.worker, leaf.name): totals[k] for k, leaf in leaves.items()})


def is_copy(instance: Instance) -> bool:
    return instance.transition.fault == "copy"
