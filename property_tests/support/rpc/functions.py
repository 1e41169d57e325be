"""The functions that workers of the tests call on each other."""

from __future__ import annotations

import os
import threading
import time
import warnings
from typing import Any, NoReturn

import torch
from torch import Tensor
from torch.futures import Future

from trystate import rpc

from .worlds import PATIENCE_SECONDS, WORLD

GATE = threading.Event()  # opened by the test
LEFT_ON: list[torch.inference_mode] = []  # modes that are never left


class OddError(Exception):
    """With a constructor that nothing can be guessed of."""

    def __init__(self, one: int, *, other: int) -> None:
        super().__init__(f"{one} and {other}")


class OwnTextError(Exception):
    """With a property of a name that errors of RPC have too."""

    @property
    def text(self) -> str:
        return "own"


class FrozenError(Exception):
    """That takes no attributes."""

    def __setattr__(self, name: str, value: object) -> NoReturn:
        raise AttributeError(name)


class Counter:
    """A value with methods, for an RRef."""

    def __init__(self, start: int = 0) -> None:
        self.count = start

    def add(self, amount: int = 1) -> int:
        self.count += amount
        return self.count

    def scaled(self, tensor: Tensor) -> Tensor:
        return tensor * self.count

    def _secret(self) -> int:
        return self.count


def both(value: Any, *, twice: Any = None) -> tuple[Any, Any]:
    return value, twice


def same_as_first(*tensors: Tensor) -> list[bool]:
    return [each is tensors[0] for each in tensors]


def add(one: Tensor, other: Tensor) -> Tensor:
    return one + other


def scripted(one: Tensor, times: int) -> Tensor:
    return one * times


with warnings.catch_warnings():
    warnings.simplefilter("ignore", DeprecationWarning)  # of TorchScript as a whole
    scripted = torch.jit.script(scripted)


def nothing(*_: object) -> None:
    pass


def process() -> int:
    return os.getpid()


def raise_value(text: str) -> NoReturn:
    raise ValueError(text)


def raise_key() -> NoReturn:
    raise KeyError("a key")


def raise_odd() -> NoReturn:
    raise OddError(1, other=2)


def raise_own(frozen: bool) -> NoReturn:
    raise FrozenError("cold") if frozen else OwnTextError("warm")


def leave() -> NoReturn:
    raise SystemExit(3)


def wait_for_gate() -> bool:
    return GATE.wait(PATIENCE_SECONDS)


def grad_mode_before_it_is_left_off() -> bool:
    before = torch.is_grad_enabled()
    torch.set_grad_enabled(False)
    return before


def is_inference(tensor: Tensor) -> bool:
    return tensor.is_inference() or type(tensor) is not Tensor


def mode_before_one_is_left_on() -> str:
    """Where this thread of the pool makes a tensor, or that it is one of inference."""
    made = torch.empty(1)
    mode = torch.inference_mode()
    mode.__enter__()
    torch.device("meta").__enter__()
    LEFT_ON.append(mode)
    return "inference" if made.is_inference() else str(made.device)


def applied(function: Any, *args: Any) -> Any:
    return function(*args)


def doubled_later(tensor: Tensor) -> Future[Tensor]:
    """Answered by another thread."""
    future: Future[Tensor] = Future()
    threading.Timer(0.01, lambda: future.set_result(2 * tensor)).start()
    return future


def die() -> NoReturn:
    os.kill(os.getpid(), 9)
    raise AssertionError


def shut_down() -> None:
    rpc.shutdown()


def sleep(seconds: float) -> None:
    time.sleep(seconds)


# In a world of this process: `me` says whose call it is.


def bounce(me: int, other: int, depth: int) -> int:
    """A to B to A to B ...; every one of them waits for the next."""
    return 0 if not depth else 1 + WORLD[me].sync(other, bounce, (other, me, depth - 1), None, None)


def relay(me: int, path: list[int], text: str) -> Any:
    """On to the next of a path; the last one raises."""
    if not path:
        raise ValueError(text)
    return WORLD[me].sync(path[0], relay, (path[0], path[1:], text), None, None)


def use(rref: rpc.RRef[Counter], amount: int) -> int:
    return rref.rpc_sync().add(amount)  # type: ignore[no-any-return]


def keep(me: int, rref: rpc.RRef[Any]) -> None:
    KEPT.setdefault(me, []).append(rref)


def keep_here(value: Any) -> None:
    """Of a worker that is a process."""
    KEPT.setdefault(-1, []).append(value)


def pass_on(me: int, to: int, rref: rpc.RRef[Any]) -> None:
    WORLD[me].sync(to, keep, (to, rref), None, None)


def given_back(value: Any) -> Any:
    return value


def given_back_at_gate(rref: rpc.RRef[Any]) -> rpc.RRef[Any]:
    GATE.wait(PATIENCE_SECONDS)
    return rref


KEPT: dict[int, list[rpc.RRef[Any]]] = {}


# In processes of their own.


def nested(names: list[str]) -> list[int]:
    """The processes on a way through workers."""
    me = os.getpid()
    return [me] if not names else [me, *rpc.rpc_sync(names[0], nested, (names[1:],))]


def shapes() -> list[Tensor]:
    """One tensor of every kind that can be sent, small and large."""
    torch.manual_seed(0)
    real = torch.randn(6, 5)
    return [
        real, torch.tensor(2.5), torch.empty(0, 3), real.t(), real[::2, 1:3], real.to(torch.bfloat16),
        torch.randn(3, dtype=torch.complex64).conj(), torch.tensor([True, False]), torch.arange(5, dtype=torch.uint8),
        torch.eye(4).to_sparse(), torch.randn(300, 400), torch.randn(300, 400).t(),
        torch.randn(40_000).to(torch.bfloat16),
    ]  # fmt: skip
