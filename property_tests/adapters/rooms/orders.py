"""All orders of messages of a room and its members, with breaks, restarts, failures and departures: a complete search.

A state is the room, the members and the messages under way. An action delivers the next message of a connection in one
direction, breaks a connection (the requests under way on it may still arrive at any later time), ends the workers of a
node that runs, or restarts the server with its records. Clocks stand still: no lease ends, and no node is expelled.

The properties: all nodes return from a round with the same members and master; a rank has one node; workers of two
rounds never run at one time; a join that has ended lists its node no more; a restart has the same state; at rest there
is a complete round, and its members run.
"""

from __future__ import annotations

from collections import OrderedDict, deque
from collections.abc import Iterator
from dataclasses import dataclass, replace
from typing import Any

from trystate.impl.rendezvous.changes import Table
from trystate.impl.rendezvous.engine import RUNS, Standing
from trystate.impl.rendezvous.observer import Lease
from trystate.impl.rendezvous.rooms.member import Member
from trystate.impl.rendezvous.rooms.messages import ANYWAY, DRAIN, FULL, Intent, Summary, read_summary
from trystate.impl.rendezvous.rooms.room import Room
from trystate.impl.rendezvous.state import Node, Participant, Settings

from .worlds import Broken

Action = tuple[Any, ...]


class Part:
    """A part of a state, which is copied with it."""


def copied(value: Any) -> Any:
    """A copy that shares the values that do not change."""
    kind = type(value)
    if kind in SHARED:
        return value
    if kind is list or kind is deque:
        return kind(map(copied, value))
    if kind is dict or kind is set or kind is OrderedDict:
        return value.copy()
    if not isinstance(value, CHANGING):
        return value
    new = object.__new__(kind)
    for name in Table.__slots__ if kind is Table else value.__dict__:
        setattr(new, name, copied(getattr(value, name)))
    return new


SHARED = {int, float, str, bytes, bool, tuple, type(None)}
CHANGING = (Room, Table, Member, Lease, Part)


@dataclass(frozen=True, slots=True)
class Budget:
    """The numbers of events that the environment may cause."""

    breaks: int = 0
    restarts: int = 0
    failures: int = 0
    leaves: int = 0
    drains: int = 0


class Stage(Part):
    """One state of the search."""

    def __init__(self, nodes: int, low: int, high: int, budget: Budget) -> None:
        self.settings = Settings(low, high, last_call_timeout=0.0, max_restarts=budget.failures + budget.leaves)
        self.records: list[bytes] = []
        self.room = self._room()
        self.left = [budget.breaks, budget.restarts, budget.failures, budget.leaves, budget.drains]
        self.there: list[list[bytes]] = [[] for _ in range(nodes)]
        self.back: list[list[tuple[bytes, bool]]] = [[] for _ in range(nodes)]
        self.late: list[list[list[Any]]] = [[] for _ in range(nodes)]  # broken connections and their requests
        self.number = [0] * nodes
        self.closed: set[str] = set()  # connections that the server has closed
        self.rounds: dict[tuple[str, int], Any] = {}
        self.ranks: dict[tuple[str, int, int], str] = {}
        self.running: list[tuple[str, int] | None] = [None] * nodes
        self.members = [self._member(k) for k in range(nodes)]
        for k in range(nodes):
            self._connect(k)

    def _member(self, k: int) -> Member:
        member = Member(Participant(Node(f"n{k}", k, 0, f"t{k}"), f"h{k}", k), self.settings)
        member.join(0.0, 1e9)
        return member

    def _room(self) -> Room:
        return Room(lambda: f"life{len(self.records)}", self.records.append)

    def copy(self) -> Stage:
        new: Stage = copied(self)
        own = new._room()
        new.room._life, new.room._record = own._life, own._record
        return new

    def peer(self, k: int) -> str:
        return f"{k}.{self.number[k]}"

    def _connect(self, k: int) -> None:
        self.there[k], self.back[k] = [], []
        self.number[k] += 1
        self.members[k].connected(0.0)
        self._pump(k)

    def _pump(self, k: int) -> None:
        """The actions of an agent and its driver after each event."""
        m = self.members[k]
        m.results.clear()
        if m.joined is not None:
            s = m.joined
            key, same = (s.life, s.round), (s.participants, s.master, s.members)
            if self.running[k] is None and m.standing(0.0) in RUNS:
                demand(self.rounds.setdefault(key, same) == same, "nodes differ about a round", key)
                demand(self.ranks.setdefault((*key, s.rank), m.token) == m.token, "a rank twice", key)
                demand(0 <= s.rank < s.participants and s.participants >= self.settings.min_nodes, "its size", s)
                self.running[k] = key
                demand(len({each for each in self.running if each}) == 1, "two groups", self.running)
            elif m.standing(0.0) not in RUNS:
                self.running[k] = None
                if m.standing(0.0) is not Standing.CLOSED:
                    m.join(0.0, 1e9)
        data = m.take(0.0)
        if data is not None:
            self.there[k].append(data)

    def _deliver(self, peer: str, data: bytes) -> None:
        if peer not in self.closed:
            self._send(peer, self.room.request(peer, data, 0.0), False)
            self.closed.update(map(str, self.room.drop))
            if self.room.due <= 0.0:
                self.room.tick(0.0)
            for to, notice in self.room.notices:
                self._send(to, notice, True)
            self.room.notices, self.room.drop, self.room.decisions = [], [], []
            t = self.room._table
            for m in self.members:
                ended = t is not None and self.room._ended.get(m.token, (0, 0))[0] == m._joins
                demand(not ended or t is None or t.find(m.token) is None, "an ended join lists its node", m.token)

    def _send(self, peer: Any, data: bytes, notice: bool) -> None:
        k = int(peer.split(".")[0])
        if k >= 0 and peer == self.peer(k):
            self.back[k].append((data, notice))

    def actions(self) -> Iterator[Action]:
        breaks, restarts, failures, leaves, drains = self.left
        t = self.room._table
        for k, member in enumerate(self.members):
            if drains and t is not None and t.find(member.token) is not None:
                yield "drain", k
            if self.peer(k) in self.closed:
                yield "closed", k
                continue
            if self.there[k]:
                yield "request", k
            if self.back[k]:
                yield "answer", k
            yield from (("late", k, n) for n, late in enumerate(self.late[k]) if len(late) > 1)
            if breaks and (self.there[k] or self.back[k]):
                yield "break", k
            if failures and self.running[k]:
                yield "fail", k
            if leaves and self.running[k]:
                yield "leave", k
        if restarts:
            yield ("restart",)

    def act(self, what: str, k: int = 0, n: int = 0) -> None:
        """Raises Broken: a property does not hold afterwards."""
        if what == "request":
            self._deliver(self.peer(k), self.there[k].pop(0))
        elif what == "late":
            self._deliver(self.late[k][n][0], self.late[k][n].pop(1))
        elif what == "answer":
            self.members[k].heard(*self.back[k].pop(0), 0.0)
            self._pump(k)
        elif what in ("closed", "break"):
            if what == "break":
                self.left[0] -= 1
                self.late[k].append([self.peer(k), *self.there[k]])
            self.members[k].disconnected()
            self._connect(k)
        elif what == "restart":
            self._restart()
        elif what == "drain":
            self.left[4] -= 1
            whom = self.members[k].token
            self._deliver("-1.", Intent(DRAIN, "operator", flags=ANYWAY, by=Node("o", 1, 0, "o"), whom=whom).encode())
        else:
            self.left[2 if what == "fail" else 3] -= 1
            self.running[k] = None
            if what == "leave":
                self.members[k].leave()
            self.members[k].join(0.0, 1e9, failed=what == "fail")
            self._pump(k)

    def _restart(self) -> None:
        self.left[1] -= 1
        room = self._room()
        for record in self.records:
            room.replay(record)
        demand(room.state == self.room.state, "another state after a restart")
        room.begin_again(0.0)
        self.room = room
        for k, member in enumerate(self.members):
            self.late[k] = []
            member.disconnected()
            self._connect(k)

    def rests(self, budget: Budget) -> None:
        """Check a state in which no message is under way."""
        t = self.room._table
        assert t is not None
        used = budget.failures - self.left[2] + budget.leaves - self.left[3]
        demand(t.spent <= used, "a restart too many", t.spent, used, t.cause)
        if t.closed is None and t.size >= t.settings.min_nodes:
            demand(t.complete, "at rest without a round", t.frozen())
            there = {m.token for m in self.members if m.joined is not None and m.joined.round == t.round}
            demand(there == {*t.participants}, "at rest, and not all members are in the round", there, t.frozen())

    def key(self) -> bytes:
        """Equal keys: states with the same future. The sentences of answers are left out: they decide nothing."""
        t, room = self.room._table, self.room
        back = [[(plain(read_summary(m)) if m[0] == FULL else m, notice) for m, notice in one] for one in self.back]
        members = [(m.joining, type(m.error), m.joined and plain(m.joined), m._request, [*m._wanted],
                    m.seen and plain(m.seen), m._join[1].of, m._join[1].flags, m._agreed, m.lease.next_beat)
                   for m in self.members]  # fmt: skip
        return repr((t.frozen() if t else None, sorted(room._peers.items()), sorted(room._numbers.items()),
                     sorted(room._ended.items()), room.due, members, self.there, back, self.late, self.left,
                     sorted(self.closed), self.running)).encode()  # fmt: skip


def plain(summary: Summary) -> Summary:
    """The summary without its sentence."""
    return replace(summary, why="")


def demand(holds: object, *seen: Any) -> None:
    if not holds:
        raise Broken(" ".join(map(str, seen)))


@dataclass(frozen=True, slots=True)
class Found:
    """The number of states, or the shortest path to a state where a property does not hold, and that property."""

    states: int
    path: tuple[Action, ...] = ()
    broken: str = ""


def search(nodes: int, low: int, high: int, budget: Budget, states_max: int = 1_000_000) -> Found:
    """All states, breadth first, until a property does not hold."""
    first = Stage(nodes, low, high, budget)
    seen = {hash(first.key())}
    queue: deque[tuple[Stage, tuple[Action, ...]]] = deque([(first, ())])
    while queue:
        stage, path = queue.popleft()
        actions, reached = [*stage.actions()], path
        try:
            if all(action[0] in ("restart", "fail", "leave", "break", "drain") for action in actions):
                stage.rests(budget)
            for action in actions:
                after, reached = stage.copy(), (*path, action)
                after.act(*action)
                key = hash(after.key())
                if key not in seen:
                    seen.add(key)
                    queue.append((after, reached))
        except Broken as broken:
            return Found(len(seen), reached, str(broken))
        assert len(seen) <= states_max
    return Found(len(seen))
