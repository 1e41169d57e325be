"""A service that records what its clients do.

Theory of operation. Bytes in which no recorded key can begin are the plain service's, on its fast path: they pay for
the look for two words. All other bytes are read request by request, by frames, and `_do` tells the recorder what each
of them did. The line of a write is said before the write is done, and the tables (waits, watches, promises) say in the
middle of it what it caused, so that a cause stands before its effects. A refused request has changed nothing, and its
line gets the reason. Answers are the plain service's in every byte.

Rule: what is recorded is the order in which requests are done; handshakes are never recorded.
"""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterable, Iterator
from typing import Any

from ..contents.barriers import Arrival
from ..contents.contents import Refused, number
from ..contents.waiting import Wait
from ..contents.watching import Changed
from ..operations import Operation
from ..operations import Wait as WaitOperation
from ..record.format import KEYS_MAX, OURS, TORCH, is_state, text
from ..record.recorder import Recorder, named, shown
from ..record.requests import KINDS, TIMED, keys_of
from ..wire import PROBE_KEY
from .blocking import Blocking
from .fast_path import EXTENDED, FAST_PATHS, HANDLERS, FastPath, by_frame
from .promises import Promises
from .service import Service
from .session import Reserved, Session, Values
from .watches import Watches

take = Service.take  # a call of super() would take a hundredth of a round trip
BY_FRAME: dict[int, FastPath] = dict.fromkeys(range(256), by_frame)


class RecordingService(Service):
    """All connections of one store, and the record of what they do."""

    def __init__(self, recorder: Recorder, **options: Any) -> None:
        """The options are those of `Service`."""
        super().__init__(**options)
        self.recorder, self.lines, self.all = recorder, recorder.lines, recorder.all
        self.numbers: dict[Session, int] = {}
        self.promised: dict[Session, dict[bytes, int]] = {}  # the versions of promised values
        clock = self.promises.clock
        self.promises: Promises = RecordedPromises(self, self.contents, self.limits, self.alarm, clock)
        self.blocking: RecordedBlocking = RecordedBlocking(
            self, self.contents, self.limits, self.alarm, clock, self.replies, self.close
        )
        self.watches: Watches = RecordedWatches(self, self.contents.watching, self.limits, self.replies)
        for key, value in self.contents.values.items():
            if recorder.wants(key):
                recorder.begins_with(key, value)
        self._flush()

    # The driver's calls

    def connected(self, peer: str, now: float) -> Session | None:
        session = super().connected(peer, now)
        if session is not None:
            self.numbers[session] = self.recorder.opened(peer)
            self.recorder.flush()
        return session

    def take(self, session: Session, data: bytes, paths: dict[int, FastPath] = FAST_PATHS) -> None:
        if session.frame is not None or TORCH in data or OURS in data or self.all:
            take(self, session, data, BY_FRAME)
        else:
            take(self, session, data)
        if self.lines:
            self.recorder.flush()

    def disconnected(self, session: Session) -> None:
        super().disconnected(session)
        self._flush()

    def tick(self, now: float) -> None:
        super().tick(now)
        self._flush()

    def unsent(self, session: Session, size: int) -> None:
        super().unsent(session, size)
        self._flush()

    def stop(self) -> None:
        super().stop()
        self._flush()

    def _flush(self) -> None:
        if self.recorder.lines:
            self.recorder.flush()

    # Requests

    def _do(self, session: Session, operation: int, fields: list[Any]) -> None:
        recorder = self.recorder
        keys = keys_of(operation, fields)
        if operation not in KINDS or keys == [PROBE_KEY] or not (recorder.all or any(map(recorder.wants, keys))):
            with self.blocking.ending("cancelled"):  # which only CANCEL_WAIT does
                super()._do(session, operation, fields)
            return
        said = len(recorder.lines)
        request = self.blocking.request = Request(self, session, operation, keys)
        try:
            request.before(fields if operation not in TIMED else fields[1:])
            HANDLERS[operation](self, session, *fields)
        except Refused as refusal:
            request.refused(said, refusal)
            if operation not in EXTENDED:
                raise
            self.replies.refuse(session, refusal)
        else:
            request.done()
        finally:
            self.blocking.request = None

    def _forget(self, session: Session) -> None:
        with self.blocking.ending("closed"):
            super()._forget(session)
        number = self.numbers.pop(session, None)
        self.promised.pop(session, None)
        if number is not None:
            self.recorder.closed(number)


class Request:
    """A request that is recorded: what is said before it is done, and after it."""

    __slots__ = ("c", "effects", "extended", "keys", "kind", "peeked", "recorder", "service", "session")

    def __init__(self, service: RecordingService, session: Session, operation: int, keys: list[bytes]) -> None:
        self.service, self.recorder, self.session = service, service.recorder, session
        self.c, self.kind, self.keys = service.numbers[session], KINDS[operation], keys
        self.extended = operation in EXTENDED
        self.effects: dict[bytes, bytes | None] = {}  # the values that recorded keys get; None: none any more
        self.peeked: tuple[int, bytes | None] = 0, None

    def before(self, fields: list[Any]) -> None:
        """Say what it is going to do, if others may go on because of it, or if it is never blocked."""
        if self.kind == "queue_pop":
            self.peek()
        elif (says := SAYS.get(self.kind)) is not None and not (self.extended and self.kind in READS):
            says(self, *fields)

    def done(self) -> None:
        """Count what it has written, and say what it has read."""
        for key, value in self.effects.items():
            if value is None:
                self.recorder.deleted(key)
            else:
                self.recorder.written(key, value)
        if self.session.blocked is None:
            self.answered()

    def answered(self) -> None:
        """Say what was read, by a request that may have been blocked."""
        if self.kind in BLOCKING and self.extended and (missing := self.missing()):
            self.recorder.waits(self.c, self.keys, missing)  # it had no time to wait
            self.recorder.stops(self.c, "timeout")
        elif self.kind in READS and self.extended:
            self.reads()
        elif self.kind == "wait":
            self.promised()
        elif self.kind == "queue_pop" and not self.session.closing:
            length, element = self.peeked
            self.say(**({} if element is None else self.recorder.value(element)), result=length)

    def refused(self, said: int, refusal: Refused) -> None:
        """Say that it changed nothing, in place of its lines, which are from `said` on."""
        lines = self.recorder.lines
        lines[said:] = [line for line in lines[said:] if line["c"] != self.c or line["op"] == "put_back"]
        self.recorder.waits_no_more(self.c)
        self.say(error=refusal.status.name)

    def say(self, **fields: Any) -> None:
        """Say a line of a request that names its keys."""
        self.recorder.say(self.c, self.kind, **(named(self.keys) if self.keys else {}), **fields)

    def peek(self) -> None:
        """Look at the queue before something is taken from it."""
        contents, promise, (key,) = self.service.contents, self.session.promise, self.keys
        if type(promise) is Reserved and promise.key == key:
            self.peeked = contents.length(key) + 1, promise.element
        elif key in contents.queues:
            self.peeked = contents.length(key), contents.queues[key][0]

    def missing(self) -> list[bytes]:
        """The keys that it waits for."""
        contents = self.service.contents
        if self.kind == "barrier":
            return []
        if self.kind == "queue_pop":
            return [key for key in self.keys if key not in contents.queues]
        there = contents.values.__contains__ if self.extended and self.kind in READS else contents.present
        return [key for key in self.keys if not there(key)]

    def promised(self) -> None:
        """Remember the versions of the values that are promised to the next request."""
        promise = self.session.promise
        if type(promise) is Values:
            self.service.promised[self.session] = self.versions(promise.keys)

    def versions(self, keys: Iterable[bytes]) -> dict[bytes, int]:
        """The versions that recorded keys have now, also in the middle of a write."""
        recorder, writer = self.recorder, self.service.blocking.request
        coming = writer.effects if writer is not None and writer is not self else {}  # this was woken by it
        return {
            key: recorder.next_version(key) if key in coming else recorder.version(key)
            for key in keys
            if recorder.wants(key)
        }

    # The lines of each kind

    def sets(self, key: bytes, value: bytes) -> None:
        self.effects[key] = value
        if is_state(key):
            self.recorder.write(self.c, key, value, how=self.kind)
        else:
            self.say(**self.recorder.value(value), v=self.recorder.next_version(key))

    def multi_sets(self, pairs: list[bytes]) -> None:
        recorder = self.recorder
        self.effects = {key: value for key, value in zip(pairs[::2], pairs[1::2], strict=True) if recorder.wants(key)}
        others = {}
        for key, value in self.effects.items():
            if is_state(key):
                recorder.write(self.c, key, value or b"", how=self.kind)
            else:
                others[key] = recorder.value(value or b"")
        if others:
            few = list(others.values())[:KEYS_MAX]
            values = {"values": [each.get("value") for each in few]} if recorder.values else {}
            sizes = [each["size"] for each in few]
            vs = [recorder.next_version(key) for key in [*others][:KEYS_MAX]]
            recorder.say(self.c, self.kind, **named([*others], several=True), sizes=sizes, **values, vs=vs)

    def appends(self, key: bytes, value: bytes) -> None:
        whole = self.service.contents.values.get(key, b"") + value
        self.effects[key] = whole
        if is_state(key):
            self.recorder.write(self.c, key, whole, how=self.kind)
        else:
            self.say(**self.recorder.value(value), v=self.recorder.next_version(key))

    def adds(self, key: bytes, amount: int) -> None:
        old = self.service.contents.values.get(key)
        result = amount + (0 if old is None else number(key, old))
        self.effects[key] = whole = b"%d" % result
        if is_state(key):
            self.recorder.write(self.c, key, whole, how=self.kind)
        else:
            self.say(amount=amount, result=result, v=self.recorder.next_version(key))

    def compares(self, key: bytes, expected: bytes, desired: bytes) -> None:
        recorder, old = self.recorder, self.service.contents.values.get(key)
        won = expected == (b"" if old is None else old)
        looks = expected == desired and not (won and old is None)  # wants what is there
        if won and not (looks and is_state(key)):
            self.effects[key] = desired
        if not is_state(key):
            v = recorder.next_version(key) if won else recorder.version(key)
            recorder.compared(self.c, key, expected, desired, won, v)
        elif looks:
            self.reads()
            if won:  # the same value was stored, of which watchers are told
                recorder.lines[-1]["how"] = self.kind
        elif won:
            recorder.write(self.c, key, desired)
        else:
            recorder.say(self.c, "refused", key=text(key), v=recorder.version(key), **shown(desired))

    def deletes(self, key: bytes) -> None:
        found = key in self.service.contents.values
        if found:
            self.effects[key] = None
        self.recorder.say(self.c, "delete" if is_state(key) else self.kind, key=text(key), found=found)

    def reads(self, *_: Any) -> None:
        """Say which versions are read: of what is there, or was promised."""
        recorder, values, promise = self.recorder, self.service.contents.values, self.session.promise
        found = self.versions(self.keys)
        promised = type(promise) is Values and set(self.keys) <= set(promise.keys)
        kept = {}
        if promised and not all(map(values.__contains__, self.keys)):  # then all are as they were when it waited
            found |= self.service.promised.get(self.session, {})
            found = {key: found[key] for key in self.keys if key in found}
            kept = {"kept": True}
        for key in [*found]:
            if is_state(key):
                recorder.say(self.c, "read", key=text(key), v=found.pop(key), **kept)
        if len(self.keys) == 1 and found:
            self.say(v=found[self.keys[0]], **kept)
        elif found:
            recorder.say(self.c, self.kind, **named([*found], several=True), vs=[*found.values()][:KEYS_MAX], **kept)

    def checks(self, keys: list[bytes]) -> None:
        self.recorder.say(self.c, self.kind, **named(keys, several=True), found=self.service.contents.all_present(keys))

    def counts(self) -> None:
        self.say(result=self.service.contents.count())

    def lists(self, prefix: bytes = b"") -> None:
        self.recorder.say(self.c, self.kind, key=text(prefix), result=len(self.service.contents.keys(prefix)))

    def pushes(self, key: bytes, value: bytes) -> None:
        self.say(**self.recorder.value(value), result=self.service.contents.length(key) + 1)

    def measures(self, key: bytes) -> None:
        self.say(result=self.service.contents.length(key))

    def arrives(self, key: bytes, world_size: int, token: bytes = b"") -> None:
        self.say(world=world_size)

    def watches(self, key: bytes) -> None:
        self.say()


class Woken:
    """The reply of a recorded request that may be blocked; then what it reads is said when it is given."""

    __slots__ = ("blocked", "reply", "request")

    def __init__(self, request: Request, reply: Callable[[], None]) -> None:
        self.request, self.reply, self.blocked = request, reply, False

    def __call__(self) -> None:
        if self.blocked and self.request.kind == "queue_pop":
            self.request.peek()
        self.reply()
        if self.blocked:
            self.request.answered()


class RecordedBlocking(Blocking):
    """Blocked requests, each of whose begins and ends is said if it is recorded."""

    def __init__(self, service: RecordingService, *parts: Any) -> None:
        super().__init__(*parts)
        self.service = service
        self.request: Request | None = None  # that is being done, if it is recorded
        self.why = "closed"

    @contextlib.contextmanager
    def ending(self, why: str) -> Iterator[None]:
        """The reason of requests that end meanwhile."""
        before, self.why = self.why, why
        try:
            yield
        finally:
            self.why = before

    def wait(
        self,
        session: Session,
        keys: Iterable[bytes],
        reply: Callable[[], None],
        kind: type[Operation[Any]] = WaitOperation,
        milliseconds: int = -1,
    ) -> None:
        if self.request is None:
            return super().wait(session, keys, reply, kind, milliseconds)
        woken = Woken(self.request, reply)
        super().wait(session, keys, woken, kind, milliseconds)
        woken.blocked = session.blocked is not None
        return None

    def arrive(
        self,
        session: Session,
        key: bytes,
        world_size: int,
        reply: bytes,
        token: bytes = b"",
        milliseconds: int = -1,
    ) -> None:
        with self.ending("timeout"):  # if it may not wait at all
            super().arrive(session, key, world_size, reply, token, milliseconds)

    def unblock(self, session: Session) -> None:
        super().unblock(session)
        self.service.recorder.goes(self.service.numbers.get(session, 0))

    def withdraw(self, session: Session) -> None:
        self.service.recorder.stops(self.service.numbers.get(session, 0), self.why)
        super().withdraw(session)

    def expire(self, now: float) -> None:
        with self.ending("timeout"):
            super().expire(now)

    def _block(self, session: Session, blocked: Wait | Arrival, milliseconds: int) -> None:
        super()._block(session, blocked, milliseconds)
        if self.request is not None:
            self.service.recorder.waits(self.request.c, self.request.keys, self.request.missing())


class RecordedPromises(Promises):
    """Promises, of which reserved elements are said."""

    def __init__(self, service: RecordingService, *parts: Any) -> None:
        super().__init__(*parts)
        self.service = service

    def reserve(self, session: Session, key: bytes) -> None:
        super().reserve(session, key)
        self._say(session, "reserve")

    def give_up(self, session: Session) -> None:
        if session.promised_bytes:
            self._say(session, "put_back")  # before those who waited for the element go on
        super().give_up(session)

    def _say(self, session: Session, op: str) -> None:
        promise, service = session.promise, self.service
        if type(promise) is Reserved and service.recorder.wants(promise.key):
            service.recorder.say(service.numbers.get(session, 0), op, key=text(promise.key), serial=promise.serial)


class RecordedWatches(Watches):
    """Watches, of which each event is said."""

    def __init__(self, service: RecordingService, *parts: Any) -> None:
        super().__init__(*parts)
        self.service = service

    def tell(self, session: Session, event: Changed) -> None:
        super().tell(session, event)
        recorder = self.service.recorder
        if recorder.wants(event.key) and not session.closing:
            recorder.say(
                self.service.numbers.get(session, 0), "told", key=text(event.key), change=event.change.name.lower()
            )


READS = frozenset({"get", "multi_get"})
BLOCKING = frozenset({"get", "multi_get", "wait"})
SAYS: dict[str, Callable[..., None]] = {
    "set": Request.sets,
    "multi_set": Request.multi_sets,
    "append": Request.appends,
    "add": Request.adds,
    "compare_set": Request.compares,
    "delete": Request.deletes,
    "take": Request.deletes,
    "get": Request.reads,
    "multi_get": Request.reads,
    "check": Request.checks,
    "num_keys": Request.counts,
    "list_keys": Request.lists,
    "queue_push": Request.pushes,
    "queue_len": Request.measures,
    "barrier": Request.arrives,
    "watch": Request.watches,
    "unwatch": Request.watches,
}
