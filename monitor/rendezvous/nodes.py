"""The nodes of a record: the connections of each, and the facts about it that the model's state lacks.

Theory of operation. A connection has no name. A write identifies the node behind it: a torch node by the one heartbeat
that it has renewed (no node renews another's), a node of ours by the token of its writer or of its counter. A node
has one or more connections, and has left when the last one has closed. A process that starts again is another node.
Times are by the recorder's clock. A time of a node's own clock is compared only with other times of that clock, or
through `ahead`, the least difference of the recorder's clock to it.
"""

from __future__ import annotations

import bisect
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field

from .shared_state import NodeName, Protocol, Snapshot

NODES_MAX = 1024  # nodes of one run, including ended ones; a state with this number has a megabyte
CONNECTIONS_MAX = 16_384


@dataclass(slots=True, eq=False)
class Peer:
    """A node of the record."""

    who: NodeName
    connections: set[int] = field(default_factory=set)
    gone: float | None = None  # the time since which it has no open connection
    ahead: float | None = None  # torch: the least difference of the recorder's clock to the node's
    stamp: float = 0.0  # its last heartbeat as written: a time of its clock, or a count
    beat: float = 0.0  # the time of the line that showed it
    moved: float = 0.0  # the time of its last certain step other than a heartbeat
    blocked: tuple[str, tuple[str, ...], float] | None = None  # a key that it waits for, the missing keys, the start
    rank: int | None = None  # the rank that its agent announced in the round
    seen: bool = False  # a connection of it is in the record

    def __str__(self) -> str:
        return self.who.name


class Roster:
    """The nodes so far, in the order of their ranks."""

    def __init__(self, protocol: Protocol) -> None:
        self.protocol = protocol
        self.peers: list[Peer] = []
        self._by_connection: dict[int, Peer] = {}
        self._by_token: dict[str, Peer] = {}
        self._index: dict[NodeName, int] = {}

    def index(self, who: NodeName) -> int:
        return self._index[who]

    def __contains__(self, who: NodeName) -> bool:
        return who in self._index

    def of(self, connection: int) -> Peer | None:
        return self._by_connection.get(connection)

    def unknown(self, snapshot: Snapshot) -> list[NodeName]:
        """The nodes of a state that are new, in their order."""
        return sorted(who for who in {*snapshot.members, *snapshot.beats} if who not in self._index)

    def add(self, who: NodeName) -> int:
        """Add a node; returns its place in the order."""
        place = bisect.bisect([peer.who for peer in self.peers], who)
        peer = Peer(who)
        self.peers.insert(place, peer)
        if who.token:
            self._by_token[who.token] = peer
        self._renumber()
        return place

    def drop(self, places: Iterable[int]) -> None:
        """Forget nodes that have ended."""
        out = {self.peers[k].who for k in places}
        self.peers = [peer for peer in self.peers if peer.who not in out]
        self._by_token = {token: peer for token, peer in self._by_token.items() if peer.who not in out}
        self._by_connection = {c: peer for c, peer in self._by_connection.items() if peer.who not in out}
        self._renumber()

    def _renumber(self) -> None:
        self._index = {peer.who: k for k, peer in enumerate(self.peers)}

    def writer(self, connection: int, before: Snapshot, after: Snapshot) -> Peer | None:
        """The node that wrote, or wanted to write, a state; its connection is known from then on."""
        known = self.of(connection)
        if self.protocol is Protocol.OURS:
            found = self._by_token.get(after.writer)
        else:
            newer = [who for who, stamp in after.beats.items() if stamp > self._latest(who, before)]
            found = self.peers[self._index[newer[0]]] if known is None and len(newer) == 1 else known
        if found is not None and connection:  # a change in a tick of a room has no connection
            self._connected(connection, found)
        return found

    def _connected(self, connection: int, peer: Peer) -> None:
        if len(self._by_connection) < CONNECTIONS_MAX:
            self._by_connection.setdefault(connection, peer)
            peer.connections.add(connection)
            peer.gone, peer.seen = None, True

    def _latest(self, who: NodeName, before: Snapshot) -> float:
        return max(before.beats.get(who, 0.0), self.peers[self._index[who]].stamp)

    def opened(self, connection: int) -> None:
        """Forget the old connection with this number: a restarted server numbers its connections from the start."""
        peer = self._by_connection.pop(connection, None)
        if peer is not None:
            peer.connections.discard(connection)

    def all_closed(self, time: float) -> None:
        """End each connection: their server has ended, and the next one numbers its connections from the start."""
        self._by_connection.clear()
        for peer in self.peers:
            if peer.connections:
                peer.connections.clear()
                peer.gone, peer.blocked = time, None

    def closed(self, connection: int, time: float) -> Peer | None:
        """End a connection; returns the node if it was its last one."""
        peer = self._by_connection.pop(connection, None)
        if peer is None:
            return None
        peer.connections.discard(connection)
        if peer.connections:
            return None
        peer.gone, peer.blocked = time, None
        return peer

    def beats(self, snapshot: Snapshot, time: float, *, fresh: bool = True) -> None:
        """Take the heartbeats of a written state; the heartbeats of a repeated state may be old."""
        for who, stamp in snapshot.beats.items():
            peer = self.peers[self._index[who]]
            if stamp != peer.stamp:
                peer.stamp, peer.beat = stamp, time if fresh else 0.0
                if fresh and self.protocol is Protocol.TORCH:
                    ahead = time - stamp
                    peer.ahead = ahead if peer.ahead is None else min(peer.ahead, ahead)

    def beaten(self, token: str, connection: int, time: float, window: float) -> Peer | None:
        """Take a heartbeat that is not in a state, and return its node. One after the window renews no lease."""
        peer = self._by_token.get(token)
        if peer is not None:
            self._connected(connection, peer)
            peer.beat = time if time - peer.beat < window else peer.beat
        return peer

    def requested(self, token: str, connection: int, time: float) -> Peer | None:
        """Take a request to a room, which is a heartbeat of its node, and return the node.

        A late copy of a request, which comes on an earlier connection, is not applied.
        """
        peer = self._by_token.get(token) or self.of(connection)
        if peer is not None and connection:
            if connection >= max(peer.connections, default=0):
                peer.beat = time
            self._connected(connection, peer)
        return peer

    def age(self, place: int, time: float) -> float:
        """Seconds since a node's last heartbeat, by the recorder's clock; for a torch node, since its stamp."""
        peer = self.peers[place]
        if self.protocol is Protocol.TORCH and peer.ahead is not None:
            return time - peer.stamp - peer.ahead
        return time - peer.beat

    def foreign(self, before: Mapping[NodeName, float], after: Snapshot, writer: Peer) -> list[NodeName]:
        """The nodes whose heartbeats the writer has changed although they are not its own, which no node does."""
        return [who for who, stamp in after.beats.items() if who != writer.who and before.get(who, stamp) != stamp]
