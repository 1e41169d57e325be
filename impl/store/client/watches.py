"""The watches of a client: their own connection, a thread that reads it, a thread that runs the callbacks.

Theory of operation. Three kinds of threads use a `Watcher`:

- A caller sends WATCH and waits for the answer. When the last watch of a key ends, the caller sends UNWATCH and does
  not wait.
- The reading thread receives answers, in the order of the requests (`_pending`). It passes each event to the watches
  that its key has at that moment.
- The thread of the callbacks (`memory.Callbacks`) calls those watches.

A watcher ends once, in `lose` or by a fork: the connection breaks, the server gives no sign of life, the callbacks are
too slow (BACKLOG_MAX, BACKLOG_BYTES_MAX), the store is closed, or the process forks. A later watch makes a new watcher.

Rule: the reading thread never waits for a callback, so a callback may use the store, watch and cancel. Callbacks get
the changes in the order in which they were read, each once. After the last change they get the loss of the connection.
"""

from __future__ import annotations

import threading
from collections import Counter, deque
from collections.abc import Callable
from dataclasses import dataclass, field
from functools import partial

from trystate.model.store.vocabulary import Extension, Status

from ...host.deadlines import rounded
from ...host.forking import let_go_after_fork
from ..base import Event, OnLost, Watch
from ..contents.watching import Changed
from ..errors import ConnectionLost, LimitExceeded, StoreClosed, StoreError, StoreTimeout
from ..memory import Callbacks, KeyWatcher
from . import codec
from .codec import Garbled, Refusal
from .connection import Connection, HungUp

BACKLOG_BYTES_MAX = 256 << 20  # events that were read and not yet passed to a slow callback
BACKLOG_MAX = 1 << 17
EVENT_BYTES = 200  # the size of an event without its values
# The time within which a frozen or silently unreachable server counts as lost. It is the store's timeout within these
# bounds: no operation waits here, and a busy server may pause for longer than a short timeout.
SILENCE_SECONDS_MIN, SILENCE_SECONDS_MAX = 3.0, 20.0


@dataclass(eq=False, slots=True)
class _Pending:
    """A request that is not answered yet: a registration, a withdrawal, or a request for a sign of life."""

    watcher: KeyWatcher | None = None  # None also after its caller gave up: the answer is nevertheless read in its turn
    extra: int = 0  # bytes that follow the status OK
    answered: threading.Event = field(default_factory=threading.Event)
    refusal: Refusal | None = None


class Watcher:
    """All watches of one store, until the connection is lost or the store closed."""

    def __init__(self, connection: Connection, seconds: float, where: str) -> None:
        """`seconds` is the store's timeout. A server that is silent for about that long counts as lost."""
        self._connection, self._where = connection, where
        self._beat = min(max(seconds, SILENCE_SECONDS_MIN), SILENCE_SECONDS_MAX) / 2
        self._sending = threading.Lock()  # guards the sending of requests, in the order of `_pending`
        self._pending: deque[_Pending] = deque()
        self._wanted: Counter[bytes] = Counter()
        self._lock = threading.RLock()  # guards the next two fields; a signal handler may close the store
        self._watchers: dict[bytes, list[KeyWatcher]] = {}
        self._lost: StoreError | ConnectionLost | None = None
        # The numbers of events and their bytes: read, written by the reading thread; and called, by the other thread.
        self._events = self._bytes = self._events_called = self._bytes_called = 0
        self._callbacks = Callbacks()
        let_go_after_fork(self)
        threading.Thread(target=self._read, name="trystate store watches", daemon=True).start()
        self._callbacks.start()

    @property
    def lost(self) -> bool:
        return self._lost is not None

    def watch(self, key: str, callback: Callable[[Event], None], on_lost: OnLost | None, seconds: float) -> Watch:
        """Register a watch. Returns when the server has confirmed it. Raises StoreError or ConnectionLost."""
        watcher = KeyWatcher(self._callbacks, key, callback, on_lost, self._withdraw)
        pending, name = _Pending(watcher), _wire(watcher)
        with self._sending:
            self._wanted[name] += 1
            self._send(pending, codec.keyed(Extension.WATCH, name))
        try:
            answered = pending.answered.wait(seconds)
        except BaseException:  # Ctrl-C
            if not self._gave_up(pending):  # the answer has come meanwhile: the watch exists, and is cancelled
                watcher.watch.cancel()
            raise
        if not answered and self._gave_up(pending):
            raise StoreTimeout(f"watch_key({key!r}): no answer within {rounded(seconds)} s ({self._where}); see "
                               "whether the server hangs, or raise the timeout")  # fmt: skip
        if pending.refusal is not None:
            with self._sending:
                self._want_less(name)
            raise self._refused(key, pending.refusal)
        if self._lost is not None:
            raise self._lost
        return watcher.watch

    def lose(self, reason: StoreError | ConnectionLost) -> None:
        """End the watcher. Each caller that waits for an answer and each watch gets the reason."""
        with self._lock:
            watchers = self._all() if self._lost is None else []
            self._lost = self._lost or reason
        for watcher in watchers:
            watcher.lose(reason)
        self._callbacks.end()
        self._connection.hang_up()
        for pending in list(self._pending):
            pending.answered.set()

    def close(self) -> None:
        """Cancel all watches. No further callback starts."""
        with self._lock:
            for watcher in self._all():
                watcher.watch.cancelled = True
        self.lose(StoreClosed(f"the store was closed ({self._where})"))

    def join(self) -> None:
        """After `close`, wait for a running callback, unless the caller is that callback."""
        self._callbacks.stop()

    def forked(self) -> None:
        """End the watcher in the child. Its threads and their events stayed in the parent, so all watches are lost."""
        self._lock, self._sending = threading.RLock(), threading.Lock()
        self._lost = ConnectionLost(f"watches end with a fork ({self._where}); watch again in the child")
        self._callbacks.forked()
        for watcher in self._all():
            watcher.forked()
        self._callbacks.end()
        self._connection.close()

    def _all(self) -> list[KeyWatcher]:
        return [watcher for watchers in self._watchers.values() for watcher in watchers]

    # Requests.

    def _send(self, pending: _Pending, request: bytes) -> None:
        self._pending.append(pending)
        if self._lost is not None:
            pending.answered.set()
            return
        try:
            self._connection.send(request, self._beat)
        except OSError as error:
            self.lose(ConnectionLost(f"watches: the connection broke ({self._where}): {error}; read, and watch again"))

    def _withdraw(self, watcher: KeyWatcher) -> None:
        """Remove a watch. If it was the key's last watch, send UNWATCH."""
        name = _wire(watcher)
        with self._sending:
            with self._lock:
                watchers = self._watchers.get(name, [])
                if watcher not in watchers:
                    return
                watchers.remove(watcher)
                if not watchers:
                    del self._watchers[name]
            self._want_less(name)

    def _gave_up(self, pending: _Pending) -> bool:
        """Withdraw a registration before its answer; False if the answer has arrived.

        The server is slow or suspended for a while. The connection is in step, and the other watches continue.
        """
        with self._sending:
            with self._lock:
                watcher, pending.watcher = pending.watcher, None
                if pending.answered.is_set() or watcher is None:
                    return False
            self._want_less(_wire(watcher))
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
            self.lose(ConnectionLost(f"watches: {why} ({self._where}); changes may be missed: read, and watch again"))
        self._connection.close()

    def _next_status(self) -> int:
        """The first byte of the next message. A silent server gets one request for a sign of life."""
        try:
            return self._connection.read(codec.byte(), None)
        except TimeoutError:
            with self._sending:
                self._send(_Pending(extra=8), codec.bare(Extension.NUM_KEYS))
            return self._connection.read(codec.byte(), None)

    def _answer(self, status: int) -> None:
        if not self._pending:
            raise Garbled("it sent an answer without a request")
        pending = self._pending.popleft()
        try:
            if status:
                self._connection.read(codec.refused(status), None)
            elif pending.extra:
                self._connection.read(codec.number(), None)
        except Refusal as refusal:
            pending.refusal = refusal
        with self._lock:
            if pending.watcher is not None and pending.refusal is None:
                self._watchers.setdefault(_wire(pending.watcher), []).append(pending.watcher)
            pending.answered.set()

    def _queue(self, told: Changed) -> None:
        """Let the watches of a key be called, if not too many changes wait for their callbacks."""
        with self._lock:  # a change that is passed after the loss would be called after it
            for watcher in () if self._lost is not None else self._watchers.get(told.key, ()):
                watcher.changed(told)
        size = EVENT_BYTES + len(told.old or b"") + len(told.new or b"")
        self._events, self._bytes = self._events + 1, self._bytes + size
        self._callbacks.call(None, partial(self._called, size))
        waiting = self._events - self._events_called
        if self._bytes - self._bytes_called > BACKLOG_BYTES_MAX or waiting > BACKLOG_MAX:
            raise Garbled(f"{waiting} changes wait for callbacks: the callbacks are too slow")

    def _called(self, size: int) -> None:
        self._events_called, self._bytes_called = self._events_called + 1, self._bytes_called + size


def _wire(watcher: KeyWatcher) -> bytes:
    return b"/" + watcher.name
