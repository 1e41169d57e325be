"""Our rendezvous beside torch's: the same rounds, each handler on its own library's server, in turns.

    python benchmarks/rendezvous.py [--rounds N] [--quick] [--only PART]

torch's handler is its `DynamicRendezvousHandler` on the c10d backend, on torch's server; ours has our server. Both
servers are processes of their own. The nodes of a job are threads, each with a connection of its own: of eight
processes where many join at once, else of this one. A measurement ends when the last of them has returned. torch's
nodes sleep most of the time, ours wait for each other and for a core: at dozens of nodes ours is slower here than on as
many machines, and the more so the busier this one is. Every figure is measured on both within a moment, in alternating
order; a ratio is torch's time over ours in the same round, and is shown as its median and from where to where it went.
The rank, world and master of each node that returns are compared with the others'; a disagreement ends the run.

An operation is one request for the state: a compare-and-set that was won or lost, a read, or, of ours, the word to the
others that there is news. Requests that a connection sends once, and the meeting of members after the round, are in the
times alone.

torch's handler polls once a second, and looks at most once a second on behalf of `num_nodes_waiting`; as agents do, its
callers here ask that ten times a second. Its heartbeats and last calls are whole seconds, so that both get these.
"""

from __future__ import annotations

import argparse
import contextlib
import math
import os
import random
import statistics
import sys
import time
from collections import Counter
from collections.abc import Callable, Iterator
from typing import Any

from common import SERVERS, Sides, about, in_turns, ratio, show, spread
from nodes import (
    LIMIT_SECONDS,
    LOST,
    READ,
    SIDES,
    TOLD,
    WON,
    Crew,
    Job,
    Returned,
    Round,
    Side,
    agree,
    rejoin,
    together,
)
from torch.distributed.elastic.rendezvous import dynamic_rendezvous as torchs

from trystate.impl.rendezvous.engine import Effect, Engine, Sync
from trystate.impl.rendezvous.state import Node, Participant, Settings, State
from trystate.property_tests.adapters.simulator.moments import Task, Time
from trystate.property_tests.adapters.simulator.store import Line, Link, Store

LAST_CALL_SECONDS = 1
BACK_OFF_SECONDS = (0.0, 0.1, 0.3, 1.0)
INTERVAL_SECONDS = 1


# ---- rounds


def rounds(sides: Sides, times: int, sizes: tuple[int, ...]) -> None:
    """How long a first and a second round take, and what they ask."""
    lines, operations = [], []
    with Crew(max(sizes)) as crew:
        in_turns(1, sides, two_rounds(crew, max(sizes)))  # for imports and look-ups that happen once in a process
        for size in sizes:
            found = in_turns(times, sides, two_rounds(crew, size))
            line = [str(size)]
            for number, which in enumerate(("first", "second")):
                taken = {name: [last(both[number].returned, size) for both in found[name]] for name in sides}
                line += [*(spread(taken[name]) for name in sides), ratio(taken["torch"], taken["ours"])]
                asked = {name: [both[number].asked for both in found[name]] for name in sides}
                operations.append(
                    [f"{size}, {which}", *(cell for name in sides for cell in counted(asked[name], size))]
                )
            lines.append(line)
    heads = [f"{which}, {cell}" for which in ("first", "second") for cell in ("torch, ms", "ours, ms", "ratio")]
    show("Until the last of N returns, min = max = N: a first round, then a second one", ["N", *heads], lines)
    heads = [f"{name}: {cell}" for name in sides for cell in (WON, LOST, "read, told", "all / N log N")]
    show("Operations of all nodes together, medians (log to base 2)", ["N", *heads], operations)


def two_rounds(crew: Crew, size: int) -> Callable[[Side, int], tuple[Round, Round]]:
    def measure(side: Side, _: int) -> tuple[Round, Round]:
        with crew.job(side, size, size, size) as next_round:
            return next_round(), next_round()

    return measure


def counted(asked: list[Counter[str]], size: int) -> list[str]:
    """Medians: what was won, lost and read, and all of it in units of N log N."""
    won, lost, read, told = (statistics.median(c[kind] for c in asked) for kind in (WON, LOST, READ, TOLD))
    everything = [c.total() / (size * math.log2(size)) for c in asked]
    return [f"{won:g}", f"{lost:g}", f"{read:g}, {told:g}" if told else f"{read:g}", spread(everything)]


def last_calls(sides: Sides, times: int, sizes: tuple[int, ...]) -> None:
    title = "Until the last of N returns, min = N/2, max = N + 1, less the last call of 1 s"
    with Crew(max(sizes)) as crew:
        in_turns(1, sides, two_rounds(crew, max(sizes)))
        compare(title, sides, times, sizes, lambda size: last_call(crew, size))


def last_call(crew: Crew, size: int) -> Callable[[Side, int], float]:
    def measure(side: Side, _: int) -> float:
        with crew.job(side, size, max(1, size // 2), size + 1, last_call_timeout=LAST_CALL_SECONDS) as next_round:
            return last(next_round().returned, size) - LAST_CALL_SECONDS * 1e3

    return measure


def compare(
    title: str, sides: Sides, times: int, sizes: tuple[int, ...], part: Callable[[int], Callable[[Any, int], float]]
) -> None:
    """A table of one figure in milliseconds, for each size."""
    lines = []
    for size in sizes:
        found = in_turns(times, sides, part(size))
        lines.append([str(size), *(spread(found[name]) for name in sides), ratio(found["torch"], found["ours"])])
    show(title, ["N", *(f"{name}, ms" for name in sides), "ratio"], lines)


# ---- deaths and newcomers


@contextlib.contextmanager
def workers_bring_their_store() -> Iterator[None]:
    """Without this torch's rank 0 tells nobody who is new where it is: it did so once, in the round before."""
    os.environ["TORCH_DISABLE_SHARE_RDZV_TCP_STORE"] = "1"
    try:
        yield
    finally:
        del os.environ["TORCH_DISABLE_SHARE_RDZV_TCP_STORE"]


def last(returned: list[Returned], size: int) -> float:
    """Milliseconds until the last one was back in a round of `size`; infinite if not all of them ever were."""
    if any(one.place is None for one in returned):
        return math.inf
    agree(returned, size)
    return max(one.seconds for one in returned) * 1e3


def newcomer(size: int) -> Callable[[Side, int], float]:
    def measure(side: Side, _: int) -> float:
        with Job(side, size, size + 1, last_call_timeout=LAST_CALL_SECONDS) as job:
            members = job.add(size)
            agree(job.round(), size)
            (late,) = job.add(1)
            returned = together([late.next_rendezvous, *(lambda node=node: rejoin(node) for node in members)])
            return last(returned, size + 1)

    return measure


def newcomers(sides: Sides, times: int, sizes: tuple[int, ...], as_it_comes: tuple[int, ...]) -> None:
    """A node more than there were, and a free seat for it."""
    title = "From a newcomer's start until the last of N + 1 returns"
    with workers_bring_their_store():
        compare(f"{title}, TORCH_DISABLE_SHARE_RDZV_TCP_STORE=1", sides, times, sizes, newcomer)
    lines = [[str(size), *(once(newcomer(size), sides[name]) for name in sides)] for size in as_it_comes]
    if lines:
        show(f"{title}, as it comes, once", ["N", *(f"{name}, ms" for name in sides)], lines)


def once(measure: Callable[[Side, int], float], side: Side) -> str:
    found = measure(side, 0)
    return f"not within {LIMIT_SECONDS:g} s" if found == math.inf else spread([found])


def death(size: int, attempts: int, *, replaced: bool) -> Callable[[Side, int], float]:
    """The last of `size` nodes dies somewhere between two of its heartbeats; at once another one starts, or none."""

    def measure(side: Side, number: int) -> float:
        low, beats = (size if replaced else size - 1), {"keep_alive_interval": INTERVAL_SECONDS}
        with Job(side, low, size, keep_alive_max_attempt=attempts, **beats) as job:
            *survivors, victim = job.add(size)
            agree(job.round(), size)
            more = job.add(1) if replaced else []
            time.sleep(INTERVAL_SECONDS * (1 + random.Random(number).random()))
            side.kill(victim)
            returned = together([lambda node=node: rejoin(node) for node in survivors]
                                + [node.next_rendezvous for node in more])  # fmt: skip
            return last(returned, low)

    return measure


def deaths(sides: Sides, times: int, sizes: tuple[int, ...], attempts: int, alone: tuple[int, ...]) -> None:
    """Nothing is said; what the survivors have is that heartbeats are missing."""
    missed = f"{attempts} missed heartbeats of {INTERVAL_SECONDS} s"
    with workers_bring_their_store():
        title = f"From a death ({missed}) until all of N are back, another node having started at once"
        compare(title, sides, times, sizes, lambda size: death(size, attempts, replaced=True))
        lines = [
            [str(size), *(once(death(size, attempts, replaced=False), sides[name]) for name in sides)] for size in alone
        ]
        if lines:
            show(f"The same without another node: N - 1 survivors, once ({missed})",
                 ["N", *(f"{name}, ms" for name in sides)], lines)  # fmt: skip


# ---- torch's back-off


def back_offs(sides: Sides, times: int, sizes: tuple[int, ...]) -> None:
    """What `cas_backoff_max_seconds` of torch 2.15 does to a first round: writes lost, and how long it takes."""
    if not hasattr(torchs.RendezvousSettings, "cas_backoff_max_seconds"):
        print("\nback-off: needs torch 2.15")
        return
    lines = []
    with Crew(max(sizes)) as crew:
        for size in sizes:
            for most in BACK_OFF_SECONDS:
                found = [backed_off(crew, sides["torch"], size, most) for _ in range(times)]
                lost = [float(one.asked[LOST]) for one in found]
                there = [sum(node.place is not None for node in one.returned) for one in found]
                took = [max(node.seconds for node in one.returned) for one in found]
                lines.append([str(size), f"{most:g}", spread(lost), spread(took), f"{statistics.median(there):g}"])
    title = f"Back-off after a lost write, a first round, min = max = N, torch gives up after {LIMIT_SECONDS} s"
    show(title, ["N", "at most, s", "lost writes", "seconds", "nodes that got a rank"], lines)


def backed_off(crew: Crew, side: Side, size: int, most: float) -> Round:
    with crew.job(side, size, size, size, cas_backoff_max_seconds=most) as next_round:
        return next_round()


# ---- a thousand nodes


class Crowd:
    """Our engine on many simulated nodes, whose messages to the store take up to 4 ms each way."""

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
        self._link = Link(self.time, rng, deaf=False, prompt=False)

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
    """Too many for one machine: virtual time, one thread."""
    lines = []
    for size in sizes:
        crowd = Crowd(size)
        for which in ("first", "second"):
            taken = crowd.round()
            cells = counted([crowd.asked], size)
            lines.append([f"{size:,}, {which}", f"{taken * 1e3:.0f}", f"{crowd.asked.total():,}", *cells])
    heads = ["N", "virtual ms", "operations", WON, LOST, "read, told", "all / N log N"]
    show("Ours under simulation, min = max = N, up to 4 ms to the store and up to 4 ms back", heads, lines)


# ---- what is run


def on_both(part: Callable[..., None], quick: tuple[Any, ...], full: tuple[Any, ...]) -> Callable[[bool, int], None]:
    def run(is_quick: bool, times: int) -> None:
        with contextlib.ExitStack() as stack:
            servers = {name: stack.enter_context(start()) for name, start in SERVERS.items()}
            sides = {name: SIDES[name](server.port) for name, server in servers.items()}
            in_turns(1, sides, once_in_this_process)
            part(sides, times, *(quick if is_quick else full))

    return run


def once_in_this_process(side: Side, _: int) -> None:
    """One round, for imports and look-ups that happen once."""
    with Job(side, 2, 2) as job:
        job.add(2)
        job.round()


PARTS: dict[str, Callable[[bool, int], None]] = {
    "rounds": on_both(rounds, ((2, 3),), ((2, 4, 8, 16, 32, 64),)),
    "last-call": on_both(last_calls, ((2,),), ((2, 4, 8, 16, 32, 64),)),
    "newcomer": on_both(newcomers, ((2,), ()), ((2, 8, 32), (2,))),
    "death": on_both(deaths, ((2,), 3, ()), ((3, 8, 32), 3, (3,))),
    "back-off": on_both(back_offs, ((2,),), ((16, 64),)),
    "simulated": lambda quick, times: simulated((2, 16) if quick else (16, 64, 250, 1_000)),
}


def main() -> int:
    parser = argparse.ArgumentParser(description=(__doc__ or "").split("\n")[0])
    parser.add_argument("--rounds", type=int, default=5, help="measurements of each figure (default 5)")
    parser.add_argument("--quick", action="store_true", help="a few small measurements")
    parser.add_argument("--only", choices=PARTS, help="one part")
    args = parser.parse_args()
    print(f"{about()}; load {os.getloadavg()[0]:.1f}")
    for name, part in PARTS.items():
        if args.only in (None, name):
            part(args.quick, 1 if args.quick else max(1, args.rounds))
    return 0


if __name__ == "__main__":
    sys.exit(main())
