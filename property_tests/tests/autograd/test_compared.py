"""The model and the runtime come to the same on random programs: outcomes and gradients, along random schedules.

Many more under HYPOTHESIS_PROFILE=nightly. Mutants of each are found.
"""

from __future__ import annotations

from functools import cache
from random import Random
from typing import Any

import pytest

pytest.importorskip("torch.distributed.rpc")

from trystate.impl.autograd.local_pass import LocalPass
from trystate.model.autograd.backward import Backward
from trystate.model.autograd.backward.fields import Outcome
from trystate.model.autograd.vocabulary import Mode
from trystate.property_tests.support.autograd import runtime_mutants
from trystate.property_tests.support.autograd.building import Options, random_program
from trystate.property_tests.support.autograd.compared import Case
from trystate.property_tests.support.autograd.graphs import Graph, Kind, graph
from trystate.property_tests.support.autograd.local_pass_mutants import (
    AnswersAtOnce,
    IgnoresFailures,
    KeepsGradients,
    TakesTwice,
    having,
)
from trystate.property_tests.support.autograd.modelled import Upset, totalled
from trystate.property_tests.support.autograd.operations import Feature
from trystate.property_tests.support.nightly import NIGHTLY, by_night

CASES = range(by_night("cases of the model", 10))
PAIRS = 8 if NIGHTLY else 6  # of messages in a graph that the model takes
WORKERS = 3
SHAPES = [Feature.SEVERAL_RESULTS, Feature.SEVERAL_ROOTS, Feature.SEVERAL_PASSES, Feature.SELF_CALLS, Feature.REMOTE]


def drawn(seed: int) -> Graph:
    """The graph of a program of whole numbers; half of them may have calls that are not used."""
    rng = Random(seed)
    features = {feature for feature in SHAPES if rng.random() < 0.4} | ({Feature.UNUSED} if seed % 2 else set())
    options = Options(rng.randint(2, WORKERS), frozenset(features), steps=3, counted=True)
    return graph(random_program(rng.randrange(1 << 32), options))


def messages(made: Graph) -> int:
    return sum(node.kind is Kind.SEND for node in made.nodes[: made.sizes[0]])


def far(made: Graph) -> list[int]:
    """The operations of the first pass, on other workers than the root."""
    return [k for k in made.reached(0) if made.nodes[k].kind is Kind.PLAIN and made.nodes[k].worker]


@cache
def case(number: int, system: type[Backward] = Backward) -> Case:
    """Both modes, calls that are not used or none, and each kind of trouble, in turn."""
    rng = Random(number)
    each = iter(lambda: totalled(drawn(4 * rng.randrange(1 << 30) + number // 2)), None)
    made = next(one for one in each if 2 <= messages(one) <= PAIRS and far(one))
    used = [made.nodes[k].message for k in made.reached(0) if made.nodes[k].kind is Kind.SEND]
    upsets = (
        Upset(), Upset(raises=rng.choice(far(made))), Upset(loses=rng.choice(used)),
        Upset(dies=rng.randrange(1, made.workers)), Upset(twice=2),
    )  # fmt: skip
    return Case(made, list(Mode)[number % 2], upsets[number % len(upsets)], number, system=system)


def test_the_model_and_the_runtime_come_to_the_same_on_random_programs() -> None:
    assert [wrong for number in CASES for wrong in case(number).differences()] == []
    ends = {told.outcomes for number in CASES for told in case(number).expected}
    assert ends >= {(Outcome.RETURNED,) * 2, (Outcome.RAISED, Outcome.RETURNED), (Outcome.UNUSED,) * 2}


class NoticesNothing(LocalPass):
    """The root does not ask whether gradients are missing."""

    _quiet = runtime_mutants.blind(LocalPass._quiet)


@pytest.mark.parametrize("wrong", [NoticesNothing, TakesTwice, IgnoresFailures, KeepsGradients, AnswersAtOnce])
def test_a_mutant_in_the_runtime_is_no_longer_the_model(wrong: type[LocalPass]) -> None:
    assert any(case(number).differences(having(wrong)) for number in CASES)


class FeedsOnce(Backward):
    """Of two gradients of one node one counts."""

    def at_most(self, value: Any) -> Any:
        return 1


def test_a_mutant_in_the_model_is_no_longer_the_runtime() -> None:
    assert any(case(number, FeedsOnce).differences() for number in CASES)
