"""The functions that workers of a scenario call: bodies of RPCs, backward passes, and a look at torch's contexts."""

from __future__ import annotations

import threading
import time
import warnings
from collections.abc import Callable
from typing import Any

import torch
import torch.distributed.autograd
import torch.distributed.rpc
from torch import Tensor

dist_autograd: Any = torch.distributed.autograd  # most of it has no types
rpc: Any = torch.distributed.rpc
HELD_S = 60.0  # at most: what is held is let go when the scenario says so
INPUT = 2.0
COUNTED_S = 20.0  # by then what was sent has run, on a busy machine
HEARD_S = 0.2  # C's part has failed, and its answer is on its way
PARAMETER = torch.tensor([3.0], requires_grad=True)
UNUSED = torch.tensor([5.0], requires_grad=True)

_kept: dict[str, Any] = {}  # values that live on from one call to the next
_entries: list[Any] = []
_gate = threading.Event()
_entered = threading.Event()
_noted = threading.Event()
_errors: list[str] = []  # of the passes so far
_begun = threading.Semaphore(0)
_told = threading.Semaphore(0)


def contexts() -> int:
    """How many contexts this worker keeps."""
    return int(dist_autograd._get_debug_info()["num_autograd_contexts"])


def passes() -> int:
    """How many backward passes this worker takes to be running."""
    return int(dist_autograd._get_debug_info()["num_current_backward_passes"])


def input_tensor() -> Tensor:
    return torch.tensor([INPUT], requires_grad=True)


def failure(context: int, loss: Tensor, *, retain_graph: bool = False) -> str:
    """The error of a backward pass: its first line; empty if it ends well."""
    try:
        dist_autograd.backward(context, [loss], retain_graph=retain_graph)
    except RuntimeError as error:
        return str(error).splitlines()[0]
    return ""


class Acts(torch.autograd.Function):
    """The identity, whose backward does something first."""

    @staticmethod
    def forward(ctx: Any, x: Tensor, act: Callable[[], object]) -> Tensor:
        ctx.act = act
        return x.clone()

    @staticmethod
    def backward(ctx: Any, gradient: Tensor) -> tuple[Tensor, None]:
        ctx.act()
        return gradient, None


def acting(x: Tensor, act: Callable[[], object]) -> Tensor:
    """The same value, behind a node that does something when a gradient comes."""
    result: Tensor = Acts.apply(x, act)  # type: ignore[no-untyped-call]
    return result


# ---- a gate, at which calls and nodes are held


def open_gate() -> None:
    _gate.set()


def is_entered() -> bool:
    """Whether somebody is held, or was."""
    return _entered.is_set()


def hold() -> None:
    """Go on when the gate is open."""
    _entered.set()
    if not _gate.wait(HELD_S):
        raise TimeoutError("nobody opened the gate")


def times_parameter(x: Tensor) -> Tensor:
    return x * PARAMETER


def times_parameter_held_backward(x: Tensor) -> Tensor:
    return acting(x * PARAMETER, hold)


# ---- G1, G4: a pass that fails while a worker waits for its second gradient


def fail_until_open(awaited: Callable[[], bool]) -> None:
    """Fail until the gate is open, once B's part of the pass is as it should be."""
    if not _gate.is_set():
        while not rpc.rpc_sync("B", awaited):
            pass
        raise RuntimeError("this node fails")


def is_in_a_pass() -> bool:
    return passes() > 0


def has_ended_a_pass() -> bool:
    """Whether a pass has given the parameter a gradient here, and is over."""
    return _noted.is_set() and passes() == 0


def plus_shared(x: Tensor) -> Tensor:
    """Two calls share a node."""
    if "shared" not in _kept:
        _kept["shared"] = PARAMETER * 2
    shared: Tensor = _kept["shared"]
    return x + shared


def through_a_failing_node(x: Tensor) -> Tensor:
    return acting(rpc.rpc_sync("B", plus_shared, (x,)), lambda: fail_until_open(is_in_a_pass))


def fail_and_retry(retry: bool) -> tuple[str, str, int]:
    """On A: two ways to the shared node on B, one through C, which fails once; then the same pass again.

    The errors of the two passes, and how many passes B still runs before the context is left.
    """
    x = input_tensor()
    with dist_autograd.context() as context:
        loss = rpc.rpc_sync("B", plus_shared, (x,)) + rpc.rpc_sync("C", through_a_failing_node, (x,))
        first = failure(context, loss, retain_graph=True)
        _errors.append(first)
        left = rpc.rpc_sync("B", passes)
        rpc.rpc_sync("C", open_gate)
        second = failure(context, loss, retain_graph=True) if retry else ""
    return first, second, left


def first_error() -> str:
    """On A: the error of the first pass, as soon as it has ended."""
    return "".join(_errors)


# ---- G2: a pass that fails on one worker when another has accumulated


def times_noted_parameter(x: Tensor) -> Tensor:
    parameter = x * PARAMETER
    parameter.register_hook(lambda _: _noted.set())  # type: ignore[no-untyped-call]
    return parameter


def negative_by_a_failing_node(x: Tensor) -> Tensor:
    return acting(-x, lambda: fail_until_open(has_ended_a_pass))


def fail_and_sum() -> tuple[str, str, float]:
    """On A: a pass that fails on C when B has done its part, and again; what they raise, and B's gradient."""
    x = input_tensor()
    second = ""
    with dist_autograd.context() as context:
        loss = rpc.rpc_sync("B", times_noted_parameter, (x,)) + rpc.rpc_sync("C", negative_by_a_failing_node, (x,))
        first = failure(context, loss, retain_graph=True)
        if first:
            rpc.rpc_sync("C", open_gate)
            second = failure(context, loss, retain_graph=True)
        return first, second, float(rpc.rpc_sync("B", gradient_of_parameter, (context,)))


# ---- G3, G5, G6, G7, G8


def backward_with_duplicate(times: int) -> float:
    """On A: the gradient is sent to B so often more, as by a network that repeats; the gradient of B's parameter."""
    with dist_autograd.context() as context:
        y = rpc.rpc_sync("B", times_parameter, (input_tensor(),))
        ship = y.grad_fn

        def repeat(gradient: Tensor) -> None:
            ship(gradient)
            while rpc.rpc_sync("B", gradient_of_parameter, (context,)) == 0.0:
                pass  # one after the other: at the same time they would make the pass fail

        for _ in range(times):
            y.register_hook(repeat)
        dist_autograd.backward(context, [y], retain_graph=True)
        until = time.monotonic() + COUNTED_S if times else 0.0  # all but the first are answered before they have run
        while (found := rpc.rpc_sync("B", gradient_of_parameter, (context,))) == INPUT and time.monotonic() < until:
            pass
        return float(found)


def gradient_of_parameter(context: int) -> float:
    """The parameter's gradient in the context; 0 if there is none."""
    return float(dist_autograd.get_gradients(context).get(PARAMETER, 0.0))


def keep_two_passes_ready() -> None:
    """On A: a context that stays, with a loss on which a pass is held at B's gate."""
    _kept["pass"] = enter(), rpc.rpc_sync("B", times_parameter_held_backward, (input_tensor(),))


def run_a_pass() -> str:
    context, loss = _kept["pass"]
    return failure(context, loss, retain_graph=True)


def backward_beside_an_unused_call(used: bool) -> str:
    """On A: a loss that makes no use of what a call returned, or does."""
    x = input_tensor()
    with dist_autograd.context() as context:
        result = rpc.rpc_sync("B", times_parameter, (x,), timeout=HELD_S)
        _entered.set()
        return failure(context, x * 2 + result if used else x * 2)


def two_results(x: Tensor) -> tuple[Tensor, Tensor]:
    return x * PARAMETER, x * UNUSED


def gradient_of_unused(context: int) -> list[float]:
    """The gradient in the context of the parameter that no used result depends on; empty if there is none."""
    gradients = dist_autograd.get_gradients(context)
    return gradients[UNUSED].tolist() if UNUSED in gradients else []


def use_results(count: int) -> list[float]:
    """On A: of two results of a call, so many are used."""
    x = input_tensor()
    with dist_autograd.context() as context:
        results = rpc.rpc_sync("B", two_results, (x,))
        dist_autograd.backward(context, [torch.stack(results[:count]).sum()])
        return list(rpc.rpc_sync("B", gradient_of_unused, (context,)))


def hook_calls(distributed: bool) -> int:
    """On A: how often a hook is called that is to run after its parameter's gradient was accumulated."""
    parameter = input_tensor()
    calls: list[Tensor] = []
    parameter.register_post_accumulate_grad_hook(calls.append)  # type: ignore[no-untyped-call]
    if not distributed:
        torch.autograd.backward([parameter * 2])
        return len(calls)
    with dist_autograd.context() as context:
        dist_autograd.backward(context, [parameter * 2])
    return len(calls)


# ---- G9, G10


def ids_of_worker(line: Any, number: int) -> None:
    """In a process of its own: its first context id, and its last."""
    dist_autograd._init(number)
    with dist_autograd.context() as context:
        line.send((context, dist_autograd._get_max_id()))


# ---- G11, G13, G14: contexts that stay


class SlowToRead:
    """An argument of a call that is read when the gate is open."""

    def __reduce__(self) -> tuple[Any, ...]:
        return read_slowly, ()


def read_slowly() -> SlowToRead:
    hold()
    return SlowToRead()


def times_parameter_slow(x: Tensor, slow: SlowToRead) -> Tensor:
    return x * PARAMETER


def enter_and_ask() -> None:
    """On A: a context that stays, and a call that B is slow to take in."""
    enter()
    _kept["answer"] = rpc.rpc_async("B", times_parameter_slow, (input_tensor(), SlowToRead()))


def take_in() -> None:
    """On A: the answer."""
    _kept.pop("answer").wait()


def enter_and_call(*path: str) -> None:
    """On A: a context that stays, and a call that goes from worker to worker."""
    enter()
    pass_on(input_tensor(), *path)


def pass_on(x: Tensor, *path: str) -> Tensor:
    return rpc.rpc_sync(path[0], pass_on, (x, *path[1:])) if path else x * PARAMETER


def enter() -> int:
    """A context that stays until `leave`, whatever thread comes to that."""
    manager = dist_autograd.context()
    _entries.append(manager)
    return int(manager.__enter__())


def leave() -> None:
    """Out of the context that was entered last."""
    _entries.pop().__exit__(None, None, None)


# ---- G12: calls that fail when their context is gone


def fail_when_told() -> None:
    """Say that the node has begun, and fail when it is told to."""
    _begun.release()
    if not _told.acquire(timeout=HELD_S):
        raise TimeoutError("nobody told it to fail")
    raise RuntimeError("this node fails")


def fail_beside() -> None:
    """Fail once C's node has begun."""
    rpc.rpc_sync("C", has_begun)
    raise RuntimeError("this node fails")


def fails_when_told(x: Tensor) -> Tensor:
    return acting(x, fail_when_told)


def fails_beside(x: Tensor) -> Tensor:
    return acting(x, fail_beside)


def has_begun() -> None:
    """On C: its part of a pass has."""
    if not _begun.acquire(timeout=HELD_S):
        raise TimeoutError("its part of the pass has not begun")


def fail() -> None:
    """On C: the node that is held fails."""
    _told.release()


def pass_beside_a_late_error(late: bool) -> str:
    """On A: a pass fails on B while C is held, and C fails in a pass of the next context, or before: what that raises.

    The next context gets the memory of the first: the C library gives a thread back what it has freed last.
    """
    x = input_tensor()
    with dist_autograd.context() as context:
        loss = rpc.rpc_sync("B", fails_beside, (x,)) + rpc.rpc_sync("C", fails_when_told, (x,))
        failure(context, loss)
        if not late:
            _let_c_fail()
    del loss  # its graph keeps the memory of the context
    with dist_autograd.context() as context:
        loss = rpc.rpc_sync("B", times_parameter_held_backward, (x,))
        raised: list[str] = []
        other = threading.Thread(target=lambda: raised.append(failure(context, loss)))
        other.start()
        while not rpc.rpc_sync("B", is_entered):
            pass
        if late:
            _let_c_fail()
        rpc.rpc_sync("B", open_gate)
        other.join()
    return raised[0]


def _let_c_fail() -> None:
    rpc.rpc_sync("C", fail)
    while rpc.rpc_sync("C", passes):
        pass
    time.sleep(HEARD_S)


# ---- G15, G16: distributed optimizers

ELEMENTS, ROUNDS = 5_000_000, 20  # a step of a scripted optimizer takes some milliseconds


class PlainSGD(torch.optim.SGD):
    """torch knows no TorchScript of it."""


def kind(scripted: bool) -> type[torch.optim.Optimizer]:
    return torch.optim.SGD if scripted else PlainSGD


def optimizer_of(parameters: list[Tensor], scripted: bool, **options: float) -> Any:
    """On A: a distributed optimizer of its own parameters."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", DeprecationWarning)  # torch.jit.script, which torch itself calls
        from torch.distributed.optim import DistributedOptimizer

        return DistributedOptimizer(kind(scripted), [rpc.RRef(each) for each in parameters], **options)  # type: ignore[no-untyped-call]


def step_without_gradient(scripted: bool) -> float:
    """On A: a step with a gradient of a parameter, and one in whose context it has none; how far it has gone."""
    first, second = (torch.zeros(1, requires_grad=True) for _ in range(2))
    optimizer = optimizer_of([first, second], scripted, lr=1.0)
    for losses in ([first, second], [first]):
        with dist_autograd.context() as context:
            dist_autograd.backward(context, [torch.stack(losses).sum()])
            optimizer.step(context)
    return -float(second)


def step_together(scripted: bool) -> list[float]:
    """On A: two optimizers step at the same time from 0, until an element is not what one step after the other makes.

    The values of the elements after the last round: with a decay of 1 and a rate of 1/2 two steps lead to -3/4.
    """
    parameter = torch.zeros(ELEMENTS, requires_grad=True)
    optimizers = [optimizer_of([parameter], scripted, lr=0.5, weight_decay=1.0) for _ in range(2)]
    together = threading.Barrier(2)

    def work(optimizer: Any) -> None:
        with dist_autograd.context() as context:
            dist_autograd.backward(context, [parameter.sum()])
            together.wait()
            optimizer.step(context)

    values = [0.0]
    for _ in range(ROUNDS):
        with torch.no_grad():
            parameter.zero_()
        threads = [threading.Thread(target=work, args=(optimizer,)) for optimizer in optimizers]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        values = parameter.detach().unique().tolist()  # type: ignore[no-untyped-call]
        if values != [-0.75]:
            break
    return values


# ---- G17 to G19: shutdown


def shut_down(timeout_s: float) -> None:
    """Gracefully; 0 is torch's word for no timeout."""
    rpc.shutdown(timeout=timeout_s)


def call_back(timeout_s: float) -> None:
    """On A: a call of B, whose function calls A when B's gate is open."""
    rpc.rpc_sync("B", hold_and_call_back, timeout=timeout_s)


def hold_and_call_back() -> None:
    """On B."""
    hold()
    try:
        rpc.rpc_sync("A", passes)
        _kept["outcome"] = "returned"
    except RuntimeError as error:
        _kept["outcome"] = f"raised {error}"


def last_outcome() -> str:
    """On B: how the call of the function has ended; "" if it has not."""
    return str(_kept.get("outcome", ""))
