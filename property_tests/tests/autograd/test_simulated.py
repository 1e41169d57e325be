"""Backward passes under random schedules and faults, on the runtime's containers and local passes.

See `adapters/our_autograd/simulated.py`. The model's properties are asked of real code. Each mutant is
found.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from itertools import product
from random import Random

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

pytest.importorskip("torch", reason="programs are made of tensors")

from trystate.impl.autograd.container import Container
from trystate.impl.autograd.errors import PassError, UnusedSendError
from trystate.impl.autograd.local_pass import LocalPass
from trystate.model.autograd.vocabulary import Mode
from trystate.property_tests.adapters.our_autograd.simulated import Faults
from trystate.property_tests.support.autograd.building import Options, random_program
from trystate.property_tests.support.autograd.graphs import Graph, Kind, Node, graph
from trystate.property_tests.support.autograd.local_pass_mutants import MUTANTS
from trystate.property_tests.support.autograd.operations import Feature
from trystate.property_tests.support.autograd.simulated_counts import World
from trystate.property_tests.support.nightly import by_night

SEEDS = by_night("simulated passes", 250)
FAULTS = [
    Faults(),
    Faults(lost=1),
    Faults(twice=3),
    Faults(dies=1),
    Faults(raises=1),
    Faults(expires=1),
    Faults(left=1),
    Faults(raises=1, twice=3),
    Faults(raises=1, mute=1),
    Faults(lost=1, twice=2, raises=1, expires=1, dies=1),
]


# Worker 0 uses what worker 1 made of its own parameter p; worker 1 has sent q to worker 2, and used nothing of that. No
# worker but 1 misses a gradient. Random programs are hardly ever like that.
ASIDE = Graph(
    workers=3,
    nodes=(
        Node(1, Kind.LEAF, name="p"),
        Node(1, Kind.LEAF, name="q"),
        Node(1, Kind.SEND, ((1, 0),), 1),
        Node(2, Kind.RECV, (), 1),
        Node(1, Kind.SEND, ((0, 0),), 2),
        Node(0, Kind.RECV, (), 2),
        Node(0, Kind.PLAIN, ((5, 0),)),
    ),
    roots=(((6, 0),),),
    sizes=(7,),
)


def drawn(seed: int) -> Graph:
    """The graph of a random program; half of them have calls that are not used."""
    if seed % 50 == 7:
        return ASIDE
    rng = Random(seed)
    features = frozenset({Feature.UNUSED}) if seed % 2 else frozenset()
    return graph(random_program(seed, Options(rng.choice((2, 3, 4)), features, counted=True)))


def follow(seed: int, mode: Mode, faults: Faults, make: Callable[..., Container] = Container) -> World:
    """One pass, and then another one without faults; checks all that must hold."""
    world = World(drawn(seed), Random(seed), faults, make)
    world.forward(world.graph.sizes[0])
    local_pass = world.backward(0, mode)
    if seed % 3:
        world.until_quiet()
        for me, container in enumerate(world.containers):
            waits = [one.state for one in container.passes() if me not in world.dead]
            assert not waits, f"worker {me} keeps a part: {waits}"
    else:  # the next pass begins while messages of this one are under way
        world.until_over(local_pass)
    check_pass(world, local_pass, harmless=faults == Faults(twice=faults.twice))
    retry(world)
    check_left(world)
    return world


def check_pass(world: World, local_pass: LocalPass, harmless: bool) -> None:
    assert world.over.count(local_pass) == 1, "the root waits for ever, or was told twice"
    for engine in world.engines:
        assert not [node for node, times in engine.ran.items() if times > 1], "a node ran twice"
        engine.ran.clear()
    unused = bool(world.graph.unused(0))
    if local_pass.error is None:
        assert local_pass.mode is Mode.SMART or not unused, "FAST has succeeded without all gradients"
        if world.context in world.containers[0].contexts:
            assert world.gradients() == world.expected(0)
    else:
        assert world.faults.mute or world.gradients() == {}, "gradients of a failed pass are left"
        if harmless:
            assert unused, f"it fails for no reason: {local_pass.error}"
            assert local_pass.mode is Mode.FAST, f"SMART fails: {local_pass.error}"
            assert isinstance(local_pass.error, UnusedSendError)
            calls = {f"call {world.graph.nodes[send].message}" for send in world.graph.unused(0)}
            named = set(re.findall(r"call \d+", str(local_pass.error)))
            assert calls & named, f"it names none of {calls}: {local_pass.error}"


def retry(world: World) -> None:
    """Another pass over the same graph, without faults: whatever was before, it succeeds, and counts once."""
    if world.context not in world.containers[0].contexts or world.dead:
        return
    if world.containers[0].get(world.context).spoiled:
        return
    before = world.gradients()
    world.left.clear()
    local_pass = world.backward(0, Mode.SMART)
    world.until_over(local_pass)
    assert local_pass.error is None, f"the next pass fails: {local_pass.error}"
    wanted = {key: before.get(key, 0) + count for key, count in world.expected(0).items()}
    assert world.gradients() == wanted


def check_left(world: World) -> None:
    """After the context was left, no worker has it, or will take it up again."""
    had = [me for me, container in enumerate(world.containers) if world.context in container.contexts]
    if 0 in had:
        world.release()
    world.until_quiet()
    for me in set(had) - world.dead:
        assert not world.containers[me].contexts, f"worker {me} has the context still"
        assert world.containers[me].heard(world.context, 0) is None, f"worker {me} would take it up again"


@settings(max_examples=SEEDS)
@given(seed=st.integers(0, 1 << 32), mode=st.sampled_from(Mode), faults=st.sampled_from(FAULTS))
def test_a_pass_ends_and_counts_every_path_once_whatever_happens(seed: int, mode: Mode, faults: Faults) -> None:
    follow(seed, mode, faults)


@pytest.mark.parametrize("wrong", MUTANTS, ids=lambda wrong: wrong.__name__)
def test_a_mutant_is_found(wrong: type[Container]) -> None:
    for seed, mode in product(range(400), Mode):
        for faults in (Faults(), FAULTS[seed // 2 % len(FAULTS)]):
            try:
                follow(seed, mode, faults, wrong)
            except (AssertionError, PassError, KeyError):
                return
    pytest.fail(f"{wrong.__name__}: nothing was found in 400 seeds")
