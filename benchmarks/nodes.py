"""The nodes of a rendezvous, on torch's side and on ours: threads of a few processes, which record their requests.

Rule: both get the same options, named as in torchrun, and the nodes that return are compared with each other.
"""

from __future__ import annotations

import contextlib
import itertools
import threading
import time
from collections import Counter
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from datetime import timedelta
from multiprocessing.connection import Connection
from typing import Any, NamedTuple

import torch.distributed as dist
from common import LOOPBACK, ask, processes
from torch.distributed.elastic.rendezvous import RendezvousHandler, RendezvousParameters
from torch.distributed.elastic.rendezvous import dynamic_rendezvous as torchs
from torch.distributed.elastic.rendezvous.c10d_rendezvous_backend import C10dRendezvousBackend

from trystate.impl.rendezvous.handler import DynamicRendezvousHandler
from trystate.impl.rendezvous.options import Options
from trystate.impl.rendezvous.store_backend import StoreBackend
from trystate.model.errors import TrystateError
from trystate.store import TCPStore

LIMIT_SECONDS = 30  # an event that has not happened by then is taken not to happen
PROCESSES = 8  # processes that share the nodes of a job: one for each node is too many for one machine
START_SECONDS = 0.05  # time until all of them have received the time to begin
WON, LOST, READ = "won", "lost", "read"
Asked = list[str]  # WON and so on, in the order of time
_jobs = itertools.count()


# ---- the two sides


@dataclass(frozen=True)
class Side:
    """A library, by its name in `SIDES`, and the port of its server."""

    name: str
    port: int


def torch_handler(port: int, params: RendezvousParameters, asked: Asked) -> Any:
    store = dist.TCPStore(  # type: ignore[attr-defined]
        LOOPBACK, port, is_master=False, wait_for_workers=False, timeout=timedelta(seconds=LIMIT_SECONDS)
    )
    backend = C10dRendezvousBackend(store, params.run_id)
    get, put = backend.get_state, backend.set_state

    def get_state() -> Any:
        asked.append(READ)
        return get()

    def set_state(state: bytes, token: Any = None) -> Any:
        found = put(state, token)
        asked.append(WON if found is not None and found[2] else LOST)
        return found

    backend.get_state, backend.set_state = get_state, set_state  # type: ignore[method-assign]
    return torchs.create_handler(store, backend, params)


def our_handler(port: int, params: RendezvousParameters, asked: Asked) -> Any:
    store = TCPStore(LOOPBACK, port, timeout=timedelta(seconds=LIMIT_SECONDS))
    handler = DynamicRendezvousHandler(Options.of(params), StoreBackend(store, params.run_id))
    member: Any = handler._part.core
    take = member.take

    def taken(now: float) -> bytes | None:
        data: bytes | None = take(now)
        asked.extend([WON] * (data is not None))
        return data

    member.take = taken
    return handler


# The function that makes a node's handler; the handler records its requests. The parameters are torchrun's for both.
SIDES: dict[str, Callable[[int, RendezvousParameters, Asked], Any]] = {"torch": torch_handler, "ours": our_handler}


# ---- a job


@dataclass(frozen=True)
class Returned:
    """The seconds until a node returned, and its place; None if it raised an error."""

    seconds: float
    place: Place | None


class Place(NamedTuple):
    """Where a node is in a round."""

    rank: int
    world_size: int
    master: tuple[str, int]


class Job:
    """The nodes of one rendezvous that are in this process, each with its connection."""

    def __init__(self, side: Side, run_id: str, size: int, count: int, **config: float) -> None:
        """`config` is --rdzv-conf."""
        self.asked = Asked()
        config = {"join_timeout": LIMIT_SECONDS, **config}
        params = RendezvousParameters("any", "", run_id, size, size, LOOPBACK, **config)
        self._nodes = [SIDES[side.name](side.port, params, self.asked) for _ in range(count)]

    def __enter__(self) -> Job:
        return self

    def __exit__(self, *_: object) -> None:
        for node in self._nodes:
            node.shutdown()

    def round(self, begin: Callable[[], float] = time.perf_counter) -> list[Returned]:
        """All nodes join at once, a thread for each.

        `begin` returns at the time to begin; its value is that time.
        """
        ready = threading.Barrier(len(self._nodes) + 1)
        began = 0.0

        def join(node: RendezvousHandler) -> Returned:
            ready.wait()
            place = None
            with contextlib.suppress(torchs.RendezvousError, dist.DistError, TrystateError):
                info = node.next_rendezvous()
                store = info.bootstrap_store_info
                assert store is not None
                place = Place(info.rank, info.world_size, (store.master_addr, store.master_port))
            return Returned(time.perf_counter() - began, place)

        with ThreadPoolExecutor(len(self._nodes)) as pool:
            waiting = [pool.submit(join, node) for node in self._nodes]
            began = begin()
            ready.wait()
            return [each.result() for each in waiting]


# ---- processes


class Crew:
    """Processes that share the nodes of a job: the nodes do not wait for one interpreter's lock."""

    def __init__(self, size: int) -> None:
        self._lines = processes(work, [()] * min(PROCESSES, size), "spawn")

    def __enter__(self) -> Crew:
        return self

    def __exit__(self, *_: object) -> None:
        for line in self._lines:
            line.send(None)

    @contextlib.contextmanager
    def job(self, side: Side, size: int, **config: float) -> Iterator[Callable[[], Round]]:
        """The function to call for each round of a new job of `size` nodes."""
        used = self._lines[:size]
        run_id = f"job{next(_jobs)}"
        for place, line in enumerate(used):
            line.send((side, run_id, size, len(range(place, size, len(used))), config))

        def round_() -> Round:
            ask(True, used)
            heard = ask(time.perf_counter() + START_SECONDS, used)
            returned = [one for there, _ in heard for one in there]
            return Round(returned, sum((asked for _, asked in heard), Counter[str]()))

        yield round_
        ask(None, used)


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
        side, run_id, size, count, config = order
        with Job(side, run_id, size, count, **config) as job:
            while orders.recv():
                job.asked.clear()
                returned = job.round(begin)
                orders.send((returned, Counter(job.asked)))
        orders.send(True)


def last(returned: list[Returned], size: int) -> float:
    """The milliseconds until the last node returned; all must have returned from one round of this size."""
    there = [one.place for one in returned if one.place is not None]
    assert len(there) == len(returned), f"{len(returned) - len(there)} of {len(returned)} nodes did not return"
    assert {place.world_size for place in there} == {size}, [place.world_size for place in there]
    assert len({place.rank for place in there}) == len(there) <= size, [place.rank for place in there]
    masters = {place.master for place in there}
    assert len(masters) == 1, masters
    return max(one.seconds for one in returned) * 1e3
