"""Gradients of random programs: the runtime's engine under random schedules, plain autograd and the block engine.

The runtime's containers, counts and engine run here on real tensors, without processes: see
`support/autograd/simulated_tensors.py` and, for the second implementation, `support/autograd/blocks.py`. Mutants of the
running of nodes are found.
"""

from __future__ import annotations

from collections.abc import Callable
from random import Random
from typing import Any
from unittest import mock

import pytest

pytest.importorskip("torch", reason="it is about torch's autograd")

import torch
from trystate.impl.autograd import torch_graph
from trystate.impl.autograd.accumulate_grad import Accumulator, Hooks, add
from trystate.impl.autograd.dependencies import UNDEFINED, DependencyCounts
from trystate.impl.autograd.local_pass import LocalPass
from trystate.impl.autograd.torch_graph import TorchGraph
from trystate.model.autograd.vocabulary import Mode
from trystate.property_tests.support.autograd.blocks import run_in_blocks
from trystate.property_tests.support.autograd.building import Options, random_features, random_program
from trystate.property_tests.support.autograd.graphs import graph
from trystate.property_tests.support.autograd.operations import Feature
from trystate.property_tests.support.autograd.outcomes import differences
from trystate.property_tests.support.autograd.programs import Program
from trystate.property_tests.support.autograd.running import run_locally
from trystate.property_tests.support.autograd.simulated_tensors import TensorWorkers
from trystate.property_tests.support.mutants import Mutant, replaced, survives
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
    """How the runtime's engine differs from plain autograd on one program, in the modes that can run it."""
    program = drawn(seed, *features)
    expected = run_locally(program)
    wrong = []
    for mode in [Mode.SMART, *([Mode.FAST] if all_used(program) else [])]:
        found = TensorWorkers(program, Random(seed)).run(mode)
        wrong += [f"seed {seed}, {mode.name}: {each}" for each in differences(program, expected, found)]
    return wrong


def test_the_runtimes_engine_gives_the_gradients_of_plain_autograd() -> None:
    assert [each for seed in seeds(200, nightly=20_000) for each in compare(seed)] == []


def test_the_block_engine_gives_the_gradients_of_plain_autograd() -> None:
    wrong, compared, seed = [], 0, 0
    for seed in seeds(200, nightly=20_000):
        program = drawn(seed)
        if all_used(program):
            compared += 1
            found = run_in_blocks(program)
            wrong += [f"seed {seed}: {each}" for each in differences(program, run_locally(program), found, True)]
    assert wrong == []
    assert compared > seed // 3


# Mutants, one by one.


def runs_what_waits(self: DependencyCounts, tolerates: Callable[[Any], bool]) -> Any:
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


def no_after_hooks(self: Accumulator, into: Any, before: Any, tensor: Any, gradients: Any) -> None:
    """Post-accumulate-grad hooks are not called, as by torch."""
    with mock.patch.object(tensor, "_post_accumulate_grad_hooks", None):
        real_take(self, into, before, tensor, gradients)


def sums_one_pass(self: Accumulator, into: Any, before: Any, tensor: Any, gradients: Any) -> None:
    """Post-accumulate-grad hooks see the gradient of their pass alone."""
    real_take(self, into, {}, tensor, gradients)
    if into.get(tensor) is not None and before.get(tensor) is not None:
        into[tensor] = add(before[tensor], into[tensor])


def no_node_hooks(self: TorchGraph, node: Any) -> None:
    """Hooks of nodes that accumulate are not run."""
    return None


def hooks_too_late(self: Hooks, gradients: Any, act: Any) -> None:
    """What is to run before the accumulation runs after it."""
    seen = list(gradients)
    act(gradients)
    real_around(self, seen, lambda _: None)


def keeps_memory(self: Accumulator, tensor: Any, gradients: Any) -> Any:
    """Whatever a node has made is the gradient."""
    return gradients.pop().detach()


def keeps_sparse_memory(self: Accumulator, gradients: Any) -> Any:
    return gradients.pop().detach()


def contiguous(self: Accumulator, tensor: Any, gradients: Any) -> Any:
    """Gradients are contiguous, whatever their tensors are."""
    made = real_own(self, tensor, gradients)
    return made if made.is_sparse else made.contiguous()


def runs_only_on_defined(self: TorchGraph, starts: Any, leaves: Any, retain: bool) -> Any:
    """A node of which no gradient is defined is not run."""
    for node in list(starts):
        if all(each is None or each is UNDEFINED for each in starts[node]):
            del starts[node]
    return real_region(self, starts, leaves, retain)


def runs_on_zeros(self: torch_graph._Undefine, gradients: Any) -> None:
    """What is not defined is zeros for the node."""


def tells_no_undefined(self: LocalPass, recv: Any, gradients: Any, at_once: bool = False) -> Any:
    """Another worker does not hear that a gradient came and is not defined."""
    return real_ship(self, recv, [None if each is UNDEFINED else each for each in gradients], at_once)


def all_undefined(self: LocalPass, recv: Any, gradients: Any, at_once: bool = False) -> Any:
    """Another worker runs nodes to which no gradient comes."""
    return real_ship(self, recv, [UNDEFINED if each is None else each for each in gradients], at_once)


def ships_zeros(self: TorchGraph, starts: Any, leaves: Any, retain: bool) -> Any:
    """What is not defined is taken for zeros, as by torch."""
    found = real_region(self, starts, leaves, retain)
    for node, gradients in zip(leaves, found, strict=True):
        for at, meta in enumerate(node._input_metadata):
            if gradients[at] is None or gradients[at] is UNDEFINED:
                gradients[at] = torch.zeros(meta.shape, dtype=meta.dtype)
    return found


def frees_always(self: TorchGraph, starts: Any, leaves: Any, retain: bool) -> Any:
    """The graph is freed though it is to be retained."""
    return real_region(self, starts, leaves, False)


real_rest, real_run, real_region = DependencyCounts.rest, TorchGraph.run, TorchGraph.run_region
real_take, real_own, real_around, real_ship = Accumulator.take, Accumulator._own, Hooks.around, LocalPass.ship
F = Feature
# Each with the features of the programs that are to find it, if not any will do.
MUTANTS: dict[str, tuple[Mutant, tuple[Feature, ...]]] = {
    "runs_what_waits": (replaced(DependencyCounts, "rest", runs_what_waits), ()),
    "no_hooks": (replaced(TorchGraph, "run", no_hooks), ()),
    "hooks_on_parts": (
        replaced(TorchGraph, "tolerates", hooks_on_parts),
        (
            F.CLAMPS,
            F.BROADCAST,
        ),
    ),
    "no_after_hooks": (replaced(Accumulator, "take", no_after_hooks), ()),
    "sums_one_pass": (
        replaced(Accumulator, "take", sums_one_pass),
        (
            F.AFTER_HOOKS,
            F.SEVERAL_PASSES,
        ),
    ),
    "no_node_hooks": (replaced(TorchGraph, "hooks_of", no_node_hooks), (F.NODE_HOOKS,)),
    "hooks_too_late": (replaced(Hooks, "around", hooks_too_late), (F.NODE_HOOKS,)),
    "keeps_memory": (replaced(Accumulator, "_own", keeps_memory), ()),
    "keeps_sparse_memory": (replaced(Accumulator, "_own_sparse", keeps_sparse_memory), (F.SPARSE,)),
    "contiguous": (replaced(Accumulator, "_own", contiguous), (F.STRIDES,)),
    "ships_zeros": (replaced(TorchGraph, "run_region", ships_zeros), ()),
    "frees_always": (replaced(TorchGraph, "run_region", frees_always), ()),
    "runs_only_on_defined": (
        replaced(TorchGraph, "run_region", runs_only_on_defined),
        (
            F.UNDEFINED,
            F.BROADCAST,
        ),
    ),
    "runs_on_zeros": (
        replaced(torch_graph._Undefine, "__call__", runs_on_zeros),
        (
            F.UNDEFINED,
            F.CUSTOM,
        ),
    ),
    "tells_no_undefined": (replaced(LocalPass, "ship", tells_no_undefined), (F.UNDEFINED,)),
    "all_undefined": (
        replaced(LocalPass, "ship", all_undefined),
        (
            F.UNDEFINED,
            F.UNUSED,
        ),
    ),
}


@pytest.mark.parametrize("name", MUTANTS)
def test_a_mutant_is_found(name: str) -> None:
    mutant, features = MUTANTS[name]

    def all_agree() -> None:
        for seed in range(1_000):
            assert not compare(seed, *features)

    assert not survives(mutant, all_agree)


# What no program shows.


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
