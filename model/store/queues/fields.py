"""The state of a queue's clients and server: elements, the line of waiters, reserved elements.

Theory of operation. There is one queue, and one key beside it. Elements are numbered in the order in which they are
pushed; 0 is none. A blocking pop of torch's client is two requests: a WAIT for the queue, then a QUEUE_POP. The server
answers the WAIT at once if there is an element, else the client stands in line, at a `place`. The editions differ in
what a push does to that line: torch counts down along it and hopes that the client pops; ours reserves the element.
"""

from __future__ import annotations

import enum
from typing import Any

from ...language import *
from ..vocabulary import Connection, Key, Waiter

S = SymbolicState


class Element(enum.Enum):
    """Where an element of the queue is."""

    UNSENT = "not pushed yet"
    QUEUED = "in the queue"
    RESERVED = "kept for one popper that was told"
    ANSWERED = "on its way to one popper"
    DELIVERED = "popped"
    LOST = "was on its way when the connection broke"


class Doing(enum.Enum):
    """The answer that an operation of a client is about to read."""

    NOTHING = "no answer but that to a CANCEL_WAIT"
    POP = "that the queue has an element"
    ELEMENT = "an element"
    TAKE = "an element, or that there was none in time"
    GET = "that the key is there"
    VALUE = "the value of the key"
    BOTH = "that the queue has an element and the key is there"


class Request(enum.Enum):
    """A request of a client."""

    WAIT_QUEUE = "WAIT for the queue"
    WAIT_KEY = "WAIT for the key"
    WAIT_BOTH = "WAIT for both"
    QUEUE_POP = "pop at once"
    GET = "the value of the key"
    CANCEL_WAIT = "I wait no more"
    TAKE = "ours: pop when there is an element"


class Answer(enum.Enum):
    """The server's answer to a client."""

    STOP_WAITING = "it is there"
    WAIT_CANCELED = "you wait no more"
    ELEMENT = "an element"
    EMPTY = "the queue is empty"
    VALUE = "the value of the key"
    NOTHING = "an empty value for a key that is not there"
    TIMED_OUT = "ours: none in time"


class Fields(System):
    """The fields of the system, and what its steps share."""

    client = index(2)
    element = index(2, "at most 3")
    torch_clients = constant(1, "in ours: how many clients are torch's")
    both = constant(1, "1: clients wait for the queue and the key together too, 0: they do not")
    timeouts = constant(1, "1: operations run out of time, 0: they do not")

    pushed = integer(0, "element")
    queue = sequence(3, element=(1, "element"), doc="the elements that anybody may pop")
    stored = choice(Key, doc="the key beside the queue")

    waiter = choice(Waiter, per="client")
    doing = choice(Doing, per="client")
    together = flag(per="client", doc="both were there at one moment since it asked")
    requests = sequence(2, per="client", kind=Request, doc="on their way to the server")
    answers = sequence(2, per="client", kind=Answer, element=(0, "element"), doc="on their way to the client")

    place = integer(0, "client", per="client", doc="in the line of those who wait for the queue; 0 is not in it")
    on_key = integer(0, 2, per="client", doc="entries of the client in the key's list of waiters")
    awaited = integer(0, 2, per="client", doc="torch: for how many of the two it still waits")
    reserved = integer(0, "element", per="client", doc="ours: the element that is kept for it")
    dawdled = flag(per="client", doc="did not pop while one was reserved for it")
    lost = flag(per="client", doc="the connection is gone, in both directions")
    closed = flag(per="client", doc="... and the server has found out")

    got = integer(0, 2, per="element", doc="how often it was popped")
    gone = flag(per="element", doc="lost with its connection")

    def lifelines(self) -> Lifelines:
        """The push of another client arrives at the server."""
        at = "place on_key awaited reserved closed forget_connection reservation_ends"
        return served("server", at, requests="requests", answers="answers", here="together dawdled got gone")

    @machine(Waiter, each="client")
    def waiter_state(self, s: S, client: Expr) -> Any:
        """A client's blocking operation."""
        return s.waiter[client]

    @machine(Connection, each="client")
    def connection(self, s: S, client: Expr) -> Any:
        """A client's connection."""
        served = ite(self.is_registered(s, client), Connection.BLOCKED, Connection.READY)
        return ite(s.closed[client], Connection.CLOSED, ite(s.lost[client], Connection.CLOSING, served))

    @machine(Element, each="element")
    def element_state(self, s: S, element: Expr) -> Any:
        """An element of the queue."""
        number = ord_(element) + 1
        answered = any_(self.is_answered(s, j, number) for j in s.client)
        kept = ite(any_(s.reserved[j] == number for j in s.client), Element.RESERVED, Element.UNSENT)
        held = ite(s.queue.contains(element=number), Element.QUEUED, ite(answered, Element.ANSWERED, kept))
        return ite(s.got[element] > 0, Element.DELIVERED, ite(s.gone[element], Element.LOST, held))

    # ---- what is where

    def is_answered(self, s: S, client: Expr, number: Any) -> Any:
        return s.answers[client].contains(kind=Answer.ELEMENT, element=number)

    def is_registered(self, s: S, client: Expr) -> Any:
        """Does the server owe the client an answer that is not due yet?"""
        raise NotImplementedError

    def in_line(self, s: S, client: Expr) -> Any:
        return s.place[client] > 0

    def is_torchs(self, client: Expr) -> Any:
        """Is it a client of torch's?"""
        return not_(False)

    # ---- what a client's steps share

    def begins(self, s: S, client: Expr, doing: Doing, kind: Request) -> None:
        s.when(s.waiter[client] == Waiter.IDLE, ~s.lost[client])
        s.requests[client].push(kind=kind)
        s.waiter[client] = Waiter.BLOCKED
        s.doing[client] = doing
        s.together[client] = self.both_there(s)

    def both_there(self, s: S) -> Any:
        return (s.stored == Key.PRESENT) & ~s.queue.is_empty

    def reads(self, s: S, client: Expr, doing: Doing, *kinds: Answer) -> Any:
        """The client takes the next answer, which is of one of these kinds; its element."""
        head = s.answers[client].head
        waits = Waiter.CANCELLING if doing is Doing.NOTHING else Waiter.BLOCKED
        s.when(s.waiter[client] == waits, s.doing[client] == doing, ~s.answers[client].is_empty)
        s.when(head.kind.isin(kinds))
        number = head.element
        s.answers[client].pop()
        return number

    def receives(self, s: S, client: Expr, doing: Doing) -> None:
        number = self.reads(s, client, doing, Answer.ELEMENT)
        for e in s.element:
            s.got[e] = s.got[e] + as_int((number == ord_(e) + 1) & (s.got[e] < 2))
        self.ends(s, client, Waiter.SATISFIED)

    def ends(self, s: S, client: Expr, how: Waiter) -> None:
        s.waiter[client] = how
        s.doing[client] = Doing.NOTHING
        s.together[client] = False
        s.dawdled[client] = False

    def hangs_up(self, s: S, client: Expr) -> None:
        """The connection is lost: messages on their way do not arrive."""
        for e in s.element:
            s.gone[e] = s.gone[e] | self.is_answered(s, client, ord_(e) + 1)
        s.lost[client] = True
        s.requests[client].clear()
        s.answers[client].clear()

    # ---- what the server's steps share

    def takes(self, s: S, client: Expr, kind: Request) -> None:
        """The server takes the next request, of this kind."""
        s.when(~s.requests[client].is_empty, s.requests[client].head.kind == kind)
        s.requests[client].pop()

    def joins_line(self, s: S, client: Expr, when: Any) -> None:
        """At its end; in torch who was answered stays in it, and keeps the place that he has."""
        stands = self.in_line(s, client)
        behind = count(self.in_line(s, j) for j in s.client) + 1
        s.place[client] = ite(when & ~stands, behind, s.place[client])

    def leaves_line(self, s: S, client: Expr) -> None:
        before = s.fork()
        mine = before.place[client]
        for j in s.client:
            moves_up = (mine > 0) & (mine < before.place[j])
            s.place[j] = before.place[j] - as_int(moves_up)
        s.place[client] = 0

    def forgets(self, s: S, client: Expr) -> None:
        """The client is taken off every list."""
        self.leaves_line(s, client)
        s.on_key[client] = 0
        s.awaited[client] = 0

    def puts_back(self, s: S, number: Any) -> None:
        """Before all that were pushed later; 0 is no element."""
        before, some = s.fork(), number > 0
        old = [place.element for _, place in before.queue]
        earlier = count(there & (place.element < number) for there, place in before.queue)
        s.queue.clear()
        for k, element in enumerate(old):
            moved = ite(earlier == k, ite(some, number, 1), old[k - 1] if k else element)
            stays = ~some | (earlier > k)
            s.queue.push(when=before.queue.length + as_int(some) > k, element=ite(stays, element, moved))

    def remembers(self, s: S) -> None:
        for j in s.client:
            s.together[j] = s.together[j] | ((s.doing[j] == Doing.BOTH) & self.both_there(s))

    def wakes_all_on_key(self, s: S) -> None:
        """The key was set."""
        raise NotImplementedError

    def places_of(self, s: S, element: Expr) -> Any:
        """In how many places is it: the queue, a reservation, an answer, a client's hands?"""
        number = ord_(element) + 1
        kept = count(s.reserved[j] == number for j in s.client)
        answered = count(self.is_answered(s, j, number) for j in s.client)
        return as_int(s.queue.contains(element=number)) + kept + answered + s.got[element]
