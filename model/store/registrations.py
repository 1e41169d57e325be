"""Registrations: threads of one process that call watch_key at once, over the one connection of its watches.

Theory of operation. watch_key sends its request and waits until it is acknowledged; a daemon thread of the process
reads the acknowledgements. That of torch 1.9 has no key: the daemon sets one flag of the process and announces it, and
the thread that wakes takes the flag for its own. So a mutex (`watchKeyMutex_`) lets one thread at a time be between its
request and its acknowledgement. Ours gives each acknowledgement to the request that was sent first, and needs none.

Abstractions. Each thread watches a key of its own, once. Nothing is lost on the way; a thread that sleeps is woken by
the flag (that it may not be, S26, is a step of the system Watches).
"""

from __future__ import annotations

from typing import Any

from ..language import *
from .vocabulary import Edition, Registration

S = SymbolicState
Condition = Any  # an Expr: the attributes of a symbolic state are typed as Any
R = Registration
THREADS = 3  # at most: so many requests may be on their way


class Registrations(System):
    """The threads of a process, each of which watches a key."""

    title = "Threads that watch keys"
    Edition = (Edition.SEED, Edition.TRYSTATE)

    thread = index(2)

    call = choice(Registration, per="thread")
    requests = sequence(THREADS, thread=(0, "thread"))  # on their way to the server, + 1
    answers = sequence(THREADS, thread=(0, "thread"))  # on their way back: whose request it was, which 1.9 does not say
    listed = flag(per="thread", doc="the server has the watch of its key")

    def lifelines(self) -> Lifelines:
        """The mutex and the flag are those of the client's process, whose daemon thread reads the acknowledgements."""
        return Lifelines("daemon and server", dict.fromkeys(("listed", "register")))

    @machine(Registration, each="thread")
    def registration(self, s: S, thread: Expr) -> Any:
        """A thread's call of watch_key."""
        return s.call[thread]

    # ---- helpers

    def may_send(self, s: S, thread: Expr) -> Condition:
        """Nothing keeps the thread from sending its request."""
        return s.call[thread] == R.CALLED

    def returns(self, s: S, thread: Expr) -> None:
        """The call is over."""
        s.call[thread] = R.RETURNED

    # ---- the protocol

    @environment(each="thread", moves=[arc(R.IDLE, R.CALLED)], cite="ddp-initialisation 4.2.5.1: watchKey")
    def watch_key(self, s: S, thread: Expr) -> None:
        """A thread calls watch_key."""
        s.when(s.call[thread] == R.IDLE)
        s.call[thread] = R.CALLED

    @transition(each="thread", moves=[arc(R.CALLED, R.SENT)], cite="ddp-initialisation 4.2.5.1: sendValue, sendString")
    def send(self, s: S, thread: Expr) -> None:
        """It sends its request."""
        s.when(self.may_send(s, thread))
        s.requests.push(thread=ord_(thread) + 1)
        s.call[thread] = R.SENT

    @transition(each="thread", cite="ddp-initialisation 4.2.5.2: watchHandler")
    def register(self, s: S, thread: Expr) -> None:
        """The server enters the watch, and acknowledges it."""
        s.when(~s.requests.is_empty, s.requests.head.thread == ord_(thread) + 1)
        s.requests.pop()
        s.answers.push(thread=ord_(thread) + 1)
        s.listed[thread] = True

    # ---- what must hold

    @terminal
    def at_rest(self, s: S) -> Condition:
        """Every call that was made has returned."""
        return all_(x.isin((R.IDLE, R.RETURNED)) for x in s.call)

    @sometimes()
    def both_call_at_once(self, s: S) -> Condition:
        """Every thread has called, and none has returned."""
        return all_(x.isin((R.CALLED, R.SENT)) for x in s.call)

    @sometimes()
    def all_watch(self, s: S) -> Condition:
        """Every call has returned."""
        return all_(x == R.RETURNED for x in s.call)

    @always(witness="all_watch")
    def returned_means_registered(self, s: S) -> Condition:
        """The server has the watch of a thread whose call has returned."""
        return all_(implies(s.call[j] == R.RETURNED, s.listed[j]) for j in s.thread)

    @leads_to(each="thread")
    def calls_return(self, s: S, thread: Expr) -> Condition:
        """Every call of watch_key returns."""
        return s.call[thread] == R.CALLED, s.call[thread] == R.RETURNED


# ---- the editions


class Seed(Registrations, edition=Edition.SEED):
    """torch 1.9: one flag for all threads, and a mutex around it."""

    mutex = integer(0, "thread", doc="watchKeyMutex_: the thread that holds it + 1; 0: none")
    announced = flag(doc="the flag of waitForCallbackRegistration: an acknowledgement was read")

    def may_send(self, s: S, thread: Expr) -> Condition:
        return super().may_send(s, thread) & (s.mutex == ord_(thread) + 1)

    def returns(self, s: S, thread: Expr) -> None:
        super().returns(s, thread)
        s.mutex = 0

    @transition(each="thread", cite="ddp-initialisation 4.2.5.1: const std::lock_guard<std::mutex> watchKeyLock")
    def take_the_mutex(self, s: S, thread: Expr) -> None:
        """A thread is the only one between request and acknowledgement."""
        s.when(s.call[thread] == R.CALLED, s.mutex == 0)
        s.mutex = ord_(thread) + 1

    @transition(cite="ddp-initialisation 4.2.5: setCallbackRegistered")
    def announce(self, s: S) -> None:
        """The daemon thread reads an acknowledgement, and sets the flag."""
        s.when(~s.answers.is_empty)
        s.answers.pop()
        s.announced = True

    @transition(
        each="thread", moves=[arc(R.SENT, R.RETURNED)], cite="ddp-initialisation 4.2.5: waitForCallbackRegistration"
    )
    def take_the_flag(self, s: S, thread: Expr) -> None:
        """A thread that waits finds the flag, and takes it down: its call returns."""
        s.when(s.call[thread] == R.SENT, s.announced)
        s.announced = False
        self.returns(s, thread)

    @always(witness="both_call_at_once")
    def one_is_between(self, s: S) -> Condition:
        """At most one thread waits for an acknowledgement."""
        return count(x == R.SENT for x in s.call) <= 1


class Ours(Registrations, edition=Edition.TRYSTATE):
    """Ours: the answers come in the order of the requests, and each is given to its own."""

    @sometimes()
    def two_wait(self, s: S) -> Condition:
        """More than one thread waits for an acknowledgement."""
        return count(x == R.SENT for x in s.call) > 1

    @transition(each="thread", moves=[arc(R.SENT, R.RETURNED)])
    def acknowledge(self, s: S, thread: Expr) -> None:
        """An acknowledgement is read, and wakes the thread that sent the request."""
        s.when(~s.answers.is_empty, s.answers.head.thread == ord_(thread) + 1)
        s.answers.pop()
        self.returns(s, thread)
