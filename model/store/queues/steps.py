"""The steps that are the same in both editions: of torch's client, of the server, and of the environment."""

from __future__ import annotations

from ...language import *
from ..vocabulary import Connection, Key, Waiter
from .fields import Answer, Doing, Element, Fields, Request, S

POP = "TCPStore.cpp: queuePop"
WAIT = "TCPStoreLibUvBackend.cpp: waitKeys"
WAKES = may(Connection.BLOCKED, Connection.READY, of="others")


class Steps(Fields):
    """The steps of torch's client and of each server, the steps of other clients, and lost connections."""

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
