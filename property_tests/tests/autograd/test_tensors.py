"""Random programs of real tensors: the runtime under random schedules gives what plain autograd does, and counts alike.

The runtime's containers, counts and engine run here without processes: see `support/autograd/simulated_tensors.py`.
Mutants of the running of nodes are found.
"""

from __future__ import annotations

from random import Random
from typing import Any

import pytest

pytest.importorskip("torch", reason="it is about torch's autograd")

import torch

from trystate.impl.autograd import torch_graph
from trystate.impl.autograd.dependencies import UNDEFINED
from trystate.impl.autograd.torch_graph import TorchGraph
from trystate.model.autograd.vocabulary import Mode
from trystate.property_tests.support.autograd.building import Options, random_features, random_program
from trystate.property_tests.support.autograd.graphs import graph
from trystate.property_tests.support.autograd.operations import Feature
from trystate.property_tests.support.autograd.outcomes import differences
from trystate.property_tests.support.autograd.programs import Program
from trystate.property_tests.support.autograd.running import run_locally
from trystate.property_tests.support.autograd.runtime_mutants import FEATURES, SIMULATED
from trystate.property_tests.support.autograd.simulated_tensors import TensorWorkers
from trystate.property_tests.support.mutants import survives
from trystate.property_tests.support.nightly import seeds


def drawn(seed: int, *features: Feature) -> Program:
    """With these features, or with some."""
    rng = Random(seed)
    found = frozenset(features) or random_features(rng, list(Feature))
    return random_program(seed, Options(rng.choice((2, 3, 4)), found))


def all_used(program: Program) -> bool:
    """Whether FAST can run it."""
    made = graph(program)
    return not any(made.unused(number) for number in range(len(made.roots)))


def compare(seed: int, *features: Feature) -> list[str]:
    """How the runtime differs from plain autograd on one program, and its counts from the model's, in fitting modes."""
    program = drawn(seed, *features)
    expected = run_locally(program)
    wrong = []
    for mode in [Mode.SMART, *([Mode.FAST] if all_used(program) else [])]:
        workers = TensorWorkers(program, Random(seed))
        found = differences(program, expected, workers.run(mode))
        if workers.found != workers.expected:
            found.append(f"counted {workers.found}, by the model {workers.expected}")
        wrong += [f"seed {seed}, {mode.name}: {each}" for each in found]
    return wrong


def test_the_runtime_gives_the_gradients_of_plain_autograd_and_counts_as_the_model() -> None:
    assert [each for seed in seeds(100) for each in compare(seed)] == []


@pytest.mark.parametrize("mutant", SIMULATED)
def test_a_mutant_is_found(mutant: str) -> None:
    def all_agree() -> None:
        for seed in range(1_000):
            assert not compare(seed, *FEATURES.get(mutant, ()))

    assert not survives(SIMULATED[mutant], all_agree)


# Cases that no program shows, or only one of many.


def test_an_undefined_gradient_takes_nothing_away_from_others_of_the_same_run() -> None:
    x, seen = torch.ones(2, requires_grad=True), list[Any]()
    x.register_hook(seen.append)  # type: ignore[no-untyped-call]
    middle = x * 2
    (leaf, _), (inner, _), (outer, _) = map(torch_graph.edge_of, (x, middle, middle * 3))
    starts: dict[Any, list[Any]] = {outer: [torch.ones(2)], inner: [UNDEFINED], leaf: [UNDEFINED]}
    ((found,),) = TorchGraph(7, {}).run_region(starts, [leaf], retain=False)
    assert found.tolist() == [6, 6]
    assert [None if each is None else each.tolist() for each in seen] == [[6, 6]]


def test_a_received_tensor_in_a_plain_backward_says_what_to_call() -> None:
    tensor: Any = torch.rand(2)
    torch_graph.attach_recv(7, 1, [tensor])
    with pytest.raises(RuntimeError, match=r"came from worker 1 in context 7 .* call trystate.autograd.backward"):
        tensor.sum().backward()


def test_a_tensor_of_another_context_is_refused() -> None:
    tensor = torch.rand(2)
    node = torch_graph.attach_recv(7, 1, [tensor])
    with pytest.raises(RuntimeError, match=r"came from worker 1 in context 7 .* which is not 8"):
        TorchGraph(8, {}).is_leaf(node)
    with pytest.raises(RuntimeError, match="retain_graph=True"):
        TorchGraph(7, {}).is_leaf(node)
