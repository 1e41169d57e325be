"""Distributed optimizers: what each edition violates, that each property can be, and the runtime edge by edge.

Each property is asked of a model of ours that is wrong in one place. Each rule that the runtime keeps is broken
once: a replay of the model's edges notices it.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import replace
from typing import Any
from unittest import mock

import pytest
from torch import Tensor

from trystate.impl.autograd import optimizer as runtime
from trystate.impl.autograd.borrowed_grad import borrowed
from trystate.model.autograd.optimizer import Optimizers, Ours
from trystate.model.autograd.vocabulary import Edition, OwnerStep
from trystate.model.language import Expr, SymbolicState, any_, not_
from trystate.property_tests.adapters.our_autograd.conformance import CHECKS, LONG_OPTIMIZERS, optimizers
from trystate.property_tests.adapters.our_autograd.optimizer_edges import OptimizerSteps
from trystate.property_tests.harness.paths import replay_every_edge
from trystate.property_tests.support.marks import by_verify
from trystate.property_tests.support.nightly import NIGHTLY
from trystate.property_tests.support.pinned import Asked, model_tests


def get_gradients(context: int) -> Any:
    """Those of the runtime, or what stands in for them."""
    return vars(runtime)["get_gradients"](context)


S = SymbolicState
TORCH, TRYSTATE = Edition.TORCH, Edition.TRYSTATE
STALE = "only_its_own_gradients_are_applied grad_is_what_it_was"
# fmt: off
ASKED = (
    Asked(Optimizers, TORCH, "steps=1", 5125, STALE),
    Asked(Optimizers, TORCH, "steps=1 scripted=1", 6241, "steps_do_not_interleave"),
    Asked(Optimizers, TORCH, "optimizer=2 owner=1", 25438, STALE, ("error", "timeout", "crash")),
    Asked(Optimizers, TRYSTATE, "owner=1 steps=1", 153),
    Asked(Optimizers, TRYSTATE, "", 18025),
    Asked(Optimizers, TRYSTATE, "owner=1", 22522, "", ("error", "slow", "timeout", "crash")),
)
# fmt: on


class AppliesAgain(Ours):
    """An owner that has applied a step goes on as if it had just come."""

    def leaves(self, s: S, optimizer: Expr, owner: Expr) -> None:
        super().leaves(s, optimizer, owner)
        s.place[optimizer, owner] = OwnerStep.WAITING


class LeavesGrad(Ours):
    """`.grad` stays after a step."""

    def leaves(self, s: S, optimizer: Expr, owner: Expr) -> None:
        s.place[optimizer, owner] = OwnerStep.NONE


class TakesNoLock(Ours):
    """A step goes in beside another."""

    def may_enter(self, s: S, owner: Expr) -> Any:
        return not_(False)


class ReturnsEarly(Ours):
    """A step returns when one owner has answered."""

    def may_return(self, s: S, optimizer: Expr) -> Any:
        return any_(s.done[optimizer, w] for w in s.owner)


class ForgetsErrors(Ours):
    """A step returns when each owner has answered, with an error or without."""

    def may_return(self, s: S, optimizer: Expr) -> Any:
        return ~any_(~(s.done[optimizer, w] | s.failed[optimizer, w]) for w in s.owner)


class AnswersNever(Ours):
    """An owner need not answer."""

    answer = replace(Ours.answer, fair=False)


class NoticesNothing(Ours):
    """The loss of an owner is not noticed."""

    notice = None  # type: ignore[assignment]


# fmt: off
MUTANTS = (
    ("applied_at_most_once", AppliesAgain, "owner=1 steps=1", ()),
    ("only_its_own_gradients_are_applied", TakesNoLock, "owner=1 steps=1", ()),
    ("grad_is_what_it_was", LeavesGrad, "owner=1 steps=1", ()),
    ("steps_do_not_interleave", TakesNoLock, "owner=1 steps=1", ()),
    ("returned_means_applied", ReturnsEarly, "steps=1", ()),
    ("a_step_that_failed_raises", ForgetsErrors, "owner=1 steps=1", ("error",)),
    ("a_step_ends", AnswersNever, "owner=1 steps=1", ()),
    ("deadlock_freedom", NoticesNothing, "owner=1 steps=1", ("crash",)),
)
# fmt: on


(
    test_an_edition_violates_what_is_known_of_it_and_no_more,
    test_every_step_is_taken_and_every_claimed_move_is_made,
    test_the_engines_agree,
    test_a_mutant_is_caught_by_the_property_that_is_about_it,
    test_every_property_is_violated_by_a_mutant,
) = model_tests(ASKED, MUTANTS, [a for a in ASKED if a.states < 1_000])


# ---- the runtime


@by_verify
def test_the_runtime_does_what_the_model_says() -> None:
    check = next(check for check in CHECKS if check.name == "our distributed optimizers")
    found = check.run(lambda _: None)
    assert not found.disagreements
    assert found.compared == found.of
    assert found.compared > 15_000


@pytest.mark.skipif(not NIGHTLY, reason="100,000 edges: under HYPOTHESIS_PROFILE=nightly")
def test_so_it_does_in_larger_ones() -> None:
    assert not optimizers(LONG_OPTIMIZERS, lambda _: None).disagreements


def leaves_grad(parameters: Sequence[Tensor]) -> Any:
    """`.grad` of the parameters stays."""

    @contextmanager
    def borrows() -> Iterator[None]:
        yield

    return borrows()


class OnlyThoseWithGradients(runtime.LocalOptimizer):
    """As torch's: a parameter without a gradient keeps what `.grad` is."""

    def step(self, context_id: int) -> None:
        gradients = get_gradients(context_id)
        runtime._steps.acquire(timeout=1)
        for param, gradient in gradients.items():
            param.grad = gradient
        self._optimizer.step()
        runtime._steps.release()


class WithoutLock(runtime.LocalOptimizer):
    """Steps of a worker are not one after the other."""

    def step(self, context_id: int) -> None:
        gradients = get_gradients(context_id)
        runtime._steps.acquire(timeout=0)
        with borrowed(self._params):
            for param in self._params:
                param.grad = gradients.get(param)
            self._optimizer.step()


class Twice(runtime.LocalOptimizer):
    """A step is applied twice."""

    def step(self, context_id: int) -> None:
        gradients = get_gradients(context_id)
        for param in self._params:
            with_gradient = gradients.get(param)
            if with_gradient is not None:
                param.data -= with_gradient
        super().step(context_id)


class KeepsTheLock(runtime.LocalOptimizer):
    """A step that fails keeps the lock."""

    def step(self, context_id: int) -> None:
        try:
            super().step(context_id)
        except RuntimeError:
            runtime._steps.acquire(timeout=1)
            raise


def first_only(futures: list[Any]) -> list[Any]:
    """The first owner is waited for, and no other."""
    return [futures[0].wait()] * len(futures)


def no_errors(futures: list[Any]) -> list[Any]:
    """Errors of owners are not raised."""
    results = []
    for future in futures:
        try:
            results.append(future.wait())
        except Exception as error:
            results.append(error)
    return results


BROKEN: tuple[tuple[str, Any, Mapping[str, int], tuple[str, ...]], ...] = (
    ("borrowed", leaves_grad, {"owner": 1}, ()), ("LocalOptimizer", OnlyThoseWithGradients, {"owner": 1}, ()),
    ("LocalOptimizer", WithoutLock, {"owner": 1}, ()), ("LocalOptimizer", Twice, {"owner": 1}, ()),
    ("LocalOptimizer", KeepsTheLock, {"owner": 1}, ("error",)), ("_all", first_only, {}, ()),
    ("_all", no_errors, {"owner": 1}, ("error",)),
)  # fmt: skip


@pytest.mark.parametrize(("name", "broken", "sizes", "faults"), BROKEN, ids=lambda x: getattr(x, "__name__", ""))
def test_a_rule_that_the_runtime_breaks_is_a_disagreement(
    name: str, broken: Any, sizes: Mapping[str, int], faults: tuple[str, ...]
) -> None:
    model = Optimizers(edition=TRYSTATE, faults=faults, **{"steps": 1, **sizes})
    with mock.patch.object(runtime, name, broken), OptimizerSteps(model) as subject:
        assert replay_every_edge(model, subject, refusals=True, repeats=False, stop_after=1).disagreements
