"""The state of a queue's clients and server: elements, the line of waiters, reserved elements.

Theory of operation. The store has one queue and one key. Elements are numbered in the order in which they are pushed; 0
is not an element. A blocking pop of torch's client is two requests: a WAIT for the queue, then a QUEUE_POP. The server
answers the WAIT at once if the queue has an element; otherwise the client waits in the line, at a `place`. The editions
differ in how a push changes that line: torch releases waiters without reserving the element; ours reserves it.
"""

from __future__ import annotations

import enum
from typing import Any

from ...language import *
from ..vocabulary import Connection, Key, Waiter

S = SymbolicState


class Element(enum.Enum):
    """The place of an element of the queue."""

    UNSENT = "not pushed yet"
    QUEUED = "in the queue"
    RESERVED = "reserved for one popper that was notified"
    ANSWERED = "on its way to one popper"
    DELIVERED = "popped"
    LOST = "was on its way when the connection broke"


class Doing(enum.Enum):
    """The answer that an operation of a client is about to read."""

    NOTHING = "only the answer to a CANCEL_WAIT"
    POP = "that the queue has an element"
    ELEMENT = "an element"
    TAKE = "an element, or that none came in time"
    GET = "that the key exists"
    VALUE = "the value of the key"
    BOTH = "that the queue has an element and the key exists"


class Request(enum.Enum):
    """A request of a client."""

    WAIT_QUEUE = "WAIT for the queue"
    WAIT_KEY = "WAIT for the key"
    WAIT_BOTH = "WAIT for both"
    QUEUE_POP = "pop at once"
    GET = "the value of the key"
    CANCEL_WAIT = "cancel the wait"
    TAKE = "ours: pop when the queue has an element"


class Answer(enum.Enum):
    """The server's answer to a client."""

    STOP_WAITING = "the wait is over"
    WAIT_CANCELED = "the wait is cancelled"
    ELEMENT = "an element"
    EMPTY = "the queue is empty"
    VALUE = "the value of the key"
    NOTHING = "an empty value for a missing key"
    TIMED_OUT = "ours: none in time"


class Fields(System):
    """The fields of the system, and the helpers that its steps share."""

    client = index(2)
    element = index(2, "at most 3")
    torch_clients = constant(1, "in ours: how many clients are torch's")
    both = constant(1, "1: clients also wait for the queue and the key together, 0: they do not")
    timeouts = constant(1, "1: operations run out of time, 0: they do not")

    pushed = integer(0, "element")
    queue = sequence(3, element=(1, "element"), doc="the elements that any client may pop")
    stored = choice(Key, doc="the key next to the queue")

    waiter = choice(Waiter, per="client")
    doing = choice(Doing, per="client")
    together = flag(per="client", doc="both existed at one moment since its request")
    requests = sequence(2, per="client", kind=Request, doc="on their way to the server")
    answers = sequence(2, per="client", kind=Answer, element=(0, "element"), doc="on their way to the client")

    place = integer(0, "client", per="client", doc="in the line of clients that wait for the queue; 0: not in the line")
    on_key = integer(0, 2, per="client", doc="entries of the client in the key's list of waiters")
    awaited = integer(0, 2, per="client", doc="torch: the number of the two that it still waits for")
    reserved = integer(0, "element", per="client", doc="ours: the element that is reserved for it")
    dawdled = flag(per="client", doc="did not pop while an element was reserved for it")
    lost = flag(per="client", doc="the connection is lost in both directions")
    closed = flag(per="client", doc="the server has closed the connection")

    got = integer(0, 2, per="element", doc="how often it was popped")
    gone = flag(per="element", doc="lost with its connection")

    def lifelines(self) -> Lifelines:
        """Pushes of other clients arrive at the server."""
        at = "place on_key awaited reserved closed forget_connection reservation_ends"
        return served("server", at, requests="requests", answers="answers", here="together dawdled got gone")

    waiter_state = machine_of(waiter, "A client's blocking operation.")

    @machine(Connection)
    def connection(self, s: S, client: Expr) -> Any:
        """A client's connection."""
        served = ite(self.is_registered(s, client), Connection.BLOCKED, Connection.READY)
        return ite(s.closed[client], Connection.CLOSED, ite(s.lost[client], Connection.CLOSING, served))

    @machine(Element)
    def element_state(self, s: S, element: Expr) -> Any:
        """An element of the queue."""
        number = ord_(element) + 1
        answered = any_(self.is_answered(s, j, number) for j in s.client)
        kept = ite(s.reserved.any(number), Element.RESERVED, Element.UNSENT)
        held = ite(s.queue.contains(element=number), Element.QUEUED, ite(answered, Element.ANSWERED, kept))
        return ite(s.got[element] > 0, Element.DELIVERED, ite(s.gone[element], Element.LOST, held))

    # ---- the places of clients and elements

    def is_answered(self, s: S, client: Expr, number: Any) -> Any:
        return s.answers[client].contains(kind=Answer.ELEMENT, element=number)

    def is_registered(self, s: S, client: Expr) -> Any:
        """The server will answer the client later."""
        raise NotImplementedError

    def in_line(self, s: S, client: Expr) -> Any:
        return s.place[client] > 0

    def is_torchs(self, client: Expr) -> Any:
        """It is a client of torch's."""
        return not_(False)

    # ---- helpers of a client's steps

    def begins(self, s: S, client: Expr, doing: Doing, kind: Request) -> None:
        move(s.waiter, Waiter.IDLE, Waiter.BLOCKED, ~s.lost[client], at=client)
        s.requests[client].push(kind=kind)
        s.doing[client] = doing
        s.together[client] = self.both_there(s)

    def both_there(self, s: S) -> Any:
        return (s.stored == Key.PRESENT) & ~s.queue.is_empty

    def reads(self, s: S, client: Expr, doing: Doing, *kinds: Answer) -> Any:
        """The client reads the next answer if it is of one of these kinds; returns its element."""
        head = s.answers[client].head
        waits = Waiter.CANCELLING if doing is Doing.NOTHING else Waiter.BLOCKED
        s.when(s.waiter[client] == waits, s.doing[client] == doing, ~s.answers[client].is_empty)
        s.when(head.kind.isin(kinds))
        return s.answers[client].pop().element

    def receives(self, s: S, client: Expr, doing: Doing) -> None:
        number = self.reads(s, client, doing, Answer.ELEMENT)
        for e in s.element:
            s.got[e] = s.got[e] + as_int((number == ord_(e) + 1) & (s.got[e] < 2))
        self.ends(s, client, Waiter.SATISFIED)

    def ends(self, s: S, client: Expr, how: Waiter) -> None:
        s.waiter[client] = how
        reset(s.doing, s.together, s.dawdled, at=client)

    def hangs_up(self, s: S, client: Expr) -> None:
        """The connection is lost, and messages on their way do not arrive."""
        for e in s.element:
            s.gone[e] = s.gone[e] | self.is_answered(s, client, ord_(e) + 1)
        s.lost[client] = True
        s.requests[client].clear()
        s.answers[client].clear()

    # ---- helpers of the server's steps

    def takes(self, s: S, client: Expr, kind: Request) -> None:
        """The server reads the next request if it is of this kind."""
        s.when(~s.requests[client].is_empty, s.requests[client].head.kind == kind)
        s.requests[client].pop()

    def joins_line(self, s: S, client: Expr, when: Any) -> None:
        """The client joins the line at its end; a client that torch has answered may still have its place in it."""
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
        """The client is removed from every list."""
        self.leaves_line(s, client)
        reset(s.on_key, s.awaited, at=client)

    def puts_back(self, s: S, number: Any) -> None:
        """Returns an element to the queue before all that were pushed later; 0 is not an element."""
        earlier = count(there & (place.element < number) for there, place in s.queue)
        s.queue.push(element=number, at=earlier, when=number > 0)

    def remembers(self, s: S) -> None:
        for j in s.client:
            s.together[j] = s.together[j] | ((s.doing[j] == Doing.BOTH) & self.both_there(s))

    def wakes_all_on_key(self, s: S) -> None:
        """The key was set: the server answers the clients that wait for it."""
        raise NotImplementedError

    def places_of(self, s: S, element: Expr) -> Any:
        """The number of places that have the element: the queue, a reservation, an answer, a pop that returned."""
        number = ord_(element) + 1
        kept = count(s.reserved[j] == number for j in s.client)
        answered = count(self.is_answered(s, j, number) for j in s.client)
        return as_int(s.queue.contains(element=number)) + kept + answered + s.got[element]
