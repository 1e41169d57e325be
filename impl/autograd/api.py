"""The functions that a program calls: `context`, `backward`, `get_gradients`; torch's names, arguments and error texts.

Source: seed "distributed autograd design"; torch/distributed/autograd/__init__.py.
"""

from __future__ import annotations

import os
from collections.abc import Sequence
from pathlib import Path
from typing import Any, Literal

from torch import Tensor

from trystate.model.autograd.vocabulary import Mode
from trystate.model.errors import UsageError

from ..rpc.agent import Agent
from ..rpc.calls import current_agent
from ..rpc.errors import AgentClosed
from .contexts import Context
from .driver import Driver
from .errors import AutogradError, ContextError
from .messages import MAX_SECONDS
from .observer import Observer
from .recorder import VARIABLE, Recorder

_drivers: dict[Agent, Driver] = {}


def attach(agent: Agent) -> None:
    """Give an agent distributed autograd, before it serves; `init_rpc` does it."""
    for ended in list(_drivers):  # agents that have shut down
        _drivers.pop(ended).close()
    here = _drivers[agent] = Driver(agent)
    if folder := os.environ.get(VARIABLE):
        here.observe(Recorder(Path(folder) / f"worker-{agent.me}.jsonl", agent.me))
    agent.backward = backward


def driver() -> Driver:
    """That of this process.

    Raises:
        AgentClosed: `init_rpc()` was not called, or `shutdown()` was.
    """
    return _drivers[current_agent()]


class context:
    """A distributed forward pass and its backward passes: `with context() as context_id:`.

    Until the context is left, tensors in calls and answers inside it are recorded, on each worker that a call reaches.
    A thread is in one at a time; a function that is called by RPC is in its caller's.

    Raises:
        AutogradError: this thread is in one already.
    """

    def __enter__(self) -> int:
        self._number = new_context()
        return self._number

    def __exit__(self, *_: object) -> None:
        try:
            here = driver()
        except AgentClosed:
            return  # all contexts ended with the agent
        if here.current.number == self._number:
            here.current.number = None
        with here.locked() as effects:
            if self._number in here.container.contexts:  # else it was released before
                effects += here.container.release(self._number)


def new_context() -> int:
    """Begin a context by hand; its id. `release_context` ends it."""
    here = driver()
    if here.current.number is not None:
        raise AutogradError(
            f"Already have an autograd context id for this thread: {here.current.number}; leave that one first"
        )
    with here.locked():
        number = here.container.create().number
    here.current.number = number
    return number


def release_context(context_id: int) -> None:
    """End a context, on all workers that have heard of it from here; it does not wait for them.

    Raises:
        ContextError: there is none.
    """
    here = driver()
    with here.locked() as effects:
        effects += here.container.release(context_id)
    if here.current.number == context_id:
        here.current.number = None


def current_context() -> int:
    """The id of the context that this thread is in.

    Raises:
        ContextError: it is in none.
    """
    number = driver().current.number
    if number is None:
        raise ContextError("this thread is in no autograd context: use `with context() as context_id:`")
    return number


def backward(
    context_id: int,
    roots: Sequence[Tensor],
    retain_graph: bool = False,
    mode: Literal["fast", "smart"] = "fast",
    timeout: float | None = None,
) -> None:
    """Compute the gradients of the sum of the roots, on all workers that took part in computing them.

    They are added to those that `get_gradients` gives on each worker, never to `.grad`. It returns when all is quiet
    everywhere, at the latest after `timeout` seconds (by default that of RPC) and a little for cancelling. Nodes and
    hooks that run are not cut short: those of this worker, which run in this thread, are waited for, and those of
    others for 5 s.

    `mode`: "fast" needs every tensor that was sent or returned inside the context, and requires a gradient, to
    contribute to the roots, else it fails and names calls; "smart" first marks those that do, by more messages.

    Raises:
        ContextError: there is no such context here.
        PassError: the pass failed, on any worker; nothing of it is left. Its subclasses say why.
        AutogradError: a root is no scalar, or has no history.
    """
    here = driver()
    if not isinstance(context_id, int) or not isinstance(roots, list | tuple):
        raise TypeError(
            "backward(): incompatible function arguments: they are backward(context_id: int, roots: list[Tensor], "
            f"retain_graph: bool, mode: str, timeout: float); got {type(context_id).__name__}, {type(roots).__name__}"
        )
    seconds = here.agent.timeout if timeout is None else float(timeout)
    if not 0 < seconds <= MAX_SECONDS:
        raise UsageError(f"timeout={timeout}: a number of seconds above 0, at most {MAX_SECONDS:g}")
    if mode not in ("fast", "smart"):
        raise UsageError(f'mode={mode!r}: "fast" or "smart"')
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
            raise AutogradError("a root does not have a valid gradient function: it is a leaf, nothing made it")


def get_gradients(context_id: int) -> dict[Tensor, Tensor]:
    """The gradients that the passes of a context have added up on this worker, by tensor.

    Not to be called while a pass runs in it.

    Raises:
        ContextError: there is no such context here.
    """
    return driver().gradients(context_id)


def check_open(context_id: int) -> None:
    """Raises ContextError: there is no such context here."""
    here = driver()
    with here.locked():
        here.container.get(context_id)


def observe(observer: Observer | None) -> None:
    """Have `observer(event)` called, on this worker, for everything that happens in passes: see `Event`.

    It is called while the protocol's lock is held: it must be quick, and call nothing of this package.
    """
    driver().observe(observer)


def record_to(path: str | Path) -> Recorder:
    """Record the passes of this worker from now on, for `trystate explain`; takes an observer's place.

    `close()` of the result ends it. The variable TRYSTATE_AUTOGRAD_RECORD, a folder, does it for each worker.

    Raises:
        UsageError: the file cannot be written.
    """
    here = driver()
    recorder = Recorder(path, here.agent.me)
    here.observe(recorder)
    return recorder


def debug_info() -> dict[str, int]:
    """How many contexts are open here, and in how many of them a pass runs or waits."""
    here = driver()
    with here.locked():
        return {
            "num_current_backward_passes": len(list(here.container.passes())),
            "num_autograd_contexts": len(here.container.contexts),
        }


class ContextView:
    """A context of this worker, with the names of torch's `DistAutogradContext`."""

    def __init__(self, of: Context) -> None:
        self._of = of

    def _context_id(self) -> int:
        return self._of.number

    def _send_functions(self) -> dict[int, Any]:
        return dict(sorted(self._of.sends.items()))

    def _recv_functions(self) -> dict[int, Any]:
        return {message: recv.node for message, recv in sorted(self._of.recvs.items())}

    def _known_worker_ids(self) -> set[int]:
        return set(self._of.known)


def retrieve_context(context_id: int) -> ContextView:
    """A context of this worker, to look at. Raises ContextError."""
    here = driver()
    with here.locked():
        return ContextView(here.container.get(context_id))
