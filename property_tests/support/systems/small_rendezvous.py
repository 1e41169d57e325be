"""A rendezvous on a compare-and-set store, with nothing but the parts that can fail: the engines are measured on it.

Rule: nothing may be added. Spin has counted its graphs from a separate declaration (`benchmarks/models`), so the
pins below are not only this package's results. A node has only one bit, whether its copy of the shared state is
current. It sanitises the copy before it decides and writes it back whole. `trystate.model.rendezvous`, the larger
model, has the reasons.
"""

from __future__ import annotations

import enum
from typing import Any

from trystate.model.language import *


class Place(enum.Enum):
    """Where a node is."""

    OUT = "does nothing"
    JOIN = "waits for a round"
    RUN = "runs its workers"
    DEAD = "is gone"


class Heartbeat(enum.Enum):
    """The age of a node's last heartbeat, as recorded in the shared state."""

    NONE = "not there"
    FRESH = "just written"
    DUE = "to be renewed"
    EXPIRED = "too old: others may drop the node"


class Deadline(enum.Enum):
    """The last call of a round."""

    UNSET = "not called"
    RUNNING = "called"
    PASSED = "over"


ROUNDS = 4  # a round is numbered modulo this


class SmallRendezvous(System):
    """Nodes that agree on rounds of at least `min_nodes` and at most `max_nodes`."""

    title = "A small rendezvous"

    node = index(3, "nodes")
    min_nodes = constant(2)
    max_nodes = constant(2)

    complete = flag()
    closed = flag()
    deadline = choice(Deadline)
    round = integer(0, ROUNDS - 1)
    place = choice(Place, per="node")
    participant = flag(per="node")
    waiting = flag(per="node")
    heartbeat = choice(Heartbeat, per="node")
    current = flag(per="node", doc="its copy of the shared state is the latest")

    # Shared steps

    def end_round(self, s: SymbolicState) -> None:
        """The state after the removal of participants."""
        left = s.participant.count()
        over = s.complete & (left == 0)
        s.round = ite(over, ite(s.round == ROUNDS - 1, 0, s.round + 1), s.round)
        s.deadline = ite(~s.complete & (left < self.min_nodes), Deadline.UNSET, s.deadline)
        s.complete = s.complete & ~over

    def sanitise(self, s: SymbolicState) -> None:
        """Drop the nodes whose heartbeat has expired."""
        lost = any_(s.participant[j] & (s.heartbeat[j] == Heartbeat.EXPIRED) for j in s.node)
        before = s.fork()
        for j in s.node:
            gone = s.heartbeat[j] == Heartbeat.EXPIRED
            s.participant[j] = s.participant[j] & ~gone
            s.waiting[j] = s.waiting[j] & ~gone
            s.heartbeat[j] = ite(gone, Heartbeat.NONE, s.heartbeat[j])
        self.end_round(s)
        s.complete = ite(lost, s.complete, before.complete)
        s.deadline = ite(lost, s.deadline, before.deadline)
        s.round = ite(lost, s.round, before.round)

    def sane(self, s: SymbolicState) -> SymbolicState:
        """The copy that a node decides on."""
        copy = s.fork()
        self.sanitise(copy)
        return copy

    def remove(self, s: SymbolicState, node: Expr) -> None:
        self.sanitise(s)
        s.participant[node] = False
        s.waiting[node] = False
        s.heartbeat[node] = Heartbeat.NONE
        self.end_round(s)

    def write(self, s: SymbolicState, node: Expr) -> None:
        """A compare-and-set: every other copy is now stale."""
        for j in s.node:
            s.current[j] = j == node

    def write_and_die(self, s: SymbolicState, node: Expr) -> None:
        for j in s.node:
            s.current[j] = False
        s.place[node] = Place.DEAD

    def joining(self, s: SymbolicState, node: Expr) -> SymbolicState:
        """The node may take a step of its join operation; returns the copy that it decides on."""
        copy = self.sane(s)
        s.when(s.place[node] == Place.JOIN, s.current[node], ~s.closed, ~(copy.complete & copy.participant[node]))
        return copy

    # The surroundings

    @environment()
    def pass_deadline(self, s: SymbolicState) -> None:
        """The last call is over."""
        s.when(s.deadline == Deadline.RUNNING)
        s.deadline = Deadline.PASSED

    @environment()
    def age(self, s: SymbolicState, node: Expr) -> None:
        """A heartbeat gets older."""
        s.when(s.heartbeat[node].isin((Heartbeat.FRESH, Heartbeat.DUE)))
        s.heartbeat[node] = ite(s.heartbeat[node] == Heartbeat.FRESH, Heartbeat.DUE, Heartbeat.EXPIRED)

    @environment()
    def crash(self, s: SymbolicState, node: Expr) -> None:
        """A node disappears."""
        s.when(s.place[node] != Place.DEAD)
        s.place[node] = Place.DEAD
        s.current[node] = False

    @environment()
    def fail(self, s: SymbolicState, node: Expr) -> None:
        """A worker fails: its node goes back to the rendezvous."""
        s.when(s.place[node] == Place.RUN)
        s.place[node] = Place.OUT

    # The protocol

    @transition()
    def read(self, s: SymbolicState, node: Expr) -> None:
        """A node fetches the shared state."""
        s.when(s.place[node] != Place.DEAD, ~s.current[node])
        s.current[node] = True

    @transition()
    def leave(self, s: SymbolicState, node: Expr) -> None:
        """Before it joins, a node leaves the round that it was in."""
        s.when(s.place[node] == Place.OUT, s.current[node], s.participant[node], s.heartbeat[node] != Heartbeat.EXPIRED)
        self.remove(s, node)
        self.write(s, node)

    @transition()
    def enter(self, s: SymbolicState, node: Expr) -> None:
        """A node that is in no round begins to join."""
        listed = s.participant[node] & (s.heartbeat[node] != Heartbeat.EXPIRED)
        s.when(s.place[node] == Place.OUT, s.current[node], ~listed)
        s.place[node] = Place.JOIN

    @transition()
    def refuse(self, s: SymbolicState, node: Expr) -> None:
        """The rendezvous is closed: the node gives up."""
        s.when(s.place[node] == Place.JOIN, s.current[node], s.closed)
        s.place[node] = Place.DEAD
        s.current[node] = False

    @transition()
    def finish(self, s: SymbolicState, node: Expr) -> None:
        """The round is complete: its participant starts its workers."""
        copy = self.sane(s)
        s.when(s.place[node] == Place.JOIN, s.current[node], ~s.closed, copy.complete, copy.participant[node])
        s.place[node] = Place.RUN

    @transition()
    def give_up(self, s: SymbolicState, node: Expr) -> None:
        """A participant has waited too long."""
        s.when(self.joining(s, node).participant[node])
        self.remove(s, node)
        self.write_and_die(s, node)

    @transition()
    def stop_waiting(self, s: SymbolicState, node: Expr) -> None:
        """A node on the wait list has waited too long."""
        copy = self.joining(s, node)
        s.when(~copy.participant[node], copy.waiting[node])
        self.sanitise(s)
        s.waiting[node] = False
        s.heartbeat[node] = Heartbeat.NONE
        self.write_and_die(s, node)

    @transition()
    def queue(self, s: SymbolicState, node: Expr) -> None:
        """The round is complete without the node, and has room: it waits for the next."""
        copy = self.joining(s, node)
        s.when(copy.complete, copy.participant.count() < self.max_nodes, ~copy.waiting[node])
        self.sanitise(s)
        s.waiting[node] = True
        s.heartbeat[node] = Heartbeat.FRESH
        self.write(s, node)

    @transition()
    def complete_round(self, s: SymbolicState, node: Expr) -> None:
        """The last call is over, and there are enough: the round is complete."""
        copy = self.joining(s, node)
        enough = copy.participant.count() >= self.min_nodes
        s.when(~copy.complete, copy.participant[node], enough, copy.deadline == Deadline.PASSED)
        self.sanitise(s)
        s.complete = True
        s.deadline = Deadline.UNSET
        self.write(s, node)

    @transition()
    def take_part(self, s: SymbolicState, node: Expr) -> None:
        """The round is not complete: the node becomes a participant."""
        copy = self.joining(s, node)
        s.when(~copy.complete, ~copy.participant[node])
        self.sanitise(s)
        s.waiting[node] = False
        s.participant[node] = True
        s.heartbeat[node] = Heartbeat.FRESH
        full = s.participant.count() == self.max_nodes
        called = ite(s.participant.count() == self.min_nodes, Deadline.RUNNING, s.deadline)
        s.deadline = ite(full, Deadline.UNSET, called)
        s.complete = s.complete | full
        self.write(s, node)

    @transition()
    def keep_alive(self, s: SymbolicState, node: Expr) -> None:
        """A node renews its heartbeat."""
        copy = self.sane(s)
        joins = (s.place[node] == Place.JOIN) & ~s.closed & ~(copy.complete & copy.participant[node])
        s.when(s.current[node], s.heartbeat[node] == Heartbeat.DUE, (s.place[node] == Place.RUN) | joins)
        self.sanitise(s)
        s.heartbeat[node] = Heartbeat.FRESH
        self.write(s, node)

    @transition()
    def close(self, s: SymbolicState, node: Expr) -> None:
        """A node that runs closes the rendezvous for all nodes."""
        s.when(s.place[node] == Place.RUN, s.current[node], ~s.closed)
        self.sanitise(s)
        s.closed = True
        self.write(s, node)

    # Properties

    @terminal
    def all_are_gone(self, s: SymbolicState) -> Any:
        """All nodes are dead."""
        return s.place.all(Place.DEAD)

    @sometimes()
    def a_round_is_full(self, s: SymbolicState) -> Any:
        """As many take part as may."""
        return s.complete & (s.participant.count() == self.max_nodes)

    @sometimes()
    def somebody_waits_beside_a_participant(self, s: SymbolicState) -> Any:
        """A participant and a node on the wait list, both alive."""
        return any_(s.waiting) & any_(s.participant[j] & (s.heartbeat[j] == Heartbeat.FRESH) for j in s.node)

    @always(witness="a_round_is_full")
    def at_most_max_take_part(self, s: SymbolicState) -> Any:
        """No round has more participants than it may."""
        return s.participant.count() <= self.max_nodes

    @always(witness="a_round_is_full")
    def a_complete_round_has_participants(self, s: SymbolicState) -> Any:
        """No round is complete and empty."""
        return ~s.complete | any_(s.participant)

    @always(witness="somebody_waits_beside_a_participant")
    def the_listed_beat(self, s: SymbolicState) -> Any:
        """No node is both a participant and on the wait list. Each node that is either has a heartbeat."""
        return all_(
            ~(s.participant[j] & s.waiting[j])
            & ((s.heartbeat[j] != Heartbeat.NONE) | ~(s.participant[j] | s.waiting[j]))
            for j in s.node
        )


def small_rendezvous(nodes: int) -> SmallRendezvous:
    """At least 2 nodes take part, and there is one node too many for a full round."""
    return SmallRendezvous(node=nodes, min_nodes=2, max_nodes=max(2, nodes - 1))


# nodes: distinct states
STATES = {2: 8_541, 3: 302_633, 4: 14_271_333}
