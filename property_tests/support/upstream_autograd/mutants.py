"""Mutants that torch's tests must notice, planted in the modules that they run on: `RPC` in that of RPC."""

from __future__ import annotations

import contextlib
from typing import Any

from trystate.impl.rpc import invocations


def doubled(autograd: Any) -> None:
    """Gradients are twice what they are."""
    right = autograd.get_gradients
    autograd.get_gradients = lambda context_id: {t: grad * 2 for t, grad in right(context_id).items()}


def kept(autograd: Any) -> None:
    """A context is not left."""

    class Kept(autograd.context):  # type: ignore[misc]
        def __exit__(self, *_: object) -> None:
            pass

    autograd.context = Kept


def silent(autograd: Any) -> None:
    """A pass that fails says nothing."""
    right = autograd.backward

    def backward(*arguments: Any, **options: Any) -> None:
        with contextlib.suppress(RuntimeError):
            right(*arguments, **options)

    autograd.backward = backward


# Of RPC: done to what the tests take for torch.distributed.rpc, and to what they import by name.


def alone(rpc: Any) -> None:
    """A barrier waits for nobody."""
    rpc._barrier = lambda workers: None


def gathers_itself(rpc: Any) -> None:
    """Each worker gathers its own value alone."""
    rpc._all_gather = lambda value, workers=None, timeout=None: {rpc.get_worker_info().name: value}


def waits_for_nothing(rpc: Any) -> None:
    """At the end of a block nothing is waited for, so that no error is seen."""
    invocations.Invocations.begin = _begin_uncollected(invocations.Invocations.begin)  # type: ignore[method-assign]


def _begin_uncollected(begin: Any) -> Any:
    def begun(self: Any, *arguments: Any, **options: Any) -> Any:
        future = begin(self, *arguments, **options)
        if invocations.collected.future_list:
            invocations.collected.future_list.pop()
        return future

    return begun


RPC = (alone, gathers_itself, waits_for_nothing)
