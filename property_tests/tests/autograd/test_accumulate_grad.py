"""The gradients of a context: their memory and strides, undefined ones, hooks, beside plain autograd.

One worker calls itself, as it would any other. Random programs compare the same: see autograd/operations.py.
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
from torch.nn.functional import embedding

from trystate import autograd, rpc
from trystate.impl.torch_release import is_before
from trystate.property_tests.support.autograd.operations import KEPT, LAYOUTS, gives, hold, turned

INDICES = torch.tensor([1, 2, 2, 0])
ROW = 3
LARGE = 1 << 14
Root = Callable[..., Tensor]


@pytest.fixture(scope="module", autouse=True)
def worker(tmp_path_factory: pytest.TempPathFactory) -> Iterator[None]:
    meeting = tmp_path_factory.mktemp("meeting") / "file"
    rpc.init_rpc("worker0", rank=0, world_size=1, init_method=f"file://{meeting}")
    yield
    rpc.shutdown()


def run(function: Callable[..., Any], *arguments: Any) -> Any:
    return function(*arguments)


def there(function: Callable[..., Any], *arguments: Any) -> Any:
    """The same, by a call."""
    return rpc.rpc_sync("worker0", function, arguments)


def adds_one(x: Tensor) -> Tensor:
    return gives(x, lambda gradient: gradient + 1)


def nothing(x: Tensor) -> Tensor:
    return gives(x, lambda _: None)


def same(x: Tensor) -> Tensor:
    return x * 1


def both(x: Tensor) -> tuple[Tensor, Tensor]:
    return x * 1, x * 2


def looked_up(*weights: Tensor) -> Tensor:
    return embedding(INDICES, sum(weights[1:], weights[0]), sparse=True)


def table() -> Tensor:
    return torch.rand(4, ROW, requires_grad=True)


def in_plain(root: Root, *leaves: Tensor) -> list[Tensor | None]:
    """The gradients of plain autograd, which calls nobody."""
    torch.autograd.backward(root(run, *leaves))
    found = [leaf.grad for leaf in leaves]
    for leaf in leaves:
        leaf.grad = None
    return found


def in_context(root: Root, *leaves: Tensor, mode: Any = "fast") -> list[Tensor | None]:
    with autograd.context() as context:
        autograd.backward(context, [root(there, *leaves)], mode=mode)
        gradients = autograd.get_gradients(context)
    return [gradients.get(leaf) for leaf in leaves]


# Memory.


@pytest.mark.parametrize("call", [run, there])
def test_sparse_gradients_of_two_tensors_share_no_memory(call: Any) -> None:
    one, other = in_context(lambda _, *both: call(looked_up, *both).sum(), table(), table())
    assert one is not None and other is not None and one.is_sparse and other.is_sparse
    one.zero_()
    assert torch.equal(other.to_dense()[:, 0], torch.tensor([1.0, 1, 2, 0]))


def test_a_sparse_gradient_that_something_else_holds_is_copied() -> None:
    (found,) = in_context(lambda _, w: embedding(INDICES, gives(w, hold), sparse=True).sum(), table())
    KEPT[-1].zero_()
    assert found is not None and found.to_dense().sum() == INDICES.numel() * ROW


WAYS: list[Root] = [lambda _, leaf: leaf, lambda call, leaf: call(same, leaf)]


@pytest.mark.parametrize("shape", [(2, 2), (LARGE,)])
def test_a_tensor_that_a_backward_keeps_is_not_the_gradient(shape: tuple[int, ...]) -> None:
    x = torch.zeros(shape, requires_grad=True)
    for view in (torch.Tensor.view_as, lambda kept, _: kept):
        for begins in WAYS:
            kept = view(torch.ones(shape), x)
            (found,) = in_context(lambda call, leaf: gives(begins(call, leaf), lambda _: kept).sum(), x)  # noqa: B023
            assert found is not None
            kept.zero_()
            assert found.sum() == x.numel()


def test_gradients_that_are_views_of_one_tensor_share_no_memory() -> None:
    one, other = torch.zeros(4, requires_grad=True), torch.zeros(2, 2, requires_grad=True)
    found = in_context(lambda _, x, y: (x.view(2, 2) + y).sum(), one, other)
    assert found[0] is not None and found[1] is not None
    found[0].zero_()
    assert found[1].sum() == 4


def test_what_a_hook_keeps_is_not_the_gradient() -> None:
    seen = list[Tensor]()
    x = torch.zeros(2, requires_grad=True)
    x.register_hook(seen.append)  # type: ignore[no-untyped-call]
    (found,) = in_context(lambda call, leaf: call(same, leaf).sum(), x)
    seen[0].zero_()
    assert found is not None and found.tolist() == [1, 1]


@pytest.mark.parametrize("call", [run, there])
def test_memory_that_nothing_else_holds_is_not_copied(call: Any) -> None:
    """The gradient that came from another worker for its parameter, or that this one has made, stays where it is."""
    places = list[int]()
    x = torch.zeros(LARGE, requires_grad=True)
    x.register_hook(lambda gradient: places.append(gradient.data_ptr()))  # type: ignore[no-untyped-call]
    (found,) = in_context(lambda _, leaf: call(same, leaf).pow(2).sum(), x)
    assert found is not None and places == [found.data_ptr()]


# Strides.


@pytest.mark.parametrize("leaf", LAYOUTS.values(), ids=LAYOUTS)
@pytest.mark.parametrize("gradient", LAYOUTS.values(), ids=LAYOUTS)
def test_a_gradient_is_laid_out_as_plain_autograd_does(leaf: Any, gradient: Any) -> None:
    x = leaf(torch.rand(2, 3, 4, 5)).detach().requires_grad_()
    weights = torch.rand(2, 3, 4, 5)

    def root(call: Any, x: Tensor) -> Tensor:
        made = gives(call(same, gives(x, gradient)), gradient)
        return (made * weights).sum()

    (expected,), (found,) = in_plain(root, x), in_context(root, x)
    assert expected is not None and found is not None
    assert torch.equal(expected, found)
    assert expected.stride() == found.stride()


@pytest.mark.filterwarnings("ignore:grad and param do not obey")  # torch's word on its own, sparse + dense
@pytest.mark.parametrize("order", [(True, False), (False, True), (False, False), (True, True)])
def test_a_sum_of_passes_is_laid_out_as_plain_autograd_does(order: tuple[bool, ...]) -> None:
    """Of sparse gradients and of others."""
    expected, found = (turned(torch.rand(4, ROW)).detach().requires_grad_() for _ in range(2))
    with autograd.context() as context:
        for is_sparse in order:
            roots = [embedding(INDICES, leaf, sparse=is_sparse).pow(2).sum() for leaf in (expected, found)]
            torch.autograd.backward(roots[0])
            autograd.backward(context, roots[1:])
        gradient = autograd.get_gradients(context)[found]
    assert expected.grad is not None and expected.grad.layout == gradient.layout
    assert gradient.is_sparse or expected.grad.stride() == gradient.stride()


# Undefined gradients.


def test_a_node_runs_when_no_gradient_of_it_is_defined() -> None:
    for root in (
        lambda call, x: nothing(adds_one(x)).sum(),
        lambda call, x: call(nothing, adds_one(x)).sum(),
        lambda call, x: nothing(call(adds_one, x)).sum(),
        lambda call, x: call(nothing, call(adds_one, x)).sum(),
        lambda call, x: nothing(call(same, adds_one(call(same, x)))).sum(),
        lambda call, x: nothing(sum(call(both, adds_one(x)))).sum(),
    ):
        (expected,) = in_plain(root, leaf := torch.zeros(2, requires_grad=True))
        assert expected is not None and expected.tolist() == [1, 1]
        for mode in ("fast", "smart"):
            (found,) = in_context(root, leaf, mode=mode)
            assert found is not None and torch.equal(expected, found)


def first(*values: Tensor) -> Tensor:
    return values[0] * 1


@pytest.mark.parametrize("mode", ["fast", "smart"])
def test_a_node_does_not_run_when_no_gradient_comes_to_it(mode: Any) -> None:
    """A message carries several tensors, of which one leads to no root: behind it nothing runs in plain autograd."""
    leaves = torch.zeros(2, requires_grad=True), torch.zeros(2, requires_grad=True)
    seen = list[Any]()
    leaves[1].register_hook(seen.append)  # type: ignore[no-untyped-call]
    for root in (
        lambda call, x, y: call(first, x, adds_one(y)).sum(),
        lambda call, x, y: call(first, *call(both, x), call(first, adds_one(y), x)).sum(),
        lambda call, x, y: call(both, x)[0].sum() + call(first, nothing(x), adds_one(y)).sum(),
    ):
        expected, found = in_plain(root, *leaves), in_context(root, *leaves, mode=mode)
        assert found[0] is not None and expected[0] is not None and torch.equal(expected[0], found[0])
        assert expected[1] is None and found[1] is None and seen == []


def test_a_gradient_that_is_not_defined_is_none() -> None:
    root: Root = lambda call, x, y: (nothing(call(same, x)) + y).sum()  # noqa: E731
    leaves = torch.zeros(2, requires_grad=True), torch.zeros(2, requires_grad=True)
    for found in (in_plain(root, *leaves), in_context(root, *leaves)):
        assert found[0] is None and found[1] is not None


# Hooks.


def accumulating(x: Tensor) -> Any:
    """The node that accumulates the gradient of a leaf; whoever has it keeps it and its hooks alive."""
    return get_gradient_edge(x).node


def told(seen: list[Any], name: str, of: Callable[..., Any], result: Callable[..., Any] = lambda *_: None) -> Any:
    def hook(*arguments: Any) -> Any:
        seen.append((name, of(*arguments)))
        return result(*arguments)

    return hook


def values(gradient: Tensor | None) -> Any:
    return None if gradient is None else gradient.tolist()


def hooked(x: Any, seen: list[Any]) -> Any:
    """One hook of each kind; the node's first doubles the gradient, and that for after accumulation adds one to it."""

    def increased(of: Tensor) -> None:
        if of.grad is not None:
            of.grad = of.grad + 1

    node = accumulating(x)
    node.register_hook(told(seen, "after", lambda made, gradients: (made, *map(values, gradients))))
    x.register_post_accumulate_grad_hook(told(seen, "summed", lambda of: values(of.grad), increased))
    node.register_prehook(
        told(seen, "before", lambda gradients: values(gradients[0]),
             lambda gradients: tuple(None if each is None else each * 2 for each in gradients))
    )  # fmt: skip
    node.register_prehook(told(seen, "second", lambda gradients: values(gradients[0])))
    x.register_hook(told(seen, "tensor", values))
    return node


@pytest.mark.parametrize("call", [run, there])
def test_hooks_run_in_the_order_of_the_engine_and_see_the_sum_of_the_context(call: Any) -> None:
    def root(by: Any, x: Tensor) -> Tensor:
        return (by(same, x) if call is there else x).sum() * 3

    seen, expected = list[Any](), list[Any]()
    x, y = torch.zeros(1, requires_grad=True), torch.zeros(1, requires_grad=True)
    nodes = hooked(x, seen), hooked(y, expected)
    for _ in range(2):
        torch.autograd.backward(root(run, y))
    for _ in range(2):  # each context has its own sum
        with autograd.context() as context:
            for _ in range(2):
                autograd.backward(context, [root(there, x)])
            assert y.grad is not None
            assert torch.equal(autograd.get_gradients(context)[x], y.grad)
        assert seen == expected
        seen.clear()
    assert x.grad is None
    del nodes


def test_hooks_run_when_the_gradient_is_not_defined() -> None:
    root: Root = lambda by, x: nothing(by(same, x)).sum()  # noqa: E731
    seen, expected = list[Any](), list[Any]()
    x, y = torch.zeros(1, requires_grad=True), torch.zeros(1, requires_grad=True)
    nodes = hooked(x, seen), hooked(y, expected)
    in_plain(root, y)
    assert in_context(root, x) == [None]
    assert seen == [("tensor", None), ("before", None), ("second", None), ("summed", None), ("after", ((), None))]
    if is_before("2.8"):  # plain autograd then leaves out the hooks for what was accumulated
        seen.remove(("summed", None))
    assert seen == expected
    del nodes


def test_a_hook_may_take_a_gradient_away_or_put_another_in_its_place() -> None:
    def taken(of: Any) -> None:
        of.grad = None

    def replaced(of: Any) -> None:
        of.grad = torch.full((1,), 7.0)

    x: Any = torch.zeros(1, requires_grad=True)
    first = x.register_post_accumulate_grad_hook(taken)
    with autograd.context() as context:
        root = there(same, x).sum()
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
        root = there(same, x).sum()
        autograd.backward(context, [root], retain_graph=True)
        handle = x.register_post_accumulate_grad_hook(fails)
        with pytest.raises(autograd.PassError, match="planted"):
            autograd.backward(context, [root], retain_graph=True)
        handle.remove()
        assert autograd.get_gradients(context)[x].tolist() == [1]
        autograd.backward(context, [root])
        assert autograd.get_gradients(context)[x].tolist() == [2]


def test_hooks_of_what_has_arrived_run_too() -> None:
    """torch's recv function is a node as any other."""
    x = torch.zeros(1, requires_grad=True)
    seen = list[Any]()
    with autograd.context() as context:
        arrived: Any = there(same, x)
        arrived.grad_fn.register_prehook(lambda gradients: (gradients[0] * 5,))
        arrived.grad_fn.register_hook(told(seen, "after", lambda made, gradients: values(gradients[0])))
        autograd.backward(context, [arrived.sum()])
        assert autograd.get_gradients(context)[x].tolist() == [5]
    assert seen == [("after", [5])]


@pytest.mark.parametrize(
    ("result", "why"),
    [
        (lambda gradients: gradients[0], "return None, or a tuple of 1 gradients"),
        (lambda _: (), "a tuple of 1"),
        (lambda _: (torch.ones(2),), r"made torch.float32 \(2,\) of a gradient torch.float32 \(1,\)"),
        (lambda gradients: (gradients[0].double(),), "keep type and shape"),
    ],
)
def test_what_a_hook_may_not_return_is_said(result: Any, why: str) -> None:
    x = torch.zeros(1, requires_grad=True)
    node = accumulating(x)
    node.register_prehook(result)
    with pytest.raises(autograd.PassError, match=why):
        in_context(lambda call, leaf: call(same, leaf).sum(), x)


def test_hooks_leave_nothing_behind() -> None:
    """A hook that is registered to find the hooks of others is removed again."""
    x = torch.zeros(1, requires_grad=True)
    node = accumulating(x)
    in_context(lambda call, leaf: nothing(call(same, leaf)).sum(), x)
    gc.collect()
    for register in (node.register_hook, node.register_prehook):
        assert list(register(print).hooks_dict_ref().values()) == [print]
