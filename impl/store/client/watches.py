"""The watches of a client: a connection of their own, a thread that reads it, a thread that runs the callbacks.

Theory of operation. Three threads meet in a `Watcher`:

- A caller sends WATCH, and waits for the answer; when the last watch of a key ends, it sends UNWATCH, and does not
  wait.
- The reading thread takes answers, which come in the order of the requests (`_pending`), and puts each event into
  `_events`, with the watches that its key has at that moment.
- The calling thread takes events from there, and calls those watches.

A watcher ends once, in `lose`: the connection breaks, the server gives no sign of life, the callbacks are too slow
(BACKLOG_MAX, BACKLOG_BYTES_MAX), the store is closed, or the process forks. Watching again takes a new one.

Rule: the reading thread never waits for a callback, so that a callback may use the store, watch, and cancel; changes
are told in the order in which they were read, each once, and then, if the connection is lost, that it is.
"""

from __future__ import annotations

import logging
import threading
from collections import Counter, deque
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import TypeVar

from trystate.model.store.vocabulary import Extension, Status

from ...host.deadlines import rounded
from ...host.forking import let_go_after_fork, when_all_let_go
from ..base import Event, OnLost, Watch
from ..errors import ConnectionLost, LimitExceeded, StoreClosed, StoreError, StoreTimeout
from . import codec
from .codec import Garbled, Refusal, Told
from .connection import Connection, HungUp

BACKLOG_BYTES_MAX = 256 << 20  # read and not yet told: a callback that is slower than the changes
BACKLOG_MAX = 1 << 17
EVENT_BYTES = 200  # of an event's own, beside its values
# Within which a server that is frozen, or unreachable without a word, is found lost: with the store's timeout, but no
# operation waits here, and a busy server may pause for longer than an impatient one would.
SILENCE_SECONDS_MIN, SILENCE_SECONDS_MAX = 3.0, 20.0
CLOSE_SECONDS = 1.0  # a callback that blocks must not block close() as well
CALLING = "trystate store callbacks"  # the thread

log = logging.getLogger(__name__)
A = TypeVar("A")


@dataclass(eq=False, slots=True)
class _Pending:
    """A request whose answer has not come: a registration, a withdrawal, or (neither) a sign of life."""

    watch: Watch | None = None  # None also after its caller gave up: the answer is read all the same, in its turn
    name: bytes = b""
    extra: int = 0  # bytes that follow the status OK
    answered: threading.Event = field(default_factory=threading.Event)
    refusal: Refusal | None = None


class Watcher:
    """All watches of one store, until the connection is lost or the store closed."""

    def __init__(self, connection: Connection, seconds: float, where: str) -> None:
        """`seconds`: the store's timeout; a server that is silent for about as long counts as lost."""
        self._connection, self._where = connection, where
        self._beat = min(max(seconds, SILENCE_SECONDS_MIN), SILENCE_SECONDS_MAX) / 2
        self._sending = threading.Lock()  # requests, in the order of `_pending`
        self._pending: deque[_Pending] = deque()
        self._wanted: Counter[bytes] = Counter()
        self._told = threading.Condition()  # all that follows
        self._watches: dict[bytes, list[Watch]] = {}
        self._on_lost: dict[Watch, OnLost] = {}
        self._events: deque[tuple[Event, tuple[Watch, ...]]] = deque()
        self._backlog_bytes = 0
        self._lost: StoreError | ConnectionLost | None = None
        self._calling = threading.Thread(target=self._call, name=CALLING, daemon=True)
        let_go_after_fork(self)
        threading.Thread(target=self._read, name="trystate store watches", daemon=True).start()
        self._calling.start()

    @property
    def lost(self) -> bool:
        return self._lost is not None

    def watch(
        self, name: bytes, key: str, callback: Callable[[Event], None], on_lost: OnLost | None, seconds: float
    ) -> Watch:
        """Register; returns when the server has said that it did. Raises StoreError or ConnectionLost."""
        watch = Watch(key, callback, lambda cancelled: self._withdraw(cancelled, name))
        pending = _Pending(watch, name)
        if on_lost is not None:
            self._on_lost[watch] = on_lost
        with self._sending:
            self._wanted[name] += 1
            self._send(pending, codec.keyed(Extension.WATCH, name))
        try:
            answered = pending.answered.wait(seconds)
        except BaseException:  # Ctrl-C
            if not self._gave_up(pending):
                watch.cancel()
            raise
        if not answered and self._gave_up(pending):
            raise StoreTimeout(f"watch_key({key!r}): no answer within {rounded(seconds)} s ({self._where}); see "
                               "whether the server hangs, or raise the timeout")  # fmt: skip
        if pending.refusal is not None:
            self._on_lost.pop(watch, None)
            with self._sending:
                self._want_less(name)
            raise self._refused(key, pending.refusal)
        if self._lost is not None:
            raise self._lost
        return watch

    def lose(self, reason: StoreError | ConnectionLost) -> None:
        """End it all: each caller that waits for an answer, and each watch, is told why."""
        with self._told:
            if self._lost is None:
                self._lost = reason
            self._told.notify_all()
        self._connection.hang_up()
        for pending in list(self._pending):
            pending.answered.set()

    def close(self) -> None:
        """No further callback begins."""
        with self._told:
            self._events.clear()
            for watches in self._watches.values():
                for watch in watches:
                    watch.cancelled = True
        self.lose(StoreClosed(f"the store was closed ({self._where})"))

    def join(self) -> None:
        """After `close`: wait for a running callback, unless it is the caller."""
        if self._calling is not threading.current_thread():
            self._calling.join(CLOSE_SECONDS)

    def forked(self) -> None:
        """The threads stayed in the parent; so did what they would have told. All watches are lost in the child."""
        self._told = threading.Condition()
        self._sending = threading.Lock()
        self._events.clear()
        self._lost = ConnectionLost(f"watches end with a fork ({self._where}); watch again in the child")
        for watches in self._watches.values():
            for watch in watches:
                watch.lost = True
        self._connection.close()
        if self._on_lost:
            self._calling = threading.Thread(target=self._tell_lost, args=(False,), name=CALLING, daemon=True)
            when_all_let_go(self._calling.start)

    # Requests.

    def _send(self, pending: _Pending, request: bytes) -> None:
        self._pending.append(pending)
        if self._lost is not None:
            pending.answered.set()
            return
        try:
            self._connection.send(request, self._beat)
        except OSError as error:
            self.lose(ConnectionLost(f"watches: the connection broke ({self._where}): {error}; look, and watch again"))

    def _withdraw(self, watch: Watch, name: bytes) -> None:
        """Stop telling one watch; stop the server when it was the key's last."""
        with self._sending:
            with self._told:
                self._on_lost.pop(watch, None)
                watches = self._watches.get(name, [])
                if watch not in watches:
                    return
                watches.remove(watch)
                if not watches:
                    del self._watches[name]
            self._want_less(name)

    def _gave_up(self, pending: _Pending) -> bool:
        """Withdraw a registration before its answer; False if that has come.

        The server is slow, or stands still for a while: the connection is in step, and the other watches go on.
        """
        with self._sending:
            with self._told:
                if pending.answered.is_set() or pending.watch is None:
                    return False
                self._on_lost.pop(pending.watch, None)
                pending.watch = None
            self._want_less(pending.name)
        return True

    def _want_less(self, name: bytes) -> None:
        self._wanted[name] -= 1
        if not self._wanted[name]:
            del self._wanted[name]
            self._send(_Pending(), codec.keyed(Extension.UNWATCH, name))

    def _refused(self, key: str, refusal: Refusal) -> StoreError:
        kind = LimitExceeded if refusal.status is Status.TOO_LARGE else StoreError
        return kind(f"watch_key({key!r}): {refusal.text} ({self._where})")

    # The reading thread.

    def _read(self) -> None:
        try:
            while self._lost is None:
                status = self._next_status()
                if status == Status.EVENT:
                    self._queue(self._connection.read(codec.told(), None))
                else:
                    self._answer(status)
        except (OSError, HungUp, Garbled) as error:
            why = "the server is silent" if isinstance(error, TimeoutError) else str(error) or "the server hung up"
            self.lose(ConnectionLost(f"watches: {why} ({self._where}); changes may be missed: look, and watch again"))
        self._connection.close()

    def _next_status(self) -> int:
        """The first byte of what comes next; a silent server is asked for a sign of life, once."""
        try:
            return self._connection.read(codec.byte(), None)
        except TimeoutError:
            with self._sending:
                self._send(_Pending(extra=8), codec.bare(Extension.NUM_KEYS))
            return self._connection.read(codec.byte(), None)

    def _answer(self, status: int) -> None:
        if not self._pending:
            raise Garbled("it answered what nobody asked")
        pending = self._pending.popleft()
        try:
            if status:
                self._connection.read(codec.refused(status), None)
            elif pending.extra:
                self._connection.read(codec.number(), None)
        except Refusal as refusal:
            pending.refusal = refusal
        with self._told:
            if pending.watch is not None and pending.refusal is None:
                self._watches.setdefault(pending.name, []).append(pending.watch)
            pending.answered.set()

    def _queue(self, told: Told) -> None:
        event = Event(told.change, told.name.removeprefix(b"/").decode("utf-8", "replace"), told.old, told.new)
        with self._told:
            self._events.append((event, tuple(self._watches.get(told.name, ()))))
            self._backlog_bytes += _size(event)
            if self._backlog_bytes > BACKLOG_BYTES_MAX or len(self._events) > BACKLOG_MAX:
                raise Garbled(f"{len(self._events)} changes are read and not told: the callbacks are too slow")
            self._told.notify_all()

    # The calling thread.

    def _call(self) -> None:
        while True:
            with self._told:
                while not self._events and self._lost is None:
                    self._told.wait()
                if not self._events:
                    break
                event, watches = self._events.popleft()
                self._backlog_bytes -= _size(event)
            for watch in watches:
                if not watch.cancelled:
                    _run(watch.callback, event)
        self._tell_lost()

    def _tell_lost(self, warn: bool = True) -> None:
        with self._told:
            reason = self._lost
            watches = [watch for group in self._watches.values() for watch in group]
            for watch in watches:
                watch.lost = True
        assert reason is not None
        for watch in watches:
            on_lost = self._on_lost.pop(watch, None)
            if watch.cancelled:
                continue
            if on_lost is not None:
                _run(on_lost, reason)
            elif warn and not isinstance(reason, StoreClosed):
                log.warning("%r: %s", watch, reason)


def _size(event: Event) -> int:
    return EVENT_BYTES + len(event.old or b"") + len(event.new or b"")


def _run(callback: Callable[[A], None], argument: A) -> None:
    """A callback's own mistake ends neither the thread nor the watch."""
    try:
        callback(argument)
    except Exception:
        log.exception("the callback %r raised, given %r", callback, argument)
