"""Random distributed programs leave the gradients of plain autograd: on torch's distributed autograd, and on ours.

Many more under HYPOTHESIS_PROFILE=nightly. A failure names the seed and prints the program. The runtime's containers,
counts and engine also run without processes, under random schedules: see `support/autograd/simulated_tensors.py`.
"""

from __future__ import annotations

import dataclasses
import functools
import random
import re
import tempfile
from collections.abc import Iterator
from typing import Any

import pytest
import torch

pytest.importorskip("torch.distributed.rpc")

from trystate.impl.autograd import torch_graph
from trystate.impl.autograd.dependencies import UNDEFINED
from trystate.impl.autograd.torch_graph import TorchGraph
from trystate.property_tests.adapters.worlds import Failed, World, WorldError
from trystate.property_tests.support.autograd import runtime_mutants
from trystate.property_tests.support.autograd.building import random_features, random_program
from trystate.property_tests.support.autograd.operations import Feature
from trystate.property_tests.support.autograd.outcomes import Outcome, differences
from trystate.property_tests.support.autograd.programs import Program
from trystate.property_tests.support.autograd.running import PRELOAD, SECONDS, Runs, leave, run_locally
from trystate.property_tests.support.autograd.sides import SIDES
from trystate.property_tests.support.autograd.simulated_tensors import has_unused
from trystate.property_tests.support.campaigns import compare
from trystate.property_tests.support.mutants import survives
from trystate.property_tests.support.nightly import by_night, seeds

OVERLAPS = "more than one element of the written-to tensor refers to a single memory location"
SEEDS = range(by_night("programs", 60))
WORKERS = 4
USED = [feature for feature in Feature if feature is not Feature.UNUSED]
local = functools.cache(run_locally)


@pytest.fixture(scope="module")
def runs() -> Iterator[Runs]:
    with tempfile.TemporaryDirectory() as folder, World(WORKERS, PRELOAD) as world:
        yield Runs(world, folder, list(SIDES))
        world.do(leave, list(SIDES), seconds=SECONDS)


@functools.cache
def program(seed: int, *always: Feature, without: frozenset[Feature] = frozenset()) -> Program:
    rng = random.Random(seed)
    features = (random_features(rng, USED) | set(always)) - without
    return random_program(seed, rng.randint(2, WORKERS), features)


unused = functools.cache(has_unused)


def check(programs: list[Program], outcomes: list[Outcome | Failed]) -> None:
    for number, (one, found) in enumerate(zip(programs, outcomes, strict=True)):
        assert isinstance(found, Outcome), f"{number}: {found}\n{one}"
        assert differences(one, local(one), found) == [], f"{number}\n{one}"


def test_torch_is_right(runs: Runs) -> None:
    """The programs are fair: torch passes, except for three deviations (zeros instead of no gradient, hooks that are
    not called, gradients that are views of one tensor) and its refusal to change an expanded tensor in place."""
    each = [program(seed, without=frozenset({Feature.UNDEFINED})) for seed in SEEDS[::2]]
    for seed, (one, found) in enumerate(zip(each, runs.run(each, "torch"), strict=True)):
        if isinstance(found, Failed) and {"IN_PLACE", "STRIDES"} <= one.notes and OVERLAPS in found.text:
            continue
        assert isinstance(found, Outcome), f"{2 * seed}: {found}\n{one}"
        found = dataclasses.replace(found, seen=local(one).seen, shared=())
        assert differences(one, local(one), found, zeros_are_none=True) == [], f"{2 * seed}\n{one}"


def test_ours_is_right(runs: Runs) -> None:
    each = [program(seed) for seed in SEEDS]
    assert any(local(one).seen for one in each)
    check(each, runs.run(each, "ours", threads=8))


def test_smart_needs_no_result_to_be_used(runs: Runs) -> None:
    each = [program(seed, Feature.UNUSED) for seed in SEEDS]
    assert any(map(unused, each))
    check(each, runs.run(each, "ours", mode="smart"))


def test_fast_fails_exactly_on_an_unused_result_and_can_be_tried_again(runs: Runs) -> None:
    each = [program(seed, Feature.UNUSED) for seed in SEEDS]
    assert not all(map(unused, each))
    outcomes = runs.run(each, "ours", mode="fast")
    for seed, (one, found) in enumerate(zip(each, outcomes, strict=True)):
        assert isinstance(found, Outcome), f"{seed}: {found}\n{one}"
        assert bool(found.refused) == unused(one), f"{seed}: {found.refused}\n{one}"
        assert all(re.search("(execute|fetch).*smart", text, re.DOTALL) for text in found.refused)
        if found.refused:  # hooks also run in the second pass
            outcomes[seed] = dataclasses.replace(found, seen=local(one).seen)
    check(each, outcomes)


@pytest.mark.parametrize("mutant", runtime_mutants.IN_PROCESSES)
def test_mutants_are_noticed(runs: Runs, mutant: str) -> None:
    each = [program(seed, *runtime_mutants.FEATURES.get(mutant, ())) for seed in range(60)]
    runs.everywhere(runtime_mutants.plant, mutant)
    try:
        with pytest.raises((AssertionError, WorldError)):
            for k in range(0, 60, 5):
                check(each[k : k + 5], runs.run(each[k : k + 5], "ours"))
    finally:
        runs.everywhere(runtime_mutants.mend)


def test_programs_have_everything_in_them() -> None:
    """Each feature changes the programs. A seed always draws the same program."""

    def shown(*features: Feature) -> list[str]:
        return [str(random_program(seed, features=frozenset(features))) for seed in range(8)]

    without = shown()
    assert without == shown()
    assert [feature for feature in Feature if shown(feature) == without] == []


# ---- a simulated schedule, without processes


def test_the_runtime_has_the_gradients_of_autograd_and_the_models_counts() -> None:
    assert [text for seed in seeds(100) for text in compare(seed)[1]] == []


@pytest.mark.parametrize("mutant", runtime_mutants.SIMULATED)
def test_a_mutant_is_found(mutant: str) -> None:
    def all_agree() -> None:
        for seed in range(1_000):
            assert not compare(seed, *runtime_mutants.FEATURES.get(mutant, ()))[1]

    assert not survives(runtime_mutants.SIMULATED[mutant], all_agree)


# ---- cases that few or no programs have


def test_an_undefined_gradient_leaves_others_of_the_same_run_as_they_are() -> None:
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
    with pytest.raises(RuntimeError, match=r"from worker 1 in context 7 .* which is not 8"):
        TorchGraph(8, {}).is_leaf(node)
    with pytest.raises(RuntimeError, match="retain_graph=True"):
        TorchGraph(7, {}).is_leaf(node)
