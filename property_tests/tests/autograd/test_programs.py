"""Random distributed programs leave the gradients of plain autograd: on torch's distributed autograd, and on ours.

Many more under HYPOTHESIS_PROFILE=nightly. A failure of the batches names the seed and prints the program.
"""

from __future__ import annotations

import dataclasses
import functools
import random
import re
import tempfile
from collections.abc import Iterator

import pytest
import torch
from hypothesis import HealthCheck, given, settings

pytest.importorskip("torch.distributed.rpc")

from trystate.property_tests.support.autograd import runtime_mutants
from trystate.property_tests.support.autograd.building import Options, programs, random_features, random_program
from trystate.property_tests.support.autograd.graphs import graph
from trystate.property_tests.support.autograd.operations import Feature
from trystate.property_tests.support.autograd.outcomes import Outcome, differences
from trystate.property_tests.support.autograd.programs import Program
from trystate.property_tests.support.autograd.running import Runs, in_processes, run_locally
from trystate.property_tests.support.autograd.sides import SIDES
from trystate.property_tests.support.autograd.worlds import Failed, WorldError
from trystate.property_tests.support.nightly import by_night

OVERLAPS = "more than one element of the written-to tensor refers to a single memory location"
SEEDS = range(by_night("programs", 60))
DRAWN = by_night("drawn programs", 10)
WAITS_SECONDS = 0.3  # for what a mutant has taken away
WORKERS = 4
USED = [feature for feature in Feature if feature is not Feature.UNUSED]
local = functools.cache(run_locally)


@pytest.fixture(scope="module")
def runs() -> Iterator[Runs]:
    with tempfile.TemporaryDirectory() as folder, in_processes(WORKERS, folder, list(SIDES)) as found:
        yield found


@functools.cache
def program(seed: int, *always: Feature, without: frozenset[Feature] = frozenset()) -> Program:
    rng = random.Random(seed)
    features = (random_features(rng, USED) | set(always)) - without
    return random_program(seed, Options(workers=rng.randint(2, WORKERS), features=features))


def unused(each: Program) -> bool:
    """Whether a call of it leads to no root of a pass."""
    found = graph(each)
    return any(found.unused(number) for number in range(len(each.passes)))


def check(each: Program, found: Outcome | Failed, name: object) -> None:
    assert isinstance(found, Outcome), f"{name}: {found}\n{each}"
    assert differences(each, local(each), found) == [], f"{name}\n{each}"


def test_torch_is_right(runs: Runs) -> None:
    """So that the programs are fair; but for three of its mutants: zeros where nothing is, hooks that are not called,
    gradients that are views of one tensor. An expanded tensor stays one, and torch refuses to change it in place."""
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
    for seed, (one, found) in enumerate(zip(each, runs.run(each, "ours", threads=8), strict=True)):
        check(one, found, seed)


def test_smart_needs_no_result_to_be_used(runs: Runs) -> None:
    each = [program(seed, Feature.UNUSED) for seed in SEEDS]
    assert any(map(unused, each))
    for seed, (one, found) in enumerate(zip(each, runs.run(each, "ours", mode="smart"), strict=True)):
        check(one, found, seed)


def test_fast_fails_if_and_only_if_a_result_is_unused_and_can_be_tried_again(runs: Runs) -> None:
    each = [program(seed, Feature.UNUSED) for seed in SEEDS]
    assert not all(map(unused, each))
    for seed, (one, found) in enumerate(zip(each, runs.run(each, "ours", mode="fast"), strict=True)):
        assert isinstance(found, Outcome), f"{seed}: {found}\n{one}"
        assert bool(found.refused) == unused(one), f"{seed}: {found.refused}\n{one}"
        assert all(re.search("(execute|fetch).*smart", text, re.DOTALL) for text in found.refused)
        seen = local(one).seen if found.refused else found.seen  # hooks run in what is tried again, too
        check(one, dataclasses.replace(found, seen=seen), seed)


@pytest.mark.parametrize("mutant", runtime_mutants.IN_PROCESSES)
def test_mutants_are_noticed(runs: Runs, mutant: str) -> None:
    each = [program(seed, *runtime_mutants.FEATURES.get(mutant, ())) for seed in range(60)]
    options = {"timeout": WAITS_SECONDS} if mutant == "deaf" else {"mode": "fast"} if mutant == "blind" else {}
    runs.everywhere(runtime_mutants.plant, mutant)
    runs.patience = WAITS_SECONDS
    try:
        with pytest.raises((AssertionError, WorldError)):
            for k in range(0, 60, 5):
                for one, found in zip(each[k : k + 5], runs.run(each[k : k + 5], "ours", **options), strict=True):
                    check(one, found, mutant)
                    assert isinstance(found, Outcome) and bool(found.refused) == ("mode" in options and unused(one))
    finally:
        runs.patience = Runs.patience
        runs.everywhere(runtime_mutants.mend)


def test_ours_is_right_on_what_hypothesis_draws(runs: Runs) -> None:
    @settings(max_examples=DRAWN, suppress_health_check=list(HealthCheck))
    @given(programs(Options(workers=WORKERS, features=frozenset(USED))))
    def right(each: Program) -> None:
        (found,) = runs.run([each], "ours")
        check(each, found, "drawn")

    right()


@pytest.mark.parametrize("features", [(), (Feature.SEVERAL_ROOTS,), (Feature.SEVERAL_ROOTS, Feature.UNUSED)])
def test_gradients_count_paths(features: tuple[Feature, ...]) -> None:
    """The graph of a program is the one that autograd builds, as far as numbers of paths can tell."""
    for seed in SEEDS:
        each = random_program(seed, Options(features=frozenset(features), counted=True))
        counted = {key: float(count) for key, count in graph(each).paths(0).items()}
        assert counted == {key: float(grad) for key, grad in run_locally(each).gradients.items()}, f"{seed}\n{each}"


def test_programs_have_everything_in_them() -> None:
    """Each feature makes a difference to the programs; a program is the same each time that it is built."""

    def shown(*features: Feature) -> list[str]:
        return [str(random_program(seed, Options(features=frozenset(features)))) for seed in range(8)]

    without = shown()
    assert without == shown()
    assert [feature for feature in Feature if shown(feature) == without] == []


def test_differences_are_seen() -> None:
    each = random_program(0, Options(features=frozenset({Feature.AFTER_HOOKS, Feature.HOOKS})))
    right = run_locally(each)
    key = next(iter(right.seen))
    grad = right.gradients[key]
    assert differences(each, right, run_locally(each)) == []
    wrong = [
        dataclasses.replace(right, gradients={**right.gradients, key: grad * 1.001}),
        dataclasses.replace(right, gradients={**right.gradients, key: grad.float()}),
        dataclasses.replace(right, gradients={k: g for k, g in right.gradients.items() if k != key}),
        dataclasses.replace(right, gradients={**right.gradients, (9, "other"): torch.zeros(2)}),
        dataclasses.replace(right, roots=tuple(root + 1 for root in right.roots)),
        dataclasses.replace(right, seen={key: [("after", 7.0)]}),
        dataclasses.replace(right, seen={key: [*right.seen[key], ("after", None)]}),
        dataclasses.replace(right, layouts={**right.layouts, key: ("sparse", ())}),
        dataclasses.replace(right, shared=("something",)),
    ]
    assert all(differences(each, right, outcome) for outcome in wrong)
