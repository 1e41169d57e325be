"""Gradients of random programs: the runtime's engine under random schedules, plain autograd and the block engine.

The runtime's containers, counts and engine run here on real tensors, without processes; see autograd/simulated.py and,
for the second implementation, autograd/blocks.py. Mistakes in the running of nodes are planted, and found.
"""

from __future__ import annotations

from collections.abc import Callable
from random import Random
from typing import Any

import pytest
from hypothesis import settings

pytest.importorskip("torch", reason="it is about torch's autograd")

import torch
from torch.autograd.graph import get_gradient_edge
from trystate.impl.autograd import torch_graph
from trystate.impl.autograd.torch_graph import TorchGraph
from trystate.impl.autograd.work import Work
from trystate.model.autograd.vocabulary import Mode
from trystate.property_tests.autograd.blocks import run_in_blocks
from trystate.property_tests.autograd.building import Options, random_features, random_program
from trystate.property_tests.autograd.graphs import graph
from trystate.property_tests.autograd.operations import Feature
from trystate.property_tests.autograd.programs import Program
from trystate.property_tests.autograd.running import differences, run_locally
from trystate.property_tests.autograd.simulated_tensors import TensorWorkers

PROGRAMS = 20_000 if settings.get_current_profile_name() == "nightly" else 200


def drawn(seed: int) -> Program:
    rng = Random(seed)
    return random_program(seed, Options(rng.choice((2, 3, 4)), random_features(rng, list(Feature))))


def all_used(program: Program) -> bool:
    """Whether FAST can run it."""
    made = graph(program)
    return not any(made.unused(number) for number in range(len(made.roots)))


def compare(seed: int) -> list[str]:
    """How the runtime's engine differs from plain autograd on one program, in both modes."""
    program = drawn(seed)
    expected = run_locally(program)
    wrong = []
    for mode in [Mode.SMART, *([Mode.FAST] if all_used(program) else [])]:
        found = TensorWorkers(program, Random(seed)).run(mode)
        wrong += [f"seed {seed}, {mode.name}: {each}" for each in differences(program, expected, found)]
    return wrong


def test_the_runtimes_engine_gives_the_gradients_of_plain_autograd() -> None:
    assert [each for seed in range(PROGRAMS) for each in compare(seed)] == []


def test_the_block_engine_gives_the_gradients_of_plain_autograd() -> None:
    wrong, compared = [], 0
    for seed in range(PROGRAMS):
        program = drawn(seed)
        if all_used(program):
            compared += 1
            found = run_in_blocks(program)
            wrong += [f"seed {seed}: {each}" for each in differences(program, run_locally(program), found, True)]
    assert wrong == []
    assert compared > PROGRAMS // 3


# Mistakes, planted one by one.


def runs_what_waits(self: Work, tolerates: Callable[[Any], bool]) -> Any:
    """A region is run though nodes in it feed others that wait: those may run as well, on a part of their gradient."""
    singly, together, got = real_rest(self, lambda node: True)
    return [], singly + together, got


def no_hooks(self: TorchGraph, node: Any, gradients: Any) -> Any:
    """A node is called by itself: nothing runs its hooks."""
    if hasattr(node, "apply"):
        return real_run(self, node, gradients)
    with torch.no_grad():
        made = node(*gradients)
    return made if isinstance(made, tuple) else (made,)


def hooks_on_parts(self: TorchGraph, node: Any) -> bool:
    """A leaf with hooks is given its gradient in parts: a hook that is not linear makes another sum of them."""
    return type(node) is torch._C._functions.AccumulateGrad  # type: ignore[attr-defined]


def no_after_hooks(self: TorchGraph, into: Any, node: Any, gradient: Any) -> None:
    """Post-accumulate-grad hooks are not called, as by torch."""
    before = into.get(node.variable)
    into[node.variable] = gradient if before is None else torch_graph.add(before, gradient)


def ships_zeros(self: TorchGraph, starts: Any, leaves: Any, retain: bool) -> Any:
    """What is not defined is taken for zeros, as by torch."""
    found = real_region(self, starts, leaves, retain)
    for node, gradients in zip(leaves, found, strict=True):
        for at, meta in enumerate(node._input_metadata):
            if gradients[at] is None:
                gradients[at] = torch.zeros(meta.shape, dtype=meta.dtype)
    return found


def frees_always(self: TorchGraph, starts: Any, leaves: Any, retain: bool) -> Any:
    """The graph is freed though it is to be retained."""
    return real_region(self, starts, leaves, False)


real_rest, real_run, real_region = Work.rest, TorchGraph.run, TorchGraph.run_region
MISTAKES = [
    (Work, "rest", runs_what_waits),
    (TorchGraph, "run", no_hooks),
    (TorchGraph, "tolerates", hooks_on_parts),
    (TorchGraph, "keep", no_after_hooks),
    (TorchGraph, "run_region", ships_zeros),
    (TorchGraph, "run_region", frees_always),
]


@pytest.mark.parametrize("home, name, wrong", MISTAKES, ids=lambda each: getattr(each, "__name__", each))
def test_a_mistake_is_found(home: type, name: str, wrong: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(home, name, wrong)
    for seed in range(1_000):
        try:
            if compare(seed):
                return
        except RuntimeError:
            return
    pytest.fail("nothing was found in 1000 programs")


# What no program shows.


def edges_of(*tensors: Any) -> list[Any]:
    return [get_gradient_edge(tensor) for tensor in tensors]


def test_two_gradients_never_share_memory() -> None:
    """The backward of a + b gives both the same tensor; `view` may give one with gaps."""
    kept: dict[Any, Any] = {}
    one, other, third = (torch.rand(3, requires_grad=True) for _ in range(3))
    engine, gradient = TorchGraph(0, {}), torch.rand(3)
    nodes = [edge.node for edge in edges_of(one, other, third)]
    engine.keep(kept, nodes[0], gradient)
    engine.keep(kept, nodes[1], gradient)
    engine.keep(kept, nodes[2], gradient[:1].expand(3))
    assert kept[one] is gradient, "nobody else has it: no copy"
    assert kept[other].data_ptr() != gradient.data_ptr()
    assert torch.equal(kept[other], gradient)
    assert kept[third].is_contiguous()


def test_an_after_hook_finds_the_gradient_and_decides_what_is_kept() -> None:
    kept: dict[Any, Any] = {}
    parameter: Any = torch.ones(2, requires_grad=True)
    parameter.grad = mine = torch.zeros(2)
    seen = []

    def halve(of: Any) -> None:
        seen.append(of.grad.clone())
        of.grad = of.grad / 2

    parameter.register_post_accumulate_grad_hook(halve)
    (edge,) = edges_of(parameter)
    TorchGraph(0, {}).keep(kept, edge.node, torch.tensor([2.0, 4.0]))
    assert [each.tolist() for each in seen] == [[2.0, 4.0]]
    assert kept[parameter].tolist() == [1.0, 2.0]
    assert parameter.grad is mine


def test_a_received_tensor_in_a_plain_backward_says_what_to_call() -> None:
    tensor: Any = torch.rand(2)
    torch_graph.attach_recv(7, 1, [tensor])
    with pytest.raises(RuntimeError, match=r"came from worker 1 in context 7 .* call trystate.impl.autograd.backward"):
        tensor.sum().backward()


def test_a_tensor_of_another_context_is_refused() -> None:
    tensor = torch.rand(2)
    node = torch_graph.attach_recv(7, 1, [tensor])
    with pytest.raises(RuntimeError, match=r"came from worker 1 in context 7 .* which is not 8"):
        TorchGraph(8, {}).is_leaf(node)
    with pytest.raises(RuntimeError, match="retain_graph=True"):
        TorchGraph(7, {}).is_leaf(node)
