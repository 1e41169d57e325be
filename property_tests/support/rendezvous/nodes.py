"""Nodes of one process, each in a thread of its own, on any store; every wait has its end.

Rule: a backend of these tests is made by name, so that each claim is asked of all stores.
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
from trystate.impl.rendezvous.engine import Joined
from trystate.impl.rendezvous.errors import RendezvousConnectionError
from trystate.impl.rendezvous.handler import DynamicRendezvousHandler
from trystate.impl.rendezvous.state import Node, Participant, Settings, State
from trystate.impl.rendezvous.store_backend import StoreBackend
from trystate.impl.rendezvous.torch_backend import TorchBackend
from trystate.store import FileStore, HashStore, PrefixStore, TCPStore, TCPStoreServer

TorchStores: Any = dist  # torch's stub knows none of them
SECONDS = 20.0
# A thread that a busy machine stops for a second has lost its lease.
QUICK: dict[str, Any] = {"last_call_timeout": 0.2, "keep_alive_interval": 0.4, "join_timeout": 10}

STORES = (
    "ours in memory", "ours in a file", "ours on a server", "ours below a prefix", "torch's in memory",
    "torch's in a file", "torch's on its server", "torch's on our server", "torch's below a prefix",
)  # fmt: skip
BACKENDS = (*STORES, "torch's backend")


@contextlib.contextmanager
def store(kind: str, folder: Path) -> Iterator[Any]:
    """A store of this kind; what it needs ends with it."""
    with contextlib.ExitStack() as stack:
        path = str(folder / "store")
        if kind in ("ours on a server", "torch's on our server"):
            server = stack.enter_context(TCPStoreServer())
            if kind.startswith("ours"):
                yield stack.enter_context(TCPStore("127.0.0.1", server.port))
            else:
                yield TorchStores.TCPStore("127.0.0.1", server.port, wait_for_workers=False)
        elif kind == "ours below a prefix":
            yield stack.enter_context(PrefixStore("p", stack.enter_context(HashStore())))
        elif kind.startswith("ours"):
            yield stack.enter_context(HashStore() if kind == "ours in memory" else FileStore(path, -1))
        elif kind == "torch's in memory":
            yield TorchStores.HashStore()
        elif kind == "torch's in a file":
            yield TorchStores.FileStore(path, -1)
        elif kind == "torch's on its server":
            yield TorchStores.TCPStore("127.0.0.1", 0, is_master=True, wait_for_workers=False)
        else:
            yield TorchStores.PrefixStore("p", TorchStores.HashStore())


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


def together(calls: Sequence[Callable[[], Any]], seconds: float = SECONDS) -> list[Any]:
    """The result of each call, or its exception; all run at once."""
    found: list[Any] = [TimeoutError(f"it did not return within {seconds:g} s")] * len(calls)

    def one(place: int) -> None:
        try:
            found[place] = calls[place]()
        except Exception as error:
            found[place] = error

    threads = [threading.Thread(target=one, args=(place,), daemon=True) for place in range(len(calls))]
    for thread in threads:
        thread.start()
    ends = time.monotonic() + seconds
    for thread in threads:
        thread.join(max(0.0, ends - time.monotonic()))
    return list(found)


class Meanwhile:
    """Calls that run at once beside the test; `join` gives the result of each, or its exception."""

    def __init__(self, *calls: Callable[[], Any]) -> None:
        self._got: list[Any] = []
        self._thread = threading.Thread(target=lambda: self._got.extend(together(calls)), daemon=True)
        self._thread.start()

    @property
    def running(self) -> bool:
        return self._thread.is_alive()

    def join(self) -> list[Any]:
        self._thread.join()  # `together` has a limit
        return self._got


def until(what: Callable[[], object], seconds: float = SECONDS) -> None:
    """Wait for something that the test demands."""
    ends = time.monotonic() + seconds
    while not what():
        assert time.monotonic() < ends, f"it did not happen within {seconds:g} s"
        time.sleep(0.005)


@contextlib.contextmanager
def handlers(count: int, made: Any, least: int, most: int, **config: Any) -> Iterator[list[DynamicRendezvousHandler]]:
    """Nodes on one store; they leave in the end."""
    with contextlib.ExitStack() as stack:
        yield [stack.enter_context(handler(made, least, most, **config)) for _ in range(count)]


def handler(made: Any, least: int, most: int, **config: Any) -> DynamicRendezvousHandler:
    return DynamicRendezvousHandler.from_store("job", made, least, most, "127.0.0.1", **{**QUICK, **config})


def agreed(infos: Sequence[Any], size: int) -> None:
    """Each of these nodes is a member of one and the same round."""
    assert [i for i in infos if isinstance(i, Exception)] == []
    assert sorted(i.rank for i in infos) == list(range(size))
    assert {i.world_size for i in infos} == {size}
    assert len({(i.bootstrap_store_info.master_addr, i.bootstrap_store_info.master_port) for i in infos}) == 1
    infos[0].store.set("hello", "from one")
    assert [i.store.get("hello") for i in infos] == [b"from one"] * size


SETTINGS = Settings(1, 2, last_call_timeout=0.1, keep_alive_interval=0.1)


def participant(name: str = "a") -> Participant:
    return Participant(Node(f"host-{name}", 1, 0, f"token-{name}"), "127.0.0.1", 1)


def state(**more: Any) -> State:
    return State("a life", SETTINGS, **more)


def joined(*names: str) -> Joined:
    members = tuple(participant(name) for name in names)
    return Joined(state(participants=members, complete=True), 0)


def end(port: int, how: str) -> None:
    """In a child: a node that is a member, and whose process ends, with or without having dropped its handler."""
    made = handler(TCPStore("127.0.0.1", port), 1, 2, keep_alive_interval=5)
    made.next_rendezvous()
    if how == "dropped":
        del made
    elif how == "raises":
        raise SystemExit(3)


class Broken:
    """A backend between a node and a real one, which fails, hangs or forgets when a test says so."""

    name = "trystate"

    def __init__(self, below: Backend, fault: Fault | None = None) -> None:
        self.below, self.fault = below, fault or Fault()

    def read(self) -> bytes | None:
        self.fault.strike()
        return self.below.read()

    def write(self, data: bytes, over: bytes | None) -> bytes | None:
        self.fault.strike()
        found = self.below.write(data, over)
        if self.fault.answers_lost > 0:
            self.fault.answers_lost -= 1
            raise RendezvousConnectionError("the answer was lost")
        return found

    def wait(self, revision: int, seconds: float) -> None:
        self.below.wait(revision, seconds)

    def notify(self, revision: int) -> None:
        self.below.notify(revision)

    def interrupt(self) -> None:
        self.below.interrupt()

    def resume(self) -> None:
        self.below.resume()

    def clone(self) -> Broken:
        return Broken(self.below.clone(), self.fault)

    def close(self) -> None:
        self.below.close()


class Fault:
    """A fault of a store, for all of its users at once."""

    def __init__(self) -> None:
        self.error: BaseException | None = None
        self.answers_lost = 0
        self.thawed = threading.Event()
        self.thawed.set()
        self.struck = 0

    def strike(self) -> None:
        self.struck += 1
        self.thawed.wait(SECONDS)
        if self.error is not None:
            raise self.error
