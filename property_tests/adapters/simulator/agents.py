"""A simulated node with a real handler: torch's agent around it, on a host that faults happen to.

Rule: the agent is torch's loop: join, run, ask ten times a second how many wait, restart, and shut down however it
ends, unless by a signal. It kills its workers and counts no restarts, so that what a run shows is the handler's doing.
"""

from __future__ import annotations

import random
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Protocol

from torch.distributed.elastic.rendezvous import RendezvousHandler

from trystate.impl.rendezvous.state import Settings
from trystate.model.rendezvous.vocabulary import AgentPhase

from .moments import Signal, Time
from .nodes import KILL_SECONDS, LEAVE_SECONDS, START_SECONDS
from .schedule import NO_RETURN, Fault, Host, Schedule
from .servers import Address, Client, Network
from .store import SLOW_SECONDS, Link
from .threads import Process

MONITOR_SECONDS = 0.1  # torchrun's
READ_SECONDS = 20.0  # a client's wait for its store: torch's default of a minute only makes runs longer
CLOSE_SECONDS = 5.0
RUN_ID = "simulated"
DONE = ("job_end", "success")  # steps of workers that have nothing left to do


@dataclass(frozen=True, slots=True)
class Returned:
    """The result of next_rendezvous for an agent. `round` names the round, as the handler does."""

    round: object
    rank: int
    world: int
    master: Address


@dataclass(frozen=True, slots=True)
class Side:
    """A handler, and how to look at what it does not show: for which round it returned, and the shared state."""

    name: str
    make: Callable[[Agent], RendezvousHandler]
    round: Callable[[Any], object]
    leased: Callable[[Any, float], bool]  # at this moment of its clock the node may take itself for a member
    closed: Callable[[dict[str, bytes]], bool]
    looks: float  # seconds after which its agents know at the latest what is known to it
    closed_by_member: Callable[[dict[str, bytes]], bool] = lambda data: False


class Witness(Protocol):
    """An observer of the events of a run."""

    def begins(self, agent: Agent) -> None: ...
    def returned(self, agent: Agent, told: Returned) -> None: ...
    def runs(self, agent: Agent) -> None: ...
    def look(self) -> None: ...
    def restarts(self, agent: Agent, why: str) -> None: ...
    def succeeds(self, agent: Agent) -> None: ...
    def ends(self, agent: Agent, error: Exception | None) -> None: ...
    def lost(self, agent: Agent, error: Exception) -> None: ...


class Node:
    """A host: its clock, its way to the others, and the agent that runs on it."""

    def __init__(
        self, host: Host, schedule: Schedule, time: Time, network: Network, endpoint: Address, side: Side, seen: Witness
    ) -> None:  # fmt: skip
        self.host, self.time, self.network, self.endpoint = host, time, network, endpoint
        self.side, self.seen = side, seen
        self.rng = random.Random(f"{schedule.seed} {host.number}")
        self.link = Link(time, self.rng, deaf=host.deaf, prompt=schedule.prompt)
        self.frozen_until = self.disturbed_until = 0.0
        self.agents: list[Agent] = []
        time.at(host.start, self.boot)

    def clock(self) -> float:
        return self.host.clock + self.host.rate * self.time.now

    @property
    def rate(self) -> float:
        return self.host.rate

    @property
    def frozen(self) -> bool:
        return self.frozen_until > self.time.now

    def boot(self) -> None:
        self.agents.append(Agent(self, len(self.agents)))

    def suffer(self, fault: Fault) -> None:
        """A fault of this node begins."""
        ends = self.time.now + (fault.seconds if fault.seconds < NO_RETURN else 0.0)
        self.disturbed_until = max(self.disturbed_until, ends)
        if fault.kind == "stall":
            self._stall(fault.seconds)
        elif fault.kind == "stall_in_write":
            self.link.trap = lambda: self._stall(fault.seconds)
        elif fault.kind in ("cut", "loss", "slow"):
            name = f"{fault.kind}_until"
            setattr(self.link, name, max(getattr(self.link, name), ends))
            self.disturbed_until += 2 * SLOW_SECONDS * (fault.kind == "slow")  # messages on their way then
        elif self.agents and self.agents[-1].up:
            self._hit(self.agents[-1], fault)

    def _stall(self, seconds: float) -> None:
        self.frozen_until = max(self.frozen_until, self.time.now + seconds)
        self.disturbed_until = max(self.disturbed_until, self.frozen_until)
        self.time.after(seconds, self.seen.look)

    def _hit(self, agent: Agent, fault: Fault) -> None:
        if fault.kind == "crash":
            agent.die()
            self.frozen_until = self.time.now
            if fault.seconds < NO_RETURN:
                self.time.after(fault.seconds, self.boot)
        elif fault.kind == "leave":
            self.time.at(self.frozen_until, agent.leave)
        elif agent.phase is AgentPhase.RUNNING and not self.frozen:
            agent.signal.set(fault.kind)


class Agent(Process):
    """The process of an agent, and its workers."""

    def __init__(self, node: Node, number: int) -> None:
        name = f"{node.host.number}{f'.{number}' if number else ''}"
        super().__init__(node, name, 100 * node.host.number + number)
        self.node, self.seen = node, node.seen
        self.phase, self.workers = AgentPhase.JOINING, False
        self.told: Returned | None = None
        self.signal = Signal(self.time)
        self._handler: RendezvousHandler | None = None
        self.seen.begins(self)
        self._main = self.start(self._live)

    # ---- what its handler is made of

    @property
    def settings(self) -> Settings:
        return self.node.host.settings

    @property
    def address(self) -> str:
        return f"node{self.node.host.number}"

    def connect(self) -> Client:
        """To the endpoint."""
        return Client(self.node.endpoint, READ_SECONDS)

    # ---- the agent

    @property
    def runs(self) -> bool:
        return self.workers and self.up and not self.node.frozen

    @property
    def leased(self) -> bool:
        return self.node.side.leased(self._handler, self.node.clock())

    def _live(self) -> None:
        failed: Exception | None = None
        try:
            self._handler = self.node.side.make(self)
            self._rounds(self._handler)
        except Exception as error:
            failed = error
        self.workers = False
        try:
            if self._handler is not None:
                self._handler.shutdown()
        except Exception as error:
            failed = failed or error
        self._end(failed)

    def _rounds(self, handler: RendezvousHandler) -> None:
        """Until the workers have succeeded."""
        side = self.node.side
        while True:
            self.phase = AgentPhase.JOINING
            info = handler.next_rendezvous()
            store = info.bootstrap_store_info
            assert store is not None  # handlers that share their agents' stores say where these are
            self.told = Returned(
                side.round(handler), info.rank, info.world_size, (store.master_addr, store.master_port)
            )
            self.seen.returned(self, self.told)
            self.signal = Signal(self.time)
            self.phase = AgentPhase.RETURNING
            self._pass(START_SECONDS)
            self.phase, self.workers = AgentPhase.RUNNING, True
            self.seen.runs(self)
            why = self._watch(handler)
            if why in DONE:
                self.phase = AgentPhase.DONE
                self.seen.succeeds(self)
                return
            self.phase = AgentPhase.EXITING
            self.seen.restarts(self, why)
            self._pass(KILL_SECONDS)
            self.workers = False

    def _watch(self, handler: RendezvousHandler) -> str:
        while True:
            what = self.signal.wait(MONITOR_SECONDS)
            if what is not None:
                return str(what)
            if (waiting := handler.num_nodes_waiting()) > 0:
                return f"{waiting} wait"

    def _pass(self, most: float) -> None:
        self.time.sleep(self.node.rng.uniform(0.0, most))

    # ---- what happens to it

    def leave(self) -> None:
        """Somebody ends the process by a signal: its interpreter shuts down, if that takes not too long."""
        if not self.up:
            return
        self.workers, self.phase = False, AgentPhase.FAILED
        self._main.end()
        self.start(self._depart)
        self.time.after(LEAVE_SECONDS, self.die)

    def _depart(self) -> None:
        for call in self.at_exit[::-1]:
            call()
        self._end(None)

    def _end(self, error: Exception | None) -> None:
        self.workers, self.phase = False, AgentPhase.LEFT
        self.seen.ends(self, error)
        super().die()

    def die(self) -> None:
        if self.up:
            self._end(None)

    def lost(self, error: Exception) -> None:
        self.seen.lost(self, error)
