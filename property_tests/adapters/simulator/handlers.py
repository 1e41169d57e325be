"""Runs of real handlers, ours and torch's, in the same worlds.

Rule: both have the same network, the same agent and the same faults; a seed decides all of it.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import replace
from functools import partial
from typing import Any

from trystate.impl.rendezvous.encoding import decode
from trystate.impl.rendezvous.handler import DynamicRendezvousHandler
from trystate.impl.rendezvous.options import Options
from trystate.impl.rendezvous.state import Settings, State
from trystate.impl.rendezvous.store_backend import StoreBackend
from trystate.model.errors import TrystateError

from .agents import CLOSE_SECONDS, READ_SECONDS, RUN_ID, Agent, Node, Side
from .outcomes import Outcomes
from .rooms import RoomClient, RoomServer
from .schedule import STOPS, Fault, Host, Schedule, draw
from .servers import Network
from .surroundings import virtual
from .swarm import Run, Subject, World, ended
from .torchs import TORCHS_SIDE

SETTLE_SECONDS = 60.0  # after the last fault: anything wrong then is a violation


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
    return f"{joined.round} of {joined.life}"


def _state(data: dict[str, bytes]) -> State | None:
    state = data.get(f"trystate/{RUN_ID}/state")
    return None if state is None else decode(state)


def _we_are_closed(data: dict[str, bytes]) -> bool:
    state = _state(data)
    return state is not None and state.closed is not None


def _leased(handler: DynamicRendezvousHandler, now: float) -> bool:
    return handler._part.core.lease.holds(now)


def _closed_by_member(data: dict[str, bytes]) -> bool:
    """Whether a member or an expected node has closed the rendezvous, or no restart was left; both may."""
    state = _state(data)
    if state is None or state.closed is None:
        return False
    if state.closed.verdict == "failed":
        return state.spent == state.settings.max_restarts
    return any(str(one.node) == state.closed.by for one in (*state.participants, *state.expected))


OUR_SIDE = Side("ours", _ours, _our_round, _leased, _we_are_closed, looks=0.0, closed_by_member=_closed_by_member)
ROOMS_SIDE = replace(OUR_SIDE, name="rooms", server=RoomServer, client=RoomClient)


# ---- runs


def whole(seed: int, nodes: int | None = None) -> Schedule:
    """The schedule of a seed without stops of an agent alone.

    torch's agents have no watchdog, so two groups would run with any handler. The heartbeat interval is doubled:
    torch's nodes read once a second, which is too slow for a shorter one.
    """
    return _changed(draw(seed, nodes), STOPS, lambda s: replace(s, keep_alive_interval=2 * s.keep_alive_interval))


def usual(seed: int, nodes: int | None = None) -> Schedule:
    """The schedule without lost stores and counted restarts, which torch's handler does not have."""
    return _changed(whole(seed, nodes), ("wipe",), lambda s: replace(s, max_restarts=-1))


def _changed(drawn: Schedule, without: tuple[str, ...], settings: Callable[[Settings], Settings]) -> Schedule:
    hosts = tuple(replace(h, settings=settings(h.settings)) for h in drawn.hosts)
    return replace(drawn, hosts=hosts, faults=tuple(f for f in drawn.faults if f.kind not in without))


class Handlers(World):
    """Handlers of a side in agents, and the endpoint that they share."""

    rest_seconds, settle_seconds, look_seconds = 1.0, SETTLE_SECONDS, 0.25

    def __init__(self, side: Side, schedule: Schedule) -> None:
        self.side = side
        super().__init__(schedule)

    def make(self) -> None:
        self.shared, network = self.side.server(self.time), Network(self.time)
        self.asked = self.shared.asked
        self.watch = self.outcomes = Outcomes(self.time, self.side, self.shared.data)
        endpoint = network.listen("endpoint", 29_400, self.shared)
        self.hosts = {
            host.number: Node(host, self.schedule, self.time, network, endpoint, self.side, self.outcomes)
            for host in self.schedule.hosts
        }

    def begin(self, fault: Fault) -> None:
        """A closed rendezvous is not wiped: the next one would be another job."""
        if fault.kind != "wipe" or not self.side.closed(self.shared.data):
            super().begin(fault)

    def end(self) -> None:
        for agent in self.outcomes.agents:
            agent.die()
        self.time.run(self.time.now)
        super().end()


OURS, ROOMS, TORCH = (
    Subject(partial(Handlers, side), side.name, draws, virtual)
    for side, draws in ((OUR_SIDE, whole), (ROOMS_SIDE, usual), (TORCHS_SIDE, usual))
)
SUBJECTS: Mapping[str, Subject] = {subject.name: subject for subject in (OURS, ROOMS, TORCH)}


def crowd(size: int, subject: Subject = OURS) -> Run:
    """`size` nodes that start at once, min = max = `size`, until the last one runs its workers.

    Raises TrystateError if they do not within `SETTLE_SECONDS`.
    """
    host = Host(0, 0.0, Settings(size, size), 0.0, 1.0, SETTLE_SECONDS, 0.0)
    schedule = Schedule(size, tuple(replace(host, number=number) for number in range(size)), ())
    with subject.inside():
        world: Any = subject.world(schedule)
        while sum(agent.workers for agent in world.outcomes.agents) < size:
            world.time.run(world.time.now + world.look_seconds / 10)
            if world.time.now > SETTLE_SECONDS:
                raise TrystateError(f"not all of {size} nodes run after {SETTLE_SECONDS:g} s of virtual time")
        return ended(world, subject)
