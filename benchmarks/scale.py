"""The costs of a job of N nodes without its rendezvous: the store of a round, and the state as observers read it.

    python benchmarks/scale.py [--quick] [--only PART] [--rounds N]

round: the members meet at the store of rank 0, exchange their numbers of workers with torch's function, and pass
torch's barrier. Rank 0 is a process, which counts what its server receives. A client sends one request at a time on a
connection, so the number of pieces that arrive is the number of requests. The other members are threads of eight
processes. The process of rank 0 measures its processor time.

late: as round, with one member that comes LATE_SECONDS after the others.

state: the processor time of an operation on the state of N nodes.
"""

from __future__ import annotations

import logging
import threading
import time
from collections import Counter
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from multiprocessing.connection import Connection
from timeit import timeit
from typing import Any

from common import LOOPBACK, Part, ask, compare, processes, seconds, show, spread
from torch.distributed.elastic.agent.server.api import SimpleElasticAgent, WorkerSpec
from torch.distributed.elastic.utils.store import barrier

from trystate.impl.agent.exchange import Exchange
from trystate.impl.rendezvous.bootstrap import Meeting, poll_seconds
from trystate.impl.rendezvous.document_part import summary
from trystate.impl.rendezvous.encoding import decode, encode
from trystate.impl.rendezvous.state import Node, Participant, Settings, State
from trystate.impl.store.server import driver
from trystate.monitor.rendezvous.shared_state import of_ours
from trystate.monitor.status import lines
from trystate.monitor.watch import Watch

LATE_SECONDS, LIMIT_SECONDS, PROCESSES = 5.0, 120.0, 8
SIZES, QUICK = (64, 256, 1_000, 2_000), (3,)


def state_of(size: int, port: int = 1) -> State:
    nodes = (Participant(Node(f"gpu{k}.rack{k % 40}", 4_711, 0, f"{k:016x}"), LOOPBACK, port) for k in range(size))
    return State("life", Settings(size, size), 7, "w", 1, True, participants=tuple(nodes))


# ---- a round


def act(meetings: dict[int, Meeting], stores: dict[int, Any], step: str, state: State, late: bool, rank: int) -> None:
    """The step of one member."""
    size = len(state.participants)
    if step == "meet":
        time.sleep(LATE_SECONDS * (late and rank == size - 1))
        info = meetings[rank].begin(summary(state, f"{rank:016x}"), lambda: True)
        stores[rank] = info and info.store
    elif step == "ranks":
        of_torch: Any = SimpleElasticAgent._assign_worker_ranks
        spec = WorkerSpec("trainer", 8, rdzv_handler=None, entrypoint="true")  # type: ignore[arg-type]
        worker = of_torch(None, Exchange(stores[rank], lambda: None, poll_seconds(size)), rank, size, spec)[0]
        assert (worker.global_rank, worker.world_size) == (8 * rank, 8 * size)
    else:
        barrier(stores[rank], size, "exit", LIMIT_SECONDS)


def work(line: Connection, ranks: range) -> None:
    """One process: its members do each step that is ordered; the counts of its server are returned."""
    counts, received = Counter[str](), driver.Connection.data_received

    def counted(connection: driver.Connection, data: bytes) -> None:
        counts.update(requests=1, bytes=len(data))
        received(connection, data)

    driver.Connection.data_received = counted  # type: ignore[method-assign]
    meetings = {rank: Meeting(LOOPBACK, LIMIT_SECONDS, LIMIT_SECONDS) for rank in ranks}
    ports = [meeting.promise() for meeting in meetings.values()]
    line.send(ports[0])
    threading.stack_size(1 << 18)
    with ThreadPoolExecutor(len(ranks)) as pool:
        do = partial(act, meetings, dict[int, Any]())
        while (order := line.recv()) is not None:
            list(pool.map(partial(do, *order), ranks) if order else ())
            line.send((counts["requests"], counts["bytes"], time.process_time()))


def steps(size: int, late: bool) -> dict[str, list[float]]:
    """For each step the requests and bytes a node, the processor's seconds of rank 0, and the seconds."""
    shares = (range(1), *(range(1 + k, size, PROCESSES) for k in range(min(PROCESSES, size - 1))))
    pipes, found = processes(work, [(ranks,) for ranks in shares]), {}
    port, *_ = [pipe.recv() for pipe in pipes]
    state = state_of(size, port)
    [before] = ask((), pipes[:1])
    for step in ("meet",) if late else ("meet", "ranks", "barrier"):
        took = seconds(partial(ask, (step, state, late), pipes))
        [after] = ask((), pipes[:1])
        requests, size_bytes, used = (b - a for a, b in zip(before, after, strict=True))
        found[step], before = [requests / size, size_bytes / size, used, took], after
    for pipe in pipes:
        pipe.send(None)
    return found


def rounds(times: int, sizes: tuple[int, ...], late: bool) -> None:
    rows = []
    for size in sizes:
        several = [steps(size, late) for _ in range(times)]
        for step in several[0]:
            figures = zip(*(one[step] for one in several), strict=True)
            rows.append([f"{size:,}", step, *(spread([*each]) for each in figures)])
    heads = ["N", "step", "requests a node", "bytes a node", "processor s of rank 0", "seconds"]
    show(f"A round{f', one member {LATE_SECONDS:g} s late' * late}", heads, rows)


# ---- the state


def states(times: int, sizes: tuple[int, ...]) -> None:
    rows = []
    for size in sizes:
        state, watch = state_of(size), Watch("job", "here:1")
        data, seen = encode(state), of_ours(state)
        watch.look(seen, 0.0)
        status: Any = watch.status()
        doing = (partial(encode, state), partial(decode, data), partial(of_ours, state), partial(watch.look, seen, 1.0),
                 lambda status=status: list(lines(status)))  # fmt: skip
        took = [spread([timeit(do, number=1, timer=time.thread_time) * 1e3 for _ in range(times)]) for do in doing]
        rows.append([f"{size:,}", f"{len(data):,}", *took])
    show("The state, ms", ["N", "bytes", "encode", "decode", "snapshot", "look of a watch", "lines of status"], rows)


PARTS: dict[str, Part] = {
    "state": lambda quick, times: states(times, QUICK if quick else SIZES),
    "round": lambda quick, times: rounds(times, QUICK if quick else SIZES, late=False),
    "late": lambda quick, times: rounds(times, QUICK if quick else SIZES, late=True),
}

if __name__ == "__main__":
    logging.disable(logging.WARNING)  # each member logs that it waits
    compare(__doc__, PARTS, 3)
