"""Nodes of one process, each in its own thread, on any store; every wait has a limit.

Rule: a store or backend is made by its name, so each claim is checked on all of them.
"""

from __future__ import annotations

import contextlib
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any

import torch.distributed as dist
from torch.distributed.elastic.rendezvous.c10d_rendezvous_backend import C10dRendezvousBackend

from trystate.impl.rendezvous.backend import Backend
from trystate.impl.rendezvous.handler import DynamicRendezvousHandler
from trystate.impl.rendezvous.store_backend import StoreBackend
from trystate.impl.rendezvous.torch_backend import TorchBackend
from trystate.store import HashStore, PrefixStore, TCPStore, TCPStoreServer

TorchStores: Any = dist  # torch's stub declares none of these classes
SECONDS = 20.0
# A thread that does not run for a second, on a busy machine, has lost its lease.
QUICK: dict[str, Any] = {"last_call_timeout": 0.2, "keep_alive_interval": 0.4, "join_timeout": 10}

Open = Callable[[contextlib.ExitStack, str], Any]


def _port(stack: contextlib.ExitStack) -> int:
    return stack.enter_context(TCPStoreServer()).port


STORES: dict[str, Open] = {  # makes a store, with a path; its resources end with the stack
    "ours in memory": lambda stack, path: stack.enter_context(HashStore()),
    "ours on a server": lambda stack, path: stack.enter_context(TCPStore("127.0.0.1", _port(stack))),
    "ours below a prefix": lambda stack, path: stack.enter_context(PrefixStore("p", stack.enter_context(HashStore()))),
    "torch's in memory": lambda stack, path: TorchStores.HashStore(),
    "torch's in a file": lambda stack, path: TorchStores.FileStore(path, -1),
    "torch's on its server": lambda stack, path: TorchStores.TCPStore("127.0.0.1", 0, is_master=True,
                                                                      wait_for_workers=False),
    "torch's on our server": lambda stack, path: TorchStores.TCPStore("127.0.0.1", _port(stack),
                                                                      wait_for_workers=False),
    "torch's below a prefix": lambda stack, path: TorchStores.PrefixStore("p", TorchStores.HashStore()),
}  # fmt: skip
BACKENDS = (*STORES, "torch's backend")


@contextlib.contextmanager
def store(kind: str, folder: Path) -> Iterator[Any]:
    """A store of this kind; its resources end with it."""
    with contextlib.ExitStack() as stack:
        yield STORES[kind](stack, str(folder / "store"))


@contextlib.contextmanager
def backend(kind: str, folder: Path) -> Iterator[Backend]:
    """A backend on a store of this kind, or one of torch's under our engine."""
    with store(kind if kind in STORES else "torch's in memory", folder) as made:
        found: Backend = (
            StoreBackend(made, "job") if kind in STORES else TorchBackend(C10dRendezvousBackend(made, "job"))
        )
        try:
            yield found
        finally:
            found.close()


class Meanwhile:
    """Calls that run at once in parallel to the test; `join` gives the result of each, or its exception."""

    def __init__(self, *calls: Callable[[], Any]) -> None:
        self._got: list[Any] = [TimeoutError(f"it did not return within {SECONDS:g} s")] * len(calls)
        self._ends = time.monotonic() + SECONDS
        self._threads = [threading.Thread(target=self._one, args=call, daemon=True) for call in enumerate(calls)]
        for thread in self._threads:
            thread.start()

    def _one(self, place: int, call: Callable[[], Any]) -> None:
        try:
            self._got[place] = call()
        except Exception as error:
            self._got[place] = error

    def join(self) -> list[Any]:
        for thread in self._threads:
            thread.join(max(0.0, self._ends - time.monotonic()))
        return list(self._got)


def together(calls: Sequence[Callable[[], Any]]) -> list[Any]:
    """The result of each call, or its exception; all run at once."""
    return Meanwhile(*calls).join()


def until(what: Callable[[], object], seconds: float = SECONDS) -> None:
    """Wait until this holds."""
    ends = time.monotonic() + seconds
    while not what():
        assert time.monotonic() < ends, f"it did not happen within {seconds:g} s"
        time.sleep(0.005)


@contextlib.contextmanager
def at_most(seconds: float) -> Iterator[None]:
    """Assert that the block takes less time."""
    began = time.monotonic()
    yield
    took = time.monotonic() - began
    assert took < seconds, f"it took {took:.2f} s"


@contextlib.contextmanager
def handlers(count: int, made: Any, least: int, most: int, **config: Any) -> Iterator[list[DynamicRendezvousHandler]]:
    """Nodes on one store; they leave in the end."""
    with contextlib.ExitStack() as stack:
        yield [stack.enter_context(handler(made, least, most, **config)) for _ in range(count)]


def handler(made: Any, least: int, most: int, **config: Any) -> DynamicRendezvousHandler:
    return DynamicRendezvousHandler.from_store("job", made, least, most, "127.0.0.1", **{**QUICK, **config})


def agreed(infos: Sequence[Any], size: int) -> None:
    """Assert that all these nodes are members of the same round."""
    assert [i for i in infos if isinstance(i, Exception)] == []
    assert sorted(i.rank for i in infos) == list(range(size))
    assert {i.world_size for i in infos} == {size}
    assert len({(i.bootstrap_store_info.master_addr, i.bootstrap_store_info.master_port) for i in infos}) == 1
    infos[0].store.set("hello", "from one")
    assert [i.store.get("hello") for i in infos] == [b"from one"] * size


def end(port: int, how: str) -> None:
    """A child's program: a member whose process ends with its handler, without it, or with an error."""
    made = handler(TCPStore("127.0.0.1", port), 1, 2, keep_alive_interval=5)
    made.next_rendezvous()
    if how == "dropped":
        del made
    elif how == "raises":
        raise SystemExit(3)
