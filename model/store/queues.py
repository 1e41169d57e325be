"""Queues: clients that pop, get and wait for both, others that push, and what is lost or found when they meet.

torch 1.9 has no queues: in the edition SEED nothing happens here.
"""

from __future__ import annotations

from typing import Any

from ..language import (
    Arc,
    Expr,
    all_,
    always,
    any_,
    arc,
    as_int,
    count,
    environment,
    fault,
    implies,
    ite,
    leads_to,
    may,
    ord_,
    sometimes,
    step,
    terminal,
    transition,
)
from .queueing import TORCH, TRYSTATE, A, C, D, Doing, E, Element, K, Q, Queueing, S, W

HAVE = (TORCH, TRYSTATE)
POP = "TCPStore.cpp: queuePop"
WAIT = "TCPStoreLibUvBackend.cpp: waitKeys"


def offered(origin: Element) -> tuple[Arc, ...]:
    """Ours: an element that is there for all is the first's in the line, who may be gone."""
    return (
        *may(origin, E.RESERVED, of="others", editions=[TRYSTATE]),
        *may(origin, E.ANSWERED, of="others", editions=[TRYSTATE]),
        *may(origin, E.LOST, of="others", editions=[TRYSTATE]),
    )


WAKES = may(C.BLOCKED, C.READY, of="others")
COMES_BACK = (
    *may(C.BLOCKED, C.READY, of="others", editions=[TRYSTATE]),
    *may(E.RESERVED, E.QUEUED, of="others", editions=[TRYSTATE]),
    *offered(E.RESERVED),
)


class Queues(Queueing):
    """Clients that pop from a queue, get a key and wait for both, and others that push."""

    title = "Queues"

    # ---- a client's operation

    @transition(each="client", editions=HAVE, fair=False, moves=[arc(W.IDLE, W.BLOCKED)], cite=POP)
    def pop(self, s: S, client: Expr) -> None:
        """queue_pop(block=True) of torch's client: a WAIT first."""
        s.when(self.is_torchs(client))
        self.begins(s, client, D.POP, Q.WAIT_QUEUE)

    @transition(each="client", editions=[TRYSTATE], fair=False, moves=[arc(W.IDLE, W.BLOCKED)])
    def take(self, s: S, client: Expr) -> None:
        """queue_pop(block=True) of our client: one request."""
        s.when(~self.is_torchs(client))
        self.begins(s, client, D.TAKE, Q.TAKE)

    @transition(each="client", editions=HAVE, fair=False, moves=[arc(W.IDLE, W.BLOCKED)], cite="TCPStore.cpp: get")
    def get(self, s: S, client: Expr) -> None:
        """get(key): a WAIT first."""
        self.begins(s, client, D.GET, Q.WAIT_KEY)

    @transition(each="client", editions=HAVE, fair=False, moves=[arc(W.IDLE, W.BLOCKED)], cite="TCPStore.cpp: doWait")
    def wait_for_both(self, s: S, client: Expr) -> None:
        """wait([queue, key]); a client that torch left in the line would be counted twice, which is left out here."""
        s.when(self.both > 0, ~self.in_line(s, client))
        self.begins(s, client, D.BOTH, Q.WAIT_BOTH)

    @transition(each="client", editions=HAVE, cite=POP)
    def send_pop(self, s: S, client: Expr) -> None:
        """The queue has an element, says the server: a QUEUE_POP follows."""
        self.reads(s, client, D.POP, A.STOP_WAITING)
        s.requests[client].push(kind=Q.QUEUE_POP)
        s.doing[client] = D.ELEMENT

    @transition(each="client", editions=HAVE, cite="TCPStore.cpp: get")
    def send_get(self, s: S, client: Expr) -> None:
        """The key is there, says the server: a GET follows."""
        self.reads(s, client, D.GET, A.STOP_WAITING)
        s.requests[client].push(kind=Q.GET)
        s.doing[client] = D.VALUE

    def receives(self, s: S, client: Expr, doing: Doing) -> None:
        number = self.reads(s, client, doing, A.ELEMENT)
        for e in s.element:
            s.got[e] = s.got[e] + as_int((number == ord_(e) + 1) & (s.got[e] < 2))
        self.ends(s, client, W.SATISFIED)

    @transition(
        each="client",
        editions=HAVE,
        cite=POP,
        moves=[arc(W.BLOCKED, W.SATISFIED), arc(E.ANSWERED, E.DELIVERED, of="others")],
    )
    def read_element(self, s: S, client: Expr) -> None:
        """torch's queue_pop() reads an element, and returns."""
        self.receives(s, client, D.ELEMENT)

    @transition(
        each="client",
        editions=[TRYSTATE],
        moves=[arc(W.BLOCKED, W.SATISFIED), arc(E.ANSWERED, E.DELIVERED, of="others")],
    )
    def read_taken(self, s: S, client: Expr) -> None:
        """Our queue_pop() reads an element, and returns."""
        self.receives(s, client, D.TAKE)

    @transition(each="client", editions=HAVE, moves=[arc(W.BLOCKED, W.IDLE)], cite=POP)
    def raise_empty(self, s: S, client: Expr) -> None:
        """queue_pop() reads that the queue is empty, and raises."""
        self.reads(s, client, D.ELEMENT, A.EMPTY)
        self.ends(s, client, W.IDLE)

    @transition(each="client", editions=HAVE, moves=[arc(W.BLOCKED, W.SATISFIED)], cite="TCPStore.cpp: get")
    def read_value(self, s: S, client: Expr) -> None:
        """get() reads the value, and returns."""
        self.reads(s, client, D.VALUE, A.VALUE, A.NOTHING)
        self.ends(s, client, W.SATISFIED)

    @transition(each="client", editions=HAVE, moves=[arc(W.BLOCKED, W.SATISFIED)], cite="TCPStore.cpp: doWait")
    def return_from_wait(self, s: S, client: Expr) -> None:
        """wait() reads STOP_WAITING, and returns."""
        self.reads(s, client, D.BOTH, A.STOP_WAITING)
        self.ends(s, client, W.SATISFIED)

    @transition(each="client", editions=HAVE, moves=[arc((W.SATISFIED, W.TIMED_OUT), W.IDLE)])
    def go_on(self, s: S, client: Expr) -> None:
        """The client goes on to other things."""
        s.when(s.waiter[client].isin((W.SATISFIED, W.TIMED_OUT)))
        s.waiter[client] = W.IDLE

    # ---- time passes

    @environment(each="client", editions=HAVE, moves=[arc(W.BLOCKED, W.CANCELLING)], cite="TCPStore.cpp: doWait")
    def time_out(self, s: S, client: Expr) -> None:
        """A WAIT has lasted long enough: CANCEL_WAIT is sent."""
        s.when(self.timeouts > 0, s.waiter[client] == W.BLOCKED, s.doing[client].isin((D.POP, D.GET, D.BOTH)))
        s.requests[client].push(when=~s.lost[client], kind=Q.CANCEL_WAIT)
        self.ends(s, client, W.CANCELLING)

    @transition(each="client", editions=HAVE, cite="TCPStore.cpp: doWait")
    def read_late_answer(self, s: S, client: Expr) -> None:
        """The wait was satisfied meanwhile: one more answer is to come."""
        self.reads(s, client, D.NOTHING, A.STOP_WAITING)

    @transition(each="client", editions=HAVE, moves=[arc(W.CANCELLING, W.TIMED_OUT)], cite="TCPStore.cpp: doWait")
    def read_cancelled(self, s: S, client: Expr) -> None:
        """WAIT_CANCELED is read: the operation raises."""
        self.reads(s, client, D.NOTHING, A.WAIT_CANCELED)
        self.ends(s, client, W.TIMED_OUT)

    @environment(each="client", editions=[TRYSTATE], moves=[arc(C.BLOCKED, C.READY)])
    def take_expires(self, s: S, client: Expr) -> None:
        """The deadline of our client's request passes, at the server."""
        s.when(self.timeouts > 0, ~self.is_torchs(client))
        s.when(self.in_line(s, client), s.on_key[client] == 0, ~s.lost[client])
        self.forgets(s, client)
        s.answers[client].push(kind=A.TIMED_OUT)

    @transition(each="client", editions=[TRYSTATE], moves=[arc(W.BLOCKED, W.TIMED_OUT)])
    def read_timed_out(self, s: S, client: Expr) -> None:
        """Our queue_pop() reads that there was no element in time, and raises."""
        self.reads(s, client, D.TAKE, A.TIMED_OUT)
        self.ends(s, client, W.TIMED_OUT)

    @environment(each="client", editions=[TRYSTATE], switch="dawdle", moves=COMES_BACK)
    def reservation_ends(self, s: S, client: Expr) -> None:
        """Who was told of an element does not pop it in time: it is there for all again."""
        s.when(s.reserved[client] > 0, s.waiter[client] == W.BLOCKED)
        s.dawdled[client] = True
        self.gives_back(s, client)

    # ---- the server

    @transition(
        each="client",
        editions=HAVE,
        cite=WAIT,
        moves=[arc(C.READY, C.BLOCKED), arc(E.QUEUED, E.RESERVED, of="others", editions=[TRYSTATE])],
    )
    def take_wait_for_queue(self, s: S, client: Expr) -> None:
        """A WAIT for the queue: answered if it has an element, which ours reserves; else the client stands in line."""
        self.takes(s, client, Q.WAIT_QUEUE)
        some, number = ~s.queue.is_empty, s.queue.head.element
        if self.edition is TRYSTATE:
            s.reserved[client] = ite(some, number, 0)
            s.queue.pop()
        else:
            s.awaited[client] = ite(some, s.awaited[client], 1)
        s.answers[client].push(when=some, kind=A.STOP_WAITING)
        self.joins_line(s, client, ~some)

    @transition(each="client", editions=HAVE, moves=[arc(C.READY, C.BLOCKED)], cite=WAIT)
    def take_wait_for_key(self, s: S, client: Expr) -> None:
        """A WAIT for the key."""
        self.takes(s, client, Q.WAIT_KEY)
        absent = s.stored == K.ABSENT
        s.on_key[client] = s.on_key[client] + as_int(absent & (s.on_key[client] < 2))
        s.awaited[client] = ite(absent, 1, s.awaited[client])
        s.answers[client].push(when=~absent, kind=A.STOP_WAITING)

    @transition(each="client", editions=HAVE, moves=[arc(C.READY, C.BLOCKED)], cite=WAIT)
    def take_wait_for_both(self, s: S, client: Expr) -> None:
        """A WAIT for both; torch counts a queue as missing even if it has elements, when the key is missing."""
        self.takes(s, client, Q.WAIT_BOTH)
        both, absent = self.both_there(s), s.stored == K.ABSENT
        s.answers[client].push(when=both, kind=A.STOP_WAITING)
        self.joins_line(s, client, ~both)
        if self.edition is TRYSTATE:
            s.on_key[client] = as_int(~both)
        else:
            s.on_key[client] = s.on_key[client] + as_int(absent & (s.on_key[client] < 2))
            s.awaited[client] = ite(both, s.awaited[client], 1 + as_int(absent))

    @transition(
        each="client", editions=[TRYSTATE], moves=[arc(C.READY, C.BLOCKED), arc(E.QUEUED, E.ANSWERED, of="others")]
    )
    def take_take(self, s: S, client: Expr) -> None:
        """A pop of our client: the first element, or a place in the line."""
        self.takes(s, client, Q.TAKE)
        some, number = ~s.queue.is_empty, s.queue.head.element
        s.queue.pop()
        s.answers[client].push(when=some, kind=A.ELEMENT, element=number)
        self.joins_line(s, client, ~some)

    @transition(
        each="client", editions=HAVE, cite="TCPStoreLibUvBackend.cpp: queuePop",
        moves=[arc(E.QUEUED, E.ANSWERED, of="others"), arc(E.RESERVED, E.ANSWERED, of="others", editions=[TRYSTATE])],
    )  # fmt: skip
    def take_pop(self, s: S, client: Expr) -> None:
        """A QUEUE_POP: what is reserved for the client, or else the first element, or that there is none."""
        self.takes(s, client, Q.QUEUE_POP)
        own = s.reserved[client] > 0
        some = own | ~s.queue.is_empty
        number = ite(own, s.reserved[client], s.queue.head.element)
        s.reserved[client] = 0
        s.queue.pop(when=~own)
        s.answers[client].push(kind=ite(some, A.ELEMENT, A.EMPTY), element=ite(some, number, 0))

    @transition(each="client", editions=HAVE, cite="TCPStoreLibUvBackend.cpp: get")
    def answer_get(self, s: S, client: Expr) -> None:
        """A GET: the value, or an empty one for a missing key."""
        self.takes(s, client, Q.GET)
        s.answers[client].push(kind=ite(s.stored == K.PRESENT, A.VALUE, A.NOTHING))

    @transition(
        each="client", editions=HAVE, moves=[arc(C.BLOCKED, C.READY), *COMES_BACK],
        cite="TCPStoreLibUvBackend.cpp: clearClientWaitState",
    )  # fmt: skip
    def cancel_wait(self, s: S, client: Expr) -> None:
        """A CANCEL_WAIT: the client is taken off every list."""
        self.takes(s, client, Q.CANCEL_WAIT)
        self.forgets(s, client)
        s.answers[client].push(kind=A.WAIT_CANCELED)

    @transition(
        each="client", editions=HAVE, moves=[arc(C.CLOSING, C.CLOSED), *COMES_BACK],
        cite="TCPStoreLibUvBackend.cpp: unregisterClient",
    )  # fmt: skip
    def forget_connection(self, s: S, client: Expr) -> None:
        """The server finds a connection lost, and removes its traces."""
        s.when(s.lost[client], ~s.closed[client])
        self.forgets(s, client)
        s.closed[client] = True

    # ---- what others do

    @transition(
        editions=HAVE, fair=False, moves=[arc(E.UNSENT, E.QUEUED, of="others"), *offered(E.UNSENT), WAKES],
        cite="TCPStoreLibUvBackend.cpp: queuePush",
    )  # fmt: skip
    def push(self, s: S) -> None:
        """Another client pushes the next element."""
        s.when(s.pushed < self.sizes["element"])
        s.pushed = s.pushed + 1
        s.queue.push(element=s.pushed)
        self.remembers(s)
        if self.edition is TORCH:
            self.wakes_one(s)
        else:
            self.offers(s)

    @transition(editions=HAVE, fair=False, moves=[WAKES], cite="TCPStoreLibUvBackend.cpp: set")
    def set_key(self, s: S) -> None:
        """Another client sets the key."""
        s.when(s.stored == K.ABSENT)
        s.stored = K.PRESENT
        self.remembers(s)
        self.wakes_all_on_key(s)

    @fault(
        "drop",
        each="client",
        moves=[arc((C.READY, C.BLOCKED), C.CLOSING), arc(E.ANSWERED, E.LOST, of="others")],
        editions=HAVE,
    )
    def drop(self, s: S, client: Expr) -> None:
        """A connection is lost, in both directions; either end finds out when it does."""
        s.when(~s.lost[client])
        self.hangs_up(s, client)

    @transition(each="client", editions=HAVE, moves=[arc((W.IDLE, W.BLOCKED, W.CANCELLING), W.DISCONNECTED)])
    def find_connection_lost(self, s: S, client: Expr) -> None:
        """The client finds its connection closed, and raises."""
        s.when(s.lost[client], s.waiter[client].isin((W.IDLE, W.BLOCKED, W.CANCELLING)))
        self.ends(s, client, W.DISCONNECTED)

    # ---- what must hold

    @terminal
    def at_rest(self, s: S) -> Any:
        """Nobody asks for anything, or time has no end and whoever asks is registered."""
        endless = self.timeouts == 0
        return all_(s.waiter[j].isin((W.IDLE, W.DISCONNECTED)) | (endless & self.is_registered(s, j)) for j in s.client)

    def pops(self, s: S, client: Expr) -> Any:
        return (s.waiter[client] == W.BLOCKED) & s.doing[client].isin((D.POP, D.TAKE)) & ~s.lost[client]

    def sleeps(self, s: S, client: Expr) -> Any:
        return s.requests[client].is_empty & s.answers[client].is_empty & ~s.lost[client]

    def comes(self, s: S, client: Expr) -> Any:
        """A popper that was told of an element, and will ask for one."""
        told = (s.doing[client] == D.POP) & s.answers[client].contains(kind=A.STOP_WAITING)
        asks = (s.doing[client] == D.ELEMENT) & s.requests[client].contains(kind=Q.QUEUE_POP)
        return (told | asks) & (s.reserved[client] == 0)

    @sometimes()
    def all_stand_in_line(self, s: S) -> Any:
        """Every client waits for the queue."""
        return all_(self.in_line(s, j) & (s.doing[j] != D.BOTH) & self.sleeps(s, j) for j in s.client)

    @sometimes()
    def elements_queue_up(self, s: S) -> Any:
        """All elements are in the queue, and a client asks for one."""
        full = s.queue.length == self.sizes["element"]
        return full & any_(self.pops(s, j) for j in s.client)

    @sometimes()
    def all_are_delivered(self, s: S) -> Any:
        """Every element has been popped."""
        return all_(s.got[e] == 1 for e in s.element)

    @sometimes()
    def a_get_waits(self, s: S) -> Any:
        """A client waits for the key alone while an element comes."""
        return any_((s.doing[j] == D.GET) & self.is_registered(s, j) for j in s.client) & ~s.queue.is_empty

    @sometimes()
    def a_wait_for_both_is_answered(self, s: S) -> Any:
        """A client that waited for both is told that they are there."""
        return any_((s.doing[j] == D.BOTH) & ~s.answers[j].is_empty & s.together[j] for j in s.client)

    @sometimes(needs="drop")
    def a_popper_is_lost(self, s: S) -> Any:
        """The connection of a popper is lost, and the server does not know it yet."""
        return any_(s.lost[j] & ~s.closed[j] & (self.in_line(s, j) | (s.reserved[j] > 0)) for j in s.client)

    @always(witness="all_are_delivered")
    def elements_are_delivered_once(self, s: S) -> Any:
        """An element is in one place only, and popped at most once."""
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
            before.queue.contains(element=later) & ~after.queue.contains(element=later)
            & before.queue.contains(element=earlier) & after.queue.contains(element=earlier)
            for later in numbers for earlier in range(1, later)
        )  # fmt: skip

    @always(witness="all_stand_in_line")
    def no_popper_sleeps_beside_an_element(self, s: S) -> Any:
        """Nobody sleeps in a blocking pop while there are more elements than poppers on their way to them."""
        asleep = any_(self.pops(s, j) & self.sleeps(s, j) for j in s.client)
        return ~asleep | (s.queue.length <= count(self.comes(s, j) for j in s.client))

    @step(each="client", on=("raise_empty",), witness="all_stand_in_line")
    def a_blocking_pop_never_says_empty(self, before: S, after: S, client: Expr) -> Any:
        """A blocking pop never raises that the queue is empty, unless its client let its reservation pass."""
        return before.dawdled[client]

    @always(witness="a_get_waits")
    def a_get_waits_for_its_key(self, s: S) -> Any:
        """A get is never released by a push to the queue."""
        told = any_((s.doing[j] == D.GET) & ~s.answers[j].is_empty for j in s.client)
        return implies(told, s.stored == K.PRESENT)

    @always(witness="a_wait_for_both_is_answered")
    def both_were_there_together(self, s: S) -> Any:
        """A wait for both returns only if both were there at one moment since it began."""
        return all_(implies((s.doing[j] == D.BOTH) & ~s.answers[j].is_empty, s.together[j]) for j in s.client)

    @always(witness="a_wait_for_both_is_answered")
    def a_wait_for_both_is_told(self, s: S) -> Any:
        """Nobody sleeps in a wait for both while both are there."""
        asleep = any_((s.doing[j] == D.BOTH) & self.sleeps(s, j) for j in s.client)
        return ~(asleep & self.both_there(s))

    @always(witness="all_are_delivered")
    def nothing_of_a_closed_connection_is_left(self, s: S) -> Any:
        """A connection that is closed is in no list, and nothing is reserved for it."""
        return all_(
            implies(s.closed[j], ~self.in_line(s, j) & (s.on_key[j] + s.awaited[j] + s.reserved[j] == 0))
            for j in s.client
        )

    @leads_to(each="client")
    def poppers_are_served(self, s: S, client: Expr) -> Any:
        """While there is an element, a blocking pop does not last."""
        wants = self.pops(s, client) & ~s.queue.is_empty
        return wants, ~wants

    @leads_to(each="client", needs="drop")
    def reservations_come_back(self, s: S, client: Expr) -> Any:
        """What is reserved for a connection that is lost comes back."""
        return s.lost[client] & (s.reserved[client] > 0), s.reserved[client] == 0
