"""A service that records the requests of its clients.

Theory of operation. Bytes that cannot contain a recorded key take the fast path of the plain service. They only cost
the search for two words. All other bytes are read request by request, by frames, and `_do` reports the effect of each
request to the recorder. The line of a write is recorded before the write is done, and the tables (waits, watches,
promises) record its effects during the write, so a cause is before its effects. A refused request has changed nothing,
and its line gets the reason. Replies are the same, byte for byte, as without a record.

Rule: the record has the order in which requests are done. Handshakes are never recorded.
"""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterable, Iterator
from typing import Any

from ...rendezvous.encoding import encode_any_size
from ...rendezvous.rooms.messages import sender
from ..contents.barriers import Arrival
from ..contents.contents import Refused, number
from ..contents.rooms import FORMAT, key_of
from ..contents.waiting import Wait
from ..contents.watching import Changed
from ..record.format import BARRIER, OURS, TORCH, is_state, text
from ..record.recorder import Recorder, RequestLines, shown
from ..record.requests import KINDS, TIMED, keys_of
from ..wire import PROBE_KEY
from .blocking import Blocking
from .fast_path import EXTENDED, FAST_PATHS, HANDLERS, FastPath, by_frame
from .promises import Promises
from .rooms import Rooms
from .service import Service
from .session import Reserved, Session, Values
from .watches import Watches

take = Service.take  # a call through super() would cost a hundredth of a round trip
BY_FRAME: dict[int, FastPath] = dict.fromkeys(range(256), by_frame)


class RecordingService(Service):
    """All connections of one store, and the record of their requests."""

    def __init__(self, recorder: Recorder, **options: Any) -> None:
        """The options are passed to `Service`."""
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
        self.rooms: Rooms = RecordedRooms(self, clock)
        for key, value in self.contents.values.items():
            if recorder.wants(key) and value != FORMAT:
                recorder.begins_with(key, value)
        for run_id, room in self.contents.rooms.items():
            if room.state is not None:
                recorder.begins_with(key_of(run_id), encode_any_size(room.state))
        self._flush()

    # The driver's calls

    def connected(self, peer: str, now: float) -> Session | None:
        session = super().connected(peer, now)
        if session is not None:
            self.numbers[session] = self.recorder.opened(peer)
            self.recorder.flush()
        return session

    def take(self, session: Session, data: bytes, paths: dict[int, FastPath] = FAST_PATHS) -> None:
        # Each piece of a half-sent request may have only a part of a recorded key.
        if session.frame is not None or TORCH in data or OURS in data or BARRIER in data or self.all:
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
            with self.blocking.ending("cancelled"):  # CANCEL_WAIT alone ends a blocked request
                super()._do(session, operation, fields)
            return
        said = len(recorder.lines)
        request = self.blocking.request = RecordedRequest(self, session, operation, keys)
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


class RecordedRequest(RequestLines):
    """A request that is recorded: its lines before and after it is done."""

    __slots__ = ("effects", "extended", "peeked", "service", "session")

    def __init__(self, service: RecordingService, session: Session, operation: int, keys: list[bytes]) -> None:
        super().__init__(service.recorder, service.numbers[session], KINDS[operation], keys)
        self.service, self.session = service, session
        self.extended = operation in EXTENDED
        self.effects: dict[bytes, bytes | None] = {}  # the new values of recorded keys; None: the key is deleted
        self.peeked: tuple[int, bytes | None] = 0, None

    def before(self, fields: list[Any]) -> None:
        """Record the request before it is done, if others may continue because of it, or if it is never blocked."""
        if self.kind == "queue_pop":
            self.peek()
        elif self.kind == "compare_set":
            self.compares(*fields)
        elif self.kind not in READS:
            self.says(fields, self.foreseen(fields))
        elif not self.extended:
            self.reads()

    def foreseen(self, fields: list[Any]) -> Any:
        """The result that the request will have. Raises `Refused`."""
        contents = self.service.contents
        match self.kind:
            case "append":
                return contents.values.get(fields[0], b"") + fields[1]
            case "add":
                old = contents.values.get(fields[0])
                return fields[1] + (0 if old is None else number(fields[0], old))
            case "delete" | "take":
                return fields[0] in contents.values
            case "check":
                return contents.all_present(fields[0])
            case "num_keys":
                return contents.count()
            case "list_keys":
                return contents.keys(*fields)
            case "queue_push":
                return contents.length(fields[0]) + 1
            case "queue_len":
                return contents.length(fields[0])
        return None

    def done(self) -> None:
        """Count the versions that the request has written, and record what it has read."""
        for key, value in self.effects.items():
            super().effect(key, value)
        if self.session.blocked is None:
            self.answered()

    def answered(self) -> None:
        """Record the reads of a request that may have been blocked."""
        if self.kind in BLOCKING and self.extended and (missing := self.missing()):
            self.recorder.waits(self.c, self.keys, missing)  # a timeout of 0: it waits and ends at once
            self.recorder.ends(self.c, "timeout")
        elif self.kind in READS and self.extended:
            self.reads()
        elif self.kind == "wait":
            self.promised()
        elif self.kind == "queue_pop" and not self.session.closing:
            length, element = self.peeked
            self.say(**({} if element is None else self.recorder.value(self.keys[0], element)), result=length)

    def refused(self, said: int, refusal: Refused) -> None:
        """Replace the lines of a refused request, which start at `said`, by one with the reason."""
        # Lines of earlier events remain: a promise was given up, or another session was closed.
        lines = self.recorder.lines
        lines[said:] = [line for line in lines[said:] if line["c"] != self.c or line["op"] == "put_back"]
        self.recorder.waits_no_more(self.c)
        self.say(error=refusal.status.name)

    def peek(self) -> None:
        """Look at the queue before an element is taken from it."""
        contents, promise, (key,) = self.service.contents, self.session.promise, self.keys
        if type(promise) is Reserved and promise.key == key:
            self.peeked = contents.length(key) + 1, promise.element
        elif key in contents.queues:
            self.peeked = contents.length(key), contents.queues[key][0]

    def missing(self) -> list[bytes]:
        """The missing keys that the request waits for."""
        contents = self.service.contents
        if self.kind == "barrier":
            return []
        if self.kind == "queue_pop":
            return [key for key in self.keys if key not in contents.queues]
        there = contents.values.__contains__ if self.extended and self.kind in READS else contents.present
        return [key for key in self.keys if not there(key)]

    def promised(self) -> None:
        """Keep the versions of the values that are promised to the next request."""
        promise = self.session.promise
        if type(promise) is Values:
            self.service.promised[self.session] = self.versions(promise.keys)

    def versions(self, keys: Iterable[bytes]) -> dict[bytes, int]:
        """The versions of recorded keys now, also during a write."""
        recorder, writer = self.recorder, self.service.blocking.request
        # If a write has woken this request, the versions of that write are not counted yet.
        coming = writer.effects if writer is not None and writer is not self else {}
        return {
            key: recorder.next_version(key) if key in coming else recorder.version(key)
            for key in keys
            if recorder.wants(key)
        }

    def effect(self, key: bytes, value: bytes | None) -> None:
        """Keep it until the request is done (`done`)."""
        self.effects[key] = value

    def compares(self, key: bytes, expected: bytes, desired: bytes) -> None:
        recorder, old = self.recorder, self.service.contents.values.get(key)
        won = expected == (b"" if old is None else old)
        looks = expected == desired and not (won and old is None)  # a read: equal expected and desired values
        if won and not (looks and is_state(key)):
            self.effects[key] = desired
        if not is_state(key):
            recorder.compared(self.c, key, expected, desired, won)
        elif looks:
            self.reads()
            if won:  # the same value was stored again, and watchers get an event
                recorder.lines[-1]["how"] = self.kind
        elif won:
            recorder.write(self.c, key, desired)
        else:
            recorder.say(self.c, "refused", key=text(key), v=recorder.version(key), **shown(desired))

    def reads(self) -> None:
        """Record the versions of the values that are read: present values, or promised ones."""
        recorder, values, promise = self.recorder, self.service.contents.values, self.session.promise
        found = self.versions(self.keys)
        promised = type(promise) is Values and set(self.keys) <= set(promise.keys)
        kept = {}
        if promised and not all(map(values.__contains__, self.keys)):  # all values are of the WAIT's moment
            found |= self.service.promised.get(self.session, {})
            found = {key: found[key] for key in self.keys if key in found}
            kept = {"kept": True}
        for key in [*found]:
            if is_state(key):
                recorder.say(self.c, "read", key=text(key), v=found.pop(key), **kept)
        self.say_reads(found, **kept)


class RecordedBlocking(Blocking):
    """Blocked requests. The start and the end of each recorded request are recorded."""

    def __init__(self, service: RecordingService, *parts: Any) -> None:
        super().__init__(*parts)
        self.service = service
        self.request: RecordedRequest | None = None  # the request that is being done, if it is recorded
        self.why = "closed"

    @contextlib.contextmanager
    def ending(self, why: str) -> Iterator[None]:
        """Set the reason for requests that end meanwhile."""
        before, self.why = self.why, why
        try:
            yield
        finally:
            self.why = before

    def wait(self, session: Session, keys: Iterable[bytes], reply: Callable[[], None], *more: Any) -> None:
        request, blocked = self.request, False
        if request is None:
            return super().wait(session, keys, reply, *more)

        def woken() -> None:
            if blocked and request.kind == "queue_pop":  # the queue was empty when the request came
                request.peek()
            reply()
            if blocked:  # the reads of a blocked request are recorded at its reply
                request.answered()

        super().wait(session, keys, woken, *more)
        blocked = session.blocked is not None
        return None

    def arrive(self, *arrival: Any) -> None:
        with self.ending("timeout"):  # a timeout of 0 ends the request at once
            super().arrive(*arrival)

    def unblock(self, session: Session) -> None:
        super().unblock(session)
        self.service.recorder.ends(self.service.numbers.get(session, 0))

    def withdraw(self, session: Session) -> None:
        self.service.recorder.ends(self.service.numbers.get(session, 0), self.why)
        super().withdraw(session)

    def expire(self, now: float) -> None:
        with self.ending("timeout"):
            super().expire(now)

    def _block(self, session: Session, blocked: Wait | Arrival, milliseconds: int) -> None:
        super()._block(session, blocked, milliseconds)
        if self.request is not None:
            self.service.recorder.waits(self.request.c, self.request.keys, self.request.missing())


class RecordedPromises(Promises):
    """Promises. Reserved elements are recorded."""

    def __init__(self, service: RecordingService, *parts: Any) -> None:
        super().__init__(*parts)
        self.service = service

    def reserve(self, session: Session, key: bytes) -> None:
        super().reserve(session, key)
        self._say(session, "reserve")

    def give_up(self, session: Session) -> None:
        if session.promised_bytes:
            self._say(session, "put_back")  # before waiters for the element continue
        super().give_up(session)

    def _say(self, session: Session, op: str) -> None:
        promise, service = session.promise, self.service
        if type(promise) is Reserved and service.recorder.wants(promise.key):
            service.recorder.say(service.numbers.get(session, 0), op, key=text(promise.key), serial=promise.serial)


class RecordedWatches(Watches):
    """Watches. Each event is recorded."""

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


class RecordedRooms(Rooms):
    """Rooms. Each request and notice is recorded, and each change as a write of the key that represents the room."""

    service: RecordingService

    def __init__(self, service: RecordingService, clock: Callable[[], float]) -> None:
        super().__init__(service, clock)
        self.c = 0  # the connection of the request that is being applied
        self.contents.room_told = self.changed

    def request(self, session: Session, run_id: bytes, data: bytes) -> bytes:
        self.c = self.service.numbers.get(session, 0)
        intent = INTENTS[data[0]] if data and data[0] < len(INTENTS) else ""
        line = self.service.recorder.say(self.c, "room", key=text(key_of(run_id)), intent=intent, size=len(data))
        if node := sender(data):
            line["node"] = node
        try:
            answer = super().request(session, run_id, data)
        except Refused as refusal:
            line["error"] = refusal.status.name
            raise
        finally:
            self.c = 0
        line["result"] = len(answer)
        return answer

    def changed(self, run_id: bytes) -> None:
        """Record a change of a room, before the notices of it."""
        key, recorder, state = key_of(run_id), self.service.recorder, self.contents.rooms[run_id].state
        if state is not None and state.version:  # a room begins with version 0, which no older release writes
            value = encode_any_size(state)
            recorder.write(self.c, key, value, how="room")
            recorder.written(key, value)

    def end(self, run_id: bytes) -> None:
        super().end(run_id)
        key, recorder = key_of(run_id), self.service.recorder
        recorder.say(self.c, "delete", key=text(key), found=True)
        recorder.deleted(key)

    def tell(self, session: Session, run_id: bytes, notice: bytes) -> None:
        super().tell(session, run_id, notice)
        if not session.closing:
            self.service.recorder.say(self.service.numbers.get(session, 0), "notice", key=text(key_of(run_id)))


INTENTS = ("", "join", "poke", "beat", "leave", "step_out", "notice", "done", "close", "drain", "look", "why")
READS = frozenset({"get", "multi_get"})
BLOCKING = frozenset({"get", "multi_get", "wait"})
