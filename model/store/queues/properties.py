"""The steps that all editions have, and the properties, the same for each edition.

docs/language.md explains how to read a property; `../findings.py` lists the violations by edition.
"""

from __future__ import annotations

from typing import Any

from ...language import *
from ..vocabulary import Connection, Edition, Key, Waiter
from .fields import Answer, Doing, Element, Fields, Request, S

POP = "TCPStore.cpp: queuePop"
WAIT = "TCPStoreLibUvBackend.cpp: waitKeys"
WAKES = may(Connection.BLOCKED, Connection.READY, of="others")


class Queues(Fields):
    """Clients that pop from a queue, get a key and wait for both, and other clients that push."""

    title = "Queues"
    Edition = (Edition.TORCH, Edition.TRYSTATE)  # torch 1.9 has no queues

    # ---- a client's operation

    @transition(fair=False, moves=[arc(Waiter.IDLE, Waiter.BLOCKED)], cite=POP)
    def pop(self, s: S, client: Expr) -> None:
        """queue_pop(block=True) of torch's client sends a WAIT first."""
        s.when(self.is_torchs(client))
        self.begins(s, client, Doing.POP, Request.WAIT_QUEUE)

    @transition(fair=False, moves=[arc(Waiter.IDLE, Waiter.BLOCKED)], cite="TCPStore.cpp: get")
    def get(self, s: S, client: Expr) -> None:
        """get(key) sends a WAIT first."""
        self.begins(s, client, Doing.GET, Request.WAIT_KEY)

    @transition(fair=False, moves=[arc(Waiter.IDLE, Waiter.BLOCKED)], cite="TCPStore.cpp: doWait")
    def wait_for_both(self, s: S, client: Expr) -> None:
        """A client calls wait([queue, key]), unless torch has left it in the line, where it would be counted twice."""
        s.when(self.both > 0, ~self.in_line(s, client))
        self.begins(s, client, Doing.BOTH, Request.WAIT_BOTH)

    @transition(cite=POP)
    def send_pop(self, s: S, client: Expr) -> None:
        """The server has answered that the queue has an element: a QUEUE_POP follows."""
        self.reads(s, client, Doing.POP, Answer.STOP_WAITING)
        s.requests[client].push(kind=Request.QUEUE_POP)
        s.doing[client] = Doing.ELEMENT

    @transition(cite="TCPStore.cpp: get")
    def send_get(self, s: S, client: Expr) -> None:
        """The server has answered that the key exists: a GET follows."""
        self.reads(s, client, Doing.GET, Answer.STOP_WAITING)
        s.requests[client].push(kind=Request.GET)
        s.doing[client] = Doing.VALUE

    @transition(
        cite=POP,
        moves=[arc(Waiter.BLOCKED, Waiter.SATISFIED), arc(Element.ANSWERED, Element.DELIVERED, of="others")],
    )
    def read_element(self, s: S, client: Expr) -> None:
        """torch's queue_pop() reads an element and returns."""
        self.receives(s, client, Doing.ELEMENT)

    @transition(moves=[arc(Waiter.BLOCKED, Waiter.IDLE)], cite=POP)
    def raise_empty(self, s: S, client: Expr) -> None:
        """queue_pop() reads that the queue is empty and raises."""
        self.reads(s, client, Doing.ELEMENT, Answer.EMPTY)
        self.ends(s, client, Waiter.IDLE)

    @transition(moves=[arc(Waiter.BLOCKED, Waiter.SATISFIED)], cite="TCPStore.cpp: get")
    def read_value(self, s: S, client: Expr) -> None:
        """get() reads the value and returns."""
        self.reads(s, client, Doing.VALUE, Answer.VALUE, Answer.NOTHING)
        self.ends(s, client, Waiter.SATISFIED)

    @transition(moves=[arc(Waiter.BLOCKED, Waiter.SATISFIED)], cite="TCPStore.cpp: doWait")
    def return_from_wait(self, s: S, client: Expr) -> None:
        """wait() reads STOP_WAITING and returns."""
        self.reads(s, client, Doing.BOTH, Answer.STOP_WAITING)
        self.ends(s, client, Waiter.SATISFIED)

    @transition(moves=[arc((Waiter.SATISFIED, Waiter.TIMED_OUT), Waiter.IDLE)])
    def go_on(self, s: S, client: Expr) -> None:
        """The client's operation is over, and the next may begin."""
        move(s.waiter, (Waiter.SATISFIED, Waiter.TIMED_OUT), Waiter.IDLE, at=client)

    @environment(moves=[arc(Waiter.BLOCKED, Waiter.CANCELLING)], cite="TCPStore.cpp: doWait")
    def time_out(self, s: S, client: Expr) -> None:
        """A WAIT times out, and the client sends CANCEL_WAIT."""
        s.when(
            self.timeouts > 0,
            s.waiter[client] == Waiter.BLOCKED,
            s.doing[client].isin((Doing.POP, Doing.GET, Doing.BOTH)),
        )
        s.requests[client].push(when=~s.lost[client], kind=Request.CANCEL_WAIT)
        self.ends(s, client, Waiter.CANCELLING)

    @transition(cite="TCPStore.cpp: doWait")
    def read_late_answer(self, s: S, client: Expr) -> None:
        """The wait was satisfied meanwhile: the client must read one more answer."""
        self.reads(s, client, Doing.NOTHING, Answer.STOP_WAITING)

    @transition(moves=[arc(Waiter.CANCELLING, Waiter.TIMED_OUT)], cite="TCPStore.cpp: doWait")
    def read_cancelled(self, s: S, client: Expr) -> None:
        """The client reads WAIT_CANCELED: the operation raises."""
        self.reads(s, client, Doing.NOTHING, Answer.WAIT_CANCELED)
        self.ends(s, client, Waiter.TIMED_OUT)

    @transition(moves=[arc((Waiter.IDLE, Waiter.BLOCKED, Waiter.CANCELLING), Waiter.DISCONNECTED)])
    def find_connection_lost(self, s: S, client: Expr) -> None:
        """The client finds its connection closed and raises."""
        s.when(s.lost[client], s.waiter[client].isin((Waiter.IDLE, Waiter.BLOCKED, Waiter.CANCELLING)))
        self.ends(s, client, Waiter.DISCONNECTED)

    # ---- the server

    @transition(moves=[arc(Connection.READY, Connection.BLOCKED)], cite=WAIT)
    def take_wait_for_key(self, s: S, client: Expr) -> None:
        """A WAIT for the key is answered if the key exists; otherwise the client is registered."""
        self.takes(s, client, Request.WAIT_KEY)
        absent = s.stored == Key.ABSENT
        s.on_key[client] = s.on_key[client] + as_int(absent & (s.on_key[client] < 2))
        s.awaited[client] = ite(absent, 1, s.awaited[client])
        s.answers[client].push(when=~absent, kind=Answer.STOP_WAITING)

    @transition(moves=[arc(Element.QUEUED, Element.ANSWERED, of="others")], cite="TCPStoreLibUvBackend.cpp: queuePop")
    def take_pop(self, s: S, client: Expr) -> None:
        """A QUEUE_POP gets the element reserved for the client, else the first element, else an empty answer."""
        self.takes(s, client, Request.QUEUE_POP)
        own = s.reserved[client] > 0
        some = own | ~s.queue.is_empty
        number = ite(own, s.reserved[client], s.queue.head.element)
        s.reserved[client] = 0
        s.queue.pop(when=~own)
        s.answers[client].push(kind=ite(some, Answer.ELEMENT, Answer.EMPTY), element=ite(some, number, 0))

    @transition(cite="TCPStoreLibUvBackend.cpp: get")
    def answer_get(self, s: S, client: Expr) -> None:
        """A GET gets the value, or an empty value for a missing key."""
        self.takes(s, client, Request.GET)
        s.answers[client].push(kind=ite(s.stored == Key.PRESENT, Answer.VALUE, Answer.NOTHING))

    @transition(
        moves=[arc(Connection.BLOCKED, Connection.READY)],
        cite="TCPStoreLibUvBackend.cpp: clearClientWaitState",
    )
    def cancel_wait(self, s: S, client: Expr) -> None:
        """A CANCEL_WAIT removes the client from every list."""
        self.takes(s, client, Request.CANCEL_WAIT)
        self.forgets(s, client)
        s.answers[client].push(kind=Answer.WAIT_CANCELED)

    @transition(moves=[arc(Connection.CLOSING, Connection.CLOSED)], cite="TCPStoreLibUvBackend.cpp: unregisterClient")
    def forget_connection(self, s: S, client: Expr) -> None:
        """The server finds a connection lost and removes its data."""
        move(s.closed, False, True, s.lost[client], at=client)
        self.forgets(s, client)

    # ---- other clients, and lost connections

    @transition(fair=False, moves=[WAKES], cite="TCPStoreLibUvBackend.cpp: set")
    def set_key(self, s: S) -> None:
        """Another client sets the key."""
        s.when(s.stored == Key.ABSENT)
        s.stored = Key.PRESENT
        self.remembers(s)
        self.wakes_all_on_key(s)

    def pushes(self, s: S) -> None:
        """Another client pushes the next element."""
        s.when(s.pushed < self.sizes["element"])
        s.pushed = s.pushed + 1
        s.queue.push(element=s.pushed)
        self.remembers(s)

    @fault(
        "drop",
        moves=[
            arc((Connection.READY, Connection.BLOCKED), Connection.CLOSING),
            arc(Element.ANSWERED, Element.LOST, of="others"),
        ],
    )
    def drop(self, s: S, client: Expr) -> None:
        """A connection is lost in both directions; each end notices that later."""
        s.when(~s.lost[client])
        self.hangs_up(s, client)

    # ---- what must hold

    @terminal
    def at_rest(self, s: S) -> Any:
        """No client has an operation under way; or nothing times out, and each operation waits at the server."""
        endless = self.timeouts == 0
        return all_(
            s.waiter[j].isin((Waiter.IDLE, Waiter.DISCONNECTED)) | (endless & self.is_registered(s, j))
            for j in s.client
        )

    def pops(self, s: S, client: Expr) -> Any:
        return (s.waiter[client] == Waiter.BLOCKED) & s.doing[client].isin((Doing.POP, Doing.TAKE)) & ~s.lost[client]

    def sleeps(self, s: S, client: Expr) -> Any:
        return s.requests[client].is_empty & s.answers[client].is_empty & ~s.lost[client]

    def comes(self, s: S, client: Expr) -> Any:
        """The client's WAIT was answered and nothing is reserved for it: it will request an element."""
        told = (s.doing[client] == Doing.POP) & s.answers[client].contains(kind=Answer.STOP_WAITING)
        asks = (s.doing[client] == Doing.ELEMENT) & s.requests[client].contains(kind=Request.QUEUE_POP)
        return (told | asks) & (s.reserved[client] == 0)

    @sometimes()
    def all_stand_in_line(self, s: S) -> Any:
        """Every client waits for the queue."""
        return all_(self.in_line(s, j) & (s.doing[j] != Doing.BOTH) & self.sleeps(s, j) for j in s.client)

    @sometimes()
    def elements_queue_up(self, s: S) -> Any:
        """All elements are in the queue while a client pops."""
        full = s.queue.length == self.sizes["element"]
        return full & any_(self.pops(s, j) for j in s.client)

    @sometimes()
    def all_are_delivered(self, s: S) -> Any:
        """Every element has been popped."""
        return s.got.all(1)

    @sometimes()
    def a_get_waits(self, s: S) -> Any:
        """A client waits only for the key while the queue has an element."""
        return any_((s.doing[j] == Doing.GET) & self.is_registered(s, j) for j in s.client) & ~s.queue.is_empty

    @sometimes()
    def a_wait_for_both_is_answered(self, s: S) -> Any:
        """The wait of a client for both is answered."""
        return any_((s.doing[j] == Doing.BOTH) & ~s.answers[j].is_empty & s.together[j] for j in s.client)

    @sometimes(needs="drop")
    def a_popper_is_lost(self, s: S) -> Any:
        """The connection of a popper is lost, and the server has not noticed it yet."""
        return any_(s.lost[j] & ~s.closed[j] & (self.in_line(s, j) | (s.reserved[j] > 0)) for j in s.client)

    @always(witness="all_are_delivered")
    def elements_are_delivered_once(self, s: S) -> Any:
        """An element is in one place only and is popped at most once."""
        return all_(self.places_of(s, e) <= 1 for e in s.element)

    @always(witness="all_are_delivered")
    def no_element_vanishes(self, s: S) -> Any:
        """An element that was pushed is somewhere, unless it was on its way when the connection broke."""
        return all_(implies(ord_(e) < s.pushed, (self.places_of(s, e) > 0) | s.gone[e]) for e in s.element)

    @step(witness="elements_queue_up")
    def elements_leave_in_order(self, before: S, after: S) -> Any:
        """No element leaves the queue while one that was pushed before it stays."""
        numbers = range(1, self.sizes["element"] + 1)
        return ~any_(
            before.queue.contains(element=later)
            & ~after.queue.contains(element=later)
            & before.queue.contains(element=earlier)
            & after.queue.contains(element=earlier)
            for later in numbers
            for earlier in range(1, later)
        )

    @always(witness="all_stand_in_line")
    def no_popper_sleeps_beside_an_element(self, s: S) -> Any:
        """No client sleeps in a blocking pop while the queue has more elements than poppers on their way to them."""
        asleep = any_(self.pops(s, j) & self.sleeps(s, j) for j in s.client)
        return ~asleep | (s.queue.length <= count(self.comes(s, j) for j in s.client))

    @step(on=("raise_empty",), witness="all_stand_in_line")
    def a_blocking_pop_never_says_empty(self, before: S, after: S, client: Expr) -> Any:
        """A blocking pop never raises that the queue is empty, unless its client let its reservation pass."""
        return before.dawdled[client]

    @always(witness="a_get_waits")
    def a_get_waits_for_its_key(self, s: S) -> Any:
        """A get is never released by a push to the queue."""
        told = any_((s.doing[j] == Doing.GET) & ~s.answers[j].is_empty for j in s.client)
        return implies(told, s.stored == Key.PRESENT)

    @always(witness="a_wait_for_both_is_answered")
    def both_were_there_together(self, s: S) -> Any:
        """A wait for both returns only if both existed at one moment since it began."""
        return all_(implies((s.doing[j] == Doing.BOTH) & ~s.answers[j].is_empty, s.together[j]) for j in s.client)

    @always(witness="a_wait_for_both_is_answered")
    def a_wait_for_both_is_told(self, s: S) -> Any:
        """No client sleeps in a wait for both while both exist."""
        asleep = any_((s.doing[j] == Doing.BOTH) & self.sleeps(s, j) for j in s.client)
        return ~(asleep & self.both_there(s))

    @always(witness="all_are_delivered")
    def nothing_of_a_closed_connection_is_left(self, s: S) -> Any:
        """A closed connection is on no list, and nothing is reserved for it."""
        return all_(
            implies(s.closed[j], ~self.in_line(s, j) & (s.on_key[j] + s.awaited[j] + s.reserved[j] == 0))
            for j in s.client
        )

    @leads_to()
    def poppers_are_served(self, s: S, client: Expr) -> Any:
        """While the queue has an element, a blocking pop ends."""
        wants = self.pops(s, client) & ~s.queue.is_empty
        return wants, ~wants

    @leads_to(needs="drop")
    def reservations_come_back(self, s: S, client: Expr) -> Any:
        """An element that is reserved for a lost connection returns to the queue."""
        return s.lost[client] & (s.reserved[client] > 0), s.reserved[client] == 0
