"""The schedule of a run: the start, settings and clock of each host, and every fault. Drawn from one seed.

Rule: a schedule is plain data. Without one of its faults it is a schedule too: so a failing run is shrunk.
"""

from __future__ import annotations

import math
import random
from collections.abc import Iterator
from dataclasses import dataclass, replace

from trystate.impl.rendezvous.state import Settings

DRIFT_MAX = 0.01  # how much faster or slower than true time a monotonic clock may run
FAULT_SECONDS = 14.0  # faults begin before this moment
KINDS = (
    "crash", "stall", "stall_in_write", "cut", "outage", "wipe", "loss", "slow", "worker_failure", "success", "leave",
)  # fmt: skip
WEIGHTS = (8, 6, 4, 8, 4, 2, 8, 6, 12, 2, 4)
RANK_KEYS = ("", "rack2", "rack10")
STOPS = ("stop", "stop_in_write")  # faults of an agent alone: its workers continue
OF_THE_STORE = ("outage", "wipe", "pause")  # a wipe loses its contents
LASTING = ("stall", "stall_in_write", "cut", "outage", "loss", "slow")
SHORT_SECONDS = 1.0  # a run whose hosts start and whose faults begin by then is not made shorter
NO_RETURN = 1e9  # a crashed node that is not started again


@dataclass(frozen=True, slots=True)
class Fault:
    """A fault of a node or of the store, which lasts `seconds`; a crashed node is started again after them."""

    at: float
    kind: str
    node: int
    seconds: float = 0.0

    def __str__(self) -> str:
        who = "the store" if self.kind in OF_THE_STORE else f"node {self.node}"
        span = "; started again after" if self.kind == "crash" else " for"
        lasts = f"{span} {self.seconds:.2f} s" if 0 < self.seconds < NO_RETURN else ""
        return f"{self.at:7.3f} {who}: {self.kind.replace('_', ' ')}{lasts}"


@dataclass(frozen=True, slots=True)
class Host:
    """One node; times in seconds."""

    number: int
    start: float
    settings: Settings
    clock: float  # its monotonic clock at the beginning of the run
    rate: float
    join_seconds: float
    stop_seconds: float  # longest time to stop the workers
    work: float = math.inf  # how long its workers run in a round until they succeed
    rank_key: str = ""
    check_seconds: float = 0.0  # longest time of its health command, before each round but the first; 0: no command

    def __str__(self) -> str:
        s = self.settings
        restarts = f", max restarts {s.max_restarts}" if s.max_restarts >= 0 else ""
        work = f", works for {self.work:.1f} s" if self.work < math.inf else ""
        return (
            f"{self.start:7.3f} node {self.number} starts: {s.min_nodes}:{s.max_nodes}{restarts}, join timeout "
            f"{self.join_seconds:g} s, clock {self.clock:.0f} x {self.rate:.4f}{work}"
            f"{f', rank key {self.rank_key}' if self.rank_key else ''}"
            f"{f', checked for {self.check_seconds:.1f} s' if self.check_seconds else ''}"
        )


@dataclass(frozen=True, slots=True)
class Schedule:
    seed: int
    hosts: tuple[Host, ...]
    faults: tuple[Fault, ...]
    tied: bool = False  # workers fail when other workers of their group stop early

    @property
    def calm(self) -> float:
        """The end of the last fault."""
        ends = (f.at + (f.seconds if f.seconds < NO_RETURN else 0.0) for f in self.faults)
        return max((*ends, *(h.start for h in self.hosts)), default=0.0)

    def lines(self) -> Iterator[str]:
        """The schedule in words, in the order in which it happens."""
        yield from sorted([*map(str, self.hosts), *map(str, self.faults)])

    def smaller(self) -> Iterator[Schedule]:
        """The same with one node less, one fault less, untied workers, in half the time, or a node without options."""
        for host in self.hosts:
            left = tuple(h for h in self.hosts if h is not host)
            yield replace(self, hosts=left, faults=tuple(f for f in self.faults if f.node != host.number))
        for fault in self.faults:
            yield replace(self, faults=tuple(f for f in self.faults if f is not fault))
        if self.tied:
            yield replace(self, tied=False)
        if max([h.start for h in self.hosts] + [f.at for f in self.faults], default=0.0) > SHORT_SECONDS:
            yield replace(
                self, hosts=tuple(replace(h, start=h.start / 2) for h in self.hosts),
                faults=tuple(replace(f, at=f.at / 2) for f in self.faults),
            )  # fmt: skip
        for host in self.hosts:
            plain = replace(host, clock=0.0, rate=1.0, rank_key="", check_seconds=0.0)
            if plain != host:
                yield replace(self, hosts=tuple(plain if h is host else h for h in self.hosts))


def draw(seed: int, nodes: int | None = None) -> Schedule:
    """The schedule of a seed, with 3 to 9 nodes unless a number is given."""
    rng = random.Random(seed)
    count = rng.randint(3, 9)
    count = count if nodes is None else nodes
    high = rng.randint(max(2, count - 3), count + 1)
    low = rng.randint(1, min(high, count // 2 + 1))
    settings = Settings(
        low, high, last_call_timeout=rng.uniform(0.0, 2.0), rescale_timeout=rng.choice((0.0, rng.uniform(0.0, 1.0))),
        keep_alive_interval=1.0,
        keep_alive_max_attempt=rng.randint(2, 4), max_restarts=rng.choice((-1, -1, -1, -1, 0, 1, 2, 3)),
    )  # fmt: skip
    interval = random.Random(f"{seed} interval")
    settings = replace(settings, scale_up_interval=interval.choice((*[0.0] * 5, interval.uniform(0.0, 8.0))))
    work = rng.uniform(1.0, 2 * FAULT_SECONDS) if rng.random() < 0.3 else math.inf
    hosts = _with_options(tuple(_host(rng, number, settings, work) for number in range(count)), seed)
    faults = [_fault(rng, count) for _ in range(rng.randint(0, 2 * count))]
    tied, apart = rng.random() < 0.5, random.Random(f"{seed} stops")
    faults += [_stop(apart, count) for _ in range(apart.randint(0, 2))]
    return Schedule(seed, hosts, tuple(sorted(faults, key=lambda f: f.at)), tied=tied)


def _with_options(hosts: tuple[Host, ...], seed: int) -> tuple[Host, ...]:
    apart = random.Random(f"{seed} options")
    keys = RANK_KEYS if apart.random() < 0.5 else ("",)
    most = apart.uniform(0.0, 3.0) if apart.random() > 0.7 else 0.0
    return tuple(replace(host, rank_key=apart.choice(keys), check_seconds=apart.choice((0.0, most))) for host in hosts)


def _host(rng: random.Random, number: int, settings: Settings, work: float) -> Host:
    start = rng.uniform(0.0, 0.2) if number == 0 or rng.random() < 0.5 else rng.uniform(0.2, FAULT_SECONDS)
    if start > 0.1 and rng.random() < 0.1:
        low = settings.min_nodes + 1
        settings = rng.choice((
            replace(settings, min_nodes=low, max_nodes=max(settings.max_nodes, low)),
            replace(settings, keep_alive_max_attempt=settings.keep_alive_max_attempt + 1),
            replace(settings, keep_alive_interval=0.2),
        ))  # fmt: skip
    host = Host(
        number, start, settings, clock=rng.uniform(0.0, 1e6), rate=1.0 + rng.uniform(-DRIFT_MAX, DRIFT_MAX),
        join_seconds=rng.uniform(1.0, 10.0) if rng.random() < 0.1 else 1_000.0,
        stop_seconds=rng.choice((0.1, 1.0, 6.0)),
    )  # fmt: skip
    rng.random()  # drawn for nothing: with one draw less, each seed would have another schedule
    return replace(host, work=work * rng.uniform(0.9, 1.1))


def _fault(rng: random.Random, nodes: int) -> Fault:
    (kind,) = rng.choices(KINDS, WEIGHTS)
    seconds = 0.0
    if kind in LASTING:
        seconds = rng.choice((rng.uniform(0.0, 1.0), rng.uniform(0.0, 6.0)))
    elif kind == "crash":
        seconds = rng.uniform(0.0, 4.0) if rng.random() < 0.6 else NO_RETURN
    return Fault(rng.uniform(0.0, FAULT_SECONDS), kind, -1 if kind in OF_THE_STORE else rng.randrange(nodes), seconds)


def _stop(rng: random.Random, nodes: int) -> Fault:
    seconds = rng.choice((rng.uniform(0.0, 1.0), rng.uniform(0.0, 6.0)))
    return Fault(rng.uniform(0.0, FAULT_SECONDS), rng.choice(STOPS), rng.randrange(nodes), seconds)
