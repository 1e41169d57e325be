"""The steps of torch's client and of the server that are the same in both editions."""

from __future__ import annotations

from ...language import Expr, arc, as_int, environment, ite, transition
from ..vocabulary import Connection, Key, Waiter
from .fields import Answer, Doing, Element, Fields, Request, S

POP = "TCPStore.cpp: queuePop"
WAIT = "TCPStoreLibUvBackend.cpp: waitKeys"


class Steps(Fields):
    """The steps of torch's client and of each server."""

    # ---- a client's operation

    @transition(each="client", fair=False, moves=[arc(Waiter.IDLE, Waiter.BLOCKED)], cite=POP)
    def pop(self, s: S, client: Expr) -> None:
        """queue_pop(block=True) of torch's client: a WAIT first."""
        s.when(self.is_torchs(client))
        self.begins(s, client, Doing.POP, Request.WAIT_QUEUE)

    @transition(each="client", fair=False, moves=[arc(Waiter.IDLE, Waiter.BLOCKED)], cite="TCPStore.cpp: get")
    def get(self, s: S, client: Expr) -> None:
        """get(key): a WAIT first."""
        self.begins(s, client, Doing.GET, Request.WAIT_KEY)

    @transition(each="client", fair=False, moves=[arc(Waiter.IDLE, Waiter.BLOCKED)], cite="TCPStore.cpp: doWait")
    def wait_for_both(self, s: S, client: Expr) -> None:
        """wait([queue, key]); a client that torch left in the line would be counted twice, which is left out here."""
        s.when(self.both > 0, ~self.in_line(s, client))
        self.begins(s, client, Doing.BOTH, Request.WAIT_BOTH)

    @transition(each="client", cite=POP)
    def send_pop(self, s: S, client: Expr) -> None:
        """The queue has an element, says the server: a QUEUE_POP follows."""
        self.reads(s, client, Doing.POP, Answer.STOP_WAITING)
        s.requests[client].push(kind=Request.QUEUE_POP)
        s.doing[client] = Doing.ELEMENT

    @transition(each="client", cite="TCPStore.cpp: get")
    def send_get(self, s: S, client: Expr) -> None:
        """The key is there, says the server: a GET follows."""
        self.reads(s, client, Doing.GET, Answer.STOP_WAITING)
        s.requests[client].push(kind=Request.GET)
        s.doing[client] = Doing.VALUE

    @transition(
        each="client",
        cite=POP,
        moves=[arc(Waiter.BLOCKED, Waiter.SATISFIED), arc(Element.ANSWERED, Element.DELIVERED, of="others")],
    )
    def read_element(self, s: S, client: Expr) -> None:
        """torch's queue_pop() reads an element, and returns."""
        self.receives(s, client, Doing.ELEMENT)

    @transition(each="client", moves=[arc(Waiter.BLOCKED, Waiter.IDLE)], cite=POP)
    def raise_empty(self, s: S, client: Expr) -> None:
        """queue_pop() reads that the queue is empty, and raises."""
        self.reads(s, client, Doing.ELEMENT, Answer.EMPTY)
        self.ends(s, client, Waiter.IDLE)

    @transition(each="client", moves=[arc(Waiter.BLOCKED, Waiter.SATISFIED)], cite="TCPStore.cpp: get")
    def read_value(self, s: S, client: Expr) -> None:
        """get() reads the value, and returns."""
        self.reads(s, client, Doing.VALUE, Answer.VALUE, Answer.NOTHING)
        self.ends(s, client, Waiter.SATISFIED)

    @transition(each="client", moves=[arc(Waiter.BLOCKED, Waiter.SATISFIED)], cite="TCPStore.cpp: doWait")
    def return_from_wait(self, s: S, client: Expr) -> None:
        """wait() reads STOP_WAITING, and returns."""
        self.reads(s, client, Doing.BOTH, Answer.STOP_WAITING)
        self.ends(s, client, Waiter.SATISFIED)

    @transition(each="client", moves=[arc((Waiter.SATISFIED, Waiter.TIMED_OUT), Waiter.IDLE)])
    def go_on(self, s: S, client: Expr) -> None:
        """The client goes on to other things."""
        s.when(s.waiter[client].isin((Waiter.SATISFIED, Waiter.TIMED_OUT)))
        s.waiter[client] = Waiter.IDLE

    @environment(each="client", moves=[arc(Waiter.BLOCKED, Waiter.CANCELLING)], cite="TCPStore.cpp: doWait")
    def time_out(self, s: S, client: Expr) -> None:
        """A WAIT has lasted long enough: CANCEL_WAIT is sent."""
        s.when(
            self.timeouts > 0,
            s.waiter[client] == Waiter.BLOCKED,
            s.doing[client].isin((Doing.POP, Doing.GET, Doing.BOTH)),
        )
        s.requests[client].push(when=~s.lost[client], kind=Request.CANCEL_WAIT)
        self.ends(s, client, Waiter.CANCELLING)

    @transition(each="client", cite="TCPStore.cpp: doWait")
    def read_late_answer(self, s: S, client: Expr) -> None:
        """The wait was satisfied meanwhile: one more answer is to come."""
        self.reads(s, client, Doing.NOTHING, Answer.STOP_WAITING)

    @transition(each="client", moves=[arc(Waiter.CANCELLING, Waiter.TIMED_OUT)], cite="TCPStore.cpp: doWait")
    def read_cancelled(self, s: S, client: Expr) -> None:
        """WAIT_CANCELED is read: the operation raises."""
        self.reads(s, client, Doing.NOTHING, Answer.WAIT_CANCELED)
        self.ends(s, client, Waiter.TIMED_OUT)

    @transition(each="client", moves=[arc((Waiter.IDLE, Waiter.BLOCKED, Waiter.CANCELLING), Waiter.DISCONNECTED)])
    def find_connection_lost(self, s: S, client: Expr) -> None:
        """The client finds its connection closed, and raises."""
        s.when(s.lost[client], s.waiter[client].isin((Waiter.IDLE, Waiter.BLOCKED, Waiter.CANCELLING)))
        self.ends(s, client, Waiter.DISCONNECTED)

    # ---- the server

    @transition(each="client", moves=[arc(Connection.READY, Connection.BLOCKED)], cite=WAIT)
    def take_wait_for_key(self, s: S, client: Expr) -> None:
        """A WAIT for the key."""
        self.takes(s, client, Request.WAIT_KEY)
        absent = s.stored == Key.ABSENT
        s.on_key[client] = s.on_key[client] + as_int(absent & (s.on_key[client] < 2))
        s.awaited[client] = ite(absent, 1, s.awaited[client])
        s.answers[client].push(when=~absent, kind=Answer.STOP_WAITING)

    @transition(
        each="client",
        moves=[arc(Element.QUEUED, Element.ANSWERED, of="others")],
        cite="TCPStoreLibUvBackend.cpp: queuePop",
    )
    def take_pop(self, s: S, client: Expr) -> None:
        """A QUEUE_POP: what is reserved for the client, or else the first element, or that there is none."""
        self.takes(s, client, Request.QUEUE_POP)
        own = s.reserved[client] > 0
        some = own | ~s.queue.is_empty
        number = ite(own, s.reserved[client], s.queue.head.element)
        s.reserved[client] = 0
        s.queue.pop(when=~own)
        s.answers[client].push(kind=ite(some, Answer.ELEMENT, Answer.EMPTY), element=ite(some, number, 0))

    @transition(each="client", cite="TCPStoreLibUvBackend.cpp: get")
    def answer_get(self, s: S, client: Expr) -> None:
        """A GET: the value, or an empty one for a missing key."""
        self.takes(s, client, Request.GET)
        s.answers[client].push(kind=ite(s.stored == Key.PRESENT, Answer.VALUE, Answer.NOTHING))

    @transition(
        each="client",
        moves=[arc(Connection.BLOCKED, Connection.READY)],
        cite="TCPStoreLibUvBackend.cpp: clearClientWaitState",
    )
    def cancel_wait(self, s: S, client: Expr) -> None:
        """A CANCEL_WAIT: the client is taken off every list."""
        self.takes(s, client, Request.CANCEL_WAIT)
        self.forgets(s, client)
        s.answers[client].push(kind=Answer.WAIT_CANCELED)

    @transition(
        each="client",
        moves=[arc(Connection.CLOSING, Connection.CLOSED)],
        cite="TCPStoreLibUvBackend.cpp: unregisterClient",
    )
    def forget_connection(self, s: S, client: Expr) -> None:
        """The server finds a connection lost, and removes its traces."""
        s.when(s.lost[client], ~s.closed[client])
        self.forgets(s, client)
        s.closed[client] = True
