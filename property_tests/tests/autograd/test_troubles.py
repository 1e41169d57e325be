"""Acts of users that a pass must survive, on one worker that calls itself like any other worker."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pytest

pytest.importorskip("torch", reason="it is about torch's autograd")

import torch
from torch.futures import Future

from trystate import autograd, rpc
from trystate.impl.autograd import optimizer
from trystate.impl.autograd.api import driver
from trystate.impl.autograd.local_pass import LocalPass
from trystate.impl.autograd.messages import CLEAN, NO_MESSAGE, Clean, Forward
from trystate.impl.rpc.frames import Kind
from trystate.impl.rpc.invocations import CALL
from trystate.property_tests.support.autograd.operations import gives

SECONDS = 30.0  # on a busy machine


@pytest.fixture(autouse=True)
def worker(tmp_path: Path) -> Iterator[None]:
    rpc.init_rpc("worker0", rank=0, world_size=1, init_method=f"file://{tmp_path}/meeting")
    yield
    rpc.shutdown()


def times(one: torch.Tensor, other: torch.Tensor) -> torch.Tensor:
    return one * other


def scaled(gradient: torch.Tensor) -> torch.Tensor:
    return gradient * torch.tensor(3.0, requires_grad=True)


def called(one: torch.Tensor, other: torch.Tensor) -> torch.Tensor:
    """The sum of the product, which is computed by a call."""
    return rpc.rpc_sync("worker0", times, (one, other)).sum()


def test_a_hook_and_a_step_on_one_parameter_take_turns(monkeypatch: pytest.MonkeyPatch) -> None:
    parameter = torch.zeros(2, requires_grad=True)
    inside, hooked, stepped = threading.Event(), threading.Event(), threading.Event()

    class Slow(torch.optim.SGD):
        def step(self, closure: object = None) -> None:  # type: ignore[override]
            inside.set()
            hooked.wait(0.2)
            super().step()
            stepped.set()

    def hook(_: torch.Tensor) -> None:
        hooked.set()
        stepped.wait(SECONDS if inside.is_set() else 0)

    parameter.register_post_accumulate_grad_hook(hook)  # type: ignore[no-untyped-call]
    local = optimizer.LocalOptimizer(Slow, [rpc.RRef(parameter)], (), {"lr": 1.0})
    with autograd.context() as context, ThreadPoolExecutor() as threads:
        autograd.backward(context, [called(parameter, torch.ones(2))])
        hooked.clear()
        step = threads.submit(local.step, context)
        assert inside.wait(SECONDS)
        threads.submit(pass_of, parameter).result(SECONDS)
        step.result(SECONDS)
    assert parameter.detach().tolist() == [-1.0, -1.0]
    assert parameter.grad is None


def pass_of(parameter: torch.Tensor) -> None:
    with autograd.context() as context:
        autograd.backward(context, [called(parameter, torch.full((2,), 1000.0))])


@pytest.mark.parametrize("remote", [False, True], ids=["before a call", "after its answer"])
def test_a_pass_that_is_interrupted_is_over(remote: bool) -> None:
    x, y = torch.ones(2, requires_grad=True), torch.ones(2, requires_grad=True)
    interrupts, passes = [KeyboardInterrupt()], list[LocalPass]()

    def interrupt(_: torch.Tensor) -> None:
        if interrupts:
            passes.extend(driver().container.passes())
            raise interrupts.pop()

    (x if remote else y).register_hook(interrupt)  # type: ignore[no-untyped-call]
    with autograd.context() as context:
        root = called(x, torch.ones(2)) + y.sum()
        with pytest.raises(KeyboardInterrupt):
            autograd.backward(context, [root], retain_graph=True)
        assert not any(local_pass.running for local_pass in passes)  # so a CANCEL is answered
        autograd.backward(context, [root], retain_graph=True)
        gradients = autograd.get_gradients(context)
    assert gradients[x].tolist() == gradients[y].tolist() == [1.0, 1.0]


def test_no_hook_begins_in_a_pass_that_is_over() -> None:
    called_hooks = list[str]()

    def first(_: torch.Tensor) -> None:
        called_hooks.append("the first, in which the pass expires")
        (local_pass,) = driver().container.passes()
        driver().do(local_pass.expire)

    one, other = torch.ones(2, requires_grad=True), torch.ones(2, requires_grad=True)
    one.register_post_accumulate_grad_hook(first)  # type: ignore[no-untyped-call]
    other.register_post_accumulate_grad_hook(first)  # type: ignore[no-untyped-call]
    with autograd.context() as context, pytest.raises(autograd.PassTimeoutError):
        autograd.backward(context, [(one * other).sum()])
    assert len(called_hooks) == 1


def test_a_hook_calls_outside_of_the_context() -> None:
    value = torch.ones(2, requires_grad=True)
    with autograd.context() as context:
        loss = called(value, torch.ones(2))
        loss.register_hook(lambda gradient: rpc.rpc_sync("worker0", scaled, (gradient,)).detach())  # type: ignore[no-untyped-call]
        for _ in range(2):  # the second pass would wait for sends that the first recorded
            autograd.backward(context, [loss], retain_graph=True)
        assert autograd.get_gradients(context)[value].tolist() == [6, 6]


def test_a_hook_runs_the_engine_through_its_own_node() -> None:
    value = torch.ones(3, requires_grad=True)
    fed = value * 1
    sine = fed.sin()
    other = (sine * 5).sum()

    def hook(_: torch.Tensor) -> None:
        handle.remove()
        torch.autograd.grad(other, value, retain_graph=True)

    handle: Any = sine.register_hook(hook)  # type: ignore[no-untyped-call]
    with autograd.context() as context:
        autograd.backward(context, [(sine * 2).sum() + called(fed, torch.ones(3))], timeout=0)
        torch.testing.assert_close(autograd.get_gradients(context)[value], 2 * torch.ones(3).cos() + 1)


def doubled_later(one: torch.Tensor) -> Future[torch.Tensor]:
    """A thread without gradients sets the result."""
    future: Future[torch.Tensor] = Future()
    made = one * 2

    def set_it() -> None:
        with torch.no_grad():
            future.set_result(made)

    threading.Thread(target=set_it).start()
    return future


def gradient_of(doubled: Callable[[torch.Tensor], Any]) -> list[float]:
    value = torch.ones(2, requires_grad=True)
    with autograd.context() as context:
        autograd.backward(context, [doubled(value).sum()])
        return autograd.get_gradients(context)[value].tolist()


def test_an_answer_has_its_history_whatever_thread_makes_it_or_takes_it_in() -> None:
    def in_inference_mode(future: Future[torch.Tensor]) -> Any:
        with torch.inference_mode():
            return future.wait()

    assert gradient_of(lambda value: rpc.rpc_sync("worker0", doubled_later, (value,))) == [2, 2]
    two = torch.full((2,), 2.0)
    assert gradient_of(lambda value: in_inference_mode(rpc.rpc_async("worker0", times, (value, two)))) == [2, 2]
    assert gradient_of(lambda value: rpc.rpc_sync("worker0", times_and_leaves_gradients_off, (value, two))) == [2, 2]


def times_and_leaves_gradients_off(one: torch.Tensor, other: torch.Tensor) -> torch.Tensor:
    made = one * other
    torch.set_grad_enabled(False)
    return made


def test_an_observer_that_raises_disturbs_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    reported: list[object] = []
    monkeypatch.setattr(threading, "excepthook", lambda told: reported.append(told.exc_type))

    def observe(event: autograd.Event) -> None:
        raise KeyError(event.kind)

    value = torch.ones(2, requires_grad=True)
    autograd.observe(observe)
    try:
        with autograd.context() as context:
            autograd.backward(context, [called(value, torch.ones(2))])
            assert autograd.get_gradients(context)[value].tolist() == [1, 1]
    finally:
        autograd.observe(None)
    assert set(reported) == {KeyError}


def test_an_error_of_the_user_is_not_hidden_by_a_shutdown_in_the_context(tmp_path: Path) -> None:
    with pytest.raises(ValueError, match="the user's"), autograd.context():
        rpc.shutdown()
        raise ValueError("the user's")
    rpc.init_rpc("worker0", rank=0, world_size=1, init_method=f"file://{tmp_path}/again")


def test_a_value_of_a_freed_context_may_use_that_context() -> None:
    """The last reference to a graph may be dropped while the lock is held."""
    seen: list[int] = []

    class Curious:
        def same(self, gradient: torch.Tensor) -> torch.Tensor:
            return gradient

        def __del__(self) -> None:
            seen.append(len(driver().container.contexts))
            with driver().lock:
                pass

    def leave() -> None:
        with autograd.context():
            value = torch.ones(2, requires_grad=True)
            rpc.rpc_sync("worker0", times, (gives(value, Curious().same), torch.ones(2)))

    thread = threading.Thread(target=leave, daemon=True)
    thread.start()
    thread.join(SECONDS)
    assert not thread.is_alive()
    assert seen


def test_a_context_and_a_message_are_of_the_worker_that_gives_their_ids() -> None:
    here, forged = driver(), Forward(1 << 63, NO_MESSAGE, ()).pack()
    for body, kind, metadata in (
        (CALL.pack(4, 0) + b"math", Kind.CALL, forged),
        (Clean(1 << 63, 0).pack(), CLEAN, b""),
    ):
        with pytest.raises(rpc.RemoteError, match="which no worker of this group can have created"):
            here.agent.ask(0, kind, body, (), SECONDS, metadata=metadata)
    assert not here.container.contexts
    with autograd.context() as context:
        forged = Forward(context, (3 << 48) + 5, (True,)).pack()
        with pytest.raises(autograd.ContextError, match="which cannot give out this id"):
            here.incoming(0, forged, [torch.ones(1)])
        with pytest.raises(autograd.ContextError, match="worker 3 was not called"):
            here.answered(3, forged, [torch.ones(1)])
        assert not here.container.contexts[context].recvs
