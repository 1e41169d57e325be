"""Mutants that random programs must notice, planted in the processes that run them."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from contextlib import suppress
from typing import Any
from unittest import mock

import pytest
from trystate.impl.autograd import api
from trystate.impl.autograd.accumulate_grad import Accumulator
from trystate.impl.autograd.container import Container
from trystate.impl.autograd.dependencies import DependencyCounts
from trystate.impl.autograd.driver import Driver
from trystate.impl.autograd.errors import ContextError
from trystate.impl.autograd.local_pass import LocalPass
from trystate.impl.autograd.messages import Backward
from trystate.impl.autograd.runner import Runner
from trystate.impl.autograd.torch_graph import TorchGraph
from trystate.impl.rpc.invocations import FETCH, Invocations

from ..mutants import Mutant, wrapped
from .operations import Feature

Right = Callable[..., Any]


def lost_path(right: Right) -> Right:
    """Of two gradients of one value one counts."""
    return lambda graph, one, other: other


def freed(right: Right) -> Right:
    """The graph is not retained for the next pass."""
    return lambda graph, starts, leaves, retain: right(graph, starts, leaves, False)


def early(right: Right) -> Right:
    """Hooks see parts of a gradient."""
    return lambda graph, node: True


def unannounced(right: Right) -> Right:
    """Nobody is told that a gradient has been accumulated."""

    def take(accumulator: Accumulator, into: Any, before: Any, tensor: Any, gradients: Any) -> None:
        with mock.patch.object(tensor, "_post_accumulate_grad_hooks", None):
            right(accumulator, into, before, tensor, gradients)

    return take


def unhooked(right: Right) -> Right:
    """Hooks of nodes that accumulate are not run."""
    return lambda graph, node: None


def stolen(right: Right) -> Right:
    """A gradient keeps the memory that it has."""
    return lambda accumulator, tensor, gradients: gradients.pop().detach()


def unsaid(right: Right) -> Right:
    """Another worker does not hear that a gradient came and is not defined."""
    return lambda message, gradients: list(gradients)


def everything(right: Right) -> Right:
    """SMART counts from all sends, and not from those that take part."""

    def count(runner: Any) -> DependencyCounts:
        runner._local_pass.counted = dict(runner._local_pass.context.sends)
        return right(runner)  # type: ignore[no-any-return]

    return count


def unrecorded(right: Right) -> Right:
    """A call that is not waited for is made outside of the context."""

    def begin(calls: Invocations, *arguments: Any) -> Any:
        with mock.patch.object(calls.agent, "interceptor", None):
            return right(calls, *arguments)

    return begin


def plain(right: Right) -> Right:
    """What is fetched by a reference has no history."""

    def answer_metadata(driver: Driver, to: int, tensors: Any, what: str) -> bytes:
        return b"" if what == FETCH else right(driver, to, tensors, what)

    return answer_metadata


def blind(right: Right) -> Right:
    """The root does not ask how many gradients are missing."""

    def quiet(local_pass: LocalPass, change: int) -> Any:
        local_pass.deficit.total = -change
        return right(local_pass, change)

    return quiet


def deaf(right: Right) -> Right:
    """Answers are not heard: the root waits."""
    return lambda local_pass, answer, gradients: []


def untold(right: Right) -> Right:
    """Nobody is told that a context is over."""
    return lambda container, telling, peers: []


MUTANTS: Mapping[str, Mutant] = {
    "lost path": wrapped(TorchGraph, "add", lost_path),
    "freed": wrapped(TorchGraph, "run_region", freed),
    "early": wrapped(TorchGraph, "tolerates", early),
    "unannounced": wrapped(Accumulator, "take", unannounced),
    "unhooked": wrapped(TorchGraph, "hooks_of", unhooked),
    "stolen": wrapped(Accumulator, "_own", stolen),
    "unsaid": wrapped(Backward, "marked", unsaid),
    "everything": wrapped(Runner, "count", everything),
    "unrecorded": wrapped(Invocations, "begin", unrecorded),
    "plain": wrapped(Driver, "answer_metadata", plain),
    "blind": wrapped(LocalPass, "_quiet", blind),
    "deaf": wrapped(LocalPass, "answered", deaf),
    "untold": wrapped(Container, "_tell", untold),
}
# What programs show that are known beforehand, and features of those that show it.
PROGRAMS: Mapping[str, tuple[Feature, ...]] = {
    "lost path": (),
    "freed": (),
    "early": (),
    "unannounced": (),
    "unhooked": (Feature.NODE_HOOKS,),
    "stolen": (Feature.KEPT,),
    "unsaid": (Feature.UNDEFINED,),
}
STEPS = (
    "lost path",
    "freed",
    "unrecorded",
    "plain",
    "blind",
    "deaf",
    "untold",
)  # what a program shows that is told step by step
_patch = pytest.MonkeyPatch()


def plant(rank: int, name: str) -> None:
    MUTANTS[name](_patch)


def mend(rank: int) -> None:
    """And end the contexts that a mutant has left."""
    _patch.undo()
    for number in list(api.driver().container.contexts):
        with suppress(ContextError):  # another worker was quicker
            api.release_context(number)
