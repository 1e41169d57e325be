"""The state of a rendezvous as one thread has read it last, and compare-and-set against that. torch: the same name.

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
from .state import State


def elapsed() -> float:
    """Seconds of CLOCK_BOOTTIME, which is never set and goes on while the machine is suspended; else `monotonic`.

    A laptop is suspended for an hour. By CLOCK_MONOTONIC its lease would still hold when it wakes up, though the others
    have gone on without it.
    """
    return time.clock_gettime(time.CLOCK_BOOTTIME) if hasattr(time, "CLOCK_BOOTTIME") else time.monotonic()


class StateHolder:
    """Performs the effects of an engine, on one thread; another thread may only call `interrupt`."""

    def __init__(
        self, backend: Backend, clock: Callable[[], float] = elapsed,
        told: Callable[[Write, bool], None] = lambda write, won: None,
    ) -> None:  # fmt: skip
        """`told` hears of each write that is over, and whether it was won."""
        self.backend, self.clock, self._told = backend, clock, told
        self.state: State | None = None  # as it was read last
        self._data: bytes | None = None
        self._interrupted = threading.Event()

    def perform(self, effect: Effect) -> Seen:
        """Wait and read, or write. A write that has raised may be repeated: it happens once.

        Raises:
            Interrupted: before, or while it waited: nothing was asked of the store after that.
            RendezvousConnectionError: the store is not reached, or silent.
            RendezvousStateError: its value is no state; it is left as it is.
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
        self._take(self.backend.read())
        return Seen(self.state, self.clock())

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
        """Let time pass, unless somebody interrupts."""
        if seconds > 0:
            self._interrupted.wait(seconds)

    @property
    def interrupted(self) -> bool:
        """Nothing is waited for any more."""
        return self._interrupted.is_set()

    def interrupt(self) -> None:
        """End what another thread waits for here, and all later waits."""
        self._interrupted.set()
        self.backend.interrupt()

    def resume(self) -> None:
        """Allow waits again; called by the interrupting thread once no thread waits here."""
        self._interrupted.clear()
        self.backend.resume()

    def clone(self) -> StateHolder:
        """Another one on the same state, for another thread."""
        return StateHolder(self.backend.clone(), self.clock, self._told)

    def close(self) -> None:
        """Let go of the connection; may be called twice."""
        self.backend.close()
