"""Random runs of a room and its members in virtual time, with faults: `python -m ....rooms.worlds FIRST COUNT`.

Messages are late. Connections break with messages under way, and requests may arrive after that. The server pauses, or
is killed and starts with the records that were on its disk: a change whose record was not is lost, and so are its
answer and notices. Nodes freeze, crash, start again and are cut off; their clocks differ and drift by 1 %. Workers
fail, succeed and take time to stop. Operators drain nodes and close the rendezvous, nodes leave and come late.

The properties; 1 to 14 after each step, 15 and 16 at the end, 28 s after the last fault:

 1  all nodes that return from a round have the same life, world size, master and members
 2  each rank of a round has one node, and rank 0 is the master
 3  a round has min to max nodes
 4  workers of two rounds never run at one time (a frozen host runs nothing)
 5  a complete round is never changed, only replaced; rounds count up
 6  a node is on one list at most
 7  a node is expelled only after the end of its lease by its own clock
 8  a node is not expelled for a time in which the server stood still, was down, or had just started
 9  a node that left stays away: no late copy of a request lists it again
10  a closed rendezvous stays closed; a node that comes afterwards gets that error, and joins nothing
11  it is closed as succeeded only if all members have succeeded
12  never more restarts than max_restarts, and one at most for each round
13  a server that starts again has the state of its records, and at least the version of each answer that arrived
14  one join, or one step out, replaces one round at most, however often it arrives
15  closed: no workers run
16  else, with min nodes there: a complete round whose members run or have succeeded; all others are spares, or wait
    while no seat is free or some members have succeeded
"""

from __future__ import annotations

import random
import sys
from collections import Counter
from collections.abc import Callable, Iterable
from typing import Any

from trystate.impl.rendezvous.changes import Table
from trystate.impl.rendezvous.engine import RUNS, Standing
from trystate.impl.rendezvous.errors import RendezvousClosedError
from trystate.impl.rendezvous.rooms import member as members
from trystate.impl.rendezvous.rooms.member import Member
from trystate.impl.rendezvous.rooms.messages import DRAIN, FULL, HEAD, JOIN, Intent, Summary
from trystate.impl.rendezvous.rooms.room import LISTING, Room
from trystate.impl.rendezvous.state import Node, Participant, Settings

from ..simulator.moments import Time

INTERVAL, KILL_SECONDS, CALM, END = 1.0, 0.2, 40.0, 60.0
OPERATOR = Node("operator", 1, 0, "operator")
FAULTS = ("crash", "freeze", "cut", "reset", "restart", "pause", "fail", "fail", "drain", "leave", "start", "start",
          "trap", "trap", "flee", "close")  # fmt: skip


class Broken(AssertionError):
    """A property does not hold."""


class World:
    """A room, its server and its hosts. A seed decides everything."""

    def __init__(self, seed: int) -> None:
        self.rng = rng = random.Random(seed)
        self.seed, self.time = seed, Time()
        n = rng.randint(2, 6)
        self.low = rng.randint(1, n)
        self.settings = Settings(
            self.low, rng.randint(self.low, n), last_call_timeout=rng.choice((0.0, 0.3, 1.0)),
            rescale_timeout=rng.choice((0.0, 0.3)), keep_alive_interval=INTERVAL,
            keep_alive_max_attempt=rng.choice((2, 3)), max_restarts=rng.choice((-1, -1, 3)),
            scale_up_interval=rng.choice((0.0, 0.0, 5.0)),
        )  # fmt: skip
        self.forgets = rng.random() < 0.05  # the server keeps no records: it starts with another life
        self.counts: Counter[str] = Counter()
        self.arrived: dict[str, float] = {}  # the last request of each node
        self.gaps: list[tuple[float, float]] = []  # in which the server did nothing
        self.left: set[str] = set()
        self.fixed: dict[tuple[str, int], tuple[str, ...]] = {}  # the members of complete rounds
        self.last = "", 0
        self.closed_at: float | None = None
        self.seen = 0  # the latest version that arrived at a node
        self.replaced: set[tuple[Any, ...]] = set()  # requests that have replaced a round
        self.rounds: dict[tuple[str, int], tuple[Any, ...]] = {}
        self.ranks: dict[tuple[str, int, int], str] = {}
        self.server = Server(self)
        self.hosts = [Host(self, k) for k in range(n)]
        for _ in range(rng.randint(0, 14)):
            self.at(rng.uniform(0.2, CALM - 8), self.fault)

    @property
    def now(self) -> float:
        return self.time.now

    def at(self, when: float, call: Callable[[], None], frozen: Callable[[], float] = lambda: 0.0) -> None:
        """Call it then, or when `frozen` is over."""

        def begin() -> None:
            if frozen() > self.now:
                self.time.at(frozen(), begin)
            else:
                call()

        self.time.at(when, begin)

    def demand(self, holds: object, *seen: Any) -> None:
        if not holds:
            raise Broken(f"seed {self.seed} at {self.now:.3f} s: {' '.join(map(str, seen))}")

    def run(self) -> World:
        self.time.run(END)
        self.judge()
        return self

    def judge(self) -> None:
        """15 and 16."""
        t = self.server.room._table
        able = [h for h in self.hosts if h.up and not h.over]
        if t is None:
            return self.demand(not able, "no node is listed")
        self.counts.update(spent=t.spent, spares=len(t.spares), closed=t.closed is not None)
        if t.closed is not None:
            return self.demand(not any(h.running for h in able), "closed, and workers run")
        if len(able) >= self.low:
            self.demand(t.complete, "no round", t.frozen())
            running, ours, done = {h.token for h in able if h.running}, {*t.participants}, {*t.done}
            # A member that has succeeded stays listed, and its process may have ended.
            self.demand(ours - done <= running <= ours, "not all members run", running, ours, done)
            self.demand({h.token for h in able} - ours <= {*t.spares, *t.waiting}, "not listed", t.frozen())
            self.demand(not t.waiting or t.seats <= 0 or t.done, "a seat is free, and nodes wait", t.frozen())
        return None

    def expels(self, tokens: Iterable[str]) -> None:
        """7 and 8."""
        self.counts["expulsions"] += 1
        for token in tokens:
            for h in self.hosts:
                if h.up and h.token == token:
                    self.demand(h.lease_ends() <= h.clock(), "expelled within its lease", token)
            since = self.arrived[token]
            gaps = [(max(a, since), min(b, self.now)) for a, b in self.gaps if b > since and a < self.now]
            watched = self.now - since - sum(b - a for a, b in gaps) + INTERVAL * len(gaps)
            self.demand(
                watched >= self.settings.expiry_seconds - 1e-6, "expelled for the server's silence", token, watched
            )

    def changed(self, name: str, me: Any) -> None:
        """5, 6 and 9 to 12."""
        t = self.server.room._table
        assert t is not None
        listed = [p.node.token for p in t.listed()]
        self.demand(len(listed) == len({*listed}), "on two lists", t.frozen())
        if name == "withdraw":
            self.left.add(me.token)
        self.demand(not self.left & {*listed}, "it had left", self.left & {*listed})
        if t.complete:
            ours = tuple(t.participants)
            self.demand(self.fixed.setdefault((t.life, t.round), ours) == ours, "a complete round is changed")
        self.demand(t.life != self.last[0] or t.round >= self.last[1], "an earlier round")
        self.last = t.life, t.round
        self.demand(
            t.settings.max_restarts < 0 or t.spent <= min(t.settings.max_restarts, t.round), "restarts", t.spent
        )
        self.demand(t.closed is not None or self.closed_at is None, "it is open again")
        if t.closed is not None and self.closed_at is None:
            self.closed_at = self.now
            succeeded = t.closed.verdict == "succeeded"
            self.demand(not succeeded or t.participants.keys() <= t.done.keys(), "not all have succeeded")

    def returned(self, host: Host, s: Summary) -> None:
        """1 to 3 and 10."""
        self.counts["joined"] += 1
        self.demand(not host.is_late, "joined after the end")
        key = s.life, s.round
        same = s.participants, s.master, s.members
        self.demand(self.rounds.setdefault(key, same) == same, key, same, self.rounds[key])
        self.demand(0 <= s.rank < s.participants, "no rank", s.rank)
        self.demand(self.ranks.setdefault((*key, s.rank), host.token) == host.token, "a rank twice", key, s.rank)
        self.demand(self.low <= s.participants <= self.settings.max_nodes, "its size", s.participants)
        self.demand(s.rank or s.master == (host.me.host, host.me.port), "its master", s.master)

    def fault(self) -> None:
        rng, kind = self.rng, self.rng.choice(FAULTS)
        host = rng.choice(self.hosts)
        seconds = rng.choice((0.5, 2.0, 4.0, 8.0)) * rng.uniform(0.5, 1)
        if kind == "drain" and host.up:
            self.server.ask(None, Intent(DRAIN, "operator", flags=16, by=OPERATOR, whom=host.token).encode())
        elif kind == "restart" and self.server.up:
            self.server.restart(rng.choice((0.1, 1.0, 5.0)) * rng.uniform(0.2, 1))
        elif kind == "pause" and self.server.up:
            begins, self.server.frozen_until = max(self.now, self.server.frozen_until), self.now + seconds
            self.gaps += [(begins, self.now + seconds)] * (self.now + seconds > begins)
            self.server.frozen_until = max(begins, self.now + seconds)
        elif kind == "crash" and host.up:
            host.die(silently=rng.random() < 0.5)
            if rng.random() < 0.8:
                self.at(self.now + rng.uniform(0.0, 5.0), host.start)
        elif kind == "freeze" and host.up:
            host.frozen_until, host.still = max(host.frozen_until, self.now + seconds), True
            self.at(host.frozen_until, host.thaw)
        elif kind == "cut":
            host.cut_until = max(host.cut_until, self.now + seconds)
            host.break_connection(0.0)
        elif kind == "reset":
            host.break_connection(0.7)
        elif kind == "trap":
            host.trap = rng.choice(("request", "answer"))
        elif kind == "start":
            host.start()
        elif (
            host.running and kind == "flee"
        ):  # it joins again, its connection breaks with that under way, and it leaves
            host.trap = "request"
            host.fail()
            host.break_connection(1.0)
            self.at(self.now + rng.uniform(0.1, 1.0), host.leave, host.frozen)
        elif host.running and kind in ("fail", "leave"):
            self.at(self.now, host.fail if kind == "fail" else host.leave, host.frozen)
        elif host.running and kind == "close" and rng.random() < 0.3:
            host.member.close("an operator ends the job", "failed")
            host.pump()
            for other in self.hosts:
                self.at(self.now + rng.uniform(1.0, 6.0), other.start)
        else:
            return
        self.counts[kind] += 1


class Checked(Room):
    """A room whose changes are checked."""

    world: World
    asked: tuple[Any, ...] = ()

    def request(self, peer: Any, data: bytes, now: float) -> bytes:
        # The kind, the token and the number of the join; of other kinds also the fields, which have the round.
        self.asked = data[:17], data[21:25], b"" if data[0] == JOIN else data[HEAD.size :]
        return super().request(peer, data, now)

    def _beats(self, t: Table, token: str, me: Participant | None, now: float) -> None:
        if token in self._since:
            self.world.arrived[token] = self.world.now
        super()._beats(t, token, me, now)

    def _change(self, name: str, now: float, me: Any, *more: Any) -> None:
        w, known = self.world, {*self._since}
        if name == "expel":
            w.expels(more[0])
        elif name == "replace_round":
            w.demand(self.asked not in w.replaced, "it replaces two rounds", self.asked)
            w.replaced.add(self.asked)
        if name in LISTING:
            w.arrived[me.node.token] = w.now
        super()._change(name, now, me, *more)
        w.arrived.update(dict.fromkeys(self._since.keys() - known, w.now))
        w.changed(name, me)


class Server:
    """It sends answers and notices when all records before them are on disk."""

    waits_for_disk = True
    closes_replaced = True

    def __init__(self, world: World) -> None:
        self.world, self.up, self.frozen_until = world, True, 0.0
        self.disk = world.rng.choice((0.0, 0.02, 0.02, 0.4))  # seconds of a sync, at most
        self.records: list[bytes] = []
        self.durable = self.starts = 0
        self.held: list[tuple[Any, bytes, bool]] = []
        self.syncing = False
        self.room = self._room()

    def _room(self) -> Checked:
        room = Checked(self._life, self.records.append)
        room.world = self.world
        return room

    def _life(self) -> str:
        return f"life{self.starts}.{len(self.records)}"

    def frozen(self) -> float:
        return self.frozen_until

    def restart(self, seconds: float) -> None:
        w = self.world
        self.up, self.starts = False, self.starts + 1
        for host in w.hosts:
            host.lose_connection(0.2)
        w.gaps = [(a, min(b, w.now)) for a, b in w.gaps if a < w.now] + [(w.now, w.now + seconds)]
        w.at(w.now + seconds, self._start)

    def _start(self) -> None:
        """13."""
        w, old, whole = self.world, self.room, self.durable == len(self.records)
        if w.forgets:
            self.durable, w.seen, whole = 0, 0, False
        w.counts["lost tails"] += not whole
        del self.records[self.durable :]
        self.held, self.syncing = [], False
        self.room = room = self._room()
        kept = [old.snapshot()] if whole and w.rng.random() < 0.3 else self.records
        for record in kept:
            room.replay(record)
        t = room._table
        w.demand(not whole or old.state == room.state, "another state after a restart")
        w.demand((t.version if t is not None else 0) >= w.seen, "an answer is forgotten", w.seen)
        room.begin_again(w.now)
        w.arrived.update(dict.fromkeys(room._since, w.now))
        if not whole:  # some changes are undone, and may be made again; no node has seen them
            w.replaced.clear()
        w.left = {token for token in w.left if t is not None and t.find(token) is None}
        w.closed_at = w.closed_at if t is not None and t.closed is not None else None
        w.last = (t.life, t.round) if t is not None else ("", 0)
        w.fixed = {k: v for k, v in w.fixed.items() if k < w.last or (k == w.last and t is not None and t.complete)}
        self.up, self.frozen_until = True, 0.0

    def ask(self, connection: Connection | None, data: bytes) -> None:
        self.world.at(self.world.now, lambda: self._apply(connection, data), self.frozen)

    def _apply(self, connection: Connection | None, data: bytes) -> None:
        if self.up and (connection is None or connection.open):
            self.world.counts["requests"] += 1
            answer = self.room.request(connection, data, self.world.now)
            if connection is not None:
                self._send(connection, answer, False)
            self._settle()

    def _settle(self) -> None:
        w, room = self.world, self.room
        for peer in room.drop if self.closes_replaced else ():
            peer.open = False
        for peer, data in room.notices:
            self._send(peer, data, True)
        room.notices, room.drop, room.decisions = [], [], []
        if room.due < END:
            w.at(room.due, lambda: self._tick(room), self.frozen)

    def _tick(self, room: Room) -> None:
        if room is self.room and self.up and self.world.now >= room.due:
            room.tick(self.world.now)
            self._settle()

    def _send(self, peer: Any, data: bytes, notice: bool) -> None:
        self.held.append((peer, data, notice))
        self._sync()

    def _sync(self) -> None:
        w, start, records, answers = self.world, self.starts, len(self.records), len(self.held)
        if not self.waits_for_disk:
            for peer, data, notice in self.held:
                peer.answer(data, notice)
            self.held, answers = [], 0
        if self.syncing or (not answers and records == self.durable):
            return

        def synced() -> None:
            if start == self.starts:
                self.durable, self.syncing = records, False
                ready, self.held = self.held[:answers], self.held[answers:]
                for peer, data, notice in ready:
                    peer.answer(data, notice)
                self._sync()

        self.syncing = True
        w.at(w.now + (0.0 if records == self.durable else w.rng.uniform(0, self.disk)), synced, self.frozen)

    def lost(self, connection: Connection) -> None:
        connection.open = False
        self.room.gone(connection)


class Connection:
    """Ordered in both directions. `open`: the server has it; `held`: the host has it; `dead`: nothing passes."""

    def __init__(self, host: Host) -> None:
        self.host, self.world = host, host.world
        self.open = self.held = True
        self.dead = False
        self.there_at = self.back_at = 0.0

    def ask(self, data: bytes) -> None:
        w, host = self.world, self.host
        self.dead |= host.cut_until > w.now
        if self.dead:
            return
        if host.trap == "request":  # it arrives late, if at all
            host.trap, self.dead = "", True
            if w.rng.random() < 0.3:
                return
            self.there_at = max(self.there_at, w.now + w.rng.uniform(0, 2.0))
        else:
            slow = w.rng.uniform(0, host.slow_there) * (w.now < CALM - 8)
            self.there_at = max(self.there_at, w.now + host.delay() + slow)
        w.at(self.there_at, lambda: self._arrive(data))

    def _arrive(self, data: bytes) -> None:
        if self.open and self.host.cut_until <= self.world.now:
            self.world.server.ask(self, data)

    def answer(self, data: bytes, notice: bool) -> None:
        if not self.open:
            return
        if self.host.trap == "answer":
            self.host.trap, self.dead = "", True
        if not self.dead:
            self.back_at = max(self.back_at, self.world.now + self.host.delay())
            self.world.at(self.back_at, lambda: self._back(data, notice))

    def _back(self, data: bytes, notice: bool) -> None:
        self.dead |= self.host.cut_until > self.world.now
        if self.held and not self.dead:
            if data[0] == FULL:
                self.world.seen = max(self.world.seen, int.from_bytes(data[8:16], "little"))  # its version
            self.host.heard(self, data, notice)


class Host:
    """A machine: a process with a `Member` and an agent that runs workers, and the next process after a crash."""

    member: Member
    me: Participant

    def __init__(self, world: World, number: int) -> None:
        rng = world.rng
        self.world, self.number, self.processes, self.group, self.token = world, number, 0, 0, ""
        self._clock, self._rate = rng.uniform(0, 1e6), 1 + rng.uniform(-0.01, 0.01)
        self.frozen_until = self.cut_until = self.started_at = 0.0
        self.trap = ""
        self.up = self.running = self.over = self.still = False
        self.connection: Connection | None = None
        self.joined: Summary | None = None
        self.stopping, self.alarm = -1, 0.0
        self.latency = 0.15 if rng.random() < 0.2 else 0.004
        self.slow_there = rng.choice((0.0, 0.0, 0.4))  # seconds that requests take at most, though answers are fast
        self.stop_seconds = rng.choice((0.0, 0.3, 2.0))
        self.check_seconds = rng.choice((0.0, 0.0, 0.5))
        world.at(rng.choice((0.0, rng.uniform(0, 3), rng.uniform(0, 15))), self.start)

    def clock(self) -> float:
        return self._clock + self._rate * self.world.now

    def frozen(self) -> float:
        return self.frozen_until

    def delay(self) -> float:
        return self.world.rng.uniform(0, self.latency)

    def later(self, seconds: float, call: Callable[[], None], group: bool = False) -> None:
        """Call it if the process, or with `group` its workers' group, is the same then."""
        process, number = self.processes, self.group

        def begin() -> None:
            if self.up and process == self.processes and (number == self.group or not group):
                call()

        self.world.at(self.world.now + seconds, begin, self.frozen)

    def start(self) -> None:
        if self.up:
            return
        w = self.world
        self.processes += 1
        self.up, self.over, self.started_at, self.alarm = True, False, w.now, 0.0
        self.token = f"n{self.number}p{self.processes}"
        self.me = Participant(Node(f"node{self.number}", self.processes, 0, self.token), f"h{self.number}",
                              1000 + self.processes, rank_key=w.rng.choice(("", "", "r1", "r2")))  # fmt: skip
        self.member = Member(self.me, w.settings)
        self.member.join(self.clock(), w.rng.choice((1000.0, 1000.0, 9.0)))
        self._connect()

    def die(self, silently: bool) -> None:
        self.up = self.running = False
        self.group += 1
        connection, self.connection = self.connection, None
        if connection is not None:
            connection.held = False
            if not silently:
                server = self.world.server
                ends = max(connection.there_at, self.world.now + self.delay())
                self.world.at(ends, lambda: server.lost(connection), server.frozen)

    # ---- the network

    def _connect(self) -> None:
        w = self.world
        if self.connection is not None:
            return
        if not w.server.up or self.cut_until > w.now:
            self.later(0.05 + w.rng.uniform(0, 0.2), self._connect)
        else:
            self.connection = Connection(self)
            self.member.connected(self.clock())
            self.pump()

    def break_connection(self, arrives: float) -> None:
        """The host's end is closed; requests under way arrive with this probability."""
        w, connection = self.world, self.connection
        if connection is None:
            return
        self.connection, connection.held = None, False
        self.member.disconnected()
        if w.rng.random() >= arrives:
            w.server.lost(connection)
        else:
            w.at(connection.there_at + w.rng.uniform(0, 3), lambda: w.server.lost(connection), w.server.frozen)
        self.later(w.rng.uniform(0, 0.1), self._connect)

    def lose_connection(self, seconds: float) -> None:
        connection, self.connection = self.connection, None
        if connection is not None:
            connection.held = connection.open = False
            self.member.disconnected()
            self.later(self.world.rng.uniform(0, seconds), self._connect)

    def heard(self, connection: Connection, data: bytes, notice: bool) -> None:
        def take() -> None:
            if self.up and connection is self.connection:
                self.member.heard(data, notice, self.clock())
                self.pump()

        self.world.at(self.world.now, take, self.frozen)

    def pump(self) -> None:
        """After each call: the agent acts, the next request is sent, and an alarm is set."""
        if self.frozen_until > self.world.now:
            return self.later(0.0, self.pump)
        self._agent()
        if self.up:
            now = self.clock()
            data = self.member.take(now)
            if data is not None and self.connection is not None:
                self.connection.ask(data)
            wakes = self.member.wakes(now)
            if wakes < self.alarm or self.alarm <= now:
                self.alarm = wakes
                self.later(min(END, max(0.0, wakes - now)) / self._rate + 1e-6, self._wake)
        return None

    def _wake(self) -> None:
        now = self.clock()
        if now + 1e-9 >= self.alarm:
            if not self.member.woke(now):
                self.world.counts["impatient"] += 1
                self.break_connection(0.5)
            self.pump()

    # ---- the agent

    @property
    def is_late(self) -> bool:
        """Whether it has started after the end of the job."""
        return self.world.closed_at is not None and self.started_at > self.world.closed_at

    def lease_ends(self) -> float:
        return self.member.lease.next_beat - INTERVAL + self.world.settings.lease_seconds

    def _agent(self) -> None:
        m, w = self.member, self.world
        if m.error is not None and not self.over:
            self.over = True
            w.counts[type(m.error).__name__] += 1
            w.demand(not self.is_late or isinstance(m.error, RendezvousClosedError), "it came after the end", m.error)
            self.die(silently=False)
        elif m.joined is not None and m.joined is not self.joined:
            self.joined = m.joined
            w.returned(self, m.joined)
            self.group += 1
            self.later(w.rng.uniform(0, 0.1), self._begin, group=True)
            self._watch_lease()
        elif m.joined is not None:
            standing = m.standing(self.clock())
            w.counts[standing.name] += standing not in RUNS
            if standing in (Standing.EXPELLED, Standing.LAPSED):
                self._stop(KILL_SECONDS)
            elif standing is not Standing.CURRENT and not (standing is Standing.NEWCOMERS and m.makes_room):
                self._stop(self.stop_seconds)

    def _begin(self) -> None:
        """4."""
        w = self.world
        if self.member.standing(self.clock()) not in RUNS:
            return self._rejoin(failed=False)
        self.running = self.member.makes_room = True
        for other in w.hosts:
            one, two = other.joined, self.joined
            if other.running and not other.still and one is not None and two is not None:
                same = (one.life, one.round) == (two.life, two.round) or (w.forgets and one.life != two.life)
                w.demand(same, "two groups", self.token, two.round, other.token, one.round)
        if w.rng.random() < 0.05 and w.settings.max_restarts < 0:
            self.later(w.rng.uniform(1, 10), self._succeed, group=True)
        return None

    def _succeed(self) -> None:
        self.world.counts["succeeded"] += 1
        self.member.done()
        self.pump()

    def _watch_lease(self) -> None:
        """The agent's timer, or its watchdog: it kills the workers at the end of the lease."""
        if self.member.joined is not None and self.member.standing(self.clock()) is Standing.LAPSED:
            self._stop(KILL_SECONDS)
        else:
            self.later(max(1e-4, (self.lease_ends() - self.clock()) / self._rate), self._watch_lease, group=True)

    def _stop(self, seconds: float) -> None:
        """Stop the workers within these seconds; the end of the lease kills them meanwhile."""
        if self.stopping != self.group or seconds <= KILL_SECONDS:
            self.stopping = self.group
            self.later(self.world.rng.uniform(0, seconds), lambda: self._rejoin(failed=False), group=True)

    def thaw(self) -> None:
        """A host that was frozen beyond its lease kills its workers first: none has run meanwhile."""
        if self.world.now >= self.frozen_until:
            self.still = False
            if self.running and self.up and not self.member.lease.holds(self.clock()):
                self.running = False
                self._stop(0.0)

    def fail(self) -> None:
        if self.running:
            self._rejoin(failed=True)

    def _rejoin(self, failed: bool) -> None:
        m, w = self.member, self.world
        if m.joined is None:
            return
        lapsed = m.standing(self.clock()) is Standing.LAPSED
        self.running, self.group = False, self.group + 1

        def join() -> None:
            m.join(self.clock(), 1000.0, failed=failed, lapsed=lapsed)
            self.pump()

        if self.check_seconds and w.rng.random() < 0.5:
            m.step_out(failed, self.clock(), lapsed)
            self.later(w.rng.uniform(0, self.check_seconds), join, group=True)
            self.pump()
        else:
            join()

    def leave(self) -> None:
        if self.up and not self.over:
            if self.world.rng.random() < 0.7:
                self.member.give_notice()
            self.running, self.over, self.group = False, True, self.group + 1
            self.member.leave()
            self.pump()
            self.later(2.0, lambda: self.die(silently=False))


def run(seed: int) -> World:
    """The run of a seed. Raises Broken: a property does not hold."""
    usual, members.PATIENCE_SECONDS = members.PATIENCE_SECONDS, 0.6
    try:
        return World(seed).run()
    finally:
        members.PATIENCE_SECONDS = usual


def main() -> None:
    first, count = map(int, sys.argv[1:])
    total: Counter[str] = Counter()
    for seed in range(first, first + count):
        try:
            total += run(seed).counts
        except Broken as broken:
            print(broken)
            total["broken"] += 1
    print(count, "runs:", dict(total))


if __name__ == "__main__":
    main()
