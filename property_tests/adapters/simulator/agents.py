"""A simulated node: a real handler, torch's agent around it, and a host with faults.

Rule: the agent is torch's loop: join, run, read ten times a second how many nodes wait, restart, and shut down at any
end but a signal. It kills its workers and counts no restarts, so a run shows only what the handler does.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from torch.distributed.elastic.rendezvous import RendezvousHandler

from trystate.impl.rendezvous.state import Settings
from trystate.model.rendezvous.vocabulary import AgentPhase

from .link import SLOW_SECONDS
from .machines import KILL_SECONDS, LEAVE_SECONDS, START_SECONDS, Machine
from .moments import Signal, Time
from .schedule import Fault, Host, Schedule
from .servers import Address, Client, Network, Server
from .threads import Process

if TYPE_CHECKING:
    from .outcomes import Outcomes

MONITOR_SECONDS = 0.1  # torchrun's
READ_SECONDS = 20.0  # time limit of a request: torch's default of a minute would only make runs longer
CLOSE_SECONDS = 5.0
RUN_ID = "simulated"
DONE = ("job_end", "success")  # faults that end the work of a node with success


@dataclass(frozen=True, slots=True)
class Returned:
    """The result of next_rendezvous for an agent. `round` names the round, as the handler does."""

    round: object
    rank: int
    world: int
    master: Address


def no_member(data: dict[str, bytes]) -> bool:
    """The shared state does not show that a member has closed it."""
    return False


@dataclass(frozen=True, slots=True)
class Side:
    """How to make a handler, and how to read its round and the shared state, which its interface does not show."""

    name: str
    make: Callable[[Agent], RendezvousHandler]
    round: Callable[[Any], object]
    leased: Callable[[Any, float], bool]  # whether the node has a lease at this time of its clock
    closed: Callable[[dict[str, bytes]], bool]
    looks: float  # longest time between two reads of the shared state, in seconds
    closed_by_member: Callable[[dict[str, bytes]], bool] = no_member  # a lambda cannot go to a cluster
    server: Callable[[Time], Server] = Server
    client: type[Client] = Client


class Node(Machine):
    """A host: its clock, its network, and the agent that runs on it."""

    def __init__(
        self, host: Host, schedule: Schedule, time: Time, network: Network, endpoint: Address, side: Side,
        seen: Outcomes,
    ) -> None:  # fmt: skip
        self.network, self.endpoint, self.side, self.seen = network, endpoint, side, seen
        super().__init__(host, schedule, time)

    def started(self, number: int) -> Agent:
        return Agent(self, number)

    def suffer(self, fault: Fault) -> None:
        super().suffer(fault)
        if fault.kind == "slow":
            self.disturbed_until += 2 * SLOW_SECONDS  # messages on their way then

    def thaw(self) -> None:
        self.seen.compare()

    def strike(self, process: Agent, fault: Fault) -> None:
        if process.phase is AgentPhase.RUNNING and not self.frozen:
            process.signal.set(fault.kind)


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
        """A client of the endpoint."""
        return self.node.side.client(self.node.endpoint, READ_SECONDS)

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
        """Join one round after the other until the workers have succeeded."""
        side = self.node.side
        while True:
            self.phase = AgentPhase.JOINING
            info = handler.next_rendezvous()
            store = info.bootstrap_store_info
            assert store is not None  # handlers that share their agents' stores return the stores' address
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

    # ---- faults

    def leave(self) -> None:
        """A signal ends the process: its interpreter shuts down, or is killed after some seconds."""
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
