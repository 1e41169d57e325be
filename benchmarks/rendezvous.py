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

import itertools
import math
import statistics
import time
from collections import Counter
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from datetime import timedelta
from functools import partial
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
from trystate.store import TCPStore

LIMIT_SECONDS = 30  # an event that has not happened by then is taken not to happen
PROCESSES = 8  # processes that share the nodes of a job: one for each node is too many for one machine
START_SECONDS = 0.05  # time until all of them have received the time to begin
WON, LOST, READ = "won", "lost", "read"
Asked = list[str]  # WON and so on, in the order of time
_jobs = itertools.count()


# ---- the two sides


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


class Returned(NamedTuple):
    """The seconds until a node returned, and its place in the round."""

    seconds: float
    rank: int
    world_size: int
    master: tuple[str, int]


class Round(NamedTuple):
    """The nodes that returned, and the requests of all."""

    returned: list[Returned]
    asked: Counter[str]


def join(at: float, node: RendezvousHandler) -> Returned:
    """Join at a time of `perf_counter`, which is one clock for all processes."""
    time.sleep(max(0.0, at - time.perf_counter()))
    info = node.next_rendezvous()
    took, store = time.perf_counter() - at, info.bootstrap_store_info
    assert store is not None
    return Returned(took, info.rank, info.world_size, (store.master_addr, store.master_port))


def work(orders: Connection, place: int) -> None:
    """One process: its share of the nodes of one job after the other. The nodes join at once, each on a thread."""
    while (order := orders.recv()) is not None:
        name, port, run_id, size = order
        asked = Asked()
        params = RendezvousParameters("any", "", run_id, size, size, LOOPBACK, join_timeout=LIMIT_SECONDS)
        nodes = [SIDES[name](port, params, asked) for _ in range(place, size, PROCESSES)]
        orders.send(True)
        while (at := orders.recv()) is not None:
            asked.clear()
            with ThreadPoolExecutor(len(nodes)) as pool:
                returned = list(pool.map(partial(join, at), nodes))
            orders.send(Round(returned, Counter(asked)))
        for node in nodes:
            node.shutdown()
        orders.send(True)


def last(returned: list[Returned], size: int) -> float:
    """The milliseconds until the last node returned; all must have returned from one round of this size."""
    assert {one.world_size for one in returned} == {size}, [one.world_size for one in returned]
    assert len({one.rank for one in returned}) == len(returned) == size, [one.rank for one in returned]
    masters = {one.master for one in returned}
    assert len(masters) == 1, masters
    return max(one.seconds for one in returned) * 1e3


# ---- rounds


def rounds(servers: Sides, times: int, sizes: tuple[int, ...]) -> None:
    """Measure the time of a first and a second round, and count their requests."""
    lines, operations = [], []
    sides = {name: (name, server.port) for name, server in servers.items()}
    pipes = processes(work, [(place,) for place in range(min(PROCESSES, max(sizes)))], "spawn")
    in_turns(1, sides, two_rounds(pipes, max(sizes)))  # imports and look-ups that happen once in a process
    for size in sizes:
        found = in_turns(times, sides, two_rounds(pipes, size))
        line = [str(size)]
        for number, which in enumerate(("first", "second")):
            line += cells({name: [last(both[number].returned, size) for both in found[name]] for name in sides})
            asked = [[both[number].asked for both in found[name]] for name in sides]
            operations.append([f"{size}, {which}", *(cell for each in asked for cell in counted(each, size))])
        lines.append(line)
    for pipe in pipes:
        pipe.send(None)
    heads = [f"{which}, {cell}" for which in ("first", "second") for cell in ("torch, ms", "ours, ms", "ratio")]
    show("Until the last of N returns, min = max = N: a first round, then a second one", ["N", *heads], lines)
    heads = [f"{name}: {cell}" for name in sides for cell in (WON, LOST, READ, "all / N log N")]
    show("Operations of all nodes together, medians (log to base 2)", ["N", *heads], operations)


def two_rounds(pipes: list[Connection], size: int) -> Callable[[tuple[str, int], int], list[Round]]:
    """A function that makes a new job of a side, and has it join twice."""
    used = pipes[:size]

    def measure(side: tuple[str, int], _: int) -> list[Round]:
        ask((*side, f"job{next(_jobs)}", size), used)
        found = [together(ask(time.perf_counter() + START_SECONDS, used)) for _ in range(2)]
        ask(None, used)
        return found

    return measure


def together(shares: list[Round]) -> Round:
    """The round of all processes."""
    returned = [one for share in shares for one in share.returned]
    return Round(returned, sum((share.asked for share in shares), Counter[str]()))


def counted(asked: list[Counter[str]], size: int) -> list[str]:
    """Medians of the writes won, the writes lost and the reads, and of their sum in units of N log N."""
    kinds = (f"{statistics.median(c[kind] for c in asked):g}" for kind in (WON, LOST, READ))
    return [*kinds, spread([c.total() / (size * math.log2(size)) for c in asked])]


# ---- the parts


PARTS: dict[str, Part] = {
    "rounds": on_both(rounds, ((2, 3),), ((2, 4, 8, 16, 32, 64),)),
}


if __name__ == "__main__":
    compare(__doc__, PARTS, 5)
