"""One-shot events that threads wait for and that `poll` can watch, on Linux's eventfd(2)."""

from __future__ import annotations

import contextlib
import os
import threading


class EventFd:
    """A descriptor that is readable after `ring()`, until `heard()`.

    Args:
        semaphore: each `heard()` takes one ring away instead of all (EFD_SEMAPHORE).
    """

    __slots__ = ("fd",)

    def __init__(self, *, semaphore: bool = False) -> None:
        mode = os.EFD_CLOEXEC | os.EFD_NONBLOCK | (os.EFD_SEMAPHORE if semaphore else 0)
        self.fd = os.eventfd(0, mode)

    def ring(self) -> None:
        """Make the descriptor readable. Never blocks; may be called anywhere, in `__del__` too."""
        os.eventfd_write(self.fd, 1)

    def heard(self) -> bool:
        """Take all rings away, or one ring of a semaphore. Returns False if the descriptor has not rung."""
        try:
            os.eventfd_read(self.fd)
        except BlockingIOError:
            return False
        return True

    def __del__(self) -> None:
        with contextlib.suppress(AttributeError, OSError):
            os.close(self.fd)


class _Own(threading.local):
    event_fd: EventFd | None = None


_own = _Own()


def thread_event_fd() -> EventFd:
    """The calling thread's only EventFd. All events that the thread listens to share it."""
    event_fd = _own.event_fd
    if event_fd is None:
        event_fd = _own.event_fd = EventFd()
    return event_fd


class OneShotEvent:
    """An event that happens once: any number of threads may `wait`, and one may poll what `listen` returns.

    Cheaper than `threading.Event`: no lock is made before a thread waits. `set` may be called several times, from any
    thread; the first call counts.

    `set` writes `is_set` before it reads the list of waiters; a waiter enters the list before it reads `is_set`. In
    every order of the two threads one of them sees the other, so no wait is missed.
    """

    __slots__ = ("_event_fd", "_listener", "_locks", "is_set")

    def __init__(self) -> None:
        self.is_set = False
        self._locks: list[threading.Lock] = []  # one for each waiting thread, which holds it
        self._event_fd: EventFd | None = None  # the listening thread's
        self._listener = 0

    def set(self) -> None:
        """Let the event happen: wake the waiting threads, and ring the listener's descriptor."""
        self.is_set = True  # before the list is read: see the class
        locks, event_fd = self._locks, self._event_fd
        if locks:
            with contextlib.suppress(IndexError):  # another call of `set` has taken the last lock
                while True:
                    locks.pop().release()
        if event_fd is not None and self._listener != threading.get_ident():
            event_fd.ring()

    def wait(self, seconds: float) -> bool:
        """Block for at most `seconds`. Returns True if the event has happened."""
        if self.is_set:
            return True
        lock = threading.Lock()
        lock.acquire()
        self._locks.append(lock)
        if not self.is_set and not (seconds > 0 and lock.acquire(timeout=seconds)):
            with contextlib.suppress(ValueError):  # `set` has just taken it out
                self._locks.remove(lock)
        return self.is_set

    def listen(self) -> EventFd:
        """The calling thread's descriptor, which rings from now on when another thread sets the event."""
        self._listener = threading.get_ident()
        self._event_fd = thread_event_fd()
        return self._event_fd
