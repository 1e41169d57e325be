"""Compares our rendezvous with torch's: the same rounds, each handler on its own library's server, in turns.

    python benchmarks/rendezvous.py [--rounds N] [--quick] [--only PART]

torch's handler is its `DynamicRendezvousHandler` on the c10d backend, on torch's server; ours has our server. Each
server is a separate process. The nodes of a job are threads of eight processes, each with its own connection. A
measurement ends when the last node has returned. torch's nodes sleep most of the time. Our nodes wait for each other
and for a core: with dozens of nodes ours is slower here than on as many machines, and slower still if this machine is
busy. Every figure is measured on both within a moment, in alternating order. A ratio is torch's time over ours in the
same round, shown as its median and its range. The rank, world and master of each node that returns are compared with
the answers of the other nodes; a disagreement ends the run.

An operation is one request for the state: a compare-and-set that was won or lost, or a read. Our requests to the room
count as won. Requests that a connection sends once, and the exchange of members after the round, count only in the
times. `rooms.py` has larger numbers of nodes.
"""

from __future__ import annotations

import contextlib
import itertools
import math
import statistics
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
from common import LOOPBACK, Part, Sides, ask, cells, compare, in_turns, on_both, processes, show, spread
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


BACK_OFF_SECONDS = (0.0, 0.1, 0.3, 1.0)


# ---- rounds


def rounds(sides: Sides, times: int, sizes: tuple[int, ...]) -> None:
    """Measure the time of a first and a second round, and count their requests."""
    lines, operations = [], []
    with Crew(max(sizes)) as crew:
        in_turns(1, sides, two_rounds(crew, max(sizes)))  # imports and look-ups that happen once in a process
        for size in sizes:
            found = in_turns(times, sides, two_rounds(crew, size))
            line = [str(size)]
            for number, which in enumerate(("first", "second")):
                line += cells({name: [last(both[number].returned, size) for both in found[name]] for name in sides})
                asked = [[both[number].asked for both in found[name]] for name in sides]
                operations.append([f"{size}, {which}", *(cell for each in asked for cell in counted(each, size))])
            lines.append(line)
    heads = [f"{which}, {cell}" for which in ("first", "second") for cell in ("torch, ms", "ours, ms", "ratio")]
    show("Until the last of N returns, min = max = N: a first round, then a second one", ["N", *heads], lines)
    heads = [f"{name}: {cell}" for name in sides for cell in (WON, LOST, READ, "all / N log N")]
    show("Operations of all nodes together, medians (log to base 2)", ["N", *heads], operations)


def two_rounds(crew: Crew, size: int) -> Callable[[Side, int], tuple[Round, Round]]:
    def measure(side: Side, _: int) -> tuple[Round, Round]:
        with crew.job(side, size) as next_round:
            return next_round(), next_round()

    return measure


def counted(asked: list[Counter[str]], size: int) -> list[str]:
    """Medians of the writes won, the writes lost and the reads, and of their sum in units of N log N."""
    kinds = (f"{statistics.median(c[kind] for c in asked):g}" for kind in (WON, LOST, READ))
    return [*kinds, spread([c.total() / (size * math.log2(size)) for c in asked])]


# ---- torch's back-off


def back_offs(sides: Sides, times: int, sizes: tuple[int, ...]) -> None:
    """Measure a first round with `cas_backoff_max_seconds` of torch 2.15: the lost writes and the duration."""
    if not hasattr(torchs.RendezvousSettings, "cas_backoff_max_seconds"):
        print("\nback-off: needs torch 2.15")
        return
    lines = []
    with Crew(max(sizes)) as crew:
        for size in sizes:
            for most in BACK_OFF_SECONDS:
                found = []
                for _ in range(times):
                    with crew.job(sides["torch"], size, cas_backoff_max_seconds=most) as next_round:
                        found.append(next_round())
                lost = [float(one.asked[LOST]) for one in found]
                there = [sum(node.place is not None for node in one.returned) for one in found]
                took = [max(node.seconds for node in one.returned) for one in found]
                lines.append([str(size), f"{most:g}", spread(lost), spread(took), f"{statistics.median(there):g}"])
    title = f"Back-off after a lost write, a first round, min = max = N, torch gives up after {LIMIT_SECONDS} s"
    show(title, ["N", "at most, s", "lost writes", "seconds", "nodes that got a rank"], lines)


# ---- the parts


def sides_of(servers: Sides) -> Sides:
    return {name: Side(name, server.port) for name, server in servers.items()}


PARTS: dict[str, Part] = {
    "rounds": on_both(rounds, ((2, 3),), ((2, 4, 8, 16, 32, 64),), sides_of),
    "back-off": on_both(back_offs, ((2,),), ((16, 64),), sides_of),
}


if __name__ == "__main__":
    compare(__doc__, PARTS, 5)
