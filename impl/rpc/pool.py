"""The threads of an agent, as Leader/Followers: as a rule the thread that reads a request also runs it.

Pattern: Leader/Followers (Schmidt, Stal, Rohnert, Buschmann: Pattern-Oriented Software Architecture 2, 2000). The
threads share one set of event sources. One thread takes the next event, and another one becomes the leader. The first
processes the event itself. A hand-over to a worker thread would cost a wake-up (5 to 50 µs) for each call.

A user's function always runs on a thread of the pool. If a thread of the pool has read the request, and it was the
first request of that reading, this thread also runs the function. Otherwise another thread of the pool runs it. A
caller may read the connection for its own answer (`connection.lead`). It runs no functions meanwhile.

Theory of operation. All threads block in one `epoll.poll`. A thread is in one of three states:

    idle      blocked in epoll: any event may wake it (the followers; the kernel chooses the next leader)
    reading   it has a connection's event, reads frames, and collects the works that their handlers put off (`later`)
    working   it runs a work, which may block: a user's function, or a wait for another worker

A connection is registered with EPOLLONESHOT. The event that wakes one thread disarms the connection, and that thread
arms it again when it has read. So one thread reads a connection at a time, and frames keep their order. A work is a
callable without arguments. After a reading the thread queues all collected works but the first. For each queued work it
rings `_bell` (an EventFd that epoll watches), and each ring wakes one thread. Then the thread that has
read runs the first work.

A thread that waits for an answer may take a connection out of this pool and read it itself: `connection.lead`.

Rule: at least one thread can always read, whatever the others wait for. `_free` counts the threads outside of works.
Before the last free thread begins a work, it starts another thread.

Failures:

- *`threads_max` threads exist, and only one is free.* This thread runs no work that may block, so it can always read. A
  `patient` work (no other work waits for it) is kept, not refused, until another thread has finished its work: a
  program may send hundreds of calls at once. At most `kept_max` works are kept. For any other work the last free thread
  calls `refuse`, which answers the request with an error: if such calls were kept, two workers that call each other
  would wait for ever.
- *A handler or a work raises.* `guarded` reports the exception to `threading.excepthook`, and the thread continues.
- *The pool is closed while threads work.* `close` sets the EventFd `_ending`, and nothing resets it. So every later
  poll returns at once. `close` waits JOIN_SECONDS for threads inside users' functions, and refuses works that were not
  begun.
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
from .modes import outside

Work = Callable[[], object]
Numbered = tuple[int, Work, Work | None, bool]  # number, work, function to call instead when no thread is free, patient
IDLE_MAX = 8  # the most idle threads; a thread that finds more of them ends
JOIN_SECONDS = 2.0  # the time for which `close` waits for threads inside users' functions


class _Collected(threading.local):
    """The works that the current reading of this thread has put off; None outside of a reading."""

    works: list[Numbered] | None = None


class Pool:
    """Threads that read descriptors and run works.

    Args:
        name: the name of the threads.
        threads_max: the largest number of threads at the same time.
        kept_max: the largest number of works that wait for a thread.
    """

    def __init__(self, name: str, threads_max: int, kept_max: int) -> None:
        self.name, self.threads_max, self.kept_max = name, threads_max, kept_max
        self._epoll = select.epoll()
        self._ready: dict[int, Work] = {}
        self._collected = _Collected()
        self._queue: deque[Numbered] = deque()
        self._kept: deque[Numbered] = deque()  # patient works, while all threads work
        self._numbers = itertools.count()
        self._open: set[int] = set()  # numbers of the works that are queued or run
        self._bell = EventFd(semaphore=True)
        self._ending = EventFd()
        self._lock = threading.Lock()
        self._free = 0  # threads outside of works: idle or reading
        self._working = 0  # threads inside of works
        self._threads: set[threading.Thread] = set()
        self._ended = False
        # Each ring of `_bell` wakes one thread. `_ending` wakes them all, since no thread takes its ring away.
        self._epoll.register(self._bell.fd, select.EPOLLIN | select.EPOLLEXCLUSIVE)
        self._epoll.register(self._ending.fd, select.EPOLLIN)

    def start(self) -> None:
        with self._lock:
            self._add()

    def watch(self, fd: int, ready: Work, events: int = 0) -> None:
        """Call `ready` when `fd` has one of the epoll `events`; once, and once more after each `arm`."""
        self._ready[fd] = ready
        self._epoll.register(fd, events | select.EPOLLONESHOT)

    def arm(self, fd: int, events: int = select.EPOLLIN) -> None:
        """Watch `fd` for the next event; events=0 mutes it. Does nothing after `forget`."""
        try:  # noqa: SIM105  # suppress() makes three more calls
            self._epoll.modify(fd, events | select.EPOLLONESHOT)
        except (OSError, ValueError):
            pass

    def forget(self, fd: int) -> None:
        self._ready.pop(fd, None)
        with contextlib.suppress(OSError, ValueError):
            self._epoll.unregister(fd)

    def later(self, work: Work, refuse: Work | None = None, patient: bool = False) -> None:
        """Run `work` soon: on this thread after its reading, or else on another. May be called in `__del__`.

        Args:
            work: may block if `refuse` is given.
            refuse: called instead of `work` when `threads_max` threads are working. Without it the work runs
                nevertheless, and must not block.
            patient: no other work waits for this one, which may therefore wait for a thread instead of being refused.
        """
        number = next(self._numbers)
        self._open.add(number)
        works = self._collected.works
        if works is not None:
            works.append((number, work, refuse, patient))
        elif self._ended:
            self._begin(partial(guarded, refuse or work))
        else:
            self._hand_on((number, work, refuse, patient))

    @property
    def open(self) -> int:
        """The number of works that are queued or run."""
        return len(self._open)

    def close(self) -> None:
        """End the threads: wait for those in works at most JOIN_SECONDS, and refuse the works that were not begun."""
        self._ended = True
        self._ending.ring()
        deadline = monotonic() + JOIN_SECONDS
        here = threading.current_thread()
        # The list is read again after each round, since a work may start a thread. A thread inside of torch's C++ code
        # at the end of the process would abort the process.
        while (others := [thread for thread in list(self._threads) if thread is not here]) and monotonic() < deadline:
            for thread in others:
                with contextlib.suppress(RuntimeError):  # the thread is not started yet
                    thread.join(max(deadline - monotonic(), 0.0))
        for left in (self._queue, self._kept):
            while left:
                with contextlib.suppress(IndexError):
                    _, work, refuse, _ = left.popleft()
                    guarded(refuse or work)

    @property
    def is_here(self) -> bool:
        """Whether this thread is one of the pool's."""
        return threading.current_thread() in self._threads

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
        self._threads.add(thread)  # before it starts: at its end it takes itself out of the set
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
                    if self._bell.heard() and self._queue:  # the queue is empty if `close` has taken the work
                        self._do(*self._queue.popleft())
                    continue
                works = collected.works = []
                outside(guarded, ready.get(fd, _nothing))  # outside of modes that a function left on
                collected.works = None
                if works:
                    while len(works) > 1:
                        self._hand_on(works.pop(1))
                    self._do(*works.pop())  # popped, since this stack frame must not keep a finished call's tensors
            if self._free > IDLE_MAX and self._one_too_many():
                return

    def _one_too_many(self) -> bool:
        with self._lock:
            if self._free <= IDLE_MAX:
                return False
            self._free -= 1
            return True

    def _do(self, number: int, work: Work, refuse: Work | None, patient: bool) -> None:
        with self._lock:
            if self._free == 1 and len(self._threads) < self.threads_max:
                with contextlib.suppress(RuntimeError):  # the system refuses another thread: like at the limit
                    self._add()
            alone = self._free == 1
            if alone and patient and self._working and len(self._kept) < self.kept_max and not self._ended:
                self._kept.append((number, work, refuse, patient))  # a working thread takes it, below
                return
            if not alone:
                self._free -= 1
                self._working += 1
        outside(guarded, work if not alone or refuse is None else refuse)
        self._open.discard(number)
        if not alone:
            with self._lock:
                self._free += 1
                self._working -= 1
                next_one = self._kept.popleft() if self._kept else None
            if next_one is not None:
                self._hand_on(next_one)


def guarded(call: Work) -> None:
    """Call `call`, and report an exception to `threading.excepthook` instead of raising it.

    KeyboardInterrupt and the like are raised if this is the main thread: a signal handler raises them there at any
    moment, and they are meant for the code that waits, not for this work.
    """
    try:
        call()
    except BaseException as error:
        if not isinstance(error, Exception) and threading.current_thread() is threading.main_thread():
            raise
        arguments = (type(error), error, error.__traceback__, threading.current_thread())
        threading.excepthook(threading.ExceptHookArgs(arguments))


def _nothing() -> None:
    """Ignore an event of a descriptor that was forgotten in the meantime."""
