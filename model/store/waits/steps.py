"""The steps of torch's client and of the server that are the same in each edition."""

from __future__ import annotations

from ...language import Expr, any_, arc, count, environment, ite, not_, ord_, transition
from ..vocabulary import Connection, Waiter
from .fields import Answer, Asking, Fields, Request, S

DOES_WAIT = "TCPStore.cpp: doWait"


class Steps(Fields):
    """The steps of torch's client and of each server."""

    # ---- a client's operation

    @transition(each=("client", "key"), fair=False, moves=[arc(Waiter.IDLE, Waiter.BLOCKED)], cite=DOES_WAIT)
    def wait_for_one(self, s: S, client: Expr, key: Expr) -> None:
        """wait([key])."""
        s.when(self.is_torchs(client))
        self.begins(s, client, Asking.WAIT, ord_(key) + 1)

    @transition(each="client", fair=False, moves=[arc(Waiter.IDLE, Waiter.BLOCKED)], cite=DOES_WAIT)
    def wait_for_all(self, s: S, client: Expr) -> None:
        """wait(all keys)."""
        s.when(self.is_torchs(client))
        self.begins(s, client, Asking.WAIT, 0)

    @transition(each=("client", "key"), fair=False, moves=[arc(Waiter.IDLE, Waiter.BLOCKED)], cite="TCPStore.cpp: get")
    def get(self, s: S, client: Expr, key: Expr) -> None:
        """get(key): a WAIT first."""
        s.when(self.is_torchs(client))
        self.begins(s, client, Asking.GET, ord_(key) + 1)

    @transition(each="client", moves=[arc(Waiter.BLOCKED, Waiter.SATISFIED)], cite=DOES_WAIT)
    def return_from_wait(self, s: S, client: Expr) -> None:
        """wait() reads STOP_WAITING, and returns."""
        s.when(s.asking[client] == Asking.WAIT)
        self.reads(s, client, Waiter.BLOCKED, Answer.STOP_WAITING)
        self.ends(s, client, Waiter.SATISFIED)

    @transition(each="client", cite="TCPStore.cpp: get")
    def ask_for_value(self, s: S, client: Expr) -> None:
        """get() reads STOP_WAITING, and sends a GET."""
        s.when(s.asking[client] == Asking.GET)
        self.reads(s, client, Waiter.BLOCKED, Answer.STOP_WAITING)
        s.requests[client].push(kind=Request.GET, target=s.target[client], turn=s.turn[client])
        s.asking[client] = Asking.VALUE

    @transition(each="client", moves=[arc(Waiter.BLOCKED, Waiter.SATISFIED)], cite="TCPStore.cpp: get")
    def read_value(self, s: S, client: Expr) -> None:
        """get() reads the value, and returns."""
        s.when(s.asking[client] == Asking.VALUE)
        self.reads(s, client, Waiter.BLOCKED, Answer.VALUE, Answer.EMPTY)
        self.ends(s, client, Waiter.SATISFIED)

    @transition(each="client", moves=[arc((Waiter.SATISFIED, Waiter.TIMED_OUT), Waiter.IDLE)])
    def go_on(self, s: S, client: Expr) -> None:
        """The client goes on to other things."""
        s.when(s.waiter[client].isin((Waiter.SATISFIED, Waiter.TIMED_OUT)))
        s.waiter[client] = Waiter.IDLE
        s.together[client] = False

    @environment(each="client")
    def time_ends(self, s: S, client: Expr) -> None:
        """The time of an operation is over; nobody has done anything about it yet."""
        s.when(s.waiter[client] == Waiter.BLOCKED, ~s.expired[client])
        s.expired[client] = True

    @transition(each="client", moves=[arc((Waiter.IDLE, Waiter.BLOCKED), Waiter.DISCONNECTED)])
    def find_connection_lost(self, s: S, client: Expr) -> None:
        """The client finds its connection closed, and raises."""
        s.when(self.is_cut(s, client), s.waiter[client].isin((Waiter.IDLE, Waiter.BLOCKED, Waiter.CANCELLING)))
        self.ends(s, client, Waiter.DISCONNECTED)

    # ---- the server

    @transition(
        each="client", moves=[arc(Connection.READY, Connection.BLOCKED)], cite="ddp-initialisation 4.2.6: waitHandler"
    )
    def take_wait(self, s: S, client: Expr) -> None:
        """A WAIT: answered at once if all its keys are there, else the client is registered."""
        target, turn = self.takes(s, client, Request.WAIT)
        there = self.all_there(s, target)
        s.answers[client].push(when=there, kind=Answer.STOP_WAITING, turn=turn)
        self.keeps(s, client, target, there)
        self.registers(s, client, target, turn, ~there)

    @transition(each="client", cite="TCPStoreLibUvBackend.cpp: get; ddp-initialisation 4.2.6: getHandler")
    def answer_get(self, s: S, client: Expr) -> None:
        """A GET: the value; of a missing key an empty one."""
        target, turn = self.takes(s, client, Request.GET)
        value = self.value_of(s, target)
        if self.keeps_values:
            kept = count(any_(self.among(target, k) & (s.kept[k, client] > ord_(v)) for k in s.key) for v in s.value)
            value = ite(value > 0, value, kept)
        refused = value == 0 if self.refuses_missing else not_(True)
        kind = ite(value > 0, Answer.VALUE, Answer.EMPTY)
        s.answers[client].push(when=~refused, kind=kind, turn=turn, value=value)
        self.drops_kept(s, client)
        self.closes(s, client, refused)

    @transition(
        each="client",
        moves=[arc(Connection.CLOSING, Connection.CLOSED)],
        cite="TCPStoreLibUvBackend.cpp: unregisterClient; ddp-initialisation 4.2.6.2: queryFds",
    )
    def forget_connection(self, s: S, client: Expr) -> None:
        """The server finds a connection lost, and removes its traces."""
        s.when(s.lost[client], ~s.closed[client], ~s.frozen)
        self.closes(s, client, True)
