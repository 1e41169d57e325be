"""Registrations: threads of one process that call watch_key at once, over the one connection of its watches.

Theory of operation. watch_key sends its request and waits until it is acknowledged; a daemon thread of the process
reads the acknowledgements. An acknowledgement of torch 1.9 names no key: the daemon sets one flag of the process and
notifies, and the thread that wakes takes the flag for its own. So a mutex (`watchKeyMutex_`) lets only one thread at a
time be between its request and its acknowledgement. Ours matches each acknowledgement with the oldest request and needs
no mutex.

Abstractions. Each thread watches its own key, once. No message is lost; the flag wakes a thread that sleeps (the system
Watches has the case in which it does not, S26).
"""

from __future__ import annotations

from ..language import *
from .vocabulary import Edition
from .vocabulary import Registration as Call

S = SymbolicState
THREADS = 3  # the limit of threads, and of requests on their way


class Registrations(System):
    """The threads of a process; each thread watches a key."""

    title = "Threads that watch keys"
    Edition = (Edition.SEED, Edition.TRYSTATE)

    thread = index(2)

    call = choice(Call, per="thread")
    requests = sequence(THREADS, thread=(0, "thread"))  # on their way to the server: thread + 1
    answers = sequence(THREADS, thread=(0, "thread"))  # on their way back: thread + 1, which 1.9 does not send
    listed = flag(per="thread", doc="the server has registered the watch of its key")

    def lifelines(self) -> Lifelines:
        """The client's process, whose daemon thread reads the acknowledgements, has the mutex and the flag."""
        return Lifelines("daemon and server", dict.fromkeys(("listed", "register")))

    registration = machine_of(call, "A thread's call of watch_key.")

    # ---- helpers

    def may_send(self, s: S, thread: Expr) -> Condition:
        """The thread may send its request."""
        return s.call[thread] == Call.CALLED

    def returns(self, s: S, thread: Expr) -> None:
        """The call is over."""
        s.call[thread] = Call.RETURNED

    # ---- the protocol

    @environment(moves=[arc(Call.IDLE, Call.CALLED)], cite="ddp-initialisation 4.2.5.1: watchKey")
    def watch_key(self, s: S, thread: Expr) -> None:
        """A thread calls watch_key."""
        move(s.call, Call.IDLE, Call.CALLED, at=thread)

    @transition(moves=[arc(Call.CALLED, Call.SENT)], cite="ddp-initialisation 4.2.5.1: sendValue, sendString")
    def send(self, s: S, thread: Expr) -> None:
        """It sends its request."""
        s.when(self.may_send(s, thread))
        s.requests.push(thread=ord_(thread) + 1)
        s.call[thread] = Call.SENT

    @transition(cite="ddp-initialisation 4.2.5.2: watchHandler")
    def register(self, s: S, thread: Expr) -> None:
        """The server registers the watch and acknowledges it."""
        s.when(~s.requests.is_empty, s.requests.head.thread == ord_(thread) + 1)
        s.requests.pop()
        s.answers.push(thread=ord_(thread) + 1)
        s.listed[thread] = True

    # ---- what must hold

    @terminal
    def at_rest(self, s: S) -> Condition:
        """Every call that was made has returned."""
        return s.call.all(Call.IDLE, Call.RETURNED)

    @sometimes()
    def both_call_at_once(self, s: S) -> Condition:
        """Every thread has called, and no call has returned."""
        return s.call.all(Call.CALLED, Call.SENT)

    @sometimes()
    def all_watch(self, s: S) -> Condition:
        """Every call has returned."""
        return s.call.all(Call.RETURNED)

    @always(witness="all_watch")
    def returned_means_registered(self, s: S) -> Condition:
        """The server has the watch of a thread whose call has returned."""
        return all_(implies(s.call[j] == Call.RETURNED, s.listed[j]) for j in s.thread)

    @leads_to()
    def calls_return(self, s: S, thread: Expr) -> Condition:
        """Every call of watch_key returns."""
        return s.call[thread] == Call.CALLED, s.call[thread] == Call.RETURNED


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

    @transition(cite="ddp-initialisation 4.2.5.1: const std::lock_guard<std::mutex> watchKeyLock")
    def take_the_mutex(self, s: S, thread: Expr) -> None:
        """A thread takes the mutex, and is the only one between request and acknowledgement."""
        s.when(s.call[thread] == Call.CALLED, s.mutex == 0)
        s.mutex = ord_(thread) + 1

    @transition(cite="ddp-initialisation 4.2.5: setCallbackRegistered")
    def announce(self, s: S) -> None:
        """The daemon thread reads an acknowledgement and sets the flag."""
        s.when(~s.answers.is_empty)
        s.answers.pop()
        s.announced = True

    @transition(moves=[arc(Call.SENT, Call.RETURNED)], cite="ddp-initialisation 4.2.5: waitForCallbackRegistration")
    def take_the_flag(self, s: S, thread: Expr) -> None:
        """A waiting thread finds the flag and clears it: its call returns."""
        s.when(s.call[thread] == Call.SENT, s.announced)
        s.announced = False
        self.returns(s, thread)

    @always(witness="both_call_at_once")
    def one_is_between(self, s: S) -> Condition:
        """At most one thread waits for an acknowledgement."""
        return count(x == Call.SENT for x in s.call) <= 1


class Ours(Registrations, edition=Edition.TRYSTATE):
    """Ours: the answers arrive in the order of the requests, and each wakes the thread of its request."""

    @sometimes()
    def two_wait(self, s: S) -> Condition:
        """More than one thread waits for an acknowledgement."""
        return count(x == Call.SENT for x in s.call) > 1

    @transition(moves=[arc(Call.SENT, Call.RETURNED)])
    def acknowledge(self, s: S, thread: Expr) -> None:
        """An acknowledgement is read and wakes the thread that sent the request."""
        s.when(~s.answers.is_empty, s.answers.head.thread == ord_(thread) + 1)
        s.answers.pop()
        self.returns(s, thread)
