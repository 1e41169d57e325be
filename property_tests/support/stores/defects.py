"""Shared by the tests of known defects: servers and classes of both makes, and the mark of the make with the defect.

Rule: one test makes a claim of ours and of torch's class alike. torch's is expected to fail it: a test that it passes
fails, since it either cannot tell, or torch has been repaired.
"""

from __future__ import annotations

import importlib
import time
from collections.abc import Callable, Iterator
from multiprocessing.connection import Connection
from typing import Any

import pytest

from ...adapters.torch_store.server import HOST, OurServer, OurServerAndClients, Server, TorchLegacyServer, TorchServer
from ...harness.stores.handles import Call

SOON_S = 0.5  # much more than an operation takes, much less than what a defect costs
OURS, TORCH = "trystate.store", "torch.distributed"


def expected(why: str, *also: type[BaseException]) -> pytest.MarkDecorator:
    """The claim is false: `why` says what happens instead, `also` what that may raise."""
    return pytest.mark.xfail(strict=True, raises=(AssertionError, *also), reason=why)


def defective(what: object, why: str, *also: type[BaseException]) -> Any:
    """A parameter for which the claim is false; see `expected`."""
    return pytest.param(what, marks=expected(why, *also), id=name(what))


def sound(what: object) -> Any:
    return pytest.param(what, id=name(what))


def name(what: object) -> str:
    return what.__name__ if isinstance(what, type) else str(what)


def made_by(library: str, kind: str) -> Any:
    """A class of a library, by its name."""
    return getattr(importlib.import_module(library), kind)


class Servers:
    """The servers of a module, each started when it is first asked for."""

    def __init__(self) -> None:
        self._running: dict[type[Server], Server] = {}

    def __call__(self, serve: type[Server]) -> Server:
        if serve not in self._running:
            self._running[serve] = serve()
        return self._running[serve]

    def afresh(self, serve: type[Server]) -> Server:
        """One that nobody has used; the one before it is ended."""
        self.close(serve)
        return self(serve)

    def close(self, *kinds: type[Server]) -> None:
        """End the servers of these kinds, or all."""
        for kind in kinds or tuple(self._running):
            if kind in self._running:
                self._running.pop(kind).close()


@pytest.fixture(scope="module")
def servers() -> Iterator[Servers]:
    found = Servers()
    yield found
    found.close()


class Timed:
    """How long a call took, and what it returned or raised; `Call` is the same on a thread of its own."""

    def __init__(self, call: Callable[[], object]) -> None:
        began = time.monotonic()
        self.result: object = None
        self.error: Exception | None = None
        try:
            self.result = call()
        except Exception as error:
            self.error = error
        self.seconds = time.monotonic() - began


__all__ = [
    "HOST", "OURS", "SOON_S", "TORCH", "Call", "Connection", "OurServer", "OurServerAndClients", "Server",
    "Servers", "Timed", "TorchLegacyServer", "TorchServer", "defective", "expected", "made_by", "name", "servers",
    "sound",
]  # fmt: skip
