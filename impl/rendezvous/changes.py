"""The changes of the shared state of a rendezvous, in a room and in a document: one method of `Table` for each change.

A room has one table. A change in place costs O(1), and O(N log N) once in a round. A node with a document makes a
table of the value that it has read, and `after` returns the value to write, which costs O(N).

Every change ends in `_committed`. It gives the free seats of an open round to waiting nodes and then to spares,
completes a full round, and sets the version and the writer of the state, so no two states are equal. If another node
may wait for the change (`notify`), it increments `revision`.

Rule: a method is called only where an operator or a rule (operators.py) allows the change. It uses no clock, no random
numbers and no store.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterator
from dataclasses import replace
from heapq import nsmallest
from typing import Concatenate, ParamSpec

from trystate.model.rendezvous.vocabulary import Membership

from .encoding import TEXT_LENGTH_MAX
from .state import LISTS, REASON_LENGTH_MAX, Closed, Counted, Node, Participant, Settings, State, named

P = ParamSpec("P")
Nodes = dict[str, Participant]  # a list of nodes by token, in the order of their coming
FAILED = "its workers failed"
PLAIN = ("version", "writer", "round", "complete", "call", "revision", "spent", "cause", "closed")


class Table(Counted):
    """The fields of `State`; `done` and `draining` are tokens. `ranks` is of a complete round, else empty."""

    __slots__ = ("_orders", "done", "draining", "life", "ranks", "settings", *LISTS, *PLAIN)

    def __init__(self, life: str, settings: Settings) -> None:
        self.life, self.settings = life, settings
        self.version = self.round = self.call = self.revision = self.spent = 0
        self.writer = self.cause = ""
        self.complete = False
        self.closed: Closed | None = None
        self.participants: Nodes = {}
        self.expected: Nodes = {}
        self.waiting: Nodes = {}
        self.spares: Nodes = {}
        self.done: dict[str, None] = {}
        self.draining: dict[str, None] = {}
        self.ranks: dict[str, int] = {}
        self._orders: dict[str, bytes] = {}  # keys of the listed nodes, by which a round is sorted

    @classmethod
    def of(cls, state: State) -> Table:
        """The table of a value."""
        self = cls(state.life, state.settings)
        for name in PLAIN:
            setattr(self, name, getattr(state, name))
        for name in LISTS:
            setattr(self, name, {p.node.token: p for p in getattr(state, name)})
        self.done, self.draining = dict.fromkeys(state.done), dict.fromkeys(state.draining)
        self._orders = {p.node.token: p.order for p in state.listed()}
        if self.complete:
            self._number()
        return self

    def frozen(self) -> State:
        """The value of this table, with the heartbeats that its listings had; a room notes their times itself."""
        fields = {name: getattr(self, name) for name in PLAIN} | {
            name: (*getattr(self, name).values(),) for name in LISTS
        }
        return State(self.life, self.settings, done=tuple(self.done), draining=tuple(self.draining), **fields)

    # ---- as operators read a State

    def lists(self) -> tuple[Nodes, Nodes, Nodes, Nodes]:
        return self.participants, self.expected, self.waiting, self.spares

    def listed(self) -> Iterator[Participant]:
        for nodes in self.lists():
            yield from nodes.values()

    def find(self, token: str) -> Participant | None:
        for nodes in self.lists():
            if token in nodes:
                return nodes[token]
        return None

    def membership(self, token: str) -> Membership:
        if token in self.participants:  # written out: a notice to each node of a large job calls it
            return Membership.PARTICIPANT
        if token in self.expected:
            return Membership.EXPECTED
        if token in self.waiting:
            return Membership.WAITING
        return Membership.REDUNDANT if token in self.spares else Membership.OUTSIDE

    @property
    def size(self) -> int:
        """The number of listed nodes."""
        return sum(map(len, self.lists()))

    # ---- changes

    def keep_alive(self, me: Node) -> None:
        """Write that this node is listed, which nothing else may show once its lease has ended."""
        self._committed(me, notify=False)

    def add_to_participants(self, me: Participant, settings: Settings) -> None:
        """The first node of an empty rendezvous sets its settings; if they have changed, no restart counts as spent."""
        if settings != self.settings:
            self.settings, self.spent = settings, 0
        self._unlist(me.node.token)
        calling = self.calling
        self._enlist(self.participants, me)
        self._committed(me.node, calling, notify=False)

    def add_to_wait_list(self, me: Participant) -> None:
        self._enlist(self.waiting, me)
        self._committed(me.node)

    def add_to_redundancy_list(self, me: Participant) -> None:
        self._enlist(self.spares, me)
        self._committed(me.node)

    def mark_complete(self, me: Node) -> None:
        self._complete()
        self._committed(me)

    def withdraw(self, me: Node) -> None:
        """Take this node off the lists. A complete round that loses it is replaced, and a restart is spent.

        Without a restart left, the rendezvous is closed as failed. A closed one stays as it is.
        """
        calling, member = self.calling, self.complete and me.token in self.participants
        if member:
            left = self.restarts_left
            self._next_round(f"{me}: it left")
            if self.closed is None and left:
                self._spend()
            elif self.closed is None:
                self._fail(me, "a member left")
        self._unlist(me.token)
        self._committed(me, calling)

    def expel(self, me: Node, silent: Collection[str]) -> None:
        """Take silent nodes off the lists. A complete round that loses one is replaced, and a restart is spent."""
        calling, lost, expiry = self.calling, set(silent), self.settings.expiry_seconds
        member = self.complete and not lost.isdisjoint(self.participants)
        if member:
            names = named(p.node for p in self.listed() if p.node.token in lost)
            if not self.restarts_left:
                self._fail(me, f"no heartbeat of {names} for {expiry:g} s")
                return self._committed(me)
            self._next_round(f"{me} expelled {names}: no heartbeat for {expiry:g} s")
            self._spend()
        for token in silent:
            self._unlist(token)
        return self._committed(me, calling)

    def replace_round(
        self, me: Participant, failed: bool = False, leased: bool = True, checked_first: bool = False
    ) -> None:
        """Open the next round, with this node as its first participant.

        Args:
            failed: its workers have failed, which spends a restart.
            leased: it has had a lease all the time; otherwise it returns after an outage.
            checked_first: it is expected like all others, because its health command runs before it joins.
        """
        again = "its agent restarts the workers" if leased else "it comes back after the end of its lease"
        if self._replaced(me.node, f"{me.node}: {FAILED if failed else again}", failed, FAILED) and not checked_first:
            self._enlist(self.participants, me)
        self._committed(me.node, False)

    def fail_for_good(self, me: Node, reason: str) -> None:
        """Close the rendezvous as failed even if restarts are left: a worker failed with a final exit code."""
        self.mark_closed(me, reason, "failed")

    def give_notice(self, me: Node, leaving: bool) -> None:
        """Open the next round while the workers of this one still run; this node is expected in it like all others.

        Args:
            leaving: this node will withdraw. A restart is spent now, and not by the failures of workers that lose a
                peer. Otherwise a newcomer waits, for which no restart is spent.
        """
        newcomers = f"{named(p.node for p in self.waiting.values())} waited for a seat"
        self._replaced(me, f"{me}: it is about to leave" if leaving else newcomers, leaving, "a member left")
        self._committed(me, False)

    def drain(self, me: Node, node: Node) -> None:
        """An operator marks a listed node, which leaves. A complete round that has it is replaced for free.

        The marked node may run workers. It is expected in the next round, which does not complete before it has left.
        `me` is the operator's process, which is not listed.
        """
        calling, token, member = self.calling, node.token, self.complete and node.token in self.participants
        if member:
            self._next_round(f"{me}: an operator drains {node}")
        if token in self.participants:
            self.expected[token] = self.participants.pop(token)
        self.draining[token] = None
        self._committed(me, calling)

    def mark_done(self, me: Node) -> None:
        """This node's workers have succeeded; the last member to report it closes the rendezvous as succeeded."""
        self.done.pop(me.token, None)
        self.done[me.token] = None
        if self.done.keys() >= self.participants.keys():
            self._close(me, "all workers have succeeded", "succeeded")
        self._committed(me, notify=self.closed is not None)

    def mark_closed(self, me: Node, reason: str, verdict: str = "") -> None:
        self._close(me, reason, verdict)
        self._committed(me)

    # ---- their parts

    def _close(self, me: Node, reason: str, verdict: str = "") -> None:
        """Close the rendezvous. The text of a node is longer than its address, which may have TEXT_LENGTH_MAX."""
        self.closed = Closed(str(me)[:TEXT_LENGTH_MAX], reason[:REASON_LENGTH_MAX], verdict)

    def _committed(self, me: Node, calling: bool = True, notify: bool = True) -> None:
        """The end of each change. `calling`: whether a last call was in progress before it."""
        if not self.complete:
            self._promote()
        self.call += self.calling and not calling
        if not self.complete and len(self.participants) == self.settings.max_nodes:
            self._complete()
            notify = True
        self.version, self.writer, self.revision = self.version + 1, me.token, self.revision + notify

    def _complete(self) -> None:
        self.complete = True
        by_rank = sorted(self.participants, key=self._orders.__getitem__)
        self.participants = {token: self.participants[token] for token in by_rank}
        self._number()

    def _number(self) -> None:
        self.ranks = {token: rank for rank, token in enumerate(self.participants)}

    def _unlist(self, token: str) -> None:
        for nodes in self.lists():
            nodes.pop(token, None)
        self.draining.pop(token, None)
        self._orders.pop(token, None)

    def _enlist(self, where: Nodes, me: Participant) -> None:
        self._unlist(me.node.token)
        where[me.node.token] = me
        self._orders[me.node.token] = me.order

    def _next_round(self, cause: str) -> None:
        self.round, self.complete, self.cause = self.round + 1, False, cause[:REASON_LENGTH_MAX]
        self.expected, self.participants = self.participants, {}
        self.done, self.ranks = {}, {}

    def _replaced(self, me: Node, cause: str, spends: bool, loss: str) -> bool:
        """Open the next round, and spend a restart if `spends`; without one left the rendezvous is closed: False."""
        if spends and not self.restarts_left:
            self._fail(me, loss)
            return False
        self._next_round(cause)
        if spends:
            self._spend()
        return True

    def _spend(self) -> None:
        self.spent += self.settings.max_restarts >= 0

    def _fail(self, me: Node, loss: str) -> None:
        self._close(me, f"{loss}, and no restart is left", "failed")

    def _promote(self) -> None:
        """Waiting nodes and then spares take the free seats."""
        for queue in (self.waiting, self.spares) if self.seats > 0 else ():
            ready = queue.keys() - self.draining.keys()
            for token in nsmallest(self.seats, ready, key=self._orders.__getitem__):
                self.participants[token] = queue.pop(token)


def after(state: State, change: Callable[Concatenate[Table, P], None], *args: P.args, **kwargs: P.kwargs) -> State:
    """The value after a change of this value. `written` of the writer's listing is then the version: a heartbeat."""
    table = Table.of(state)
    change(table, *args, **kwargs)
    for nodes in table.lists():
        if (me := nodes.get(table.writer)) is not None:
            nodes[table.writer] = replace(me, written=table.version)
    return table.frozen()
