"""Promises to agents, the same for any handler: the properties of the model that are visible outside a handler.

Rule: only a `Side` reads the inside of a handler. Two groups may overlap for the time in which an agent reads and kills
its workers; a longer overlap is a violation.
"""

from __future__ import annotations

from collections.abc import Iterator

from torch.distributed.elastic.rendezvous import RendezvousClosedError, RendezvousGracefulExitError
from torch.distributed.elastic.rendezvous.api import RendezvousError

from trystate.impl.store.errors import ConnectionLost, StoreTimeout
from trystate.model.rendezvous.vocabulary import AgentPhase

from .agents import Agent, Returned, Side
from .moments import Time
from .schedule import OF_THE_STORE, Fault
from .watch import Watch

OVERLAP_SECONDS = 1.0  # overlap of two groups: an agent reads ten times a second, and kills its workers in 0.25 s
CATCH_UP_SECONDS = 0.75  # time after a disturbance in which delayed requests are repeated
REST_SECONDS = 4.0  # time without a new round; nodes of torch that restart for ever begin one in less
CLOSED = (RendezvousClosedError, RendezvousGracefulExitError)


class Outcomes(Watch):
    """The outcomes of a run so far."""

    def __init__(self, time: Time, side: Side, data: dict[str, bytes]) -> None:
        super().__init__(time)
        self._side, self._data = side, data
        self._overlap = OVERLAP_SECONDS + side.looks
        self.agents: list[Agent] = []
        self.earned = False  # workers of a member have succeeded: the rendezvous may be closed
        self.over = False
        self.disturbed_until = 0.0  # the end of a disturbance of the store, or of all agents
        self._rounds: dict[object, dict[int, Agent]] = {}
        self._apart: float | None = None  # the time since which there are two groups
        self._lapsed: dict[Agent, float] = {}  # an agent that runs without a lease -> the time since which it does
        self._moved = 0.0  # when an agent last came, left or joined a round

    def strikes(self, fault: Fault) -> None:
        super().strikes(fault)
        if fault.kind in OF_THE_STORE:
            self.disturbed_until = max(self.disturbed_until, self._time.now + fault.seconds)
        if fault.kind == "wipe":  # the nodes of an earlier life run until their leases end
            self._overlap = max([self._overlap, *(one.settings.lease_seconds for one in self.agents)])

    # ---- events of the agents

    def begins(self, agent: Agent) -> None:
        self.agents.append(agent)
        self._moved = self._time.now
        self.say(agent.name, "starts to join")

    def returned(self, agent: Agent, told: Returned) -> None:
        host, port = told.master
        self.say(agent.name, f"returns: round {told.round}, rank {told.rank} of {told.world}, master {host}:{port}")
        self._moved = self._time.now
        ranked = f"{agent.name} has rank {told.rank} of {told.world}"
        self.demand(0 <= told.rank < told.world, "ranks_are_dense", ranked)
        ranks = self._rounds.setdefault(told.round, {})
        other = ranks.setdefault(told.rank, agent)
        self.demand(other is agent, "agree_on_world", f"{agent.name} and {other.name} have rank {told.rank}")
        for one in ranks.values():
            if one.told is None or one.told.round != told.round:
                continue
            worlds = f"{one.name} has a world of {one.told.world}, {agent.name} one of {told.world}"
            self.demand(one.told.world == told.world, "agree_on_world", worlds)
            masters = f"{one.name} has master {one.told.master}, {agent.name} {told.master}"
            self.demand(one.told.master == told.master, "agree_on_master", masters)

    def runs(self, agent: Agent) -> None:
        self.say(agent.name, "runs" if agent.workers else "has no workers")
        self.compare()

    def restarts(self, agent: Agent, why: str) -> None:
        self.say(agent.name, f"restarts: {why}")
        quiet = self._time.now - max(self.disturbed_until, agent.node.disturbed_until)
        kept = agent.leased or self.over or quiet < agent.settings.keep_alive_interval + CATCH_UP_SECONDS
        self.demand(kept, "live_nodes_stay", f"{agent.name} has lost its lease, and could beat for {quiet:.1f} s")

    def succeeds(self, agent: Agent) -> None:
        self.say(agent.name, "'s workers have succeeded")
        self.earned = True

    def ends(self, agent: Agent, error: Exception | None) -> None:
        self.say(agent.name, f"ends: {type(error).__name__}: {error}" if error is not None else "ends")
        self._moved = self._time.now
        known = error is None or isinstance(error, RendezvousError | StoreTimeout | ConnectionLost)
        self.demand(known, "failures_are_explained", f"{agent.name} ends with {type(error).__name__}: {error}")
        met = not isinstance(error, StoreTimeout)
        self.demand(met, "members_learn_the_master", f"{agent.name} is in a round, and its wait ends: {error}")
        if isinstance(error, CLOSED):
            self.demand(self._may_close, "closing_is_earned", f"{agent.name} finds the rendezvous closed")

    def lost(self, agent: Agent, error: Exception) -> None:
        self.demand(False, "threads_go_on", f"a thread of {agent.name} has died of {type(error).__name__}: {error}")

    # ---- checks at regular intervals

    @property
    def _may_close(self) -> bool:
        return self.earned or self._side.closed_by_member(self._data)

    def look(self) -> None:
        self.compare()
        if self._side.closed(self._data):
            self.over = True
            self.demand(self._may_close, "closing_is_earned", "no member has closed it, and no workers have succeeded")

    def compare(self) -> None:
        """Check that no two groups run for long, and no agent without a lease."""
        running = [one for one in self.agents if one.runs and one.told is not None]
        lapsed = [] if self.over else [one for one in running if not one.leased]
        self._lapsed = {one: self._lapsed.get(one, self._time.now) for one in lapsed}
        for one, since in self._lapsed.items():
            long = self._time.now - since
            self.demand(long <= self._overlap, "who_runs_has_a_lease", f"{one.name} runs without for {long:.1f} s")
        groups = sorted((str(one.told.round), one.name) for one in running if one.told is not None)
        if len({number for number, _ in groups}) <= 1:
            self._apart = None
            return
        self._apart = self._time.now if self._apart is None else self._apart
        long = self._time.now - self._apart
        told = ", ".join(f"{name} in round {number}" for number, name in groups)
        self.demand(long <= self._overlap, "never_two_groups", f"for {long:.1f} s: {told}")

    def unrest(self) -> Iterator[tuple[str, str]]:
        up = [one for one in self.agents if one.up]
        if self.over or not up:
            for one in up:
                if one.phase is AgentPhase.JOINING:
                    yield "closing_reaches_everyone", f"{one.name} still joins"
            return
        if self._time.now - self._moved < REST_SECONDS:
            yield "full_rounds_come_to_rest", "somebody has just come, gone or joined a round"
        low, high = max(one.settings.min_nodes for one in up), min(one.settings.max_nodes for one in up)
        running = [one for one in up if one.runs]
        if len(up) >= low and not running:
            yield "enough_nodes_complete_a_round", f"{len(up)} nodes try, nobody runs"
        for one in running:
            members = self._rounds[one.told.round].values() if one.told is not None else ()
            for member in members:
                if not member.up:
                    yield "departures_are_noticed", f"{member.name} is gone, {one.name} runs in a round with it"
        if running and len(running) < min(high, len(up)):
            idle = ", ".join(one.name for one in up if one not in running)
            yield "the_waiting_are_answered", f"{len(running)} run, there are seats for {high}; {idle} wait"
        for one in running:
            assert one.told is not None  # it runs
            ranks, world = self._rounds[one.told.round], one.told.world
            if ranks.keys() != {*range(world)}:
                yield "ranks_are_dense", f"{one.name} has a world of {world}, and its round the ranks {sorted(ranks)}"
