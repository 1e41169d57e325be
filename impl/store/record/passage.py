"""One connection of a proxy, followed: its requests and the answers to them, and what these say of the store.

Theory of operation. `sent` cuts the client's bytes into whole requests, by the server's frames; `forwarded` is called
when one of them is passed on, and `answered` with the bytes that came back, which are read by the client's decoders. A
request without an answer is recorded when it is passed on, all others by their answer: a compare_set has won, a get has
read this version, a wait goes on. The recorder has the values of the state keys as they were last seen. A value that no
request here has written came past the proxy, or was there before it, and is an `unseen` write.

Three things can go wrong, and then the connection is not followed any more, with a line that says why: bytes are no
request or no answer of the protocol, one of them is larger than LIMITS, or a write comes behind a request that waits.

Rule: it changes no byte, and holds none back but those of a request that has not arrived whole.
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
from ..operations import BODIES, OPERATIONS, Result
from ..server.parsing import Frame
from ..wire import MAGIC, PROBE_KEY, STOP_WAITING, U32
from .format import KEYS_MAX, is_state, text
from .recorder import Recorder, named, shown
from .requests import KINDS, TIMED, keys_of

LIMITS = Limits(key_bytes=MIB, value_bytes=64 * MIB, keys_in_request=MIB, frame_bytes=256 * MIB)
EXTENDED = frozenset(map(int, Extension))
SILENT = frozenset({"set", "append", "multi_set", "queue_push"})  # torch's server answers nothing
WAITING = frozenset(map(int, (Query.WAIT, Query.BARRIER)))  # which CANCEL_WAIT may end
STATEFUL = frozenset({"set", "append", "multi_set", "add", "compare_set", "get", "multi_get", "delete", "take"})


@dataclass(slots=True)
class Request:
    """A request of a client: its number, its fields and its bytes; None is what cannot be followed."""

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
        """Its name in a record; "" for those that are none of the store."""
        return KINDS.get(self.operation if self.operation is not None else -1, "")

    @property
    def silent(self) -> bool:
        """Whether nothing is answered to it."""
        return self.operation is None or self.operation == Query.VALIDATE or (self.kind in SILENT and not self.extended)

    @property
    def blocks(self) -> bool:
        """Whether it may be answered much later."""
        return self.operation in WAITING or (self.operation in TIMED and self.fields[0] != 0)

    @property
    def ordered(self) -> bool:
        """Whether it is passed on alone: its answer says which state came first."""
        return not self.silent and not self.blocks and self.kind in STATEFUL and any(map(is_state, self.keys))


class Passage:
    """One connection, as far as it is known."""

    def __init__(self, recorder: Recorder, peer: str) -> None:
        self.recorder, self.c = recorder, recorder.opened(peer)
        self.followed = True
        self._raw = bytearray()  # of a request that has not arrived whole
        self._frame: Frame | None = None
        self._greeted = False
        self.expected: deque[Request] = deque()  # passed on, and not answered
        self._back = bytearray()  # of an answer that has not arrived whole
        self._reply: Reply[Any] | None = None
        self._needed = 0
        self._event = False  # the answer that is being read is a watch's event

    # Requests

    def sent(self, data: bytes) -> Iterator[Request]:
        """The requests that are whole with these bytes; all bytes are in one of them, or wait for the rest of it."""
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
            yield Request(None, [], rest)

    def _request(self) -> Request | None:
        raw = self._raw
        if self._frame is None:
            if not self._greeted and raw[0] != Query.VALIDATE:
                raise Garbled("its first request is not VALIDATE: it speaks another protocol")
            if raw[0] not in BODIES:
                raise Garbled(f"no such request: {raw[0]}")
            self._frame = Frame(raw[0], LIMITS)
        frame = self._frame
        if len(raw) - frame.size < frame.needed:
            return None
        with memoryview(raw) as view:
            frame.advance(view, frame.size, len(view))
        if not frame.complete:
            return None
        if not self._greeted and frame.fields != [MAGIC]:
            raise Garbled(f"it validates with {frame.fields[0]:#x}, not {MAGIC:#x}: it speaks another protocol")
        self._greeted = True
        self._frame = None
        request = Request(frame.operation, frame.fields, bytes(raw[: frame.size]))
        del raw[: frame.size]
        request.keys = keys_of(frame.operation, frame.fields)
        return request

    def forwarded(self, request: Request) -> None:
        """It is passed on now."""
        if self.followed and request.silent:
            if not self._wanted(request):
                return
            # Torch's clients send nothing behind a wait. Torch's server would write at once, ours after the wait.
            if any(one.blocks for one in self.expected):
                self.give_up(f"request: {request.kind} behind one that waits: servers differ in it")
            else:
                Heard(self, request).says(None)
        elif self.followed:
            self.expected.append(request)

    def impatient(self, request: Request) -> None:
        """It was passed on a while ago: if it is not answered, it blocks."""
        if self.followed and not request.answered and self._wanted(request):
            missing = [key for key in request.keys if not self.recorder.version(key)]
            self.recorder.waits(self.c, request.keys, [] if request.kind == "barrier" else missing)

    # Answers

    def answered(self, data: bytes) -> None:
        """Read what came back."""
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
            self._event = self._back[0] == Status.EVENT and (head is None or head.extended)
            if head is None and not self._event:
                raise Garbled("it was asked nothing")
            self._reply = _event() if self._event or head is None else _reply(head)
            self._advance(None)
            return True
        if len(self._back) < self._needed:
            if self._needed > LIMITS.frame_bytes:
                raise Garbled(f"a part of {self._needed} bytes")
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
            if self.recorder.wants(result.name):
                self.recorder.say(self.c, "told", key=text(result.name), change=result.change.name.lower())
            return
        request = self.expected.popleft()
        cancelled = False
        if request.operation in WAITING and result != STOP_WAITING[0]:
            if not self.expected or self.expected[0].operation != Query.CANCEL_WAIT:
                raise Garbled(f"{result} to a wait that was not cancelled")
            self.expected.popleft().answered = cancelled = True
        request.answered = True
        if status is Status.TIMED_OUT or cancelled:
            self.recorder.stops(self.c, "cancelled" if cancelled else "timeout")
            return
        self.recorder.goes(self.c)
        if self._wanted(request):
            Heard(self, request).says(result, status)

    def _wanted(self, request: Request) -> bool:
        recorder = self.recorder
        if not request.kind or request.keys == [PROBE_KEY]:
            return False
        return recorder.all or any(map(recorder.wants, request.keys))

    # The end

    def give_up(self, why: str) -> None:
        """It cannot be followed any more."""
        self.followed = False
        self.recorder.stops(self.c, "unfollowed")
        self.recorder.say(self.c, "unfollowed", why=why)
        for request in self.expected:
            request.answered = True
        self.expected.clear()
        self._back.clear()
        self._reply = None

    def closed(self) -> None:
        """The connection is gone."""
        self.recorder.stops(self.c, "closed")
        self.recorder.closed(self.c)
        for request in self.expected:
            request.answered = True
        self.followed = False


class Heard:
    """A request with its answer, and what both say of the store."""

    def __init__(self, passage: Passage, request: Request) -> None:
        self.recorder, self.c = passage.recorder, passage.c
        self.request, self.kind, self.keys = request, request.kind, request.keys

    def says(self, result: Any, status: Status | None = None) -> None:
        """Record it."""
        fields = self.request.fields[1:] if self.request.operation in TIMED else self.request.fields
        if status is not None:
            self.say(error=status.name)
            return
        match self.kind:
            case "set" | "append":
                self.writes(*fields)
            case "multi_set":
                self.writes_many(fields[0])
            case "add":
                self.adds(fields[0], fields[1], result)
            case "compare_set":
                self.compares(fields[0], fields[1], fields[2], result)
            case "get" | "multi_get":
                self.reads(result if isinstance(result, list) else [result])
            case "delete" | "take":
                self.deletes(fields[0], result)
            case "check":
                self.recorder.say(self.c, self.kind, **named(self.keys, several=True), found=result)
            case "queue_push":
                self.say(**self.recorder.value(fields[1]), **({} if result is None else {"result": result}))
            case "queue_pop":
                self.say(**({} if result is None else self.recorder.value(result)))
            case "num_keys" | "queue_len":
                self.say(result=result)
            case "list_keys":
                self.recorder.say(self.c, self.kind, key=text(fields[0] if fields else b""), result=len(result))
            case "barrier":
                self.say(world=fields[1])
            case "watch" | "unwatch":
                self.say()

    def say(self, **fields: Any) -> None:
        self.recorder.say(self.c, self.kind, **(named(self.keys) if self.keys else {}), **fields)

    def writes(self, key: bytes, value: bytes) -> None:
        recorder = self.recorder
        whole = value if self.kind == "set" else (recorder.holds(key) or b"") + value
        if is_state(key):
            recorder.write(self.c, key, whole, how=self.kind)
        else:
            self.say(**recorder.value(value), v=recorder.next_version(key))
        recorder.written(key, whole)

    def writes_many(self, pairs: list[bytes]) -> None:
        recorder, others = self.recorder, dict[bytes, dict[str, Any]]()
        latest = {key: value for key, value in zip(pairs[::2], pairs[1::2], strict=True) if recorder.wants(key)}
        for key, value in latest.items():
            if is_state(key):
                recorder.write(self.c, key, value, how=self.kind)
            else:
                others[key] = recorder.value(value)
            recorder.written(key, value)
        if others:
            few = [*others][:KEYS_MAX]
            values = {"values": [others[key].get("value") for key in few]} if recorder.values else {}
            recorder.say(
                self.c, self.kind, **named([*others], several=True), sizes=[others[key]["size"] for key in few],
                **values, vs=[recorder.version(key) for key in few],
            )  # fmt: skip

    def adds(self, key: bytes, amount: int, result: int) -> None:
        recorder, whole = self.recorder, b"%d" % result
        if is_state(key):
            recorder.write(self.c, key, whole, how=self.kind)
        else:
            self.say(amount=amount, result=result, v=recorder.next_version(key))
        recorder.written(key, whole)

    def compares(self, key: bytes, expected: bytes, desired: bytes, result: bytes) -> None:
        recorder = self.recorder
        if not is_state(key):
            won = result == desired
            v = recorder.next_version(key) if won else recorder.version(key)
            recorder.compared(self.c, key, expected, desired, won, v)
            if won:
                recorder.written(key, desired)
            return
        held = recorder.holds(key)
        if expected == desired:
            self._looks(key, expected, result, held)
        elif result == desired and held == desired:
            recorder.say(self.c, "refused", key=text(key), v=recorder.version(key), **shown(desired))
        elif result == desired:
            if (held or b"") != expected:
                self._unseen(key, expected)
            recorder.write(self.c, key, desired)
            recorder.written(key, desired)
        else:
            self._found(key, None if result == expected else result)
            recorder.say(self.c, "refused", key=text(key), v=recorder.version(key), **shown(desired))

    def _looks(self, key: bytes, expected: bytes, result: bytes, held: bytes | None) -> None:
        """A compare_set that wants what it expects: a look, which makes an empty value if there is none."""
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
                self._found(key, value if value or recorder.holds(key) is not None else None)
                recorder.say(self.c, "read", key=text(key), v=recorder.version(key))
            elif recorder.wants(key):
                if value and not recorder.version(key):
                    recorder.written(key, value)  # it was there before
                found[key] = recorder.version(key)
        if len(self.keys) == 1 and found:
            self.say(v=found[self.keys[0]])
        elif found:
            recorder.say(self.c, self.kind, **named([*found], several=True), vs=[*found.values()][:KEYS_MAX])

    def deletes(self, key: bytes, result: Any) -> None:
        found = result is not None and (self.kind == "take" or bool(result))
        self.recorder.say(self.c, "delete" if is_state(key) else self.kind, key=text(key), found=found)
        self.recorder.deleted(key)

    def _found(self, key: bytes, value: bytes | None) -> None:
        """A state key has this value, or none."""
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


def _reply(request: Request) -> Reply[Any]:
    """How the answer to a request is read."""
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
    result = RESULTS[operation]
    return (codec.GRANTED if request.extended else codec.RESULTS)[result]()


def _word() -> Reply[bytes]:
    return (yield U32.size)


def _event() -> Reply[Any]:
    yield 1
    return (yield from codec.told())


RESULTS: dict[int, Result] = {
    int(request.number): request.result
    for kind in OPERATIONS
    for request in (kind.SPEC.torch, kind.SPEC.ours)
    if request is not None
}
