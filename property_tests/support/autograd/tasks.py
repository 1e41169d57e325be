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
from .operations import LAYOUTS, gives
from .sides import worker

QUIET_SECONDS = 10.0  # within this, what was told has been heard, on a busy machine
_parameters: dict[str, Tensor] = {}
_once = threading.Event()


def parameter(name: str) -> Tensor:
    return _parameters.setdefault(name, torch.ones(2, 2, requires_grad=True))  # at once: threads may ask together


def scale(x: Tensor) -> Tensor:
    return x * parameter("w")


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
    """Its backward takes so long."""

    def late(gradient: Tensor) -> Tensor:
        time.sleep(seconds)
        return gradient

    return gives(x, late)


def asks_back(x: Tensor, to: int) -> Tensor:
    """A hook that calls another worker while the backward pass runs."""
    made = x * 1
    one = torch.ones(())
    made.register_hook(lambda gradient: gradient * rpc.rpc_sync(worker(to), torch.add, (one, 1)))  # type: ignore[no-untyped-call]
    return made


def kills_itself(x: Tensor) -> Tensor:
    return gives(x, lambda gradient: os.kill(os.getpid(), signal.SIGKILL))


def left() -> dict[str, int]:
    return api.debug_info()


def gradient_of(context: int, name: str) -> Tensor | None:
    return autograd.get_gradients(context).get(parameter(name))


def quiet(size: int) -> bool:
    """Whether, soon, no worker has a context or a part of a pass."""
    return eventually(
        lambda: not any(any(rpc.rpc_sync(worker(rank), left).values()) for rank in range(size)), QUIET_SECONDS
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
        parts = [rpc.rpc_sync(worker(rank), left)["num_current_backward_passes"] for rank in range(size)]
        after_failure = [rpc.rpc_sync("worker1", gradient_of, (context, "w")), len(autograd.get_gradients(context))]
        autograd.backward(context, [made.sum()])
        again = autograd.get_gradients(context)[x]
    return {"error": first, "parts": parts, "after": after_failure, "again": again, "quiet": quiet(size)}


def a_call_that_is_not_used(mode: Any) -> tuple[str, str]:
    x = torch.ones(2, 2, requires_grad=True)
    with autograd.context() as context:
        made = rpc.rpc_sync("worker1", scale, (x,))
        rpc.rpc_sync("worker2", through, (x, 1))
        return error_of(lambda: autograd.backward(context, [made.sum()], mode=mode, timeout=60))


def a_deadline(seconds: float) -> tuple[tuple[str, str], float]:
    x = torch.ones(2, 2, requires_grad=True)
    with autograd.context() as context:
        made = rpc.rpc_sync("worker1", slow, (x, 3 * seconds))
        begun = time.monotonic()
        return error_of(lambda: autograd.backward(context, [made.sum()], timeout=seconds)), time.monotonic() - begun


def several_at_once(threads: int, passes: int) -> list[str]:
    """Each thread has contexts of its own, over the same parameters."""
    wrong: list[str] = []

    def run(number: int) -> None:
        for _ in range(passes):
            x = torch.full((2, 2), float(number), requires_grad=True)
            with autograd.context() as context:
                made = rpc.rpc_sync("worker1", through, (x, 2, 0, 1))
                autograd.backward(context, [made.sum()])
                mine = autograd.get_gradients(context)[x]
                there = rpc.rpc_sync("worker1", gradient_of, (context, "w"))
                if (
                    there is None
                    or not torch.equal(mine, torch.ones(2, 2))
                    or not torch.equal(there, torch.full((2, 2), 2.0 * number))
                ):
                    wrong.append(f"thread {number}: {mine}, {there}")

    with ThreadPoolExecutor(threads) as pool:
        list(pool.map(run, range(1, 1 + threads)))
    return wrong


def a_context_left_early(size: int) -> tuple[bool, bool]:
    """The result of a call that outlives its context has no history; nothing is left of it."""
    x = torch.ones(2, 2, requires_grad=True)
    with autograd.context():
        late = rpc.rpc_async("worker1", sleepy, (x, 0.3))
    return late.wait().requires_grad, quiet(size)


def sleepy(x: Tensor, seconds: float) -> Tensor:
    time.sleep(seconds)
    return rpc.rpc_sync("worker2", scale, (x,))


def the_graph_is_freed() -> tuple[str, str]:
    x = torch.ones(2, 2, requires_grad=True)
    with autograd.context() as context:
        made = rpc.rpc_sync("worker1", scale, (x,)).sum()
        autograd.backward(context, [made])
        return error_of(lambda: autograd.backward(context, [made]))


def takes_at_most(tensor_bytes: int) -> int:
    """Limit what this worker sends in a frame; what the limit was."""
    agent = rpc.current_agent()
    before = agent.options.limits
    agent.options = replace(agent.options, limits=replace(before, tensor_bytes=tensor_bytes))
    return before.tensor_bytes


def a_gradient_that_is_not_sent(size: int) -> tuple[tuple[str, str], list[int]]:
    # worker2 sends no small tensors in shared memory, which do not count
    x = torch.ones(2, 2, requires_grad=True)
    with autograd.context() as context:
        made = rpc.rpc_sync("worker2", scale, (x,)).sum()
        before = rpc.rpc_sync("worker2", takes_at_most, (8,))
        found = error_of(lambda: autograd.backward(context, [made]))
        rpc.rpc_sync("worker2", takes_at_most, (before,))
        return found, [rpc.rpc_sync(worker(k), left)["num_current_backward_passes"] for k in range(size)]


def laid(x: Tensor) -> tuple[tuple[int, ...], Tensor]:
    """How a tensor has arrived, and it."""
    return x.stride(), x


def a_tensor_of(layout: str, rows: int) -> Tensor:
    return LAYOUTS[layout](torch.rand(rows, 2, 3, 4))


def strides_there_and_back(layout: str, rows: int) -> tuple[Any, ...]:
    """The strides of a tensor's clone, those with which it has arrived and come back, and whether it is the same."""
    x = a_tensor_of(layout, rows)
    there, back = rpc.rpc_sync("worker1", laid, (x,))
    return x.clone().stride(), there, back.stride(), torch.equal(x, back)


def the_frames_of_a_pass_with_a_hook(mode: Any) -> tuple[tuple[int, int], bool]:
    """The same when the other worker has a user's function to call before its part is over."""
    rpc.rpc_sync("worker1", hook, ("w", True))
    found = the_frames_of_a_pass(mode)
    rpc.rpc_sync("worker1", hook, ("w", False))
    return found


def the_requests_of_a_pass() -> dict[str, list[tuple[str, int, Any]]]:
    """The events of requests for observers: kind, the other worker, and the message or whether it answers."""
    seen: list[autograd.Event] = []
    autograd.observe(seen.append)
    rpc.rpc_sync("worker1", watch)
    x = torch.ones(2, 2, requires_grad=True)
    with autograd.context() as context:
        made = rpc.rpc_sync("worker1", scale, (x,)).sum()
        autograd.backward(context, [made])
        autograd.observe(None)
        return {"root": told_and_heard(seen), "other": rpc.rpc_sync("worker1", watched)}


def told_and_heard(events: list[autograd.Event]) -> list[tuple[str, int, Any]]:
    details = ((event.kind, event.detail) for event in events if event.kind in ("told", "heard", "answered"))
    return [
        (kind, detail["to"] if kind == "told" else detail["peer"], detail.get("answers")) for kind, detail in details
    ]


_events: list[autograd.Event] = []


def watch() -> None:
    autograd.observe(_events.append)


def watched() -> list[tuple[str, int, Any]]:
    autograd.observe(None)
    return told_and_heard(_events)


_hooks: list[Any] = []


def hook(name: str, is_there: bool) -> None:
    """Whether a hook is called when the gradient of a parameter of this worker is there."""
    if is_there:
        _hooks.append(parameter(name).register_post_accumulate_grad_hook(lambda _: None))  # type: ignore[no-untyped-call]
    else:
        _hooks.pop().remove()


def the_frames_of_a_pass(mode: Any) -> tuple[tuple[int, int], bool]:
    """How many frames a pass over one call sends and gets; whether all that runs here does so in this thread."""
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


def two_optimizers(steps: int) -> Tensor:
    """Two threads, each with an optimizer of the same parameter on worker 1: no step is lost."""
    ref = rpc.remote("worker1", parameter, ("shared",))

    def run(_: int) -> None:
        optimizer = autograd.DistributedOptimizer(torch.optim.SGD, [ref], lr=1.0)
        for _ in range(steps):
            with autograd.context() as context:
                loss = rpc.rpc_sync("worker1", uses, ("shared",))
                autograd.backward(context, [loss])
                optimizer.step(context)

    with ThreadPoolExecutor(2) as pool:
        list(pool.map(run, range(2)))
    return ref.to_here().detach()


def uses(name: str) -> Tensor:
    return parameter(name).sum() * 1.0


def a_hook_that_calls() -> Tensor:
    x = torch.ones(2, 2, requires_grad=True)
    with autograd.context() as context:
        autograd.backward(context, [rpc.rpc_sync("worker1", asks_back, (x, 0)).sum()])
        return autograd.get_gradients(context)[x]


def a_worker_that_dies() -> tuple[tuple[str, str], int]:
    x = torch.ones(2, 2, requires_grad=True)
    with autograd.context() as context:
        made = rpc.rpc_sync("worker1", through, (rpc.rpc_sync("worker2", kills_itself, (x,)),))
        found = error_of(lambda: autograd.backward(context, [made.sum()], timeout=60))
    eventually(lambda: not rpc.rpc_sync("worker1", left)["num_autograd_contexts"], QUIET_SECONDS)
    return found, rpc.rpc_sync("worker1", left)["num_autograd_contexts"]
