"""The functions that a program calls: `context`, `backward`, `get_gradients`; torch's names, arguments and error texts.

Source: seed "distributed autograd design"; torch/distributed/autograd/__init__.py.
"""

from __future__ import annotations

import os
from collections.abc import Sequence
from contextlib import suppress
from pathlib import Path
from typing import Literal

from torch import Tensor

from trystate.model.autograd.vocabulary import Mode
from trystate.model.errors import UsageError

from ..rpc import invocations
from ..rpc.agent import Agent
from ..rpc.errors import AgentClosed
from ..rpc.options import call_seconds
from .driver import Driver
from .errors import AutogradError, ContextError
from .messages import MAX_SECONDS
from .observer import Observer
from .recorder import VARIABLE, Recorder

_drivers: dict[Agent, Driver] = {}


def attach(agent: Agent) -> None:
    """Add distributed autograd to an agent before it serves; `init_rpc` calls this."""
    for ended in list(_drivers):  # agents that have shut down
        _drivers.pop(ended).close()
    here = _drivers[agent] = Driver(agent)
    if folder := os.environ.get(VARIABLE):
        here.observe(Recorder(Path(folder) / f"worker-{agent.me}.jsonl", agent.me))
    agent.backward = backward


def driver() -> Driver:
    """The driver of this process.

    Raises:
        AgentClosed: `init_rpc()` was not called, or `shutdown()` was called.
    """
    return _drivers[invocations.current().agent]


class context:
    """A distributed forward pass and its backward passes: `with context() as context_id:`.

    Until the context is left, tensors in calls and answers inside it are recorded, on each worker that a call reaches.
    A thread is in one context at a time. A function that RPC calls is in the context of its caller.

    Raises:
        AutogradError: this thread is in a context already.
    """

    def __enter__(self) -> int:
        self._number = new_context()
        return self._number

    def __exit__(self, *_: object) -> None:
        with suppress(AgentClosed, ContextError):  # all contexts ended with the agent, or this one was released before
            release_context(self._number)


def new_context() -> int:
    """Begin a context and return its id. `release_context` ends it."""
    here = driver()
    if here.current.number is not None:
        raise AutogradError(
            f"Already have an autograd context id for this thread: {here.current.number}; leave that one first"
        )
    with here.lock:
        number = here.container.create().number
    here.current.number = number
    return number


def release_context(context_id: int) -> None:
    """End a context here and on all workers that calls from here have brought it to; does not wait for them.

    Raises:
        ContextError: the context does not exist here.
    """
    here = driver()
    if here.current.number == context_id:
        here.current.number = None
    here.do(here.container.release, context_id)


def backward(
    context_id: int,
    roots: Sequence[Tensor],
    retain_graph: bool = False,
    mode: Literal["fast", "smart"] = "fast",
    timeout: float | None = None,
) -> None:
    """Compute the gradients of the sum of the roots, on all workers that took part in computing them.

    They are added to the results of `get_gradients` on each worker, never to `.grad`. It returns when the pass is over
    on all workers, at the latest after `timeout` seconds (by default RPC's timeout) and a little time to cancel. Nodes
    and hooks that run are not interrupted: the nodes of this worker run in this thread, and other workers have 5 s to
    finish their nodes.

    `mode`: with "fast", every tensor that was sent or returned inside the context and requires a gradient must
    contribute to the roots, or the pass fails and names calls. "smart" first marks the tensors that contribute, with
    more messages.

    Raises:
        ContextError: the context does not exist here.
        PassError: the pass failed on a worker; its gradients are dropped everywhere. Its subclasses are the causes.
        AutogradError: a root is not a scalar, or has no history.
    """
    here = driver()
    if not isinstance(context_id, int) or not isinstance(roots, list | tuple):
        raise TypeError(
            "backward(): incompatible function arguments: they are backward(context_id: int, roots: list[Tensor], "
            f"retain_graph: bool, mode: str, timeout: float); got {type(context_id).__name__}, {type(roots).__name__}"
        )
    seconds = min(here.agent.timeout if timeout is None else call_seconds(timeout, "timeout"), MAX_SECONDS)
    if mode not in ("fast", "smart"):
        raise UsageError(f'mode is {mode!r}: give "fast" or "smart"')
    check_open(context_id)
    _check(roots)
    here.backward(context_id, roots, retain_graph, Mode[mode.upper()], seconds)


def _check(roots: Sequence[Tensor]) -> None:
    if not roots:
        raise AutogradError("No tensors provided for gradient computation.")
    for root in roots:
        if not root.requires_grad:
            raise AutogradError("requires_grad not set on root")
        if root.numel() != 1:
            shape = tuple(root.shape)
            raise AutogradError(f"a root of shape {shape} is not a scalar, all roots need to be scalar: take its sum()")
        if root.grad_fn is None:
            raise AutogradError("a root does not have a valid gradient function: it is a leaf, and not a result")


def get_gradients(context_id: int) -> dict[Tensor, Tensor]:
    """The gradients that the passes of a context have added up on this worker, by tensor.

    Must not be called while a pass runs in it.

    Raises:
        ContextError: the context does not exist here.
    """
    return driver().gradients(context_id)


def check_open(context_id: int) -> None:
    """Raises ContextError if the context does not exist here."""
    here = driver()
    with here.lock:
        here.container.get(context_id)


def observe(observer: Observer | None) -> None:
    """Call `observer(event)` for every event of passes on this worker (see `Event`); None ends it.

    It is called while the protocol's lock is held, so it must be quick and must not call this package.
    """
    driver().observe(observer)


def record_to(path: str | Path) -> Recorder:
    """Record the passes of this worker from now on, for `trystate explain`; replaces an observer.

    `close()` of the result ends it. With a folder in TRYSTATE_AUTOGRAD_RECORD each worker records its passes there.

    Raises:
        UsageError: the file cannot be written.
    """
    here = driver()
    recorder = Recorder(path, here.agent.me)
    here.observe(recorder)
    return recorder


def debug_info() -> dict[str, int]:
    """The numbers of contexts that are open here, and of contexts in which a pass runs or waits."""
    here = driver()
    with here.lock:
        return {
            "num_current_backward_passes": len(list(here.container.passes())),
            "num_autograd_contexts": len(here.container.contexts),
        }
