"""Mutants of the runtime that random programs must notice, under a simulated schedule or in processes."""

from __future__ import annotations

from collections.abc import Mapping
from contextlib import suppress

import pytest

from trystate.impl.autograd import accumulate_grad, api
from trystate.impl.autograd.accumulate_grad import Accumulator
from trystate.impl.autograd.dependencies import DependencyCounts
from trystate.impl.autograd.driver import Driver
from trystate.impl.autograd.errors import ContextError
from trystate.impl.autograd.runner import Runner
from trystate.impl.autograd.torch_graph import TorchGraph
from trystate.impl.rpc.invocations import Invocations

from ..mutants import Mutant, replaced, rewritten
from .operations import Feature

SIMULATED: Mapping[str, Mutant] = {
    # One of two gradients of one value counts.
    "lost path": replaced(TorchGraph, "add", lambda graph, one, other: other),
    # A region is run although its nodes feed nodes that wait: these may then run on a part of their gradient.
    "runs what waits": rewritten(DependencyCounts.rest, "if not waits", "if True"),
    # A node is called by itself: nothing runs its hooks.
    "no hooks": rewritten(
        TorchGraph.run,
        "stop = _Stop()",
        "if not hasattr(node, 'apply'): return made if isinstance(made := node(*gradients), tuple) else (made,)\n"
        "    stop = _Stop()",
    ),
    # SMART counts from all sends, and not from those that take part.
    "everything": rewritten(Runner.count, "local_pass.counted", "local_pass.context.sends"),
    # An undefined gradient is sent as zeros, like in torch.
    "ships zeros": rewritten(
        TorchGraph.run_region,
        "UNDEFINED if each",
        "torch.zeros(node._input_metadata[at].shape, dtype=node._input_metadata[at].dtype) if each",
    ),
    # A node without a defined gradient is not run.
    "runs only on defined": rewritten(TorchGraph.run_region, "if node in fed", "if True"),
    # The node's own tensor becomes the gradient.
    "keeps memory": replaced(Accumulator, "_own", lambda accumulator, *given: given[-1].pop().detach()),
    # Gradients are contiguous, whatever their tensors are.
    "contiguous": rewritten(accumulate_grad._contract, "if tensor.layout is not torch.strided", "if True"),
}
# Mutants that only a run in processes detects.
IN_PROCESSES: Mapping[str, Mutant] = {
    # A call that is not waited for is made outside of the context.
    "unrecorded": rewritten(
        Invocations.begin,
        "call = self._packed(to, function, args, kwargs)",
        "kept, self.agent.interceptor = self.agent.interceptor, None; "
        "call = self._packed(to, function, args, kwargs); self.agent.interceptor = kept",
    ),
    # A value that is fetched by a reference has no history.
    "plain": rewritten(Driver.answer_metadata, "return self", "return b'' if what == ':fetch' else self"),
}
# The features that a program needs to detect a mutant, where not any program can.
FEATURES: Mapping[str, tuple[Feature, ...]] = {
    "everything": (Feature.UNUSED,),
    "runs only on defined": (Feature.UNDEFINED, Feature.BROADCAST),
    "keeps memory": (Feature.KEPT,),
    "contiguous": (Feature.STRIDES,),
    "unrecorded": (Feature.ASYNC,),
    "plain": (Feature.REMOTE,),
}
_patch = pytest.MonkeyPatch()


# ---- tasks of a world


def plant(rank: int, name: str) -> None:
    IN_PROCESSES[name](_patch)


def mend(rank: int) -> None:
    """Remove the mutant, and end the contexts that it has left open."""
    _patch.undo()
    for number in list(api.driver().container.contexts):
        with suppress(ContextError):  # another worker was quicker
            api.release_context(number)
