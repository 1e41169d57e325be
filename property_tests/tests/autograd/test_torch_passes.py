"""Passes of torch's engine are runs of the model's edition TORCH: the order of nodes, gradients, outcomes, and hangs.

Each order in which the model runs the operators of a graph is forced on torch's workers, and each operator fails in it
once. Each pass that is seen must be a run of the model, and each end of the model is seen. Mistakes that are planted in
the model are noticed: by a pass, or by an order that cannot be forced.

A gate holds the thread of its worker. So graphs like "crossed" are left out: there the worker would have to run
another node, which other workers wait for.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from functools import cache, cached_property
from itertools import pairwise

import pytest

pytest.importorskip("torch", reason="the workers are torch's")

from trystate.model.autograd.backward import Backward, torch
from trystate.model.autograd.backward.examples import FAST
from trystate.model.autograd.backward.fields import Outcome
from trystate.model.autograd.examples import NUMBER
from trystate.model.autograd.vocabulary import Edition, NodeKind
from trystate.model.checker.interpret import Interpreter
from trystate.model.language import State, or_
from trystate.model.language.sorts import ordinal
from trystate.property_tests.adapters.torch_autograd.graph_passes import Ended, Passes, Seen, operators, workers
from trystate.property_tests.harness.paths import explore_graph
from trystate.property_tests.support.mutants import altered, wrong
from trystate.property_tests.support.nightly import NIGHTLY
from trystate.testing import Disagreement, Following

RPC_TIMEOUT_S, HANGS_S = 1.0, 3.0  # a pass that waits for a missing gradient ends by a timeout, or hangs
BY_DAY = ("diamond", "note")
BY_NIGHT = ("trip", "fetched", "chain-3", "nested", "twice", "shared", "served", "joined", "parallel")
UNUSED = ("unused-alone", "unused-call")
USED = BY_DAY + BY_NIGHT if NIGHTLY else BY_DAY
Runs = Mapping[tuple[str, tuple[int, ...], int | None], Seen]  # a graph, an order of operators, which of them fails


class Model:
    """The model of one graph, which decides whether a pass that was seen is one of its runs."""

    def __init__(self, name: str, cls: type[Backward] = Backward) -> None:
        self.system = cls(graph=NUMBER[name], edition=Edition.TORCH, faults=["error"] if name in USED else [])
        self.graph = self.system.shape
        self.operators = operators(self.graph)
        # All tensors of a message have one gradient in the model.
        self.counts = all(len(self.graph.nodes[pair.send].feeds) == 1 for pair in self.graph.pairs)
        self.explored = explore_graph(self.system)
        steps = enumerate(pairwise(self.explored.graph.first_after.tolist()))
        self.last = {tuple(self.explored.state(k)) for k, (first, after) in steps if first == after}

    def follow(self, shown: Iterable[int]) -> Following:
        """Follow passes; the log has each failure, and of the nodes in `shown` each run."""
        hidden = [f"run({k})" for k in {*range(len(self.graph.nodes))} - {*shown}]
        hidden += [step.name for step in self.system.transitions if step.name not in ("run", "raise_error")]
        return Following(self.system, hidden)

    def last_of(self, following: Following) -> set[State]:
        """The states without a next step in which the pass may be now."""
        following.see({"cells": {"alive[0]": True}})  # true of each state: hidden steps may have happened before
        return self.last & {*following.states}

    def objection(self, seen: Seen) -> str:
        """The first observation that no run of the model has; empty if each is in a run."""
        following = self.follow({*range(len(self.graph.nodes))} - {self.graph.root})
        try:
            for (step, node), gradient in seen.steps:
                if gradient is not None and self.counts:
                    following.see({"cells": {f"gradient[{node}]": int(gradient)}})
                following.see(f"{step}({node})")
        except Disagreement as disagreement:
            return str(disagreement)
        is_end = self.rough((seen.outcome, seen.gradients)) in map(self.ended, self.last_of(following))
        return "" if is_end else f"no end with {seen.outcome}, {seen.gradients} after {seen.steps}"

    def ended(self, state: State) -> Ended:
        """The outcome and the gradients of a state."""
        at = self.system.positions
        outcome = next(o for o in Outcome if ordinal(o) == state[at["outcome[0]"]])
        return self.rough((outcome, tuple(float(state[at[f"grads[{k}]"]]) for k in sorted(self.system.leaves()))))

    def rough(self, ended: Ended) -> Ended:
        """An end of a pass, as far as the model shows it."""
        outcome, gradients = ended
        return outcome, gradients if self.counts else tuple(float(gradient > 0) for gradient in gradients)

    @cached_property
    def orders(self) -> frozenset[tuple[int, ...]]:
        """The orders in which the model runs the operators of a pass in which none fails."""
        graph, instances = self.explored.graph, Interpreter(self.system).kernel.instances
        first, after, number = graph.first_after.tolist(), graph.after.tolist(), graph.number.tolist()

        @cache
        def from_(state: int) -> frozenset[tuple[int, ...]]:
            edges = range(first[state], first[state + 1])
            found = set[tuple[int, ...]]() if edges else {()}
            for edge in edges:
                name, nodes = instances[number[edge]].transition.name, instances[number[edge]].indices
                if name != "raise_error":
                    head = nodes if name == "run" and nodes[0] in self.operators else ()
                    found |= {(*head, *rest) for rest in from_(after[edge])}
            return frozenset(found)

        return frozenset().union(*map(from_, self.explored.initial))


@pytest.fixture(scope="module")
def models() -> dict[str, Model]:
    return {name: Model(name) for name in (*USED, *UNUSED)}


@pytest.fixture(scope="module")
def runs(models: Mapping[str, Model]) -> Iterator[Runs]:
    """Each order of each graph, without a failure and with one at each operator."""
    found: dict[tuple[str, tuple[int, ...], int | None], Seen] = {}
    with workers(3) as group:
        for name in USED:
            passes = Passes(group, models[name].graph)
            for order in sorted(models[name].orders):
                found[name, order, None] = passes.force(order)
                for at, node in enumerate(order):
                    found[name, order, node] = passes.force(order[: at + 1], [node])
    with workers(2, RPC_TIMEOUT_S) as group:
        for name in UNUSED:
            for order in sorted(models[name].orders):
                found[name, order, None] = Passes(group, models[name].graph).force(order, (), HANGS_S)
    yield found


def test_a_pass_of_torch_is_a_run_of_the_model(runs: Runs, models: Mapping[str, Model]) -> None:
    objections = {key: models[key[0]].objection(seen) for key, seen in runs.items()}
    assert not {key: text for key, text in objections.items() if text}
    assert all(any(name == "raise_error" for (name, _), _ in seen.steps) for key, seen in runs.items() if key[2])


def test_torch_is_forced_into_each_order_of_the_model(runs: Runs, models: Mapping[str, Model]) -> None:
    for (name, order, failing), seen in runs.items():
        if failing is None:
            assert tuple(node for (_, node), _ in seen.steps if node in models[name].operators) == order
    assert {name: len(models[name].orders) for name in BY_DAY} == {"diamond": 2, "note": 1}


def test_each_end_of_the_model_is_seen_on_torch(runs: Runs, models: Mapping[str, Model]) -> None:
    for name, model in models.items():
        seen = {model.rough((one.outcome, one.gradients)) for (graph, _, _), one in runs.items() if graph == name}
        assert seen == {*map(model.ended, model.last)}, name


def test_torch_takes_the_steps_of_the_design_note_in_its_order(runs: Runs, models: Mapping[str, Model]) -> None:
    """In the note and in the engine, the leaves that a node feeds run before the next node."""
    (seen,) = (seen for (name, _, failing), seen in runs.items() if name == "note" and failing is None)
    told = [taken.step for taken in FAST.steps if taken.step.startswith("run(") and taken.step != "run(9)"]
    leaves = {k for k, node in enumerate(models["note"].graph.nodes) if node.kind is NodeKind.ACCUMULATE}
    took = [f"run({node})" for (_, node), _ in seen.steps]
    assert sorted(took) == sorted(told)
    ours = [step for step in took if int(step[4:-1]) not in leaves]
    assert ours == [step for step in told if int(step[4:-1]) not in leaves]
    assert took.index("run(7)") < took.index("run(6)")  # t4 is accumulated before recv2 is executed


# ---- planted mistakes


MUTANTS: tuple[tuple[type[Backward], str], ...] = (
    (altered("RunsWithOneInput", torch.Torch,  # a node runs when one of its inputs has arrived
             "is_ready", "s.fed[k] == self.waits_for(s, k)", "s.fed[k] > 0"), "diamond"),
    (wrong("CancelsEverywhere", torch.Torch,
     fails=lambda self, s, when: torch.Torch.fails(self, s, [or_(*when) for _ in when])), "diamond"),
    (altered("DropsGradients", torch.Torch,  # a part that fails drops the gradients of its leaves
             "fails", "self.clears(s, when)", "self.clears(s, when)\n    for k in self.leaves():\n"
             "        s.grads[k] = ite(when[self.shape.nodes[k].worker], 0, s.grads[k])"), "note"),
    (altered("TellsNobody", torch.Torch,  # a part that fails answers like a part that has succeeded
             "fails", "Call.FAILED, Outcome.RAISED", "Call.DONE, Outcome.RETURNED"), "diamond"),
    (altered("CountsOnce", torch.Torch,  # a node has the gradient that came last, and not their sum
             "feeds", "super().feeds(s, before, node)", "Backward.feeds(self, s, before, node)\n"
             "    for k, f in [(k, f) for k in self.nodes() for f in self.shape.feeders(k)]:\n"
             "        s.gradient[k] = ite(node == f, before.gradient[f], s.gradient[k])"), "diamond"),
    (altered("NeedsNoUnusedSend", torch.Torch,  # a worker's part is over when it has no node to run
             "runs", "self.feeds(s, before, node)", "self.feeds(s, before, node)\n    for w in self.workers():\n"
             "        s.left[w] = ite(self.is_of(node, w) & ~self.any_ready(s, w), 0, s.left[w])"), "unused-alone"),
)  # fmt: skip


@pytest.mark.parametrize(("mutant", "name"), MUTANTS, ids=lambda x: getattr(x, "__name__", x))
def test_a_mistake_in_the_model_is_noticed(mutant: type[Backward], name: str, runs: Runs) -> None:
    wrong = Model(name, mutant)
    seen = {key: one for key, one in runs.items() if key[0] == name}
    assert wrong.orders - {key[1] for key in seen} or any(wrong.objection(one) for one in seen.values())
