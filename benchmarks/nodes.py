"""The nodes of a rendezvous, on torch's side and on ours: threads of one process, which write down what they ask.

Rule: both are told the same, in torchrun's words, and whoever returns is compared with the others.
"""

from __future__ import annotations

import contextlib
import threading
import time
from abc import ABC, abstractmethod
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from datetime import timedelta
from typing import Any

import torch.distributed as dist
from common import LOOPBACK
from torch.distributed.elastic.rendezvous import RendezvousHandler, RendezvousInfo, RendezvousParameters
from torch.distributed.elastic.rendezvous import dynamic_rendezvous as torchs
from torch.distributed.elastic.rendezvous.c10d_rendezvous_backend import C10dRendezvousBackend
from trystate.impl.rendezvous.backends import Backend
from trystate.impl.rendezvous.handler import DynamicRendezvousHandler
from trystate.impl.rendezvous.options import Options
from trystate.impl.rendezvous.store_backend import StoreBackend
from trystate.impl.store import TCPStore
from trystate.model.errors import TrystateError
from trystate.property_tests.torch_store.server import Server

LIMIT_SECONDS = 30  # what has not happened then is said not to have happened
POLL_SECONDS = 0.1  # between two looks of an agent
WON, LOST, READ, TOLD = "won", "lost", "read", "told"
Asked = list[str]  # WON and so on, in the order of time
Call = Callable[[], RendezvousInfo | None]


# ---- the two sides


class Side(ABC):
    """Makes handlers of one library, which write down what they ask their store."""

    def __init__(self, server: Server) -> None:
        self.server, self._jobs = server, 0

    def job(self) -> str:
        """A name for a rendezvous that there has not been."""
        self._jobs += 1
        return f"job{self._jobs}"

    @abstractmethod
    def handler(self, params: RendezvousParameters, asked: Asked) -> Any:
        """One node's handler; `params` are torchrun's, for both."""

    @abstractmethod
    def kill(self, handler: Any) -> None:
        """No heartbeat comes from this node any more, and nobody is told."""


class TorchSide(Side):
    def handler(self, params: RendezvousParameters, asked: Asked) -> Any:
        store = dist.TCPStore(  # type: ignore[attr-defined]
            LOOPBACK,
            self.server.port,
            is_master=False,
            wait_for_workers=False,
            timeout=timedelta(seconds=LIMIT_SECONDS),
        )
        return torchs.create_handler(store, TorchBackend(C10dRendezvousBackend(store, params.run_id), asked), params)

    def kill(self, handler: Any) -> None:
        handler._stop_heartbeats()


class OurSide(Side):
    def handler(self, params: RendezvousParameters, asked: Asked) -> Any:
        store = TCPStore(LOOPBACK, self.server.port, timeout=timedelta(seconds=LIMIT_SECONDS))
        backend = OurBackend(StoreBackend(store, params.run_id), asked)
        return DynamicRendezvousHandler(Options.of(params), backend)

    def kill(self, handler: Any) -> None:
        handler._part.stop()


SIDES: dict[str, type[Side]] = {"torch": TorchSide, "ours": OurSide}


class TorchBackend(torchs.RendezvousBackend):
    """One of torch's, and a record of what it is asked."""

    def __init__(self, backend: torchs.RendezvousBackend, asked: Asked) -> None:
        self._backend, self._asked = backend, asked

    @property
    def name(self) -> str:
        return self._backend.name

    def get_state(self) -> Any:
        self._asked.append(READ)
        return self._backend.get_state()

    def set_state(self, state: bytes, token: Any = None) -> Any:
        found = self._backend.set_state(state, token)
        self._asked.append(WON if found is not None and found[2] else LOST)
        return found


class OurBackend:
    """One of ours, and a record of what it is asked."""

    def __init__(self, backend: Backend, asked: Asked) -> None:
        self.name, self._backend, self._asked = backend.name, backend, asked
        self.wait, self.interrupt, self.resume = backend.wait, backend.interrupt, backend.resume
        self.close = backend.close

    def read(self) -> bytes | None:
        self._asked.append(READ)
        return self._backend.read()

    def write(self, data: bytes, over: bytes | None) -> bytes | None:
        found = self._backend.write(data, over)
        self._asked.append(WON if found == data else LOST)
        return found

    def tell(self, news: int) -> None:
        self._asked.append(TOLD)
        self._backend.tell(news)

    def clone(self) -> OurBackend:
        return OurBackend(self._backend.clone(), self._asked)


# ---- a job


@dataclass(frozen=True)
class Returned:
    """What a thread came back with, and how long after the beginning."""

    seconds: float
    info: RendezvousInfo | None


def together(calls: list[Call]) -> list[Returned]:
    """Everything at once, each in a thread of its own. What raised a rendezvous' or a store's error has no info."""
    ready = threading.Barrier(len(calls) + 1)
    began = 0.0

    def one(call: Call) -> Returned:
        ready.wait()
        info = None
        with contextlib.suppress(torchs.RendezvousError, dist.DistError, TrystateError):
            info = call()
        return Returned(time.perf_counter() - began, info)

    with ThreadPoolExecutor(len(calls)) as pool:
        waiting = [pool.submit(one, call) for call in calls]
        began = time.perf_counter()
        ready.wait()
        return [each.result() for each in waiting]


class Job:
    """The nodes of one rendezvous."""

    def __init__(self, side: Side, low: int, high: int, **config: int) -> None:
        """`config` is --rdzv-conf."""
        self.asked = Asked()
        self.nodes: list[Any] = []
        self._side, self._run_id, self._size = side, side.job(), (low, high)
        self._config = {"join_timeout": LIMIT_SECONDS, **config}

    def __enter__(self) -> Job:
        return self

    def __exit__(self, *_: object) -> None:
        for node in self.nodes:
            node.shutdown()

    def add(self, count: int) -> list[Any]:
        """More nodes, which have their connections, and do nothing yet."""
        low, high = self._size
        params = RendezvousParameters("any", "", self._run_id, low, high, LOOPBACK, **self._config)
        more = [self._side.handler(params, self.asked) for _ in range(count)]
        self.nodes += more
        return more

    def round(self) -> float:
        """All nodes join at once; seconds until the last has returned."""
        returned = together([node.next_rendezvous for node in self.nodes])
        agree([one.info for one in returned], len(self.nodes))
        return max(one.seconds for one in returned)


def rejoin(node: RendezvousHandler) -> RendezvousInfo | None:
    """What an agent does: look now and then, and join the next round when there is reason to; None: there was none."""
    until = time.monotonic() + LIMIT_SECONDS
    while not node.num_nodes_waiting():
        if time.monotonic() > until:
            return None
        time.sleep(POLL_SECONDS)
    return node.next_rendezvous()


def agree(infos: list[RendezvousInfo | None], size: int) -> None:
    """All have returned from one round of this size."""
    there = [info for info in infos if info is not None]
    assert len(there) == len(infos), f"{len(infos) - len(there)} of {len(infos)} nodes did not return"
    assert {info.world_size for info in there} == {size}, [info.world_size for info in there]
    assert len({info.rank for info in there}) == len(there) <= size, [info.rank for info in there]
    masters = {(i.bootstrap_store_info.master_addr, i.bootstrap_store_info.master_port) for i in there}
    assert len(masters) == 1, masters
