"""Mutants of the runtime that random programs must notice, under a simulated schedule or in processes.

Each is a function that makes a wrong method of the right one.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from typing import Any
from unittest import mock

import pytest
import torch

from trystate.impl.autograd import api, torch_graph
from trystate.impl.autograd.accumulate_grad import Accumulator, Hooks, add
from trystate.impl.autograd.container import Container
from trystate.impl.autograd.dependencies import UNDEFINED, DependencyCounts
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
F = Feature


# ---- the running of nodes


def lost_path(right: Right) -> Right:
    """Of two gradients of one value one counts."""
    return lambda graph, one, other: other


def runs_what_waits(right: Right) -> Right:
    """A region is run though nodes in it feed others that wait: those may run as well, on a part of their gradient."""

    def rest(counts: DependencyCounts, tolerates: Callable[[Any], bool]) -> Any:
        singly, together, got = right(counts, lambda node: True)
        return [], singly + together, got

    return rest


def no_hooks(right: Right) -> Right:
    """A node is called by itself: nothing runs its hooks."""

    def run(graph: TorchGraph, node: Any, gradients: Any) -> Any:
        if hasattr(node, "apply"):
            return right(graph, node, gradients)
        with torch.no_grad():
            made = node(*gradients)
        return made if isinstance(made, tuple) else (made,)

    return run


def early(right: Right) -> Right:
    """Hooks see parts of a gradient."""
    return lambda graph, node: True


def hooks_on_parts(right: Right) -> Right:
    """A leaf with hooks is given its gradient in parts: a hook that is not linear makes another sum of them."""
    return lambda graph, node: type(node) is torch._C._functions.AccumulateGrad  # type: ignore[attr-defined]


def frees_always(right: Right) -> Right:
    """The graph is freed though it is to be retained."""
    return lambda graph, starts, leaves, retain: right(graph, starts, leaves, False)


def everything(right: Right) -> Right:
    """SMART counts from all sends, and not from those that take part."""

    def count(runner: Any) -> DependencyCounts:
        runner._local_pass.counted = dict(runner._local_pass.context.sends)
        return right(runner)  # type: ignore[no-any-return]

    return count


# ---- what is not defined


def ships_zeros(right: Right) -> Right:
    """An undefined gradient is taken for zeros, as by torch."""

    def run_region(graph: TorchGraph, starts: Any, leaves: Any, retain: bool) -> Any:
        found = right(graph, starts, leaves, retain)
        for node, gradients in zip(leaves, found, strict=True):
            for at, meta in enumerate(node._input_metadata):
                if gradients[at] is None or gradients[at] is UNDEFINED:
                    gradients[at] = torch.zeros(meta.shape, dtype=meta.dtype)
        return found

    return run_region


def runs_only_on_defined(right: Right) -> Right:
    """A node of which no gradient is defined is not run."""

    def run_region(graph: TorchGraph, starts: Any, leaves: Any, retain: bool) -> Any:
        for node in list(starts):
            if all(each is None or each is UNDEFINED for each in starts[node]):
                del starts[node]
        return right(graph, starts, leaves, retain)

    return run_region


def runs_on_zeros(right: Right) -> Right:
    """An undefined gradient is zeros for the node."""
    return lambda undefine, gradients: None


def replaces(old: object, new: object) -> Callable[[Right], Right]:
    """Gradients that are the one thing are shipped as the other."""

    def wrong(right: Right) -> Right:
        def ship(local_pass: LocalPass, recv: Any, gradients: Sequence[Any], at_once: bool = False) -> Any:
            return right(local_pass, recv, [new if each is old else each for each in gradients], at_once)

        return ship

    return wrong


def unsaid(right: Right) -> Right:
    """Another worker does not hear that a gradient came and is not defined."""
    return lambda message, gradients: list(gradients)


# ---- accumulation


def no_after_hooks(right: Right) -> Right:
    """Post-accumulate-grad hooks are not called, as by torch."""

    def take(accumulator: Accumulator, into: Any, before: Any, tensor: Any, gradients: Any) -> None:
        with mock.patch.object(tensor, "_post_accumulate_grad_hooks", None):
            right(accumulator, into, before, tensor, gradients)

    return take


def sums_one_pass(right: Right) -> Right:
    """Post-accumulate-grad hooks see the gradient of their pass alone."""

    def take(accumulator: Accumulator, into: Any, before: Any, tensor: Any, gradients: Any) -> None:
        right(accumulator, into, {}, tensor, gradients)
        if into.get(tensor) is not None and before.get(tensor) is not None:
            into[tensor] = add(before[tensor], into[tensor])

    return take


def no_node_hooks(right: Right) -> Right:
    """Hooks of nodes that accumulate are not run."""
    return lambda graph, node: None


def hooks_too_late(right: Right) -> Right:
    """A hook that is to run before the accumulation runs after it."""

    def around(hooks: Hooks, gradients: Any, act: Any) -> None:
        seen = list(gradients)
        act(gradients)
        right(hooks, seen, lambda _: None)

    return around


def keeps_memory(right: Right) -> Right:
    """The node's own tensor becomes the gradient."""
    return lambda accumulator, *given: given[-1].pop().detach()


def contiguous(right: Right) -> Right:
    """Gradients are contiguous, whatever their tensors are."""

    def own(accumulator: Accumulator, tensor: Any, gradients: Any) -> Any:
        made = right(accumulator, tensor, gradients)
        return made if made.is_sparse else made.contiguous()

    return own


# ---- calls, and the end of passes and contexts


def unrecorded(right: Right) -> Right:
    """A call that is not waited for is made outside of the context."""

    def begin(calls: Invocations, *arguments: Any) -> Any:
        with mock.patch.object(calls.agent, "interceptor", None):
            return right(calls, *arguments)

    return begin


def plain(right: Right) -> Right:
    """A value that is fetched by a reference has no history."""

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


SIMULATED: Mapping[str, Mutant] = {
    "lost path": wrapped(TorchGraph, "add", lost_path),
    "runs what waits": wrapped(DependencyCounts, "rest", runs_what_waits),
    "no hooks": wrapped(TorchGraph, "run", no_hooks),
    "early": wrapped(TorchGraph, "tolerates", early),
    "hooks on parts": wrapped(TorchGraph, "tolerates", hooks_on_parts),
    "frees always": wrapped(TorchGraph, "run_region", frees_always),
    "everything": wrapped(Runner, "count", everything),
    "ships zeros": wrapped(TorchGraph, "run_region", ships_zeros),
    "runs only on defined": wrapped(TorchGraph, "run_region", runs_only_on_defined),
    "runs on zeros": wrapped(torch_graph._Undefine, "__call__", runs_on_zeros),
    "tells no undefined": wrapped(LocalPass, "ship", replaces(UNDEFINED, None)),
    "all undefined": wrapped(LocalPass, "ship", replaces(None, UNDEFINED)),
    "unsaid": wrapped(Backward, "marked", unsaid),
    "no after hooks": wrapped(Accumulator, "take", no_after_hooks),
    "sums one pass": wrapped(Accumulator, "take", sums_one_pass),
    "no node hooks": wrapped(TorchGraph, "hooks_of", no_node_hooks),
    "hooks too late": wrapped(Hooks, "around", hooks_too_late),
    "keeps memory": wrapped(Accumulator, "_own", keeps_memory),
    "keeps sparse memory": wrapped(Accumulator, "_own_sparse", keeps_memory),
    "contiguous": wrapped(Accumulator, "_own", contiguous),
}
MUTANTS: Mapping[str, Mutant] = {
    **SIMULATED,
    "unrecorded": wrapped(Invocations, "begin", unrecorded),
    "plain": wrapped(Driver, "answer_metadata", plain),
    "blind": wrapped(LocalPass, "_quiet", blind),
    "deaf": wrapped(LocalPass, "answered", deaf),
    "untold": wrapped(Container, "_tell", untold),
}
# Features of the programs that are to show one, where not any will do.
FEATURES: Mapping[str, tuple[Feature, ...]] = {
    "hooks on parts": (F.CLAMPS, F.BROADCAST),
    "everything": (F.UNUSED,),
    "runs only on defined": (F.UNDEFINED, F.BROADCAST),
    "runs on zeros": (F.UNDEFINED, F.CUSTOM),
    "tells no undefined": (F.UNDEFINED,),
    "all undefined": (F.UNDEFINED, F.UNUSED),
    "unsaid": (F.UNDEFINED,),
    "sums one pass": (F.AFTER_HOOKS, F.SEVERAL_PASSES),
    "no node hooks": (F.NODE_HOOKS,),
    "hooks too late": (F.NODE_HOOKS,),
    "keeps memory": (F.KEPT,),
    "keeps sparse memory": (F.SPARSE,),
    "contiguous": (F.STRIDES,),
    "unrecorded": (F.ASYNC,),
    "plain": (F.REMOTE,),
    "blind": (F.UNUSED,),
}
# Mutants that programs show in processes as well, or only there.
IN_PROCESSES = (
    *("lost path", "frees always", "early", "no after hooks", "no node hooks", "keeps memory", "unsaid"),
    *("unrecorded", "plain", "blind", "deaf", "untold"),
)
_patch = pytest.MonkeyPatch()


# ---- tasks of a world


def plant(rank: int, name: str) -> None:
    MUTANTS[name](_patch)


def mend(rank: int) -> None:
    """And end the contexts that a mutant has left."""
    _patch.undo()
    for number in list(api.driver().container.contexts):
        with suppress(ContextError):  # another worker was quicker
            api.release_context(number)
