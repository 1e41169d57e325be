"""Calls of functions of modules, of TorchScript too, and of methods of objects that are sent; names of workers."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from torch import Tensor
from torch.futures import Future

from trystate.impl.rpc.functions import find, name_of
from trystate.model.errors import UsageError
from trystate.property_tests.support.rpc import functions as f
from trystate.property_tests.support.rpc.worlds import PATIENCE_SECONDS, WORLD, world
from trystate.rpc import FunctionSet, NotAllowed, Options, Pickles, UnknownWorker

NAME = "trystate.property_tests.support.rpc.functions:scripted"


def test_a_function_of_torchscript_goes_by_the_name_of_its_module() -> None:
    assert name_of(f.scripted) == NAME and find(NAME, ("trystate.property_tests",), 100) is f.scripted
    with world(2) as calls:
        assert calls[0].sync(1, f.scripted, (torch.ones(2), 3), None, None).tolist() == [3, 3]
        assert calls[0].remote(1, f.scripted, (torch.ones(2),), {"times": 2}, None).to_here().tolist() == [2, 2]
    with pytest.raises(
        NotAllowed, match=r"modules=\(FunctionSet.TORCH, .trystate.property_tests.support.rpc.functions:scripted.,?\)"
    ):
        find(NAME, (FunctionSet.TORCH,), 100)  # a function of the program, although its class is torch's


def test_a_method_takes_its_object_along() -> None:
    with world(2, Options(timeout=PATIENCE_SECONDS, pickles=Pickles.ANY)) as calls:
        counter = f.Counter(5)
        assert calls[0].sync(1, counter.add, (2,), None, None) == 7 and counter.count == 5  # the call changed a copy
        module = torch.nn.Linear(2, 3)
        back = calls[0].sync(1, f.given_back, ([module, f.Counter.add],), None, None)
        assert torch.equal(back[0].weight, module.weight) and isinstance(back[0].weight, torch.nn.Parameter)
        assert back[0].weight.requires_grad and back[1] is f.Counter.add
        one, other = calls[0].sync(1, f.given_back, ([module.weight] * 2,), None, None)
        assert one is other, "tied weights"
    with world(2) as calls, pytest.raises(NotAllowed, match=r"Counter is not sent: give Options\(allowed=\(Counter,\)"):
        calls[0].sync(1, f.Counter(5).add, (2,), None, None)


def test_a_function_without_a_name_is_refused_with_the_remedy() -> None:
    with pytest.raises(NotAllowed, match="pass a function of a module, or a method of an object that can be sent"):
        name_of(lambda: None)


@pytest.mark.parametrize(("worker", "kind", "text"), [
    (7, UnknownWorker, "could not find destination 7: there are 2 workers, A, B"),
    ("C", UnknownWorker, "could not find destination 'C'"),
    (0.5, ValueError, "0.5 does not name a worker: give a name, a rank, or a WorkerInfo"),
])  # fmt: skip
def test_an_unknown_worker_is_named(worker: object, kind: type[Exception], text: str) -> None:
    with world(2) as calls:
        with pytest.raises(kind, match=text) as caught:
            calls[0].agent.rank_of(worker)  # type: ignore[arg-type]
        assert isinstance(caught.value, UsageError)
        assert [info.name for info in calls[0].agent.get_worker_infos()] == ["A", "B"]


# ---- futures that functions return


def undecorated(me: int, tensor: Tensor) -> Any:
    """Neither this function nor one that it calls has torch's decorator; torch's own tests have it."""
    begun: Future[Tensor] = WORLD[me].begin(0, f.add, (tensor, tensor), None, None)
    return begun.then(lambda future: future.wait() + 1)


def test_a_call_is_answered_when_the_future_is_set() -> None:
    with world(2) as calls:
        one = torch.ones(2)
        assert calls[0].sync(1, undecorated, (1, one), None, None).tolist() == [3, 3]
        assert calls[0].begin(1, undecorated, (1, one), None, None).wait().tolist() == [3, 3]
        assert calls[0].remote(1, undecorated, (1, one), None, None).to_here().tolist() == [3, 3]
