"""Runs of real handlers: ours, and torch's own as it is, in the same worlds.

Rule: both have the same network, the same agent and the same faults; a seed decides all of it.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field, replace
from functools import partial

from trystate.impl.rendezvous.encoding import decode
from trystate.impl.rendezvous.handler import DynamicRendezvousHandler
from trystate.impl.rendezvous.options import Options
from trystate.impl.rendezvous.state import Settings, State
from trystate.impl.rendezvous.store_backend import StoreBackend
from trystate.model.errors import TrystateError

from .agents import CLOSE_SECONDS, READ_SECONDS, RUN_ID, Agent, Node, Side
from .moments import Endless, Time
from .monitors import Event, Violation
from .outcomes import Outcomes
from .schedule import STOPS, Fault, Host, Schedule, draw
from .servers import Network, Server
from .surroundings import virtual
from .swarm import tidily
from .torchs import TORCH

LOOK_SECONDS = 0.25  # between two looks at whether there are two groups
REST_SECONDS = 1.0  # a run is over when nothing has been wrong for so long
SETTLE_SECONDS = 60.0  # after the last fault: whatever is wrong then is a violation
SHRINK_RUNS_MAX = 400


# ---- ours


def _ours(agent: Agent) -> DynamicRendezvousHandler:
    options = Options(
        RUN_ID, agent.settings, local_addr=agent.address, join_timeout=agent.node.host.join_seconds,
        close_timeout=CLOSE_SECONDS, read_timeout=READ_SECONDS, local_id=0,
    )  # fmt: skip
    return DynamicRendezvousHandler(options, StoreBackend(agent.connect(), RUN_ID))


def _our_round(handler: DynamicRendezvousHandler) -> object:
    joined = handler._part.joined
    assert joined is not None  # it has just returned
    return joined.state.round


def _state(data: dict[str, bytes]) -> State | None:
    state = data.get(f"trystate/{RUN_ID}/state")
    return None if state is None else decode(state)


def _we_are_closed(data: dict[str, bytes]) -> bool:
    state = _state(data)
    return state is not None and state.closed is not None


def _leased(handler: DynamicRendezvousHandler, now: float) -> bool:
    return handler._part.engine.lease.holds(now)


def _closed_by_member(data: dict[str, bytes]) -> bool:
    """Was the rendezvous closed by a member, or by one that is expected? Such a node may, as in the swarm of agents."""
    state = _state(data)
    if state is None or state.closed is None:
        return False
    return any(str(one.node) == state.closed.by for one in (*state.participants, *state.expected))


OURS = Side("ours", _ours, _our_round, _leased, _we_are_closed, looks=0.0, closed_by_member=_closed_by_member)
SIDES = {side.name: side for side in (OURS, TORCH)}


# ---- runs


def usual(seed: int, nodes: int | None = None) -> Schedule:
    """The schedule of a seed, without what torch's handler does not know: lost stores, counted restarts. Nor are agents
    stopped alone: torch's have no watchdog, and two groups make progress with any handler.

    Heartbeats are twice as far apart: torch looks once a second, and cannot count shorter ones.
    """
    drawn = draw(seed, nodes)
    hosts = (
        replace(
            h,
            work=math.inf,
            settings=replace(h.settings, max_restarts=-1, keep_alive_interval=2 * h.settings.keep_alive_interval),
        )
        for h in drawn.hosts
    )
    return replace(drawn, hosts=tuple(hosts), faults=tuple(f for f in drawn.faults if f.kind not in ("wipe", *STOPS)))


@dataclass(frozen=True, slots=True)
class Run:
    """The result of a schedule: nothing wrong, or the properties that do not hold. Seconds of virtual time."""

    side: Side
    schedule: Schedule
    violations: dict[str, Violation]  # in the order in which they were seen
    log: list[Event] = field(repr=False)
    seconds: float
    asked: dict[str, int] = field(repr=False)  # of the endpoint, by kind of request

    @property
    def violation(self) -> Violation | None:
        """The first one."""
        return next(iter(self.violations.values()), None)

    @property
    def fails(self) -> str:
        """The property that was violated first; empty: all hold."""
        return next(iter(self.violations), "")


class World:
    """The nodes of a schedule, the endpoint that they share, and who watches."""

    def __init__(self, schedule: Schedule, side: Side) -> None:
        self.schedule, self.side = schedule, side
        self.time = Time()
        self.server, network = Server(self.time), Network(self.time)
        self.outcomes = Outcomes(self.time, side, self.server.data)
        endpoint = network.listen("endpoint", 29_400, self.server)
        self.nodes = {
            host.number: Node(host, schedule, self.time, network, endpoint, side, self.outcomes)
            for host in schedule.hosts
        }
        for fault in schedule.faults:
            self.time.at(fault.at, partial(self.begin, fault))

    def begin(self, fault: Fault) -> None:
        self.outcomes.strikes(fault)
        if fault.kind == "outage":
            self.server.down_until = max(self.server.down_until, self.time.now + fault.seconds)
        else:
            self.nodes[fault.node].suffer(fault)

    def play(self, *, on: bool) -> None:
        """Until everything is at rest, or something is wrong; `on`: also then."""
        ends, rests = self.schedule.calm + SETTLE_SECONDS, 0.0
        while rests < REST_SECONDS and (on or not self.outcomes.violations):
            self.time.run(self.time.now + LOOK_SECONDS)
            self.outcomes.look()
            if self.side.closed(self.server.data):
                self.outcomes.closed()
            wrong = next(self.outcomes.unrest(), None)
            rests = 0.0 if wrong is not None or self.time.now < self.schedule.calm else rests + LOOK_SECONDS
            if wrong is not None and self.time.now > ends:
                return self.outcomes.demand(False, *wrong)

    def end(self) -> None:
        """Nobody is left."""
        for agent in self.outcomes.agents:
            agent.die()
        self.time.run(self.time.now)


def run(schedule: Schedule, side: Side = OURS, *, on: bool = False) -> Run:
    """Let a schedule happen, until the first violation; `on`: until it is at rest, or does not come to it."""
    with virtual():
        world = World(schedule, side)
        try:
            world.play(on=on)
        except Endless as found:
            world.outcomes.demand(False, "nobody_spins", str(found))
        seconds, log, violations = world.time.now, [*world.outcomes.log], {**world.outcomes.violations}
        world.end()
    return Run(side, schedule, violations, log, seconds, world.server.asked)


def shrink(failed: Run, name: str = "") -> Run:
    """The smallest schedule found that violates a property, the same one first: nodes and faults are dropped."""
    tries, on = 0, bool(name)
    smaller: Iterator[Schedule] = failed.schedule.smaller()
    while tries < SHRINK_RUNS_MAX and (schedule := next(smaller, None)) is not None:
        tries += 1
        again = run(schedule, failed.side, on=on)
        if name in again.violations or again.fails == (name or failed.fails):
            failed, smaller = again, again.schedule.smaller()
    return failed


def sweep(seeds: Iterable[int], side: Side = OURS, nodes: int | None = None, *, on: bool = False) -> Iterator[Run]:
    """The runs of these seeds."""
    return (run(usual(seed, nodes), side, on=on) for seed in tidily(seeds, 20))


def crowd(size: int) -> Run:
    """So many nodes that start at once, min = max = `size`, until the last one runs its workers.

    Raises TrystateError if they do not within `SETTLE_SECONDS`.
    """
    host = Host(0, 0.0, Settings(size, size), 0.0, 1.0, SETTLE_SECONDS, 0.0, deaf=False)
    schedule = Schedule(size, tuple(replace(host, number=number) for number in range(size)), ())
    with virtual():
        world = World(schedule, OURS)
        while sum(agent.workers for agent in world.outcomes.agents) < size:
            world.time.run(world.time.now + LOOK_SECONDS / 10)
            if world.time.now > SETTLE_SECONDS:
                raise TrystateError(f"not all of {size} nodes run after {SETTLE_SECONDS:g} s of virtual time")
        seconds, asked, outcomes = world.time.now, {**world.server.asked}, world.outcomes
        violations, log = {**outcomes.violations}, [*outcomes.log]
        world.end()
    return Run(OURS, schedule, violations, log, seconds, asked)
