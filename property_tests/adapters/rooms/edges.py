"""Steps of the model `Rooms`, performed by a real `Room` and real `Member`s.

Theory of operation. `EngineSteps` has the phases and the faults of nodes. Here are the network and the clocks. Messages
under way are bytes: a request on the latest connection (`there`), one on an earlier connection (`late`), and those to
the node (`back`). A step of the server is performed only if the records of the request are the changes of that step.
The code does some things at once that are two steps of the model, and the adapter takes them apart: an answer with a
complete round is HELD until the node returns, and the server's own steps are taken by `tick`, never within a request.

Heartbeats have the model's three ages. A request of the model is a heartbeat only where it lists its node, so other
requests are not counted as heartbeats, and a silent node is expelled in `server_expels` alone. A lease counts from the
same heartbeats, by the node's own clock.

Rule: each guard of a room or a member is the code's own. A step that is refused is undone.

Three runs of the model are not of the code: a round is complete while no member of it has a connection (here a member
sends a heartbeat first); a late POKE lists a node again (`cut` is not replayed with silent nodes); a JOIN of a silent
node is not a heartbeat (`stall` and `partition` are replayed where min is max).
"""

from __future__ import annotations

import math
from collections import OrderedDict, deque
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from typing import Any

from trystate.impl.rendezvous.changes import Table
from trystate.impl.rendezvous.encoding import encode_settings
from trystate.impl.rendezvous.engine import Joined, Standing
from trystate.impl.rendezvous.observer import Lease
from trystate.impl.rendezvous.rooms import messages
from trystate.impl.rendezvous.rooms.member import JOINING, Member
from trystate.impl.rendezvous.rooms.messages import Intent, Summary, read_intent, read_record, read_summary
from trystate.impl.rendezvous.rooms.room import Room
from trystate.model.language.sorts import ordinal
from trystate.model.rendezvous.fields import LEASED
from trystate.model.rendezvous.rooms import EARLIER, LATEST, TRYING, Answer, Offer, Request
from trystate.model.rendezvous.vocabulary import AgentPhase, Deadline, Heartbeat, JoinDeadline, Membership

from ...harness.subjects import Refused
from ..simulator.edges import OPERATOR, EngineSteps, Seat

LISTS = ("replace_round", "add_to_participants", "add_to_wait_list", "add_to_redundancy_list")
LEAVES = ("leave", "leave_finish")
ARRIVES = {name: [name] for name in LISTS} | {"withdraw": ["withdraw"], "leave": ["withdraw"]}  # the changes of a step
ARRIVES |= {"request_ends": [], "leave_finish": []}
SERVERS = ("server_completes", "server_expels", "server_makes_room")
LOCAL = ("start_workers", "notice_finishes", "late_notice_finishes")  # steps that need no connection
INTERVALS = {Heartbeat.FRESH: 0, Heartbeat.DUE: 1, Heartbeat.EXPIRED: 3}  # since the last heartbeat
AWAY_SECONDS, NEVER = 1000.0, 1e9
ANSWER, HELD, NOTICE = range(3)  # messages to a node
Peer = tuple[str, int]


@dataclass
class Wire:
    """A node's member, its clock, and the messages between it and the room."""

    member: Member
    clock: float = 0.0
    beaten: float = 0.0  # when its last heartbeat was sent
    there: bytes = b""
    late: tuple[Peer, bytes] | None = None
    back: list[tuple[bytes, int]] = field(default_factory=list)

    @property
    def peer(self) -> Peer:
        return self.member.token, self.member._connection

    def has(self, kind: int) -> bytes:
        """The first message of this kind to the node, or nothing."""
        return next((data for data, its in self.back if its == kind), b"")

    def asked(self, connection: int) -> Intent | None:
        data = self.there if connection == LATEST else self.late and self.late[1]
        return read_intent(data) if data else None

    def hears(self, data: bytes, kind: int) -> None:
        self.member._sent = self.beaten
        self.member.heard(data, kind == NOTICE, self.clock)

    def catches_up(self) -> None:
        """The notices to a node that does not join arrive."""
        for message in self.back:
            self.hears(*message)
        self.back = []

    def offer(self) -> tuple[bytes, int] | None:
        """The message by which the node may return."""
        return next((message for message in self.back if offered(message[0])), None)

    def takes(self) -> bytes:
        data = self.member.take(self.clock)
        if data is None:
            raise Refused("a request of the node is under way")
        return data


def goes_on(data: bytes) -> Summary | None:
    """The summary of a message after which a join continues."""
    s = read_summary(data) if data[:1] == bytes((messages.FULL,)) else None
    return s if s is not None and not s.verdict and not s.closed else None


def offered(data: bytes) -> Summary | None:
    """The summary of a message that the node's round is complete."""
    s = goes_on(data)
    return s if s is not None and s.complete and s.membership is Membership.PARTICIPANT else None


def asks_again(answer: bytes, request: bytes) -> bool:
    """Whether a node that gets this answer sends another request at once; in the model both are one JOIN."""
    if answer[0] != messages.FULL:
        return answer[0] == messages.NEED_SETTINGS or not read_intent(request).flags & messages.LATE
    s = goes_on(answer)
    return s is not None and s.membership is Membership.OUTSIDE


def copied(value: Any) -> Any:
    """A copy that shares the values that do not change."""
    kind = type(value)
    if kind is list or kind is deque:
        return kind(map(copied, value))
    if kind is dict or kind is set or kind is OrderedDict:
        return value.copy()
    if not isinstance(value, (Room, Table, Member, Lease, Wire)):
        return value
    new = object.__new__(kind)
    for name in Table.__slots__ if kind is Table else value.__dict__:
        setattr(new, name, copied(getattr(value, name)))
    return new


class RoomSteps(EngineSteps):
    """Subject for the model `Rooms`."""

    def reset(self) -> None:
        super().reset()
        self.settings = replace(self.settings, last_call_timeout=NEVER, rescale_timeout=NEVER)
        self.records: list[bytes] = []
        self.lives, self.now = 0, 0.0
        self.dropped: set[Peer] = set()  # connections that the room has ended
        self.room = self._room()
        self.wires = [self._wire(seat) for seat in self.seats]

    def _room(self) -> Room:
        return Room(lambda: f"life{self.lives}", lambda record: self.records.append(record))

    def _wire(self, seat: Seat) -> Wire:
        member = Member(seat.engine.me, self.settings)
        member.connected(0.0)
        return Wire(member)

    def can_refuse(self, step: str) -> bool:
        return step in self.decided or step in SERVERS

    def perform(self, step: str, indices: tuple[int, ...]) -> None:
        seats = [self.seats[k] for k in indices[:1]]
        given: tuple[Any, ...] = (*seats, *indices[1:])  # a node, and the number of a connection
        if step in self.decided or step in SERVERS:
            broken = {fault for seat in seats for fault in seat.broken} | ({"down"} if self.down else set())
            if broken & ({"crashed", "stalled"} if step in LOCAL else {"crashed", "stalled", "partitioned", "down"}):
                raise Refused("the node or the server does not act")
        self._saved: Any = None
        try:
            if step in ARRIVES:
                self._arrives(step, *given)
            else:
                getattr(self, f"_{step}")(*given)
        except Refused:
            if self._saved is not None:
                (self.room, *self.wires), self.ages, self.dropped, records = self._saved
                del self.records[records:]
            raise
        for seat in seats:
            if seat.phase is AgentPhase.JOINING and self._of(seat).member.error is not None:
                seat.be(AgentPhase.FAILED)
        self.state = self.room.state

    def _of(self, seat: Seat) -> Wire:
        """The wire of a node, which is about to change; the change may be refused."""
        self._saved = self._saved or (
            copied([self.room, *self.wires]), dict(self.ages), set(self.dropped), len(self.records)
        )  # fmt: skip
        return self.wires[seat.number]

    # ---- the room

    def _ask(self, peer: Peer, data: bytes, *, beats: bool = False, expels: bool = False) -> bytes:
        """The room applies a request. It is a heartbeat if `beats`, and expels silent nodes if `expels`."""
        room, interval = self.room, self.settings.keep_alive_interval
        ages = {t: INTERVALS[age if expels or age is not Heartbeat.EXPIRED else Heartbeat.DUE]
                for t, age in self.ages.items()}  # fmt: skip
        before = {t: room._watched - interval * age for t, age in sorted(ages.items(), key=lambda each: -each[1])}
        room._since = OrderedDict(before)
        answer = room.request(peer, data, self.now)
        same = {t for t, since in room._since.items() if since == before.get(t) or (t == peer[0] and not beats)}
        self.ages = {t: self.ages.get(t, Heartbeat.FRESH) if t in same else Heartbeat.FRESH for t in room._since}
        self._sends()
        return answer

    def _sends(self) -> None:
        """The room's notices are sent, and the connections that it has replaced are closed."""
        for to, notice in self.room.notices:
            for seat, wire in zip(self.seats, self.wires, strict=True):
                if wire.peer == to and "crashed" not in seat.broken:
                    wire.back.append((notice, NOTICE))
        self.dropped.update(self.room.drop)
        self.room.notices, self.room.drop, self.room.decisions = [], [], []

    def _changes(self, records: int, wanted: list[str]) -> None:
        names = [name for name, *_ in map(read_record, self.records[records:]) if name != "begin"]
        if names != wanted:
            raise Refused(f"the room does {names}")

    def _arrives(self, step: str, seat: Seat, connection: int) -> None:
        records, beats, intent = len(self.records), step in LISTS, self.wires[seat.number].asked(connection)
        if intent is None or (intent.kind == messages.LEAVE) is not (step in LEAVES):
            raise Refused("no such request is under way")
        if step not in (*LEAVES, "replace_round") and seat.phase is AgentPhase.EXITING:
            raise Refused("the exit operation comes first")
        wire = self._of(seat)
        wire.beaten = wire.clock if beats else wire.beaten
        if connection == LATEST:
            self._answers(wire, beats)
        elif wire.late is not None:
            self._ask(*wire.late, beats=beats)
            wire.late = None
        self._changes(records, ARRIVES[step])
        if step == "leave" and seat.phase in TRYING:
            seat.be(AgentPhase.LEFT)
        elif step == "replace_round":
            seat.be(AgentPhase.JOINING)
        elif step in ("add_to_redundancy_list", "withdraw"):
            seat.join_deadline = JoinDeadline.IN_TIME

    def _answers(self, wire: Wire, beats: bool) -> None:
        """The request on the latest connection arrives, and a copy on an earlier one after that."""
        for message in wire.back:  # notices, which arrive before the answer
            if offered(message[0]):
                wire.hears(*message)
        wire.back = []
        answer = self._ask(wire.peer, wire.there, beats=beats)
        while wire.member.joining and asks_again(answer, wire.there):
            wire.hears(answer, ANSWER)
            wire.there, wire.back = wire.takes(), []
            answer = self._ask(wire.peer, wire.there, beats=beats)
        wire.there, wire.back = b"", [(answer, ANSWER), *wire.back]
        if wire.late is not None and wire.late[0] not in self.dropped:
            self._ask(*wire.late)
        wire.late = None if wire.late is None or wire.late[0] in self.dropped else wire.late

    def _server_completes(self) -> None:
        self._ticks("mark_complete", self._deadline(self.state) is Deadline.PASSED)

    def _server_makes_room(self) -> None:
        self._ticks("give_notice", True)

    def _ticks(self, change: str, passed: bool) -> None:
        """A member beats, and lets newcomers in; then the room's time has come, if `passed`."""
        t, known = self.room._table, {token: peer for token, (peer, _) in self.room._peers.items()}
        peers: dict[str, Peer] = {wire.member.token: wire.peer for wire in self.wires} | known
        token = next((one for one in t.participants if one in peers), "") if t is not None else ""
        if not token:
            raise Refused("no member is there")
        self._of(self.seats[0])
        beat = Intent(messages.BEAT, token, peers[token][1], flags=messages.MAKES_ROOM)
        self._ask(peers[token], beat.encode())
        records = len(self.records)
        self.room.tick(min(self.room.due, NEVER**2) if passed else self.now)
        self._changes(records, [change])
        self._sends()

    def _server_expels(self) -> None:
        """A node comes after its deadline, which changes nothing else."""
        self._of(self.seats[0])
        records, blob, stranger = len(self.records), encode_settings(self.settings), OPERATOR.node.token
        late = Intent(messages.JOIN, stranger, 1, 1, messages.LATE, me=OPERATOR, digest=messages.digest(blob),
                      settings=blob)  # fmt: skip
        self._ask((stranger, 1), late.encode(), expels=True)
        self.room.gone((stranger, 1))
        self._changes(records, ["expel"])

    def _drain(self, seat: Seat) -> None:
        whom, by = self._listing(seat), OPERATOR.node
        self._ask(("", 0), Intent(messages.DRAIN, by.token, flags=messages.ANYWAY, by=by, whom=whom).encode())

    def _server_restarts(self) -> None:
        self.now += AWAY_SECONDS
        self.room = self._room()
        for record in self.records:
            self.room.replay(record)
        self.room.begin_again(self.now)
        lasts = {t: self.room._watched - since for t, since in self.room._since.items()}
        self.ages = {t: Heartbeat.FRESH if last <= 0.0 else Heartbeat.EXPIRED for t, last in lasts.items()}
        self.over.clear()
        for wire in self.wires:
            wire.late = None
            self._reconnects(wire)

    def _another_life(self) -> None:
        self.lives += 1
        self.records.clear()
        for seat in self.seats:
            seat.joined = None
            if seat.phase in LEASED:
                seat.be(AgentPhase.EXITING)
        self._server_restarts()

    # ---- connections

    def _lose_connection(self, seat: Seat) -> None:
        wire = self._of(seat)
        wire.late = (wire.peer, wire.there) if wire.there else wire.late
        self._reconnects(wire)

    def _reconnects(self, wire: Wire) -> None:
        """The node sends what was not answered again. If it has all answers, it sends a heartbeat."""
        again = wire.there or wire.has(ANSWER)
        wire.back = []
        wire.member.disconnected()
        wire.member.connected(wire.clock)
        if again:
            wire.there = wire.takes()
        else:
            wire.member._wanted.clear()
            self._ask(wire.peer, Intent(messages.BEAT, *wire.peer).encode())

    # ---- a node

    def _ask_to_join(self, seat: Seat) -> None:
        self._in(seat, AgentPhase.EXITING)
        self._joins_again(self._of(seat))

    def _joins_again(self, wire: Wire) -> None:
        if wire.member.joining:
            raise Refused("it joins already")
        wire.member.join(wire.clock, math.inf)
        wire.there, wire.back = wire.takes(), []

    def _ask_again(self, seat: Seat) -> None:
        self._in(seat, AgentPhase.JOINING)
        wire = self._of(seat)
        if wire.has(ANSWER):
            raise Refused("an answer is under way")
        if (offer := wire.offer()) is not None:
            wire.hears(*offer)
        if not wire.member.joining and wire.member.joined is None:  # it has left, and was on no list
            return self._joins_again(wire)
        if not wire.member._wanted:
            wire.member.woke(wire.member.wakes(wire.clock))
        if not wire.member.joining:
            raise Refused("it has returned")
        wire.there, wire.back = wire.takes(), []

    def _depart(self, seat: Seat) -> None:
        wire = self._of(seat)
        if held := wire.has(HELD):
            wire.hears(held, HELD)
        wire.member.leave()
        wire.there, wire.back = wire.takes(), []

    def _receive_answer(self, seat: Seat) -> None:
        if not (data := self.wires[seat.number].has(ANSWER)):
            raise Refused("no answer is under way")
        wire = self._of(seat)
        if wire.member.joining and offered(data):
            wire.back[0] = data, HELD
        else:
            wire.hears(*wire.back.pop(0))

    def _notice_finishes(self, seat: Seat, late: bool = False) -> None:
        self._in(seat, AgentPhase.JOINING)
        wire, state = self._of(seat), self.room.state
        offer = wire.offer()
        if offer is None or wire.has(ANSWER) or self._is_current(offer[0]) is late:
            raise Refused("no such notice arrives")
        wire.back.remove(offer)
        wire.hears(*offer)
        if wire.member.joined is None:
            raise Refused("the node does not return")
        s = wire.member.joined
        seat.joined = None
        if not late and state is not None:
            master = state.participants[0]
            if (s.members, s.master, s.participants) != (
                self.room._members[1], (master.host, master.port), len(state.participants)
            ):  # fmt: skip
                raise Refused("the node returns with another round")
            seat.joined = Joined(state, s.rank)
        seat.be(AgentPhase.RETURNING)
        wire.catches_up()

    def _late_notice_finishes(self, seat: Seat) -> None:
        self._notice_finishes(seat, True)

    def _exit_finish(self, seat: Seat, connection: int = LATEST) -> None:
        self._in(seat, AgentPhase.EXITING)
        intent = self._of(seat).asked(connection)
        if intent is None or intent.kind not in JOINING or self._leaves_round(intent):
            raise Refused("no such request is under way")
        if not self._closed():
            self._alone(seat)
        seat.be(AgentPhase.JOINING)

    def _beat(self, wire: Wire, beats: bool) -> None:
        """The node sends its next heartbeat. If it `beats`, time passes until then, while its lease holds."""
        wire.catches_up()
        due = max(wire.clock, wire.member.wakes(wire.clock))
        if beats and wire.member.lease.holds(due):
            wire.clock = due
        wire.member.woke(wire.clock if beats else due)
        data = wire.takes()
        wire.beaten = wire.clock if beats else wire.beaten
        wire.hears(self._ask(wire.peer, data, beats=beats), ANSWER)

    def _keep_alive(self, seat: Seat) -> None:
        self._in(seat, AgentPhase.EXITING, AgentPhase.JOINING, *LEASED, AgentPhase.DONE)
        if self._age(seat.token) not in (Heartbeat.DUE, Heartbeat.EXPIRED):
            raise Refused("no heartbeat is due")
        wire = self._of(seat)
        if wire.member.joined is not None:
            return self._beat(wire, True)
        # The heartbeats of a joining node are requests of its join.
        self.ages[seat.token], wire.beaten = Heartbeat.FRESH, wire.clock
        wire.member.lease.confirm(wire.clock)

    def _restart_workers(self, seat: Seat) -> None:
        self._in(seat, AgentPhase.RUNNING)
        wire = self._of(seat)
        self._beat(wire, False)
        standing = wire.member.standing(wire.clock)
        if standing not in (Standing.NEWCOMERS, Standing.REPLACED, Standing.EXPELLED):
            raise Refused(standing.value)
        seat.be(AgentPhase.EXITING)

    def _mark_closed(self, seat: Seat, closes: bool = True) -> None:
        self._in(seat, AgentPhase.DONE)
        wire = self._of(seat)
        wire.catches_up()
        wire.member.close("done")
        answer = self._ask(wire.peer, wire.takes())
        wire.hears(answer, ANSWER)
        if (answer[0] == messages.FULL and read_summary(answer).applied) is not closes:
            raise Refused("the rendezvous stays open" if closes else "it is closed by that")

    def _close_finish(self, seat: Seat) -> None:
        if seat.phase is not AgentPhase.FAILED:
            self._mark_closed(seat, False)
        seat.be(AgentPhase.LEFT)

    # ---- the environment

    _come_again = EngineSteps._worker_fails

    def _heartbeat_ages(self, seat: Seat) -> None:
        super()._heartbeat_ages(seat)
        self._of(seat).clock += self.settings.keep_alive_interval

    def _heartbeat_expires(self, seat: Seat) -> None:
        super()._heartbeat_expires(seat)
        self._of(seat).clock += self.settings.expiry_seconds

    def _join_deadline_passes(self, seat: Seat) -> None:
        """A request that is under way arrives after the deadline."""
        super()._join_deadline_passes(seat)
        wire = self._of(seat)
        wire.member._deadline = wire.clock
        if wire.there and wire.member._request is not None:
            wire.member._request[1].flags |= messages.LATE
            wire.there = wire.member._request[1].encode()

    def _crash(self, seat: Seat) -> None:
        super()._crash(seat)
        self.wires[seat.number].back = []

    def _restart_process(self, seat: Seat) -> None:
        super()._restart_process(seat)
        self.wires[seat.number] = self._wire(seat)

    def _store_returns(self) -> None:
        super()._store_returns()
        self.now += AWAY_SECONDS

    # ---- what can be seen

    def _is_current(self, data: bytes) -> bool:
        t, s = self.room._table, read_summary(data)
        return t is not None and t.complete and (s.life, s.round) == (t.life, t.round)

    def _leaves_round(self, intent: Intent | None) -> bool:
        t = self.room._table
        if intent is None or t is None or self._closed():
            return False
        return t.complete and intent.of == (t.life, t.round)

    def observe(self) -> Mapping[str, int]:
        out = dict(super().observe())
        for seat, wire in zip(self.seats, self.wires, strict=True):
            k, data, offer = seat.number, wire.has(ANSWER), wire.offer()
            for c in (LATEST, EARLIER):
                intent = wire.asked(c)
                kind = Request.NONE if intent is None else Request.JOIN if intent.kind in JOINING else Request.LEAVE
                out[f"asked[{k}][{c}]"] = ordinal(kind)
                if not self._closed():
                    out[f"of[{k}][{c}]"] = self._leaves_round(intent)
            out[f"ended[{k}]"] = self.room._has_ended(seat.token, wire.member._joins)
            ends = Answer.CONTINUE if goes_on(data) else Answer.ENDED
            out[f"answer[{k}]"] = ordinal(Answer.NONE if not data else ends if wire.member.joining else Answer.GONE)
            if seat.phase is AgentPhase.JOINING and not wire.there and not self._closed():
                age = Offer.NONE if offer is None else Offer.PRESENT if self._is_current(offer[0]) else Offer.PAST
                out[f"offer[{k}]"] = ordinal(age)
            if seat.phase is AgentPhase.JOINING and wire.member.joined is not None:
                out[f"phase[{k}]"] = ordinal(AgentPhase.RETURNING)
        return out
