"""What clients of a queue and its server remember: elements, the line of those who wait, and what is reserved for whom.

One queue and one key beside it. Elements are numbered in the order in which they are pushed; 0 is none. In ours,
clients from `torch_clients` on are our own, which pop in one request; the others are torch's, which need two.
"""

from __future__ import annotations

import enum
from typing import Any

from ..language import (
    Expr,
    SymbolicState,
    System,
    any_,
    as_int,
    choice,
    constant,
    count,
    flag,
    index,
    integer,
    ite,
    machine,
    not_,
    ord_,
    sequence,
)
from .vocabulary import Connection, Edition, Key, Waiter

S = SymbolicState
C, K, W = Connection, Key, Waiter
TORCH, TRYSTATE = Edition.TORCH, Edition.TRYSTATE


class Element(enum.Enum):
    """Where an element of the queue is."""

    UNSENT = "not pushed yet"
    QUEUED = "in the queue"
    RESERVED = "kept for one popper, who was told"
    ANSWERED = "on its way to one popper"
    DELIVERED = "popped"
    LOST = "was on its way when the connection broke"


class Doing(enum.Enum):
    """What an operation of a client is about to read."""

    NOTHING = "no answer but that to a CANCEL_WAIT"
    POP = "that the queue has an element"
    ELEMENT = "an element"
    TAKE = "an element, or that there was none in time"
    GET = "that the key is there"
    VALUE = "the value of the key"
    BOTH = "that the queue has an element and the key is there"


class Request(enum.Enum):
    """What a client sends."""

    WAIT_QUEUE = "WAIT for the queue"
    WAIT_KEY = "WAIT for the key"
    WAIT_BOTH = "WAIT for both"
    QUEUE_POP = "pop at once"
    GET = "the value of the key"
    CANCEL_WAIT = "I wait no more"
    TAKE = "ours: pop when there is an element"


class Answer(enum.Enum):
    """What the server sends."""

    STOP_WAITING = "it is there"
    WAIT_CANCELED = "you wait no more"
    ELEMENT = "an element"
    EMPTY = "the queue is empty"
    VALUE = "the value of the key"
    NOTHING = "an empty value for a key that is not there"
    TIMED_OUT = "ours: none in time"


D, Q, A, E = Doing, Request, Answer, Element


class Queueing(System):
    """The fields of the system, and the helpers that its steps share."""

    Edition = (Edition.TORCH, Edition.TRYSTATE)  # torch 1.9 has no queues

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

    @machine(Waiter, each="client")
    def waiter_state(self, s: S, client: Expr) -> Any:
        """A client's blocking operation."""
        return s.waiter[client]

    @machine(Connection, each="client")
    def connection(self, s: S, client: Expr) -> Any:
        """A client's connection."""
        served = ite(self.is_registered(s, client), C.BLOCKED, C.READY)
        return ite(s.closed[client], C.CLOSED, ite(s.lost[client], C.CLOSING, served))

    @machine(Element, each="element")
    def element_state(self, s: S, element: Expr) -> Any:
        """An element of the queue."""
        number = ord_(element) + 1
        answered = any_(self.is_answered(s, j, number) for j in s.client)
        kept = ite(any_(s.reserved[j] == number for j in s.client), E.RESERVED, E.UNSENT)
        held = ite(s.queue.contains(element=number), E.QUEUED, ite(answered, E.ANSWERED, kept))
        return ite(s.got[element] > 0, E.DELIVERED, ite(s.gone[element], E.LOST, held))

    # ---- what is where

    def is_answered(self, s: S, client: Expr, number: Any) -> Any:
        return s.answers[client].contains(kind=A.ELEMENT, element=number)

    def is_registered(self, s: S, client: Expr) -> Any:
        if self.edition is TRYSTATE:
            return self.in_line(s, client) | (s.on_key[client] > 0)
        return s.awaited[client] > 0

    def in_line(self, s: S, client: Expr) -> Any:
        return s.place[client] > 0

    def is_torchs(self, client: Expr) -> Any:
        return not_(False) if self.edition is TORCH else ord_(client) < self.torch_clients

    # ---- what a client's steps share

    def begins(self, s: S, client: Expr, doing: Doing, kind: Request) -> None:
        s.when(s.waiter[client] == W.IDLE, ~s.lost[client])
        s.requests[client].push(kind=kind)
        s.waiter[client] = W.BLOCKED
        s.doing[client] = doing
        s.together[client] = self.both_there(s)

    def both_there(self, s: S) -> Any:
        return (s.stored == K.PRESENT) & ~s.queue.is_empty

    def reads(self, s: S, client: Expr, doing: Doing, *kinds: Answer) -> Any:
        """The client takes the next answer, which is of one of these kinds; its element."""
        head = s.answers[client].head
        waits = W.CANCELLING if doing is D.NOTHING else W.BLOCKED
        s.when(s.waiter[client] == waits, s.doing[client] == doing, ~s.answers[client].is_empty)
        s.when(head.kind.isin(kinds))
        number = head.element
        s.answers[client].pop()
        return number

    def ends(self, s: S, client: Expr, how: Waiter) -> None:
        s.waiter[client] = how
        s.doing[client] = D.NOTHING
        s.together[client] = False
        s.dawdled[client] = False

    def hangs_up(self, s: S, client: Expr) -> None:
        """The connection is lost: what was on its way does not arrive."""
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
        """The client is taken off every list; what was reserved for it comes back, to the place that it had."""
        self.leaves_line(s, client)
        s.on_key[client] = 0
        s.awaited[client] = 0
        if self.edition is TRYSTATE:
            self.gives_back(s, client)

    def gives_back(self, s: S, client: Expr) -> None:
        number = s.reserved[client]
        s.reserved[client] = 0
        self.puts_back(s, number)
        self.remembers(s)
        self.offers(s)

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
            s.together[j] = s.together[j] | ((s.doing[j] == D.BOTH) & self.both_there(s))

    def waits_alone(self, s: S, client: Expr) -> Any:
        """Does it wait for the queue, and not for the key too?"""
        return self.in_line(s, client) & (s.on_key[client] == 0)

    def offers(self, s: S) -> None:
        """Ours: an element has come: whoever waits for both is told, and the first who waits for the queue has it."""
        before = s.fork()
        some, number = ~before.queue.is_empty, before.queue.head.element
        for j in s.client:
            told, mine, torchs = self.is_told(before, j), self.is_next(before, j), self.is_torchs(j)
            kind, sent = ite(mine & ~torchs, A.ELEMENT, A.STOP_WAITING), ite(mine & ~torchs, number, 0)
            s.answers[j].push(when=some & (told | mine) & ~before.lost[j], kind=kind, element=sent)
            s.reserved[j] = ite(some & mine & torchs, number, before.reserved[j])
            s.on_key[j] = ite(some & told, 0, before.on_key[j])
            ahead = count(
                (self.is_told(before, k) | self.is_next(before, k)) & (before.place[k] < before.place[j])
                for k in s.client
            )
            s.place[j] = ite(some & (told | mine), 0, before.place[j] - ite(some & self.in_line(before, j), ahead, 0))
        falls = some & any_(self.is_next(before, j) & before.lost[j] & ~self.is_torchs(j) for j in s.client)
        for e in s.element:
            s.gone[e] = s.gone[e] | (falls & (number == ord_(e) + 1))
        s.queue.pop(when=any_(self.is_next(before, j) for j in s.client))

    def is_told(self, s: S, client: Expr) -> Any:
        """It waits for both, and the key is there."""
        return self.in_line(s, client) & (s.on_key[client] > 0) & (s.stored == K.PRESENT)

    def is_next(self, s: S, client: Expr) -> Any:
        """It is the first of those who wait for the queue alone."""
        earlier = any_(self.waits_alone(s, k) & (s.place[k] < s.place[client]) for k in s.client)
        return self.waits_alone(s, client) & ~earlier

    def wakes_one(self, s: S, when: Any = True) -> None:
        """torch: a push counts down along the line until one comes to 0; nobody leaves it."""
        before = s.fork()
        for j in s.client:
            stops = any_(self.uses_up(before, k) & (before.place[k] < before.place[j]) for k in s.client)
            counts = self.in_line(before, j) & (before.awaited[j] > 0) & ~stops & when
            s.answers[j].push(when=counts & (before.awaited[j] == 1) & ~before.lost[j], kind=A.STOP_WAITING)
            s.awaited[j] = before.awaited[j] - as_int(counts)

    def uses_up(self, s: S, client: Expr) -> Any:
        """torch: does a wake go no further than this client? It does not ask whether the client will pop."""
        return self.in_line(s, client) & (s.awaited[client] == 1)

    def wakes_all_on_key(self, s: S) -> None:
        """The key was set."""
        before = s.fork()
        if self.edition is TRYSTATE:
            for j in s.client:
                told = (before.on_key[j] > 0) & ~self.in_line(before, j)
                s.answers[j].push(when=told & ~before.lost[j], kind=A.STOP_WAITING)
                s.on_key[j] = ite(told, 0, before.on_key[j])
            self.offers(s)
            return
        for j in s.client:
            entries, awaited = before.on_key[j], before.awaited[j]
            last = (entries > 0) & (awaited > 0) & ~(awaited > entries)
            s.answers[j].push(when=last & ~before.lost[j], kind=A.STOP_WAITING)
            s.awaited[j] = ite(awaited > entries, awaited - entries, 0)
            s.on_key[j] = 0

    def places_of(self, s: S, element: Expr) -> Any:
        """In how many places is it: the queue, a reservation, an answer, a client's hands?"""
        number = ord_(element) + 1
        kept = count(s.reserved[j] == number for j in s.client)
        answered = count(self.is_answered(s, j, number) for j in s.client)
        return as_int(s.queue.contains(element=number)) + kept + answered + s.got[element]
