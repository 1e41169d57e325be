"""The nodes of a rendezvous, on torch's side and on ours: threads of a few processes, which write down what they ask.

Rule: both are told the same, in torchrun's words, and whoever returns is compared with the others.
"""

from __future__ import annotations

import contextlib
import multiprocessing
import threading
import time
from abc import ABC, abstractmethod
from collections import Counter
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from datetime import timedelta
from multiprocessing.connection import Connection
from typing import Any

import torch.distributed as dist
from common import LOOPBACK
from torch.distributed.elastic.rendezvous import RendezvousHandler, RendezvousInfo, RendezvousParameters
from torch.distributed.elastic.rendezvous import dynamic_rendezvous as torchs
from torch.distributed.elastic.rendezvous.c10d_rendezvous_backend import C10dRendezvousBackend

from trystate.impl.rendezvous.backend import Backend
from trystate.impl.rendezvous.handler import DynamicRendezvousHandler
from trystate.impl.rendezvous.options import Options
from trystate.impl.rendezvous.store_backend import StoreBackend
from trystate.model.errors import TrystateError
from trystate.store import TCPStore

LIMIT_SECONDS = 30  # an event that has not happened by then is taken not to happen
POLL_SECONDS = 0.1  # between two looks of an agent
PROCESSES = 8  # that share the nodes of a job: one for each node would be right, and too many for one machine
START_SECONDS = 0.05  # in which all of them have heard when to begin
WON, LOST, READ, TOLD = "won", "lost", "read", "told"
Asked = list[str]  # WON and so on, in the order of time
Call = Callable[[], RendezvousInfo | None]


# ---- the two sides


class Side(ABC):
    """Makes handlers of one library, which write down what they ask their store."""

    def __init__(self, port: int) -> None:
        """`port`: of the library's server."""
        self.port, self._jobs = port, 0

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
            self.port,
            is_master=False,
            wait_for_workers=False,
            timeout=timedelta(seconds=LIMIT_SECONDS),
        )
        return torchs.create_handler(store, TorchBackend(C10dRendezvousBackend(store, params.run_id), asked), params)

    def kill(self, handler: Any) -> None:
        handler._stop_heartbeats()


class OurSide(Side):
    def handler(self, params: RendezvousParameters, asked: Asked) -> Any:
        store = TCPStore(LOOPBACK, self.port, timeout=timedelta(seconds=LIMIT_SECONDS))
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

    def notify(self, revision: int) -> None:
        self._asked.append(TOLD)
        self._backend.notify(revision)

    def clone(self) -> OurBackend:
        return OurBackend(self._backend.clone(), self._asked)


# ---- a job


@dataclass(frozen=True)
class Place:
    """Where a node is in a round."""

    rank: int
    world_size: int
    master: tuple[str, int]

    @classmethod
    def of(cls, info: RendezvousInfo) -> Place:
        store = info.bootstrap_store_info
        assert store is not None
        return cls(info.rank, info.world_size, (store.master_addr, store.master_port))


@dataclass(frozen=True)
class Returned:
    """The result of a thread, and its time after the beginning."""

    seconds: float
    place: Place | None


def together(calls: list[Call], begin: Callable[[], float] = time.perf_counter) -> list[Returned]:
    """All calls at once, a thread for each. A call that raised a rendezvous' or a store's error has no place.

    `begin` returns when it is time, and says which.
    """
    ready = threading.Barrier(len(calls) + 1)
    began = 0.0

    def one(call: Call) -> Returned:
        ready.wait()
        info = None
        with contextlib.suppress(torchs.RendezvousError, dist.DistError, TrystateError):
            info = call()
        return Returned(time.perf_counter() - began, None if info is None else Place.of(info))

    with ThreadPoolExecutor(len(calls)) as pool:
        waiting = [pool.submit(one, call) for call in calls]
        began = begin()
        ready.wait()
        return [each.result() for each in waiting]


class Job:
    """The nodes of one rendezvous that are in this process."""

    def __init__(self, side: Side, low: int, high: int, **config: float) -> None:
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

    def round(self, begin: Callable[[], float] = time.perf_counter) -> list[Returned]:
        """All nodes join at once."""
        return together([node.next_rendezvous for node in self.nodes], begin)


# ---- processes


class Crew:
    """Processes that share the nodes of a job, so that these do not wait for one interpreter's lock."""

    def __init__(self, size: int) -> None:
        spawn = multiprocessing.get_context("spawn")
        self._lines: list[Connection] = []
        for _ in range(min(PROCESSES, size)):
            line, orders = spawn.Pipe()
            spawn.Process(target=work, args=(orders,), daemon=True).start()
            orders.close()
            self._lines.append(line)

    def __enter__(self) -> Crew:
        return self

    def __exit__(self, *_: object) -> None:
        self._say(None)

    @contextlib.contextmanager
    def job(self, side: Side, size: int, low: int, high: int, **config: float) -> Iterator[Callable[[], Round]]:
        """The function to call for each round of a new job of `size` nodes."""
        used = self._lines[:size]
        for place, line in enumerate(used):
            line.send((side, len(range(place, size, len(used))), low, high, config))
        side.job()

        def round_() -> Round:
            self._say(True, used)
            self._heard(used)
            self._say(time.perf_counter() + START_SECONDS, used)
            heard = self._heard(used)
            returned = [one for there, _ in heard for one in there]
            return Round(returned, sum((asked for _, asked in heard), Counter[str]()))

        yield round_
        self._say(None, used)
        self._heard(used)

    def _say(self, word: object, lines: list[Connection] | None = None) -> None:
        for line in self._lines if lines is None else lines:
            line.send(word)

    def _heard(self, lines: list[Connection]) -> list[Any]:
        return [line.recv() for line in lines]


@dataclass(frozen=True)
class Round:
    """The nodes that returned, and the requests of all."""

    returned: list[Returned]
    asked: Counter[str]


def work(orders: Connection) -> None:
    """One process of a crew: its share of the nodes of one job after the other."""

    def begin() -> float:
        orders.send(True)
        at: float = orders.recv()  # perf_counter is one clock for all processes
        time.sleep(max(0.0, at - time.perf_counter()))
        return at

    while (order := orders.recv()) is not None:
        side, count, low, high, config = order
        with Job(side, low, high, **config) as job:
            job.add(count)
            while orders.recv():
                job.asked.clear()
                returned = job.round(begin)
                orders.send((returned, Counter(job.asked)))
        orders.send(True)


def rejoin(node: RendezvousHandler) -> RendezvousInfo | None:
    """An agent's loop: look now and then, and join the next round when there is reason to; None: there was none."""
    until = time.monotonic() + LIMIT_SECONDS
    while not node.num_nodes_waiting():
        if time.monotonic() > until:
            return None
        time.sleep(POLL_SECONDS)
    return node.next_rendezvous()


def agree(returned: list[Returned], size: int) -> None:
    """All have returned from one round of this size."""
    there = [one.place for one in returned if one.place is not None]
    assert len(there) == len(returned), f"{len(returned) - len(there)} of {len(returned)} nodes did not return"
    assert {place.world_size for place in there} == {size}, [place.world_size for place in there]
    assert len({place.rank for place in there}) == len(there) <= size, [place.rank for place in there]
    masters = {place.master for place in there}
    assert len(masters) == 1, masters
