"""The code of workers in the tests of real processes: tasks, and functions that they call."""

from __future__ import annotations

import os
import signal
import threading
import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from typing import Any

import torch
from torch import Tensor

from trystate import autograd, rpc
from trystate.impl.autograd import api

from ..rpc.worlds import eventually
from .operations import gives
from .sides import worker

QUIET_SECONDS = 10.0  # limit for messages to arrive, on a busy machine
PARAMETER = torch.ones(2, 2, requires_grad=True)  # of this worker
_once = threading.Event()


def scale(x: Tensor) -> Tensor:
    return x * PARAMETER


def raises(x: Tensor) -> Tensor:
    """Its backward fails, once."""
    return gives(x * 2, fail_once)


def fail_once(gradient: Tensor) -> Tensor:
    if not _once.is_set():
        _once.set()
        raise ValueError("planted")
    return gradient


def through(x: Tensor, *path: int) -> Tensor:
    """Scaled here, then by each worker of the path."""
    made = scale(x)
    return made if not path else rpc.rpc_sync(worker(path[0]), through, (made, *path[1:]))


def slow(x: Tensor, seconds: float) -> Tensor:
    """The function's backward takes `seconds`."""

    def late(gradient: Tensor) -> Tensor:
        time.sleep(seconds)
        return gradient

    return gives(x, late)


def kills_itself(x: Tensor) -> Tensor:
    return gives(x, lambda gradient: os.kill(os.getpid(), signal.SIGKILL))


def gradient_there(context: int) -> Tensor | None:
    return autograd.get_gradients(context).get(PARAMETER)


def quiet(size: int) -> bool:
    """Whether, in time, no worker has a context or a part of a pass."""
    return eventually(
        lambda: not any(any(rpc.rpc_sync(worker(rank), api.debug_info).values()) for rank in range(size)), QUIET_SECONDS
    )


def error_of(call: Callable[[], Any]) -> tuple[str, str]:
    try:
        call()
    except Exception as error:
        return type(error).__name__, str(error)
    return "", ""


def tasks_of_one(rank: int, task: Callable[..., Any], *arguments: Any) -> Any:
    """Worker 0 does it; the others serve."""
    return task(*arguments) if rank == 0 else None


def an_error_on_another_worker(size: int) -> dict[str, Any]:
    x = torch.ones(2, 2, requires_grad=True)
    with autograd.context() as context:
        made = rpc.rpc_sync("worker1", through, (rpc.rpc_sync("worker2", raises, (x,)),))
        first = error_of(lambda: autograd.backward(context, [made.sum()], retain_graph=True))
        parts = [rpc.rpc_sync(worker(rank), api.debug_info)["num_current_backward_passes"] for rank in range(size)]
        after_failure = [rpc.rpc_sync("worker1", gradient_there, (context,)), len(autograd.get_gradients(context))]
        autograd.backward(context, [made.sum()])
        again = autograd.get_gradients(context)[x]
    return {"error": first, "parts": parts, "after": after_failure, "again": again, "quiet": quiet(size)}


def a_call_that_is_not_used(mode: Any) -> tuple[str, str]:
    x = torch.ones(2, 2, requires_grad=True)
    with autograd.context() as context:
        made = rpc.rpc_sync("worker1", scale, (x,))
        rpc.rpc_sync("worker2", through, (x, 1))
        return error_of(lambda: autograd.backward(context, [made.sum()], mode=mode, timeout=60))


def a_deadline(seconds: float) -> tuple[str, str]:
    x = torch.ones(2, 2, requires_grad=True)
    with autograd.context() as context:
        made = rpc.rpc_sync("worker1", slow, (x, 3 * seconds))
        return error_of(lambda: autograd.backward(context, [made.sum()], timeout=seconds))


def several_at_once(threads: int, passes: int) -> None:
    """Each thread has its own contexts, over the same parameters."""

    def run(_: int) -> None:
        for _ in range(passes):
            with autograd.context() as context:
                made = rpc.rpc_sync("worker1", through, (torch.ones(2, 2, requires_grad=True), 2, 0, 1))
                autograd.backward(context, [made.sum()])

    with ThreadPoolExecutor(threads) as pool:
        list(pool.map(run, range(threads)))


def takes_at_most(tensor_bytes: int) -> int:
    """Limit the bytes of tensors in a frame of this worker; returns the limit before."""
    agent = rpc.current_agent()
    before = agent.options.limits
    agent.options = replace(agent.options, limits=replace(before, tensor_bytes=tensor_bytes))
    return before.tensor_bytes


def a_gradient_that_is_not_sent(size: int) -> tuple[tuple[str, str], list[int]]:
    # tensors in shared memory do not count; worker2 sends small tensors without it
    x = torch.ones(2, 2, requires_grad=True)
    with autograd.context() as context:
        made = rpc.rpc_sync("worker2", scale, (x,)).sum()
        before = rpc.rpc_sync("worker2", takes_at_most, (8,))
        found = error_of(lambda: autograd.backward(context, [made]))
        rpc.rpc_sync("worker2", takes_at_most, (before,))
        return found, [rpc.rpc_sync(worker(k), api.debug_info)["num_current_backward_passes"] for k in range(size)]


def the_frames_of_a_pass_with_a_hook() -> tuple[tuple[int, int], bool]:
    """The same, if the other worker has to call a function of the user before its part is over."""
    rpc.rpc_sync("worker1", hook, (True,))
    found = the_frames_of_a_pass("fast")
    rpc.rpc_sync("worker1", hook, (False,))
    return found


_hooks: list[Any] = []


def hook(is_there: bool) -> None:
    """Add, or remove, a hook that is called when the gradient of the parameter of this worker has arrived."""
    if is_there:
        _hooks.append(PARAMETER.register_post_accumulate_grad_hook(lambda _: None))  # type: ignore[no-untyped-call]
    else:
        _hooks.pop().remove()


def the_frames_of_a_pass(mode: Any) -> tuple[tuple[int, int], bool]:
    """The frames that a pass over one call sends and receives, and whether its local nodes run in this thread."""
    agent, threads = rpc.current_agent(), set[int]()
    x = torch.ones(2, 2, requires_grad=True)
    x.register_hook(lambda gradient: threads.add(threading.get_ident()))  # type: ignore[no-untyped-call]
    with autograd.context() as context:
        made = rpc.rpc_sync("worker1", scale, (x,)).sum()
        eventually(lambda: agent.busy == (0, 0), QUIET_SECONDS)
        before = agent.traffic
        autograd.backward(context, [made], mode=mode)
        sent, received = (now - then for now, then in zip(agent.traffic, before, strict=True))
        return (sent, received), threads == {threading.get_ident()}


def a_worker_that_dies() -> tuple[tuple[str, str], int]:
    x = torch.ones(2, 2, requires_grad=True)
    with autograd.context() as context:
        made = rpc.rpc_sync("worker1", through, (rpc.rpc_sync("worker2", kills_itself, (x,)),))
        found = error_of(lambda: autograd.backward(context, [made.sum()], timeout=60))
    eventually(lambda: not rpc.rpc_sync("worker1", api.debug_info)["num_autograd_contexts"], QUIET_SECONDS)
    return found, rpc.rpc_sync("worker1", api.debug_info)["num_autograd_contexts"]
