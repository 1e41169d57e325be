"""Something that threads wait for and another sets, once: cheaper than an Event, and audible in a poll."""

from __future__ import annotations

import contextlib
import os
import threading


class EventFd:
    """A descriptor that is readable after `ring()`."""

    __slots__ = ("fd",)

    def __init__(self, *, semaphore: bool = False) -> None:
        mode = os.EFD_CLOEXEC | os.EFD_NONBLOCK | (os.EFD_SEMAPHORE if semaphore else 0)
        self.fd = os.eventfd(0, mode)

    def ring(self) -> None:
        """Safe anywhere, in `__del__` too."""
        os.eventfd_write(self.fd, 1)

    def heard(self) -> bool:
        """Take one ring away (all, if it is no semaphore); whether there was one."""
        try:
            os.eventfd_read(self.fd)
        except BlockingIOError:
            return False
        return True

    def __del__(self) -> None:
        with contextlib.suppress(AttributeError, OSError):
            os.close(self.fd)


class _Own(threading.local):
    bell: EventFd | None = None


_own = _Own()


def thread_event_fd() -> EventFd:
    """The calling thread's."""
    bell = _own.bell
    if bell is None:
        bell = _own.bell = EventFd()
    return bell


class OneShotEvent:
    """Any threads may wait for it, one may listen. It may be set several times; the first counts."""

    __slots__ = ("_bell", "_locks", "_reader", "is_set")

    def __init__(self) -> None:
        self.is_set = False
        self._locks: list[threading.Lock] = []  # of those who wait
        self._bell: EventFd | None = None
        self._reader = 0

    def set(self) -> None:
        self.is_set = True  # before the looks at who waits, who looks at it after having said that he waits
        locks, bell = self._locks, self._bell
        if locks:
            with contextlib.suppress(IndexError):  # who sets it too has woken the last one
                while True:
                    locks.pop().release()
        if bell is not None and self._reader != threading.get_ident():
            bell.ring()

    def wait(self, seconds: float) -> bool:
        """Whether it was set in time."""
        if self.is_set:
            return True
        lock = threading.Lock()
        lock.acquire()
        self._locks.append(lock)
        if not self.is_set and not (seconds > 0 and lock.acquire(timeout=seconds)):
            with contextlib.suppress(ValueError):  # it is being set
                self._locks.remove(lock)
        return self.is_set

    def listen(self) -> EventFd:
        """What is rung from now on when another thread than this one sets it."""
        self._reader = threading.get_ident()
        self._bell = thread_event_fd()
        return self._bell
