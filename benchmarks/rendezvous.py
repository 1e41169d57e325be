"""Compares our rendezvous with torch's: the same rounds, each handler on its own library's server, in turns.

    python benchmarks/rendezvous.py [--rounds N] [--quick] [--only PART]

torch's handler is its `DynamicRendezvousHandler` on the c10d backend, on torch's server; ours has our server. Each
server is a separate process. The nodes of a job are threads of eight processes, each with its own connection. A
measurement ends when the last node has returned. torch's nodes sleep most of the time. Our nodes wait for each other
and for a core: with dozens of nodes ours is slower here than on as many machines, and slower still if this machine is
busy. Every figure is measured on both within a moment, in alternating order. A ratio is torch's time over ours in the
same round, shown as its median and its range. The rank, world and master of each node that returns are compared with
the answers of the other nodes; a disagreement ends the run.

An operation is one request for the state: a compare-and-set that was won or lost, a read, or, with ours, the notice to
the others of a new revision. Requests that a connection sends once, and the exchange of members after the round, count
only in the times.
"""

from __future__ import annotations

import math
import random
import statistics
import sys
from collections import Counter
from collections.abc import Callable

from common import Part, Sides, cells, in_turns, on_both, options, run, show, spread
from nodes import LIMIT_SECONDS, LOST, READ, TOLD, WON, Crew, Round, Side, last
from torch.distributed.elastic.rendezvous import dynamic_rendezvous as torchs

from trystate.impl.rendezvous.engine import Effect, Engine, Sync
from trystate.impl.rendezvous.state import Node, Participant, Settings, State
from trystate.property_tests.adapters.simulator.moments import Task, Time
from trystate.property_tests.adapters.simulator.store import Line, Link, Store

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
    heads = [f"{name}: {cell}" for name in sides for cell in (WON, LOST, "read, told", "all / N log N")]
    show("Operations of all nodes together, medians (log to base 2)", ["N", *heads], operations)


def two_rounds(crew: Crew, size: int) -> Callable[[Side, int], tuple[Round, Round]]:
    def measure(side: Side, _: int) -> tuple[Round, Round]:
        with crew.job(side, size) as next_round:
            return next_round(), next_round()

    return measure


def counted(asked: list[Counter[str]], size: int) -> list[str]:
    """Medians of the writes won, the writes lost and the reads, and of their sum in units of N log N."""
    won, lost, read, told = (statistics.median(c[kind] for c in asked) for kind in (WON, LOST, READ, TOLD))
    everything = [c.total() / (size * math.log2(size)) for c in asked]
    return [f"{won:g}", f"{lost:g}", f"{read:g}, {told:g}" if told else f"{read:g}", spread(everything)]


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


# ---- a thousand nodes


class Crowd:
    """Our engine on many simulated nodes; a message to or from the store takes up to 4 ms."""

    def __init__(self, size: int) -> None:
        self.time, self.asked = Time(), Counter[str]()
        self._store = Store(self.time, self._wrote)
        rng = random.Random(size)
        settings = Settings(size, size)
        self._engines = [
            Engine(
                Participant(Node(f"node{i}", 1, 0, f"t{i}"), f"host{i}", 29_000), settings, draw=rng.random, life="x"
            )
            for i in range(size)
        ]
        self._link = Link(self.time, rng, deaf=False)

    def _wrote(self, before: State | None, after: State, _: str) -> None:
        self.asked[TOLD] += before is not None and after.revision > before.revision

    def round(self) -> float:
        """All join at once; virtual seconds until the last has returned."""
        began, ends, ranks = self.time.now, [0.0], list[int]()

        def join(engine: Engine) -> None:
            line = Line(self._store, self._link, lambda: self.time.now, 1.0, engine.token)
            steps = engine.join(LIMIT_SECONDS)
            effect: Effect = next(steps)
            try:
                while True:
                    seen = line.perform(effect)
                    self.asked[READ if isinstance(effect, Sync) else WON if seen.won else LOST] += 1
                    effect = steps.send(seen)
            except StopIteration as returned:
                ranks.append(returned.value.rank)
                ends.append(self.time.now)

        self.asked.clear()
        for engine in self._engines:
            Task(self.time, lambda: 0.0, lambda engine=engine: join(engine))  # type: ignore[misc]
        while len(ranks) < len(self._engines) and self.time.now < began + LIMIT_SECONDS:
            self.time.run(self.time.now + 0.01)
        assert sorted(ranks) == list(range(len(self._engines))), f"{len(ranks)} of {len(self._engines)} have returned"
        return max(ends) - began


def simulated(sizes: tuple[int, ...]) -> None:
    """Measure numbers of nodes that are too large for one machine: in virtual time, on one thread."""
    lines = []
    for size in sizes:
        crowd = Crowd(size)
        for which in ("first", "second"):
            taken = crowd.round()
            cells = counted([crowd.asked], size)
            lines.append([f"{size:,}, {which}", f"{taken * 1e3:.0f}", f"{crowd.asked.total():,}", *cells])
    heads = ["N", "virtual ms", "operations", WON, LOST, "read, told", "all / N log N"]
    show("Ours under simulation, min = max = N, up to 4 ms to the store and up to 4 ms back", heads, lines)


# ---- the parts


def sides_of(servers: Sides) -> Sides:
    return {name: Side(name, server.port) for name, server in servers.items()}


PARTS: dict[str, Part] = {
    "rounds": on_both(rounds, ((2, 3),), ((2, 4, 8, 16, 32, 64),), sides_of),
    "back-off": on_both(back_offs, ((2,),), ((16, 64),), sides_of),
    "simulated": lambda quick, times: simulated((2, 16) if quick else (16, 64, 250, 1_000)),
}


def main() -> int:
    run(options(__doc__, PARTS, 5).parse_args(), PARTS, 1)
    return 0


if __name__ == "__main__":
    sys.exit(main())
