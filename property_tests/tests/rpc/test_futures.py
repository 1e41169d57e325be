"""Futures that functions return: torch's, and what their then() and collect_all() make of them."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from torch import Tensor
from torch.futures import Future, collect_all

from trystate import rpc
from trystate.property_tests.support.rpc import functions as f
from trystate.property_tests.support.rpc.worlds import WORLD, world
from trystate.rpc import NotAllowed, RemoteError


def begun(me: int, tensor: Tensor) -> Future[Tensor]:
    return WORLD[me].begin(0, f.add, (tensor, tensor), None, None)


@rpc.async_execution
def chained(me: int, tensor: Tensor) -> Any:
    return begun(me, tensor).then(lambda future: future.wait() + 1)


@rpc.async_execution
def chained_twice(me: int, tensor: Tensor) -> Any:
    return chained(me, tensor).then(lambda future: future.value() * 10)


@rpc.async_execution
def collected(me: int, tensor: Tensor) -> Any:
    return collect_all([begun(me, tensor) for _ in range(3)]).then(
        lambda all_: sum(each.wait() for each in all_.wait())
    )


def undecorated(me: int, tensor: Tensor) -> Any:
    return begun(me, tensor).then(lambda future: future.wait() + 1)


@rpc.async_execution
def failing(me: int, tensor: Tensor) -> Any:
    return WORLD[me].begin(0, f.raise_value, ("a value",), None, None).then(lambda future: future.wait())


@rpc.async_execution
def no_future(me: int, tensor: Tensor) -> Any:
    return tensor


@pytest.mark.parametrize(
    ("function", "expected"), [(chained, 3.0), (chained_twice, 30.0), (collected, 6.0), (undecorated, 3.0)]
)
def test_a_call_is_answered_when_the_future_is_set(function: Any, expected: float) -> None:
    with world(2) as calls:
        one = torch.ones(2)
        assert calls[0].sync(1, function, (1, one), None, None).tolist() == [expected] * 2
        assert calls[0].begin(1, function, (1, one), None, None).wait().tolist() == [expected] * 2
        assert calls[0].remote(1, function, (1, one), None, None).to_here().tolist() == [expected] * 2


def test_an_error_behind_a_chain_reaches_the_caller() -> None:
    with world(2) as calls, pytest.raises(RemoteError, match="ValueError: a value"):
        calls[0].sync(1, failing, (1, torch.ones(1)), None, None)


def test_a_function_that_returns_no_future_is_refused_with_the_remedy() -> None:
    with (
        world(2) as calls,
        pytest.raises(NotAllowed, match=r"must return a torch\.futures\.Future object, .* returned a Tensor"),
    ):
        calls[0].sync(1, no_future, (1, torch.ones(1)), None, None)
