"""The gradients of a context compared with plain autograd: memory, strides, undefined gradients and hooks.

One worker calls itself like any other worker. Random programs compare more: see support/autograd/operations.py.
"""

from __future__ import annotations

import gc
from collections.abc import Callable, Iterator
from typing import Any

import pytest

pytest.importorskip("torch", reason="it is about torch's autograd")

import torch
from torch import Tensor
from torch.autograd.graph import get_gradient_edge

from trystate import autograd, rpc
from trystate.property_tests.support.autograd.operations import gives

LARGE = 1 << 14


@pytest.fixture(scope="module", autouse=True)
def worker(tmp_path_factory: pytest.TempPathFactory) -> Iterator[None]:
    meeting = tmp_path_factory.mktemp("meeting") / "file"
    rpc.init_rpc("worker0", rank=0, world_size=1, init_method=f"file://{meeting}")
    yield
    rpc.shutdown()


def same(x: Tensor) -> Tensor:
    return x * 1


def there(x: Tensor) -> Tensor:
    """The same, by a call to this worker."""
    return rpc.rpc_sync("worker0", same, (x,))


def gradient_in_context(root: Callable[[Tensor], Tensor], leaf: Tensor) -> Tensor | None:
    with autograd.context() as context:
        autograd.backward(context, [root(leaf)])
        return autograd.get_gradients(context).get(leaf)


# Memory.


@pytest.mark.parametrize("call", [same, there])
def test_memory_that_nothing_else_holds_is_not_copied(call: Any) -> None:
    """A gradient that arrived from another worker, or that this worker has made, is taken over without a copy."""
    places = list[int]()
    x = torch.zeros(LARGE, requires_grad=True)
    x.register_hook(lambda gradient: places.append(gradient.data_ptr()))  # type: ignore[no-untyped-call]
    found = gradient_in_context(lambda leaf: call(leaf).pow(2).sum(), x)
    assert found is not None and places == [found.data_ptr()]


# Hooks.


def test_a_hook_may_take_a_gradient_away_or_put_another_in_its_place() -> None:
    def taken(of: Any) -> None:
        of.grad = None

    def replaced(of: Any) -> None:
        of.grad = torch.full((1,), 7.0)

    x: Any = torch.zeros(1, requires_grad=True)
    first = x.register_post_accumulate_grad_hook(taken)
    with autograd.context() as context:
        root = there(x).sum()
        autograd.backward(context, [root], retain_graph=True)
        assert x not in autograd.get_gradients(context)
        first.remove()
        second = x.register_post_accumulate_grad_hook(replaced)
        autograd.backward(context, [root], retain_graph=True)
        assert autograd.get_gradients(context)[x].tolist() == [7]
        second.remove()
        autograd.backward(context, [root], retain_graph=True)
        assert autograd.get_gradients(context)[x].tolist() == [8]
        seen = list[Any]()
        x.register_post_accumulate_grad_hook(taken)
        x.register_post_accumulate_grad_hook(lambda of: seen.append(of.grad))
        autograd.backward(context, [root])
        assert seen == [None] and x not in autograd.get_gradients(context)


def test_a_hook_in_place_changes_the_gradients_of_no_other_pass() -> None:
    """A failed pass leaves the context's sum as it was."""
    x: Any = torch.zeros(1, requires_grad=True)

    def fails(of: Any) -> None:
        of.grad.mul_(100)
        raise ValueError("planted")

    with autograd.context() as context:
        root = there(x).sum()
        autograd.backward(context, [root], retain_graph=True)
        handle = x.register_post_accumulate_grad_hook(fails)
        with pytest.raises(autograd.PassError, match="planted"):
            autograd.backward(context, [root], retain_graph=True)
        handle.remove()
        assert autograd.get_gradients(context)[x].tolist() == [1]
        autograd.backward(context, [root])
        assert autograd.get_gradients(context)[x].tolist() == [2]


@pytest.mark.parametrize(
    ("result", "why"),
    [
        (lambda gradients: gradients[0], "return None, or a tuple of 1 gradients"),
        (lambda _: (), "a tuple of 1"),
        (lambda _: (torch.ones(2),), r"made torch.float32 \(2,\) of a gradient torch.float32 \(1,\)"),
        (lambda gradients: (gradients[0].double(),), "keep type and shape"),
    ],
)
def test_a_wrong_result_of_a_hook_is_refused(result: Any, why: str) -> None:
    x = torch.zeros(1, requires_grad=True)
    node: Any = get_gradient_edge(x).node  # a reference to the node keeps its hooks alive
    node.register_prehook(result)
    with pytest.raises(autograd.PassError, match=why):
        gradient_in_context(lambda leaf: there(leaf).sum(), x)


def test_hooks_leave_nothing_behind() -> None:
    """The hooks that our engine registers to find the user's hooks are removed again."""
    x = torch.zeros(1, requires_grad=True)
    node: Any = get_gradient_edge(x).node
    gradient_in_context(lambda leaf: gives(there(leaf), lambda _: None).sum(), x)
    gc.collect()
    for register in (node.register_hook, node.register_prehook):
        assert list(register(print).hooks_dict_ref().values()) == [print]
