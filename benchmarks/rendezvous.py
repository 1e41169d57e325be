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

import math
import statistics
from collections import Counter
from collections.abc import Callable

from common import Part, Sides, cells, compare, in_turns, on_both, show, spread
from nodes import LIMIT_SECONDS, LOST, READ, WON, Crew, Round, Side, last
from torch.distributed.elastic.rendezvous import dynamic_rendezvous as torchs

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
