"""A store's service among strangers that send any bytes, and the claims that must hold after every piece of them.

Rule: for any bytes of strangers, the service does not raise, a peer that keeps the protocol gets right answers, and all
counts of the service are correct. A siege is a sequence of bytes: each step has a head, a size, and data of that size.
So any bytes are a siege.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass

from hypothesis import HealthCheck, Phase, settings
from hypothesis import strategies as st

from trystate.impl.store.limits import Limits
from trystate.impl.store.operations import BODIES, Field
from trystate.impl.store.server.blocking import SessionArrival
from trystate.impl.store.server.service import Service
from trystate.impl.store.server.session import Reserved, Session
from trystate.impl.store.server.unread import BULK_BYTES
from trystate.impl.store.wire import COUNTER_KEY, I64, MAGIC, U32, U64, VERSION, blob, counted
from trystate.model.store.vocabulary import Connection, Extension, Query

from ...adapters.our_store.lines import held
from ...adapters.our_store.wire import VALIDATE as VALIDATE
from ...adapters.our_store.wire import check, get, request, set_, wait

STRANGERS = 3
STEPS_MAX = 200
DATA_MAX = 255  # limit of a step's data, in bytes
PIECE = 100  # the bytes that a transport takes at a time
LIMITS = Limits(  # small, so a few hundred bytes reach each limit
    key_bytes=48, value_bytes=128, keys_in_request=12, frame_bytes=1328, half_sent_bytes_total=1400, keys_total=8,
    bytes_total=1024, queue_items=8, connections=STRANGERS + 1, unsent_bytes=512, unsent_bytes_total=300,
    kept_bytes_total=128, watches_per_connection=4, waited_keys_total=8,
)  # fmt: skip
MINE = b"/the witness's own"


@dataclass(frozen=True)
class Step:
    """A stranger sends bytes, is replaced by another, or begins or ends not to read; or time passes."""

    kind: int
    stranger: int
    data: bytes = b""


SEND, LEAVE, PASS, STALL = range(4)


def encode(steps: Iterable[Step]) -> bytes:
    """The bytes of a siege."""
    return b"".join(bytes((step.kind << 2 | step.stranger, len(step.data))) + step.data for step in steps)


def decode(siege: bytes) -> list[Step]:
    """The steps of any bytes."""
    steps: list[Step] = []
    at = 0
    while at + 2 <= len(siege) and len(steps) < STEPS_MAX:
        head, size = siege[at], siege[at + 1]
        at += 2
        kind = (head >> 2) & 15
        steps.append(Step(kind if kind in (LEAVE, PASS, STALL) else SEND, head % STRANGERS, siege[at : at + size]))
        at += size
    return steps


class Siege:
    """A service, its strangers, and a witness that keeps the protocol. Raises AssertionError if a claim fails."""

    def __init__(self, secret: bytes | None = None, kind: Callable[..., Service] = Service) -> None:
        self.now, self.log = 0.0, list[str]()
        self.service = kind(limits=LIMITS, secret=secret, random_bytes=bytes, log=self.log.append)
        self.replies: dict[Session, bytearray] = {}
        self.stalled: dict[Session, int] = {}
        self.witness = self._come(b"")
        self.secret = secret
        self.count = 0
        if secret is None:
            self.ask(VALIDATE + set_(MINE, b"%06d" % 0), b"")
        self.strangers = [self._come(VALIDATE) for _ in range(STRANGERS)]

    def _come(self, first: bytes) -> Session:
        session = self.service.connected("a peer", self.now)
        assert session is not None, "there is room for all"
        self.replies[session] = bytearray()
        self.feed(session, first)
        return session

    def feed(self, session: Session, data: bytes) -> None:
        if session in self.replies:
            self.service.received(session, data, self.now)
            self._drive()

    def _drive(self) -> None:
        """The driver, with transports that hold a piece of the bytes that a stalled peer does not read."""
        for session in self.service.take_pending():
            if session not in self.replies:
                continue
            if session in self.stalled and not session.closing:
                self.stalled[session] = self.stalled[session] or len(session.take_outgoing(PIECE))
                self.service.unsent(session, self.stalled[session])
            while session not in self.stalled and (piece := session.take_outgoing(PIECE)):
                self.replies[session] += piece
            if session.closing:
                self._gone(session)

    def _gone(self, session: Session) -> None:
        self.service.disconnected(session)
        self.replies.pop(session, None)
        self.stalled.pop(session, None)

    def take(self, step: Step) -> None:
        """Do a step and check the claims."""
        session = self.strangers[step.stranger]
        if session not in self.replies and step.kind != LEAVE:  # closed by the service: connect again
            session = self.strangers[step.stranger] = self._come(VALIDATE)
        if step.kind == PASS:
            self._pass(0.5 * (1 + len(step.data)))
        elif step.kind == LEAVE:
            self._gone(session)
            self.strangers[step.stranger] = self._come(step.data)
        elif step.kind == STALL:
            if self.stalled.pop(session, None) is None:
                self.stalled[session] = 0
            self.service.unsent(session, 0)
            self.service.pend(session)
            self.feed(session, step.data)
        else:
            self.feed(session, step.data)
        self.audit()

    def _pass(self, seconds: float) -> None:
        self.now += seconds
        due = self.service.alarm.at
        if due is not None and due <= self.now:
            self.service.tick(self.now)
            assert self.service.alarm.at is None or self.service.alarm.at > self.now, "it would spin"
        self._drive()

    def ask(self, question: bytes, reply: bytes) -> None:
        """Send the witness's request; the service must send exactly this reply."""
        heard = self.replies[self.witness]
        heard.clear()
        self.feed(self.witness, question)
        assert bytes(heard) == reply, f"the witness was answered {bytes(heard)!r} instead of {reply!r}"

    def question(self) -> None:
        """The witness reads and writes its own key, whatever limits the strangers have used up."""
        old, self.count = b"%06d" % self.count, self.count + 1
        new = b"%06d" % self.count
        self.ask(get(MINE), blob(old))
        self.ask(request(Query.COMPARE_SET, blob(MINE), blob(old), blob(new)), blob(new))
        self.ask(check(MINE), b"\x00")
        self.ask(wait(MINE) + get(MINE), b"\x00" + blob(new))
        assert not self.witness.closing, self.log[-1]

    def audit(self) -> None:
        """Check that every count is correct, that every limit holds, and that no session waits for an existing key."""
        service, contents, limits = self.service, self.service.contents, LIMITS
        assert not any("internal error" in line for line in self.log), self.log
        items = [len(queue) for queue in contents.queues.values()]
        assert all(items), "an empty queue is no queue"
        assert contents.items_held == sum(items) <= limits.queue_items + STRANGERS  # reserved elements may come back
        values = sum(len(key) + len(value) for key, value in contents.values.items())
        queued = sum(len(key) + sum(map(len, queue)) for key, queue in contents.queues.items())
        kept = [each.promise for each in service.sessions if isinstance(each.promise, Reserved)]
        reserved = sum(len(each.key) + len(each.element) for each in kept)
        assert contents.bytes_held == values + queued + reserved, "bytes held"
        assert contents.bytes_held <= limits.bytes_total + STRANGERS * (limits.key_bytes + limits.value_bytes)
        assert len(contents.values) <= limits.keys_total
        assert all(len(key) <= limits.key_bytes for key in (*contents.values, *contents.queues))
        assert all(len(value) <= limits.value_bytes for value in contents.values.values())
        sessions = list(service.sessions)
        assert service.half_sent.bytes == sum(each.half_bytes for each in sessions) <= limits.half_sent_bytes_total
        assert all(len(each.buffer) <= each.half_bytes <= limits.frame_bytes for each in sessions), "half sent"
        assert all((each.frame is None) == (each.half_bytes == 0) for each in sessions), "half a request or none"
        assert service.promises.bytes == sum(each.promised_bytes for each in sessions)
        parts = {id(part): part for each in self.replies for part in each.parts if len(part) >= BULK_BYTES}
        small = sum(len(part) for each in self.replies for part in each.parts if len(part) < BULK_BYTES)
        unread = sum(each.unsent for each in sessions) + sum(map(len, parts.values())) + small
        assert service.replies.held.bytes == unread <= limits.unsent_bytes_total
        assert all(each.unsent + each.size() <= limits.unsent_bytes + limits.frame_bytes for each in sessions)
        assert all(each.queued == 0 or each in self.stalled for each in sessions), "a reply is not sent"
        self._audit_blocked(sessions)

    def _audit_blocked(self, sessions: Sequence[Session]) -> None:
        contents = self.service.contents
        crowds = set(contents.waiting.crowds.values())
        assert crowds == {crowd for there in contents.waiting.waits.values() for crowd in there}
        waits = {each for crowd in crowds for each in crowd.waits}
        assert contents.waiting.keys_waited == sum(len(each.keys) for each in waits) <= LIMITS.waited_keys_total
        for each in crowds:
            there = set() if each.takes else set(contents.values)
            there |= set() if each.reads else set(contents.queues)
            assert each.waits and each.missing == each.keys - there != set(), "what waits miss"
            assert all(
                (wait.keys, wait.takes, wait.reads) == (each.keys, each.takes, each.reads) for wait in each.waits
            )
        arrivals = [
            each for barrier in self.service.blocking.barriers.table.values() for each in barrier.arrivals.values()
        ]
        blocked = {each.blocked for each in sessions if each.state is Connection.BLOCKED}
        assert blocked == {*waits, *arrivals}, "who is blocked is in a table, and the other way round"
        for barrier in self.service.blocking.barriers.table.values():
            assert 0 < len(barrier.arrivals) < barrier.world_size, "a barrier is incomplete or gone"
        for arrival in arrivals:
            assert isinstance(arrival, SessionArrival) and arrival.session in self.service.sessions
        for key, watchers in contents.watching.watchers.items():
            assert watchers and all(key in watcher.watches for watcher in sessions if watcher in watchers)

    def end(self) -> None:
        """Disconnect all peers; all tables of the service must then be empty."""
        for session in list(self.replies):
            self._gone(session)
        assert not held(self.service), f"left behind: {held(self.service)}"


def besiege(siege: bytes, secret: bytes | None = None) -> Siege:
    """Run a siege, with a request of the witness after each step. Raises AssertionError."""
    room = Siege(secret)
    for step in decode(siege):
        room.take(step)
        if secret is None:
            room.question()
    room.end()
    return room


# ---- each request, whole

_KEYS = [b"/%c" % letter for letter in b"abcdefghijkl"]
_LISTS = [_KEYS[:2], _KEYS[:1], _KEYS[1:2], [], _KEYS[:6], _KEYS, _KEYS]
_INTEGERS = [2, 0, -1, 60_000, (1 << 63) - 1]
POOLS = {
    Field.KEY: [blob(key) for key in (*_KEYS[:2] * 4, *_KEYS[2:], COUNTER_KEY, b"", b"/" * 60)],
    Field.VALUE: [blob(value) for value in (b"7", b"no number", b"", b"v" * 120, b"v" * 150)],
    Field.INTEGER: [I64.pack(number) for number in _INTEGERS],
    Field.WORD: [U32.pack(word) for word in (MAGIC, VERSION)],
    Field.KEYS: [counted(keys) for keys in _LISTS],
    Field.PAIRS: [
        U64.pack(len(keys)) + b"".join(blob(key) + blob(value) for key in keys)
        for keys, value in ((_KEYS[:2], b"7"), ([], b""), (_KEYS, b""), (_KEYS, b"v" * 120))
    ],
}


Pools = Mapping[Field, list[bytes]]


def whole(operation: int, choose: Callable[[list[bytes]], bytes], pools: Pools = POOLS) -> bytes:
    """A request of this kind."""
    return bytes((operation,)) + b"".join(choose(pools[field]) for field in BODIES[operation])


def sent(stranger: int, data: bytes, kind: int = SEND) -> list[Step]:
    """The steps in which a stranger sends these bytes."""
    return [
        Step(SEND if at else kind, stranger, data[at : at + DATA_MAX]) for at in range(0, max(1, len(data)), DATA_MAX)
    ]


QUICK = settings(
    derandomize=True, database=None, deadline=None, max_examples=400, phases=[Phase.generate],
    report_multiple_bugs=False, suppress_health_check=list(HealthCheck),
)  # fmt: skip

MEETING = (Query.WAIT, Query.SET, Query.DELETE_KEY, Query.QUEUE_PUSH, Query.QUEUE_POP)  # affect each other

strangers = st.integers(0, STRANGERS - 1)

KINDS = st.sampled_from(sorted(BODIES))


@st.composite
def requests(draw: st.DrawFn) -> bytes:
    """A request of any kind, with allowed and forbidden fields."""
    return whole(draw(KINDS), lambda pool: draw(st.sampled_from(pool)))


@st.composite
def encounters(draw: st.DrawFn) -> list[Step]:
    """Requests of a few strangers, about the same two keys."""
    turns = draw(st.lists(st.tuples(strangers, st.sampled_from(MEETING) | KINDS), min_size=2, max_size=6))
    return [
        step for who, kind in turns for step in sent(who, whole(kind, lambda pool: draw(st.sampled_from(pool[:2]))))
    ]


@st.composite
def floods(draw: st.DrawFn) -> bytes:
    """Requests of one kind for one key after another."""
    kind = draw(st.sampled_from([Extension.WATCH, Extension.SET, Extension.QUEUE_PUSH]))
    pools = [{**POOLS, Field.KEY: [key]} for key in POOLS[Field.KEY][8:-3]]
    return b"".join(whole(kind, lambda pool: pool[0], each) for each in pools)


@st.composite
def mutated(draw: st.DrawFn) -> bytes:
    """One or two requests with some bytes changed or missing."""
    data = bytearray(draw(requests()) + draw(st.just(b"") | requests()))
    for _ in range(draw(st.integers(0, 2))):
        data[draw(st.integers(0, len(data) - 1))] = draw(st.sampled_from([0, 1, 2, 8, 48, 127, 255]))
    begin = draw(st.just(0) | st.integers(0, len(data)))
    return bytes(data[begin : draw(st.just(len(data)) | st.integers(begin, len(data)))])


halves = st.integers(600, 1600).map(lambda size: whole(Query.MULTI_SET, lambda pool: pool[-1])[:size])


@st.composite
def deeds(draw: st.DrawFn) -> list[Step]:
    """One act of a stranger."""
    if draw(st.integers(0, 2)) == 0:
        return draw(encounters())
    who = draw(strangers)
    kind = draw(st.sampled_from([SEND] * 8 + [LEAVE, PASS, STALL]))
    if kind == PASS:
        return [Step(kind, who, bytes(draw(st.sampled_from([1, 70, 250]))))]
    if kind == LEAVE:
        return [Step(kind, who, draw(st.sampled_from([VALIDATE, b""])))]
    if kind == STALL:  # the stranger sends requests and reads nothing
        return sent(who, draw(requests()) * draw(st.integers(1, 9)), STALL)
    return sent(who, draw(requests() | requests() | mutated() | floods() | halves | st.binary(max_size=40)))


sieges = st.lists(deeds(), min_size=8, max_size=60).map(lambda each: [step for deed in each for step in deed])
