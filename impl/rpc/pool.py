"""The threads of an agent: each waits for any connection, reads it, and then does itself what it read asks for.

All wait in one epoll. The system wakes one of them for a connection, which is then muted until that thread has read
and arms it again; so one thread reads a connection at a time, and no other needs to be woken between the arrival of a
call and its run. Rule: at least one thread is left to read, whatever the others wait for: before the last one would
begin a work that may block, another thread is started, or, at the limit, the work is refused.
"""

from __future__ import annotations

import contextlib
import itertools
import select
import threading
from collections import deque
from collections.abc import Callable
from functools import partial
from time import monotonic

from .events import EventFd

Work = Callable[[], object]
Numbered = tuple[int, Work, Work | None]  # a work, and what to do if it cannot be begun
IDLE_MAX = 8  # threads that are kept when nothing is to be done
JOIN_SECONDS = 2.0  # for threads that may be inside users' functions


class _Collected(threading.local):
    """What the thread has to do after the reading that it is in; None outside of one."""

    works: list[Numbered] | None = None


class Pool:
    """Threads, up to a limit."""

    def __init__(self, name: str, threads_max: int) -> None:
        self.name, self.threads_max = name, threads_max
        self._epoll = select.epoll()
        self._ready: dict[int, Work] = {}
        self._collected = _Collected()
        self._queue: deque[Numbered] = deque()
        self._numbers = itertools.count()
        self._open: set[int] = set()  # works that are not over
        self._bell = EventFd(semaphore=True)
        self._ending = EventFd()
        self._lock = threading.Lock()
        self._free = 0  # threads that are in no work
        self._threads: set[threading.Thread] = set()
        self._ended = False
        # Each ring is heard by one thread; the end is heard by all, as nobody takes it away.
        self._epoll.register(self._bell.fd, select.EPOLLIN | select.EPOLLEXCLUSIVE)
        self._epoll.register(self._ending.fd, select.EPOLLIN)

    def start(self) -> None:
        with self._lock:
            self._add()

    def watch(self, fd: int, ready: Work, events: int = 0) -> None:
        """Have `ready` called, by one thread at a time, each time after `arm`."""
        self._ready[fd] = ready
        self._epoll.register(fd, events | select.EPOLLONESHOT)

    def arm(self, fd: int, events: int = select.EPOLLIN) -> None:
        """Wait for it, once; with events=0 not at all. Does nothing if it is not watched any more."""
        with contextlib.suppress(OSError, ValueError):
            self._epoll.modify(fd, events | select.EPOLLONESHOT)

    def forget(self, fd: int) -> None:
        self._ready.pop(fd, None)
        with contextlib.suppress(OSError, ValueError):
            self._epoll.unregister(fd)

    def later(self, work: Work, refuse: Work | None = None) -> None:
        """Run `work` on one of the threads: this one when it has read, if it reads. Safe in `__del__`.

        At the limit of threads `refuse` is called instead; work without it runs all the same, and must not block then.
        """
        number = next(self._numbers)
        self._open.add(number)
        works = self._collected.works
        if works is not None:
            works.append((number, work, refuse))
        elif self._ended:
            self._begin(partial(guarded, refuse or work))
        else:
            self._hand_on((number, work, refuse))

    @property
    def open(self) -> int:
        """How many works are not over."""
        return len(self._open)

    def close(self) -> None:
        """End the threads, and wait a while for those that are in a work; what was not begun is refused."""
        self._ended = True
        self._ending.ring()
        deadline = monotonic() + JOIN_SECONDS
        here = threading.current_thread()
        # What ends may have begun others. A thread that is inside of torch's code when the process ends aborts it.
        while (others := [thread for thread in list(self._threads) if thread is not here]) and monotonic() < deadline:
            for thread in others:
                with contextlib.suppress(RuntimeError):  # it is just about to begin
                    thread.join(max(deadline - monotonic(), 0.0))
        while self._queue:
            with contextlib.suppress(IndexError):
                _, work, refuse = self._queue.popleft()
                guarded(refuse or work)

    def _hand_on(self, work: Numbered) -> None:
        self._queue.append(work)
        self._bell.ring()

    def _add(self) -> None:
        self._begin(self._serve)
        self._free += 1

    def _begin(self, run: Work) -> None:
        def counted() -> None:
            try:
                run()
            finally:
                self._threads.discard(threading.current_thread())

        thread = threading.Thread(target=counted, name=self.name, daemon=True)
        self._threads.add(thread)  # before it runs, who takes itself out
        try:
            thread.start()
        except BaseException:
            self._threads.discard(thread)
            raise

    def _serve(self) -> None:
        poll, ready, collected = self._epoll.poll, self._ready, self._collected
        while not self._ended:
            for fd, _ in poll(-1, 1):
                if fd == self._bell.fd:
                    if self._bell.heard() and self._queue:  # empty: `close` has taken it
                        self._do(*self._queue.popleft())
                    continue
                works = collected.works = []
                guarded(ready.get(fd, _nothing))
                collected.works = None
                if works:
                    while len(works) > 1:
                        self._hand_on(works.pop(1))
                    self._do(*works.pop())  # nothing here may hold the tensors of a call that is over
            if self._free > IDLE_MAX and self._one_too_many():
                return

    def _one_too_many(self) -> bool:
        with self._lock:
            if self._free <= IDLE_MAX:
                return False
            self._free -= 1
            return True

    def _do(self, number: int, work: Work, refuse: Work | None) -> None:
        with self._lock:
            if self._free == 1 and len(self._threads) < self.threads_max:
                with contextlib.suppress(RuntimeError):  # the system has none left: as if at the limit
                    self._add()
            alone = self._free == 1
            if not alone:
                self._free -= 1
        guarded(work if not alone or refuse is None else refuse)
        self._open.discard(number)
        if not alone:
            with self._lock:
                self._free += 1


def guarded(call: Work) -> None:
    """Call it; what it raises is reported as a thread's last words are, and ends nothing.

    But an interrupt: a signal's handler raises it in the main thread wherever that is, and means what it waits for.
    """
    try:
        call()
    except BaseException as error:
        if not isinstance(error, Exception) and threading.current_thread() is threading.main_thread():
            raise
        arguments = (type(error), error, error.__traceback__, threading.current_thread())
        threading.excepthook(threading.ExceptHookArgs(arguments))


def _nothing() -> None:
    """An event of a descriptor that is forgotten."""
