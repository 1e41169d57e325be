"""The functions that workers of the tests call on each other."""

from __future__ import annotations

import os
import threading
import time
import warnings
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any, NoReturn

import torch
from torch import Tensor

from trystate import rpc

from .worlds import PATIENCE_SECONDS, WORLD

GATE = threading.Event()
LEFT_ON: list[torch.inference_mode] = []  # modes that are never left


class OddError(Exception):
    """An error whose constructor has arguments that its text does not show."""

    def __init__(self, one: int, *, other: int) -> None:
        super().__init__(f"{one} and {other}")


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


def add(one: Tensor, other: Tensor) -> Tensor:
    return one + other


def scripted(one: Tensor, times: int) -> Tensor:
    return one * times


with warnings.catch_warnings():
    warnings.simplefilter("ignore", DeprecationWarning)  # all of TorchScript is deprecated
    scripted = torch.jit.script(scripted)


def nothing(*_: object) -> None:
    pass


def process() -> int:
    return os.getpid()


def raise_key() -> NoReturn:
    raise KeyError("a key")


def raise_odd() -> NoReturn:
    raise OddError(1, other=2)


def leave() -> NoReturn:
    raise SystemExit(3)


@contextmanager
def closed_gate() -> Iterator[None]:
    GATE.clear()
    try:
        yield
    finally:
        GATE.set()


def wait_for_gate() -> bool:
    return GATE.wait(PATIENCE_SECONDS)


def grad_mode_before_it_is_left_off() -> bool:
    before = torch.is_grad_enabled()
    torch.set_grad_enabled(False)
    return before


def is_inference(tensor: Tensor) -> bool:
    return tensor.is_inference() or type(tensor) is not Tensor


def mode_before_one_is_left_on() -> str:
    """The device on which this thread of the pool makes a tensor, or "inference"."""
    made = torch.empty(1)
    mode = torch.inference_mode()
    mode.__enter__()
    torch.device("meta").__enter__()
    LEFT_ON.append(mode)
    return "inference" if made.is_inference() else str(made.device)


def applied(function: Any, *args: Any) -> Any:
    return function(*args)


def die() -> NoReturn:
    os.kill(os.getpid(), 9)
    raise AssertionError


def shut_down() -> None:
    rpc.shutdown()


def sleep(seconds: float) -> None:
    time.sleep(seconds)


# Functions for a world of this process: `me` is the worker that is called.


def bounce(me: int, other: int, depth: int) -> int:
    """A calls B, B calls A, and so on; each call waits for the next."""
    return 0 if not depth else 1 + WORLD[me].sync(other, bounce, (other, me, depth - 1), None, None)


def relay(me: int, path: list[int], text: str) -> Any:
    """Call the next worker of a path; the last one raises."""
    if not path:
        raise ValueError(text)
    return WORLD[me].sync(path[0], relay, (path[0], path[1:], text), None, None)


def keep(me: int, rref: rpc.RRef[Any]) -> None:
    KEPT.setdefault(me, []).append(rref)


def given_back(value: Any) -> Any:
    return value


def given_back_at_gate(rref: rpc.RRef[Any]) -> rpc.RRef[Any]:
    GATE.wait(PATIENCE_SECONDS)
    return rref


KEPT: dict[int, list[rpc.RRef[Any]]] = {}
