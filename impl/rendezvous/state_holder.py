"""The state of a rendezvous as one thread has read it last, with its compare-and-set (torch: _RendezvousStateHolder).

Rule: the bytes that were read last are what the next write replaces. If another node has written since, the write is
lost.
"""

from __future__ import annotations

import contextlib
import threading
import time
from collections.abc import Callable

from .backend import Backend
from .encoding import decode, encode
from .engine import Effect, Seen, Write
from .errors import Interrupted, RendezvousConnectionError
from .observer import Beat, Beaten
from .state import State


def elapsed() -> float:
    """Seconds of CLOCK_BOOTTIME, which is never set and advances while the machine is suspended; else `monotonic`.

    A laptop is suspended for an hour. By CLOCK_MONOTONIC its lease would still hold when it wakes up, although the
    others have continued without it.
    """
    return time.clock_gettime(time.CLOCK_BOOTTIME) if hasattr(time, "CLOCK_BOOTTIME") else time.monotonic()


class StateHolder:
    """Performs the effects of an engine, on one thread; another thread may only call `interrupt`."""

    def __init__(
        self, backend: Backend, clock: Callable[[], float] = elapsed,
        told: Callable[[Write, bool], None] = lambda write, won: None,
    ) -> None:  # fmt: skip
        """`told` is called after each write, with the write and whether it was won."""
        self.backend, self.clock, self._told = backend, clock, told
        self.state: State | None = None  # the last state that was read
        self._data: bytes | None = None
        self._interrupted = threading.Event()

    def perform(self, effect: Effect) -> Seen:
        """Wait, send a heartbeat and read, or write. A write that has raised may be repeated: it happens once.

        Raises:
            Interrupted: before the operation or in its wait; the store gets no request after that.
            RendezvousConnectionError: the store cannot be reached, or does not answer.
            RendezvousStateError: its value is not a state; it is not changed.
        """
        self._go_on()
        if isinstance(effect, Write):
            seen = self._write(effect.state)
            self._told(effect, seen.won)
            return seen
        if effect.revision is None:
            self.pause(effect.seconds)
        elif effect.seconds > 0:
            self.backend.wait(effect.revision, effect.seconds)
        self._go_on()
        beaten = self._beaten(effect.beat) if effect.beat is not None else None
        self._take(self.backend.read())
        return Seen(self.state, self.clock(), beaten=beaten)

    def _beaten(self, beat: Beat) -> Beaten | None:
        sent = self.clock()
        if sent < beat.due:
            return None
        self.backend.beat(beat.token)
        return Beaten(sent, self.backend.counters(beat.watched))

    def _write(self, state: State) -> Seen:
        data, known = encode(state), self.state.revision if self.state is not None else 0
        if self.backend.write(data, self._data) != data:
            return Seen(self.state, self.clock())  # the new state is read when it is this node's turn again
        self.state, self._data = state, data
        if state.revision > known:
            with contextlib.suppress(RendezvousConnectionError):  # without a notification the others read later
                self.backend.notify(state.revision)
        return Seen(self.state, self.clock(), True)

    def _take(self, data: bytes | None) -> None:
        if data != self._data:
            self.state = decode(data) if data is not None else None
            self._data = data

    def _go_on(self) -> None:
        if self.interrupted:
            raise Interrupted("this node's part in the rendezvous was ended while it was under way")

    def pause(self, seconds: float) -> None:
        """Wait for `seconds`, or until another thread interrupts."""
        if seconds > 0:
            self._interrupted.wait(seconds)

    @property
    def interrupted(self) -> bool:
        """Whether another thread has ended the waits here."""
        return self._interrupted.is_set()

    def interrupt(self) -> None:
        """End the wait of another thread, and all later waits."""
        self._interrupted.set()
        self.backend.interrupt()

    def resume(self) -> None:
        """Allow waits again; called by the interrupting thread once no thread waits here."""
        self._interrupted.clear()
        self.backend.resume()

    def clone(self) -> StateHolder:
        """Another state holder on the same state, for another thread."""
        return StateHolder(self.backend.clone(), self.clock, self._told)

    def close(self) -> None:
        """Close the connection; may be called twice."""
        self.backend.close()
