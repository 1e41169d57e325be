"""One connection of a proxy: its requests, the answers to them, and their effects on the store for a record.

Theory of operation. `sent` cuts the client's bytes into whole requests with the server's frames. `forwarded` is called
when a request is passed on, `answered` with the bytes of the answer, which the client's decoders read. A request
without an answer is recorded when it is passed on, all others at their answer: a compare_set has won, a get has read
this version, a wait continues. The recorder has the last known values of the state keys. A value that no request here
has written came to the store on another way, or before the proxy started. It is an `unseen` write.

Failures (the connection is then not followed any more, with a line that contains the reason):

- Bytes are not a request or an answer of the protocol.
- A request or an answer is larger than LIMITS.
- A write follows a request that waits.

Rule: it changes only the flag ROOMS, and holds back only the bytes of a request that has not arrived completely.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Any

from trystate.model.store.vocabulary import Extension, Query, Status

from ..client import codec
from ..client.codec import Garbled, Refusal, Reply
from ..contents.contents import Refused
from ..limits import MIB, Limits
from ..operations import BODIES, REQUESTS
from ..server.parsing import Frame
from ..wire import MAGIC, PROBE_KEY, ROOMS, STOP_WAITING, U32
from .format import is_state, text
from .recorder import Recorder, RequestLines, shown
from .requests import KINDS, TIMED, keys_of

LIMITS = Limits(key_bytes=MIB, value_bytes=64 * MIB, keys_in_request=MIB, frame_bytes=256 * MIB)
EXTENDED = frozenset(map(int, Extension))
SILENT = frozenset({"set", "append", "multi_set", "queue_push"})  # torch's server sends no answer to these
WAITING = frozenset(map(int, (Query.WAIT, Query.BARRIER)))  # CANCEL_WAIT may end these
STATEFUL = frozenset({"set", "append", "multi_set", "add", "compare_set", "get", "multi_get", "delete", "take"})


@dataclass(slots=True)
class ClientRequest:
    """A request of a client: its number, its fields and its bytes. The number is None if it cannot be followed."""

    operation: int | None
    fields: list[Any]
    data: bytes
    keys: list[bytes] = field(default_factory=list)
    answered: bool = False

    @property
    def extended(self) -> bool:
        return self.operation in EXTENDED

    @property
    def kind(self) -> str:
        """The name of the request in a record; "" if it is not about the contents of the store."""
        return KINDS.get(self.operation if self.operation is not None else -1, "")

    @property
    def silent(self) -> bool:
        """Whether the request has no answer."""
        return self.operation is None or self.operation == Query.VALIDATE or (self.kind in SILENT and not self.extended)

    @property
    def blocks(self) -> bool:
        """Whether the request may be answered much later."""
        return self.operation in WAITING or (self.operation in TIMED and self.fields[0] != 0)

    @property
    def ordered(self) -> bool:
        """Whether the request is passed on alone, so its answer shows which state came first."""
        return not self.silent and not self.blocks and self.kind in STATEFUL and any(map(is_state, self.keys))


class Passage:
    """One connection as the proxy has seen it."""

    def __init__(self, recorder: Recorder, peer: str) -> None:
        self.recorder, self.c = recorder, recorder.opened(peer)
        self.followed = True
        self._raw = bytearray()  # the bytes of a request that has not arrived completely
        self._frame: Frame | None = None
        self._greeted = False
        self.expected: deque[ClientRequest] = deque()  # requests that were passed on and are not answered
        self._back = bytearray()  # the bytes of an answer that has not arrived completely
        self._reply: Reply[Any] | None = None
        self._needed = 0
        self._event = False  # the answer that is being read is a watch's event
        self._terms = b""  # the first two bytes of the answer to HELLO: its status and its flags

    # Requests

    def sent(self, data: bytes) -> Iterator[ClientRequest]:
        """The requests that are complete with these bytes. The other bytes wait for the rest of their request."""
        self._raw += data
        while self.followed and self._raw:
            try:
                request = self._request()
            except (Garbled, Refused) as error:
                self.give_up(f"request: {error}")
                break
            if request is None:
                return
            yield request
        if self._raw:
            rest = bytes(self._raw)
            self._raw.clear()
            yield ClientRequest(None, [], rest)

    def _request(self) -> ClientRequest | None:
        raw = self._raw
        if self._frame is None:
            if not self._greeted and raw[0] != Query.VALIDATE:
                raise Garbled("its first request is not VALIDATE; it speaks another protocol")
            if raw[0] not in BODIES or raw[0] == Extension.ROOM:  # rooms are hidden (`passed`)
                raise Garbled(f"no such request: {raw[0]}")
            self._frame = Frame(raw[0], LIMITS)
        frame = self._frame
        if len(raw) - frame.size < frame.needed:
            return None
        with memoryview(raw) as view:
            frame.advance(view, frame.size, len(view))
        if not frame.complete:
            return None
        if frame.operation == Query.VALIDATE and frame.fields != [MAGIC]:
            raise Garbled(f"it validates with {frame.fields[0]:#x}, not {MAGIC:#x}; it speaks another protocol")
        self._greeted = True
        self._frame = None
        request = ClientRequest(frame.operation, frame.fields, bytes(raw[: frame.size]))
        del raw[: frame.size]
        request.keys = keys_of(frame.operation, frame.fields)
        return request

    def forwarded(self, request: ClientRequest) -> None:
        """A request is passed on now."""
        if self.followed and request.silent:
            if not self._wanted(request):
                return
            # torch's clients send nothing after a wait. torch's server would do the write at once, ours after the wait.
            if any(one.blocks for one in self.expected):
                self.give_up(f"request: {request.kind} after a request that waits: servers differ here")
            else:
                AnsweredRequest(self, request).answered(None)
        elif self.followed:
            self.expected.append(request)

    def impatient(self, request: ClientRequest) -> None:
        """Record a request as blocked if it was passed on PATIENCE_SECONDS ago and is not answered."""
        if self.followed and not request.answered and self._wanted(request):
            missing = [key for key in request.keys if not self.recorder.version(key)]
            self.recorder.waits(self.c, request.keys, [] if request.kind == "barrier" else missing)

    # Answers

    def passed(self, data: bytes) -> bytes:
        """The bytes for the client: an answer to HELLO without the flag ROOMS. Called before `answered`."""
        if not self.expected or self.expected[0].operation != Extension.HELLO:
            return data
        at = 1 - len(self._terms)
        self._terms = (self._terms + data)[:2]
        if not 0 <= at < len(data) or self._terms[0] != Status.OK:
            return data
        return data[:at] + bytes((data[at] & ~ROOMS,)) + data[at + 1 :]

    def answered(self, data: bytes) -> None:
        """Read bytes of the server."""
        if not self.followed:
            return
        self._back += data
        try:
            while self._back or self._reply is not None:
                if not self._answer():
                    return
        except Garbled as error:
            self.give_up(f"answer: {error}")

    def _answer(self) -> bool:
        """Read one step of an answer; False: more bytes are needed."""
        if self._reply is None:
            head = self.expected[0] if self.expected else None
            # An event of a watch may come before the next answer. torch's answers have no status, so their first byte
            # may be any.
            self._event = self._back[0] == Status.EVENT and (head is None or head.extended)
            if head is None and not self._event:
                raise Garbled("it belongs to no request")
            self._reply = _event() if self._event or head is None else _reply(head)
            self._advance(None)
            return True
        if len(self._back) < self._needed:
            if self._needed > LIMITS.frame_bytes:
                raise Garbled(f"a part of it has {self._needed} bytes, more than a proxy follows")
            return False
        data = bytes(self._back[: self._needed])
        del self._back[: self._needed]
        self._advance(data)
        return True

    def _advance(self, data: bytes | None) -> None:
        assert self._reply is not None
        try:
            self._needed = next(self._reply) if data is None else self._reply.send(data)
        except StopIteration as done:
            self._reply = None
            self._heard(done.value, None)
        except Refusal as refusal:
            self._reply = None
            self._heard(None, refusal.status)

    def _heard(self, result: Any, status: Status | None) -> None:
        if self._event:
            if self.recorder.wants(result.key):
                self.recorder.say(self.c, "told", key=text(result.key), change=result.change.name.lower())
            return
        request = self.expected.popleft()
        cancelled = False
        # A wait that CANCEL_WAIT has ended gets no answer. The byte that was read is the answer to the CANCEL_WAIT.
        if request.operation in WAITING and result != STOP_WAITING[0]:
            if not self.expected or self.expected[0].operation != Query.CANCEL_WAIT:
                raise Garbled(f"{result} to a wait that was not cancelled")
            self.expected.popleft().answered = cancelled = True
        request.answered = True
        if status is Status.TIMED_OUT or cancelled:
            self.recorder.ends(self.c, "cancelled" if cancelled else "timeout")
            return
        self.recorder.ends(self.c)
        if self._wanted(request):
            AnsweredRequest(self, request).answered(result, status)

    def _wanted(self, request: ClientRequest) -> bool:
        recorder = self.recorder
        if not request.kind or request.keys == [PROBE_KEY]:
            return False
        return recorder.all or any(map(recorder.wants, request.keys))

    # The end

    def give_up(self, why: str) -> None:
        """Stop following the connection, with the reason."""
        self.followed = False
        self.recorder.ends(self.c, "unfollowed")
        self.recorder.say(self.c, "unfollowed", why=why)
        for request in self.expected:
            request.answered = True
        self.expected.clear()
        self._back.clear()
        self._reply = None

    def closed(self) -> None:
        """The connection has ended."""
        self.recorder.ends(self.c, "closed")
        self.recorder.closed(self.c)
        for request in self.expected:
            request.answered = True
        self.followed = False


class AnsweredRequest(RequestLines):
    """A request with its answer, and the effects of both on the store."""

    def __init__(self, passage: Passage, request: ClientRequest) -> None:
        super().__init__(passage.recorder, passage.c, request.kind, request.keys)
        self.request = request

    def answered(self, result: Any, status: Status | None = None) -> None:
        """Record the request with its result, or with the status of its refusal."""
        fields = self.request.fields[1:] if self.request.operation in TIMED else self.request.fields
        if status is not None:
            self.say(error=status.name)
            return
        match self.kind:
            case "compare_set":
                self.compares(fields, result)
            case "get" | "multi_get":
                self.reads(result if isinstance(result, list) else [result])
            case "queue_pop":
                self.say(**({} if result is None else self.recorder.value(self.keys[0], result)))
            case "append":
                self.says(fields, (self.recorder.holds(fields[0]) or b"") + fields[1])
            case "delete" | "take":
                self.says(fields, result is not None and (self.kind == "take" or bool(result)))
            case _:
                self.says(fields, result)

    def compares(self, fields: list[bytes], result: bytes) -> None:
        recorder, (key, expected, desired) = self.recorder, fields
        if not is_state(key):
            won = result == desired
            recorder.compared(self.c, key, expected, desired, won)
            if won:
                recorder.written(key, desired)
            return
        held = recorder.holds(key)
        if expected == desired:
            self._looks(key, expected, result, held)
        elif result == desired and held == desired:
            # The answer is the same whether the value was stored or was there before. The record shows that it was.
            recorder.say(self.c, "refused", key=text(key), v=recorder.version(key), **shown(desired))
        elif result == desired:
            if (held or b"") != expected:
                self._unseen(key, expected)
            recorder.write(self.c, key, desired)
            recorder.written(key, desired)
        else:  # the answer for an absent key is the expected value (TCPStoreLibUvBackend.cpp: compareAndSet)
            self._found(key, None if result == expected else result)
            recorder.say(self.c, "refused", key=text(key), v=recorder.version(key), **shown(desired))

    def _looks(self, key: bytes, expected: bytes, result: bytes, held: bytes | None) -> None:
        """A compare_set with equal expected and desired values is a read. If both are empty it may create the key."""
        recorder = self.recorder
        if result != expected or held == result:
            self._found(key, result)
        elif not expected:
            recorder.write(self.c, key, b"")
            recorder.written(key, b"")
            return
        else:
            self._found(key, None)
        recorder.say(self.c, "read", key=text(key), v=recorder.version(key))

    def reads(self, results: list[bytes]) -> None:
        recorder, found = self.recorder, dict[bytes, int]()
        names = self.request.fields[-1] if isinstance(self.request.fields[-1], list) else self.keys
        for key, value in zip(names, results, strict=True):
            if is_state(key):
                # A key that was deleted between WAIT and GET reads as empty (`promises`), so an empty value does not
                # prove that the key exists.
                self._found(key, value if value or recorder.holds(key) is not None else None)
                recorder.say(self.c, "read", key=text(key), v=recorder.version(key))
            elif recorder.wants(key):
                if value and not recorder.version(key):
                    recorder.written(key, value)  # it was there before
                found[key] = recorder.version(key)
        self.say_reads(found)

    def _found(self, key: bytes, value: bytes | None) -> None:
        """Note the value of a state key that a read has found; None: the key is absent."""
        held = self.recorder.holds(key)
        if value is not None and value != held:
            self._unseen(key, value)
        elif value is None and held is not None:
            self.recorder.say(0, "delete", key=text(key), found=True, unseen=True)
            self.recorder.deleted(key)

    def _unseen(self, key: bytes, value: bytes) -> None:
        line = self.recorder.write(self.c, key, value, unseen=True)
        line["c"] = 0
        self.recorder.written(key, value)


def _reply(request: ClientRequest) -> Reply[Any]:
    """The reader of the answer to a request."""
    operation = request.operation
    match operation:
        case Query.PING:
            return _word()
        case Query.CANCEL_WAIT | Query.WAIT | Query.BARRIER:
            return codec.byte()
        case Query.GET:
            return codec.a_blob()
        case Query.MULTI_GET:
            return codec.some_blobs(len(request.fields[0]))
        case Extension.GET:
            return codec.granted(lambda: codec.some_blobs(len(request.fields[1])))()
        case Extension.HELLO:
            return codec.terms()
        case Extension.PROVE:
            return codec.granted(codec.a_proof)()
        case Extension.WATCH | Extension.UNWATCH:
            return codec.accepted()
    assert operation is not None
    _, asked = REQUESTS[operation]
    return (codec.GRANTED if request.extended else codec.RESULTS)[asked.result]()


def _word() -> Reply[bytes]:
    return (yield U32.size)


def _event() -> Reply[Any]:
    yield 1
    return (yield from codec.told())
