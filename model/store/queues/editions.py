"""The editions: torch 2.13's libuv server, and ours.

In torch's server a client that was answered stays in the line of the queue. A later push then answers the client's next
wait, for something else (S4), or wakes a client that does not pop (S5, S28).

Our server has clients of torch's and our own. Clients from `torch_clients` on are our own: they pop in one request, and
the server keeps its deadline. The others are torch's, which need two requests. Between the two the element is
*reserved*. When its client cancels, dies or dawdles, the element returns to its place in the queue, and the next client
in the line gets it.
"""

from __future__ import annotations

from typing import Any

from ...language import *
from ..vocabulary import Connection, Edition, Key, Waiter
from .fields import Answer, Doing, Element, Request, S
from .properties import WAIT, WAKES, Queues


class Torch(Queues, edition=Edition.TORCH):
    """A push decrements the counts along the line; no client ever leaves the line."""

    def is_registered(self, s: S, client: Expr) -> Any:
        return s.awaited[client] > 0

    @transition(moves=[arc(Connection.READY, Connection.BLOCKED)], cite=WAIT)
    def take_wait_for_queue(self, s: S, client: Expr) -> None:
        """A WAIT for the queue is answered if the queue has an element; otherwise the client joins the line."""
        self.takes(s, client, Request.WAIT_QUEUE)
        some = ~s.queue.is_empty
        s.awaited[client] = ite(some, s.awaited[client], 1)
        s.answers[client].push(when=some, kind=Answer.STOP_WAITING)
        self.joins_line(s, client, ~some)

    @transition(moves=[arc(Connection.READY, Connection.BLOCKED)], cite=WAIT)
    def take_wait_for_both(self, s: S, client: Expr) -> None:
        """A WAIT for both: if the key is missing, the queue counts as missing too, even if it has elements."""
        self.takes(s, client, Request.WAIT_BOTH)
        both, absent = self.both_there(s), s.stored == Key.ABSENT
        s.answers[client].push(when=both, kind=Answer.STOP_WAITING)
        self.joins_line(s, client, ~both)
        s.on_key[client] = s.on_key[client] + as_int(absent & (s.on_key[client] < 2))
        s.awaited[client] = ite(both, s.awaited[client], 1 + as_int(absent))

    @transition(
        fair=False,
        moves=[arc(Element.UNSENT, Element.QUEUED, of="others"), WAKES],
        cite="TCPStoreLibUvBackend.cpp: queuePush",
    )
    def push(self, s: S) -> None:
        """Another client pushes the next element."""
        self.pushes(s)
        self.wakes_one(s)

    def wakes_one(self, s: S) -> None:
        """A push decrements the counts along the line until one reaches 0; no client leaves the line."""
        before = s.fork()
        for j in s.client:
            stops = any_(self.uses_up(before, k) & (before.place[k] < before.place[j]) for k in s.client)
            counts = self.in_line(before, j) & (before.awaited[j] > 0) & ~stops
            s.answers[j].push(when=counts & (before.awaited[j] == 1) & ~before.lost[j], kind=Answer.STOP_WAITING)
            s.awaited[j] = before.awaited[j] - as_int(counts)

    def uses_up(self, s: S, client: Expr) -> Any:
        """A push wakes no client after this one, whether or not this one pops."""
        return self.in_line(s, client) & (s.awaited[client] == 1)

    def wakes_all_on_key(self, s: S) -> None:
        """The key was set: every entry in its list decrements its client's count once."""
        before = s.fork()
        for j in s.client:
            entries, awaited = before.on_key[j], before.awaited[j]
            last = (entries > 0) & (awaited > 0) & ~(awaited > entries)
            s.answers[j].push(when=last & ~before.lost[j], kind=Answer.STOP_WAITING)
            s.awaited[j] = ite(awaited > entries, awaited - entries, 0)
            s.on_key[j] = 0


def offered(origin: Element) -> tuple[Arc, ...]:
    """The first client in the line gets a free element, even if its connection is lost."""
    return may(origin, (Element.RESERVED, Element.ANSWERED, Element.LOST), of="others")


COMES_BACK = (
    *may(Connection.BLOCKED, Connection.READY, of="others"),
    *may(Element.RESERVED, Element.QUEUED, of="others"),
    *offered(Element.RESERVED),
)
TAKEN = arc(Element.QUEUED, Element.ANSWERED, of="others")


class Ours(Queues, edition=Edition.TRYSTATE):
    """The first client in the line gets an element, which returns to the queue if that client does not pop it."""

    def is_registered(self, s: S, client: Expr) -> Any:
        return self.in_line(s, client) | (s.on_key[client] > 0)

    def is_torchs(self, client: Expr) -> Any:
        return ord_(client) < self.torch_clients

    # ---- our client, which pops in one request

    @transition(fair=False, moves=[arc(Waiter.IDLE, Waiter.BLOCKED)])
    def pop_in_one(self, s: S, client: Expr) -> None:
        """queue_pop(block=True) of our client sends one request."""
        s.when(~self.is_torchs(client))
        self.begins(s, client, Doing.TAKE, Request.TAKE)

    @transition(moves=[arc(Waiter.BLOCKED, Waiter.SATISFIED), arc(Element.ANSWERED, Element.DELIVERED, of="others")])
    def read_element_in_one(self, s: S, client: Expr) -> None:
        """Our queue_pop() reads an element and returns."""
        self.receives(s, client, Doing.TAKE)

    @transition(moves=[arc(Waiter.BLOCKED, Waiter.TIMED_OUT)])
    def read_timed_out(self, s: S, client: Expr) -> None:
        """Our queue_pop() reads that no element came in time and raises."""
        self.reads(s, client, Doing.TAKE, Answer.TIMED_OUT)
        self.ends(s, client, Waiter.TIMED_OUT)

    # ---- the server

    @transition(
        moves=[arc(Connection.READY, Connection.BLOCKED), arc(Element.QUEUED, Element.RESERVED, of="others")],
        cite=WAIT,
    )
    def take_wait_for_queue(self, s: S, client: Expr) -> None:
        """A WAIT for the queue is answered if an element can be reserved; otherwise the client joins the line."""
        self.takes(s, client, Request.WAIT_QUEUE)
        some, number = ~s.queue.is_empty, s.queue.head.element
        s.reserved[client] = ite(some, number, 0)
        s.queue.pop()
        s.answers[client].push(when=some, kind=Answer.STOP_WAITING)
        self.joins_line(s, client, ~some)

    @transition(moves=[arc(Connection.READY, Connection.BLOCKED)], cite=WAIT)
    def take_wait_for_both(self, s: S, client: Expr) -> None:
        """A WAIT for both is answered when the queue has an element and the key exists."""
        self.takes(s, client, Request.WAIT_BOTH)
        both = self.both_there(s)
        s.answers[client].push(when=both, kind=Answer.STOP_WAITING)
        self.joins_line(s, client, ~both)
        s.on_key[client] = as_int(~both)

    @transition(
        fair=False,
        moves=[arc(Element.UNSENT, Element.QUEUED, of="others"), offered(Element.UNSENT), WAKES],
        cite="TCPStoreLibUvBackend.cpp: queuePush",
    )
    def push(self, s: S) -> None:
        """Another client pushes the next element."""
        self.pushes(s)
        self.offers(s)

    @transition(moves=[arc(Connection.READY, Connection.BLOCKED), TAKEN])
    def take_pop_in_one(self, s: S, client: Expr) -> None:
        """A pop of our client gets the first element or a place in the line."""
        self.takes(s, client, Request.TAKE)
        some, number = ~s.queue.is_empty, s.queue.head.element
        s.queue.pop()
        s.answers[client].push(when=some, kind=Answer.ELEMENT, element=number)
        self.joins_line(s, client, ~some)

    @environment(moves=[arc(Connection.BLOCKED, Connection.READY)])
    def expires(self, s: S, client: Expr) -> None:
        """The deadline of our client's request passes at the server."""
        s.when(self.timeouts > 0, ~self.is_torchs(client))
        s.when(self.in_line(s, client), s.on_key[client] == 0, ~s.lost[client])
        self.forgets(s, client)
        s.answers[client].push(kind=Answer.TIMED_OUT)

    @environment(switch="dawdle", moves=COMES_BACK)
    def reservation_ends(self, s: S, client: Expr) -> None:
        """A client does not pop the element that is reserved for it in time: the element is free again."""
        s.when(s.reserved[client] > 0, s.waiter[client] == Waiter.BLOCKED)
        s.dawdled[client] = True
        self.gives_back(s, client)

    take_pop = Queues.take_pop.claiming(TAKEN, arc(Element.RESERVED, Element.ANSWERED, of="others"))
    cancel_wait = Queues.cancel_wait.claiming(arc(Connection.BLOCKED, Connection.READY), COMES_BACK)
    forget_connection = Queues.forget_connection.claiming(arc(Connection.CLOSING, Connection.CLOSED), COMES_BACK)

    def forgets(self, s: S, client: Expr) -> None:
        """The client is removed from every list; an element that was reserved for it returns to its place."""
        super().forgets(s, client)
        self.gives_back(s, client)

    def gives_back(self, s: S, client: Expr) -> None:
        number = s.reserved[client]
        s.reserved[client] = 0
        self.puts_back(s, number)
        self.remembers(s)
        self.offers(s)

    def offers(self, s: S) -> None:
        """A free element releases each client that waits for both, and the first that waits for the queue gets it."""
        before = s.fork()
        some, number = ~before.queue.is_empty, before.queue.head.element
        for j in s.client:
            told, mine, torchs = self.is_told(before, j), self.is_next(before, j), self.is_torchs(j)
            kind, sent = ite(mine & ~torchs, Answer.ELEMENT, Answer.STOP_WAITING), ite(mine & ~torchs, number, 0)
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
        """It waits for both, and the key exists."""
        return self.in_line(s, client) & (s.on_key[client] > 0) & (s.stored == Key.PRESENT)

    def is_next(self, s: S, client: Expr) -> Any:
        """It is the first of the clients that wait only for the queue."""
        earlier = any_(self.waits_alone(s, k) & (s.place[k] < s.place[client]) for k in s.client)
        return self.waits_alone(s, client) & ~earlier

    def waits_alone(self, s: S, client: Expr) -> Any:
        """It waits for the queue but not for the key."""
        return self.in_line(s, client) & (s.on_key[client] == 0)

    def wakes_all_on_key(self, s: S) -> None:
        """The key was set: clients that wait only for it are released, and the queue's waiters are checked again."""
        before = s.fork()
        for j in s.client:
            told = (before.on_key[j] > 0) & ~self.in_line(before, j)
            s.answers[j].push(when=told & ~before.lost[j], kind=Answer.STOP_WAITING)
            s.on_key[j] = ite(told, 0, before.on_key[j])
        self.offers(s)
