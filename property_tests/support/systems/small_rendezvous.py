"""A rendezvous on a compare-and-set store, as small as it can be and still go wrong: the yardstick of the engines.

Rule: nothing may be added. Its graphs have been counted by several tools from declarations of their own
(`benchmarks/models`), so the pins below are not merely what this package says. A node knows only whether its
copy of the shared state is current, sanitises it before it decides, and writes it back whole; the reasons for
everything are in `trystate.model.rendezvous`, which says the same and much more.
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
    """How old the shared state says a node's last beat is."""

    NONE = "not there"
    FRESH = "just written"
    DUE = "to be renewed"
    EXPIRED = "too old: others may drop the node"


class Deadline(enum.Enum):
    """The last call of a round."""

    UNSET = "not called"
    RUNNING = "called"
    PASSED = "over"


P, H, D = Place, Heartbeat, Deadline
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
        s.deadline = ite(~s.complete & (left < self.min_nodes), D.UNSET, s.deadline)
        s.complete = s.complete & ~over

    def sanitise(self, s: SymbolicState) -> None:
        """Drop the nodes whose heartbeat has expired."""
        lost = any_(s.participant[j] & (s.heartbeat[j] == H.EXPIRED) for j in s.node)
        before = s.fork()
        for j in s.node:
            gone = s.heartbeat[j] == H.EXPIRED
            s.participant[j] = s.participant[j] & ~gone
            s.waiting[j] = s.waiting[j] & ~gone
            s.heartbeat[j] = ite(gone, H.NONE, s.heartbeat[j])
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
        s.heartbeat[node] = H.NONE
        self.end_round(s)

    def write(self, s: SymbolicState, node: Expr) -> None:
        """A compare-and-set: every other copy is now stale."""
        for j in s.node:
            s.current[j] = j == node

    def write_and_die(self, s: SymbolicState, node: Expr) -> None:
        for j in s.node:
            s.current[j] = False
        s.place[node] = P.DEAD

    def joining(self, s: SymbolicState, node: Expr) -> SymbolicState:
        """The node may take a step of its join operation; returns the copy that it decides on."""
        copy = self.sane(s)
        s.when(s.place[node] == P.JOIN, s.current[node], ~s.closed, ~(copy.complete & copy.participant[node]))
        return copy

    # The surroundings

    @environment()
    def pass_deadline(self, s: SymbolicState) -> None:
        """The last call is over."""
        s.when(s.deadline == D.RUNNING)
        s.deadline = D.PASSED

    @environment(each="node")
    def age(self, s: SymbolicState, node: Expr) -> None:
        """A heartbeat gets older."""
        s.when(s.heartbeat[node].isin((H.FRESH, H.DUE)))
        s.heartbeat[node] = ite(s.heartbeat[node] == H.FRESH, H.DUE, H.EXPIRED)

    @environment(each="node")
    def crash(self, s: SymbolicState, node: Expr) -> None:
        """A node disappears."""
        s.when(s.place[node] != P.DEAD)
        s.place[node] = P.DEAD
        s.current[node] = False

    @environment(each="node")
    def fail(self, s: SymbolicState, node: Expr) -> None:
        """A worker fails: its node goes back to the rendezvous."""
        s.when(s.place[node] == P.RUN)
        s.place[node] = P.OUT

    # The protocol

    @transition(each="node")
    def read(self, s: SymbolicState, node: Expr) -> None:
        """A node fetches the shared state."""
        s.when(s.place[node] != P.DEAD, ~s.current[node])
        s.current[node] = True

    @transition(each="node")
    def leave(self, s: SymbolicState, node: Expr) -> None:
        """Before it joins, a node leaves the round that it was in."""
        s.when(s.place[node] == P.OUT, s.current[node], s.participant[node], s.heartbeat[node] != H.EXPIRED)
        self.remove(s, node)
        self.write(s, node)

    @transition(each="node")
    def enter(self, s: SymbolicState, node: Expr) -> None:
        """A node that is in no round begins to join."""
        listed = s.participant[node] & (s.heartbeat[node] != H.EXPIRED)
        s.when(s.place[node] == P.OUT, s.current[node], ~listed)
        s.place[node] = P.JOIN

    @transition(each="node")
    def refuse(self, s: SymbolicState, node: Expr) -> None:
        """The rendezvous is closed: the node gives up."""
        s.when(s.place[node] == P.JOIN, s.current[node], s.closed)
        s.place[node] = P.DEAD
        s.current[node] = False

    @transition(each="node")
    def finish(self, s: SymbolicState, node: Expr) -> None:
        """The round is complete: its participant starts its workers."""
        copy = self.sane(s)
        s.when(s.place[node] == P.JOIN, s.current[node], ~s.closed, copy.complete, copy.participant[node])
        s.place[node] = P.RUN

    @transition(each="node")
    def give_up(self, s: SymbolicState, node: Expr) -> None:
        """A participant has waited too long."""
        s.when(self.joining(s, node).participant[node])
        self.remove(s, node)
        self.write_and_die(s, node)

    @transition(each="node")
    def stop_waiting(self, s: SymbolicState, node: Expr) -> None:
        """A node on the wait list has waited too long."""
        copy = self.joining(s, node)
        s.when(~copy.participant[node], copy.waiting[node])
        self.sanitise(s)
        s.waiting[node] = False
        s.heartbeat[node] = H.NONE
        self.write_and_die(s, node)

    @transition(each="node")
    def queue(self, s: SymbolicState, node: Expr) -> None:
        """The round is complete without the node, and has room: it waits for the next."""
        copy = self.joining(s, node)
        s.when(copy.complete, copy.participant.count() < self.max_nodes, ~copy.waiting[node])
        self.sanitise(s)
        s.waiting[node] = True
        s.heartbeat[node] = H.FRESH
        self.write(s, node)

    @transition(each="node")
    def complete_round(self, s: SymbolicState, node: Expr) -> None:
        """The last call is over, and there are enough: the round is complete."""
        copy = self.joining(s, node)
        enough = copy.participant.count() >= self.min_nodes
        s.when(~copy.complete, copy.participant[node], enough, copy.deadline == D.PASSED)
        self.sanitise(s)
        s.complete = True
        s.deadline = D.UNSET
        self.write(s, node)

    @transition(each="node")
    def take_part(self, s: SymbolicState, node: Expr) -> None:
        """The round is not complete: the node becomes a participant."""
        copy = self.joining(s, node)
        s.when(~copy.complete, ~copy.participant[node])
        self.sanitise(s)
        s.waiting[node] = False
        s.participant[node] = True
        s.heartbeat[node] = H.FRESH
        full = s.participant.count() == self.max_nodes
        called = ite(s.participant.count() == self.min_nodes, D.RUNNING, s.deadline)
        s.deadline = ite(full, D.UNSET, called)
        s.complete = s.complete | full
        self.write(s, node)

    @transition(each="node")
    def keep_alive(self, s: SymbolicState, node: Expr) -> None:
        """A node renews its heartbeat."""
        copy = self.sane(s)
        joins = (s.place[node] == P.JOIN) & ~s.closed & ~(copy.complete & copy.participant[node])
        s.when(s.current[node], s.heartbeat[node] == H.DUE, (s.place[node] == P.RUN) | joins)
        self.sanitise(s)
        s.heartbeat[node] = H.FRESH
        self.write(s, node)

    @transition(each="node")
    def close(self, s: SymbolicState, node: Expr) -> None:
        """A node that runs closes the rendezvous for everybody."""
        s.when(s.place[node] == P.RUN, s.current[node], ~s.closed)
        self.sanitise(s)
        s.closed = True
        self.write(s, node)

    # Properties

    @terminal
    def all_are_gone(self, s: SymbolicState) -> Any:
        """Nobody is left."""
        return all_(x == P.DEAD for x in s.place)

    @sometimes()
    def a_round_is_full(self, s: SymbolicState) -> Any:
        """As many take part as may."""
        return s.complete & (s.participant.count() == self.max_nodes)

    @sometimes()
    def somebody_waits_beside_a_participant(self, s: SymbolicState) -> Any:
        """A participant and a node on the wait list, both alive."""
        return any_(s.waiting) & any_(s.participant[j] & (s.heartbeat[j] == H.FRESH) for j in s.node)

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
        """Nobody is a participant and on the wait list, and whoever is on one of them has a heartbeat."""
        return all_(
            ~(s.participant[j] & s.waiting[j]) & ((s.heartbeat[j] != H.NONE) | ~(s.participant[j] | s.waiting[j]))
            for j in s.node
        )


def small_rendezvous(nodes: int) -> SmallRendezvous:
    """At least 2 nodes take part, and there is one node too many for a full round."""
    return SmallRendezvous(node=nodes, min_nodes=2, max_nodes=max(2, nodes - 1))


# nodes: distinct states
STATES = {2: 8_541, 3: 302_633, 4: 14_271_333}
