"""The messages between nodes and a room, and the records of a room, as bytes.

A request is a head and the fields of its kind (`BODIES`). An answer begins with its kind:

    FULL           a `Summary`: the membership of the node that sent the request, and the room's round and counts
    SAME           to a BEAT: nothing has changed since the summary that the node has
    NO_STATE       the room has no state: it has just begun, or its server has lost its contents
    NEED_SETTINGS  to a JOIN that has a digest of settings only: the room does not have them; repeat it with them

The answer to LOOK is `encode` of the state (encoding.py), or nothing; the answer to WHY is a sentence. A notice is a
FULL answer without a request. A record is a change of the table (`CHANGES`), with the table's version after it.

Rule: everything that is read is checked completely. Bytes that are not a message raise IntentError, and nothing else.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from hashlib import blake2b
from operator import attrgetter
from struct import Struct
from typing import TYPE_CHECKING, Any, NamedTuple
from zlib import crc32

from trystate.model.errors import TrystateError
from trystate.model.rendezvous.vocabulary import Membership

from ..encoding import NUMBER_MAX, TEXT_LENGTH_MAX
from ..state import RANK_KEY_LENGTH_MAX, REASON_LENGTH_MAX, Closed, Node, Participant

if TYPE_CHECKING:
    from ..changes import Table

# The kinds of requests. An operator's process sends the last four, with 0 as the number of its connection.
JOIN, POKE, BEAT, LEAVE, STEP_OUT, NOTICE, DONE, CLOSE, DRAIN, LOOK, WHY = range(1, 12)
OPERATORS = (CLOSE, DRAIN, LOOK, WHY)
MAKES_ROOM, LATE, FAILED, LEASED, ANYWAY, LEFT = 1, 2, 4, 8, 16, 32  # flags of requests
FULL, SAME, NO_STATE, NEED_SETTINGS = range(1, 5)  # the kinds of answers
TIMED_OUT, IS_CLOSED, OTHER_SETTINGS, WAS_DRAINED, NO_PLACE = range(1, 6)  # verdicts: why a join has ended
APPLIED, DRAINED, IS_DONE = 1, 2, 4  # flags of an answer, about the node
COMPLETE, CLOSED, CALLING = 1, 2, 4  # flags of an answer, about the round
RECORD_FORMAT = 2  # changes with the shape of any record, and with the effect of any change
TOKEN_BYTES = 16
DIGEST_BYTES, MEMBERS_BYTES = 16, 8  # sizes of the digests of settings, and of the members of a round

HEAD = Struct("<B16sIIBQ")  # kind, token, numbers of the connection and of the join, flags, `mark` of the last summary
_ANSWER = Struct("<BBBBi")  # FULL, membership, flags, verdict, rank
_STATE = Struct("<QQQBIIIIqIQ8s")  # version, revision, round, flags, four counts, seats, done, spent, members' digest
_RECORD = Struct("<BBQ")  # format, change, version of the table after it
_PLACE = Struct("<QQH")  # pid, local_id, port
_U16, _U32, _U64 = Struct("<H"), Struct("<I"), Struct("<Q")
_NOTHING = bytes(_U16.size)  # an empty text
_TOKEN = re.compile(rb"[0-9A-Za-z_-]{1,16}\0*")
MEMBERSHIPS = tuple(Membership)


class IntentError(TrystateError, ValueError):
    """A request or a record that a room refuses, with the reason; nothing was changed."""


class Reader:
    """Reads the fields of a message, one after the other."""

    __slots__ = ("at", "data")

    def __init__(self, data: bytes, at: int) -> None:
        self.data, self.at = data, at

    def take(self, size: int) -> bytes:
        start, self.at = self.at, self.at + size
        if self.at > len(self.data):
            self.end()
        return self.data[start : self.at]

    def end(self) -> None:
        """Raises IntentError: the message does not end where its fields end."""
        if self.at != len(self.data):
            raise IntentError(f"a message has {len(self.data)} bytes, and its fields {self.at}; run one version of "
                              "trystate on all nodes and the store")  # fmt: skip


class Codec(NamedTuple):
    """A kind of field."""

    write: Callable[[Any], bytes]
    read: Callable[[Reader], Any]


def _text(most: int) -> Codec:
    """A text of at most `most` characters."""

    def checked(value: str) -> str:
        if len(value) > most:
            raise IntentError(f"a text has {len(value)} characters, above the limit of {most}: {value[:40]!r}...")
        return value

    def write(value: str) -> bytes:
        if not value:
            return _NOTHING
        data = checked(value).encode("utf-8", "surrogatepass")
        return _U16.pack(len(data)) + data

    def read(reader: Reader) -> str:
        start = reader.at + _U16.size
        end = reader.at = start + int.from_bytes(reader.data[reader.at : start], "little")
        if end > len(reader.data):
            reader.end()
        if end == start:
            return ""
        try:
            value = reader.data[start:end].decode("utf-8", "surrogatepass")
        except UnicodeDecodeError:
            raise IntentError(f"a text begins with {reader.data[start:end][:24]!r}, which is not UTF-8") from None
        return value if len(value) <= most else checked(value)

    return Codec(write, read)


def _number(form: Struct, most: int) -> Codec:
    """A whole number from 0 to `most`."""

    def read(reader: Reader) -> int:
        value: int = form.unpack(reader.take(form.size))[0]
        if value > most:
            raise IntentError(f"a number is {value}, above the limit of {most}")
        return value

    return Codec(form.pack, read)


def _of(make: Callable[..., Any], parts: Callable[[Any], Iterable[Any]], *codecs: Codec) -> Codec:
    """A value that `make` makes of its parts."""

    def write(value: Any) -> bytes:
        return b"".join([codec.write(part) for codec, part in zip(codecs, parts(value), strict=True)])

    return Codec(write, lambda reader: make(*[codec.read(reader) for codec in codecs]))


def _list_of(codec: Codec) -> Codec:
    def write(values: Any) -> bytes:
        return _U32.pack(len(values)) + b"".join(map(codec.write, values))

    return Codec(write, lambda reader: [codec.read(reader) for _ in range(SIZE.read(reader))])


TEXT, KEY, REASON = _text(TEXT_LENGTH_MAX), _text(RANK_KEY_LENGTH_MAX), _text(REASON_LENGTH_MAX)
NUMBER, SIZE, PORT, FLAG = (
    _number(_U64, NUMBER_MAX),
    _number(_U32, 1 << 31),
    _number(_U16, 65535),
    _number(Struct("<B"), 1),
)
BLOB = Codec(lambda data: _U32.pack(len(data)) + data, lambda reader: reader.take(SIZE.read(reader)))
DIGEST = Codec(bytes, lambda reader: reader.take(DIGEST_BYTES))
NODE = _of(Node, attrgetter("address", "pid", "local_id", "token"), TEXT, NUMBER, NUMBER, TEXT)


def _write_listing(p: Participant) -> bytes:
    texts = TEXT.write(p.node.address), TEXT.write(p.node.token), TEXT.write(p.host), KEY.write(p.rank_key)
    return _PLACE.pack(p.node.pid, p.node.local_id, p.port) + b"".join(texts)


def _read_listing(reader: Reader) -> Participant:
    """It is in each JOIN: its numbers are read at once."""
    pid, local_id, port = _PLACE.unpack(reader.take(_PLACE.size))
    if max(pid, local_id) > NUMBER_MAX:
        raise IntentError(f"a number is {max(pid, local_id)}, above the limit of {NUMBER_MAX}")
    node = Node(TEXT.read(reader), pid, local_id, TEXT.read(reader))
    return Participant(node, TEXT.read(reader), port, 0, KEY.read(reader))


LISTING = Codec(_write_listing, _read_listing)
ROUND = _of(lambda life, number: (life, number) if life else None, lambda of: of or ("", 0), TEXT, NUMBER)
TOKENS = _list_of(TEXT)
ENDED = _list_of(_of(lambda *parts: parts, tuple, TEXT, NUMBER, NUMBER))  # node, number of its join, verdict


@dataclass(slots=True)
class Intent:
    """A request to a room. Only the fields of its kind are sent."""

    kind: int
    token: str  # identifies the node, or the operator's process
    connection: int = 0  # counts the node's connections from 1
    join: int = 0  # counts the node's joins from 1
    flags: int = 0
    known: int = 0  # the `mark` of the last summary
    of: tuple[str, int] | None = None  # the life and the number of the round that the request is about
    me: Participant | None = None
    digest: bytes = b""  # identifies the settings
    settings: bytes = b""  # `encode_settings`, or nothing: the digest is enough
    reason: str = ""  # of CLOSE; of JOIN: why a failure is final
    verdict: str = ""
    by: Node | None = None
    whom: str = ""  # the token of the node that is drained

    def encode(self) -> bytes:
        """The bytes of the request. Raises IntentError: a text is longer than its limit."""
        fields = [codec.write(getattr(self, name)) for name, codec in BODIES[self.kind]]
        return b"".join((self.head(), *fields))

    def head(self) -> bytes:
        return HEAD.pack(self.kind, self.token.encode(), self.connection, self.join, self.flags, self.known)


BODIES: dict[int, tuple[tuple[str, Codec], ...]] = {
    JOIN:     (("of", ROUND), ("me", LISTING), ("digest", DIGEST), ("settings", BLOB), ("reason", REASON)),
    POKE:     (),
    BEAT:     (),
    LEAVE:    (),
    STEP_OUT: (("of", ROUND),),
    NOTICE:   (("of", ROUND),),
    DONE:     (("of", ROUND),),
    CLOSE:    (("by", NODE), ("reason", REASON), ("verdict", TEXT), ("settings", BLOB)),
    DRAIN:    (("by", NODE), ("whom", TEXT)),
    LOOK:     (),
    WHY:      (),
}  # fmt: skip


def read_intent(data: bytes) -> Intent:
    """The request in these bytes. Raises IntentError: they are not a request."""
    if len(data) < HEAD.size:
        raise IntentError(f"a request has {len(data)} bytes, fewer than its head of {HEAD.size}")
    kind, raw, connection, join, flags, known = HEAD.unpack_from(data)
    if kind not in BODIES:
        raise IntentError(
            f"a room has no request of kind {kind}; run one version of trystate on all nodes and the store"
        )
    if not connection and kind not in OPERATORS:
        raise IntentError("a node's request has no number of its connection; they count from 1")
    intent, reader = Intent(kind, read_token(raw), connection, join, flags, known), Reader(data, HEAD.size)
    if not BODIES[kind] and len(data) == HEAD.size:
        return intent
    for name, codec in BODIES[kind]:
        setattr(intent, name, codec.read(reader))
    reader.end()
    if intent.me is not None and intent.me.node.token != intent.token:
        raise IntentError(f"the node {intent.token!r} sends the listing of the node {intent.me.node.token!r}")
    return intent


def sender(data: bytes) -> str:
    """The token of the node that has sent a request; empty: the bytes are of no node."""
    if len(data) < HEAD.size:
        return ""
    _, raw, connection, *_ = HEAD.unpack_from(data)
    return read_token(raw) if connection and _TOKEN.fullmatch(raw) else ""


def read_token(raw: bytes) -> str:
    """The token in a head."""
    if _TOKEN.fullmatch(raw) is None:
        raise IntentError(f"a token is {raw!r}, not 1 to {TOKEN_BYTES} letters, digits, - and _")
    return raw.rstrip(b"\0").decode("ascii")


def digest(settings: bytes) -> bytes:
    """The digest of encoded settings."""
    return blake2b(settings, digest_size=DIGEST_BYTES).digest()


def mark(life: str, revision: int) -> int:
    """Identifies the summary that a node has: equal marks mean that no news has come since."""
    return crc32(life.encode("utf-8", "surrogatepass")) << 32 | revision & 0xFFFFFFFF


# ---- answers


def answer(membership: Membership, rank: int, body: bytes, *, flags: int = 0, verdict: int = 0, why: str = "") -> bytes:
    """A FULL answer, or a notice, to one node; `body` is the same for all nodes."""
    code = MEMBERSHIPS.index(membership)  # faster than a dict of members: the hash of an enum is slow
    return _ANSWER.pack(FULL, code, flags, verdict, rank) + body + TEXT.write(why[:TEXT_LENGTH_MAX])


def body(table: Table, members: bytes) -> bytes:
    """The part of a FULL answer that all nodes get; `members` is the digest of a complete round."""
    t, end = table, table.closed
    master = next(iter(t.participants.values())) if t.complete and t.participants else None
    flags = COMPLETE * t.complete | CLOSED * (end is not None) | CALLING * t.calling
    counts = len(t.participants), len(t.expected), len(t.waiting), len(t.spares), t.seats, len(t.done), t.spent
    where = (TEXT.write(master.host) + PORT.write(master.port)) if master is not None else b""
    why = b"".join(map(TEXT.write, (end.by, end.reason, end.verdict))) if end is not None else b""
    state = _STATE.pack(t.version, t.revision, t.round, flags, *counts, members)
    return b"".join((state, TEXT.write(t.life), where, why, TEXT.write(t.cause)))


class Address(NamedTuple):
    """Where the first member of a round serves the round's store."""

    host: str
    port: int

    def __str__(self) -> str:
        return f"{self.host}:{self.port}"


@dataclass(frozen=True, slots=True)
class Summary:
    """The content of an answer or a notice, about the node and about the room."""

    membership: Membership
    applied: bool  # the request has changed the state
    drained: bool  # an operator has marked the node
    is_done: bool  # the success of the node's workers is recorded
    verdict: int  # why the node's join has ended, or 0
    rank: int  # in a complete round, or -1
    version: int
    revision: int
    round: int
    complete: bool
    calling: bool
    participants: int  # the numbers of nodes on the four lists
    expected: int
    waiting: int
    spares: int
    seats: int
    done: int  # the number of members whose workers have succeeded
    spent: int
    members: bytes  # a digest: all members of a complete round have the same
    life: str
    master: Address | None
    closed: Closed | None
    cause: str
    why: str  # the sentence of the verdict

    @property
    def mark(self) -> int:
        return mark(self.life, self.revision)


def read_summary(data: bytes) -> Summary:
    """The summary in a FULL answer or a notice. Raises IntentError: the bytes are not one."""
    reader = Reader(data, 0)
    kind, code, flags, verdict, rank = _ANSWER.unpack(reader.take(_ANSWER.size))
    if kind != FULL or code >= len(MEMBERSHIPS) or verdict > NO_PLACE:
        raise IntentError(
            f"an answer of a room begins with {data[:8]!r}; run one version of trystate on all nodes and the store"
        )
    version, revision, round_, about, *counts, members = _STATE.unpack(reader.take(_STATE.size))
    life = TEXT.read(reader)
    master = Address(TEXT.read(reader), PORT.read(reader)) if about & COMPLETE and counts[0] else None
    closed = Closed(*(TEXT.read(reader) for _ in range(3))) if about & CLOSED else None
    cause, why = TEXT.read(reader), TEXT.read(reader)
    reader.end()
    own = bool(flags & APPLIED), bool(flags & DRAINED), bool(flags & IS_DONE), verdict, rank
    state = version, revision, round_, bool(about & COMPLETE), bool(about & CALLING), *counts, members, life
    values: list[Any] = [MEMBERSHIPS[code], *own, *state, master, closed, cause, why]
    return Summary(*values)


# ---- records

# Each method of `Table` that changes it, and its arguments; the settings are empty if they are the table's.
CHANGES: dict[str, tuple[Codec, ...]] = {
    "begin": (TEXT, BLOB),
    "snapshot": (BLOB, ENDED),
    "add_to_participants": (LISTING, BLOB),
    "add_to_wait_list": (LISTING,),
    "add_to_redundancy_list": (LISTING,),
    "mark_complete": (NODE,),
    "withdraw": (NODE, NUMBER, NUMBER),  # the number of the join that has ended by it, and its verdict; or 0
    "expel": (NODE, TOKENS),
    "replace_round": (LISTING, FLAG, FLAG, FLAG),
    "fail_for_good": (NODE, REASON),
    "give_notice": (NODE, FLAG),
    "drain": (NODE, NODE),
    "mark_done": (NODE,),
    "mark_closed": (NODE, REASON, TEXT),
}
_NAMES = tuple(CHANGES)
_NUMBERS = {name: number for number, name in enumerate(_NAMES)}


def record(name: str, version: int, arguments: Iterable[Any]) -> bytes:
    """The record of a change; `version` is the table's after it."""
    fields = [codec.write(value) for codec, value in zip(CHANGES[name], arguments, strict=True)]
    return _RECORD.pack(RECORD_FORMAT, _NUMBERS[name], version) + b"".join(fields)


def read_record(data: bytes) -> tuple[str, int, list[Any]]:
    """The change, the version and the arguments of a record. Raises IntentError: damaged, or of another release."""
    reader = Reader(data, 0)
    form, number, version = _RECORD.unpack(reader.take(_RECORD.size))
    if form != RECORD_FORMAT or number >= len(_NAMES):
        raise IntentError(f"a record of a room has the format {form} and the change {number}; this release reads the "
                          f"format {RECORD_FORMAT}: start the store with the release that wrote it")  # fmt: skip
    arguments = [codec.read(reader) for codec in CHANGES[_NAMES[number]]]
    reader.end()
    return _NAMES[number], version, arguments
