"""The steps of torch's client and of the server that are the same in each edition."""

from __future__ import annotations

from ...language import *
from ..vocabulary import Connection, Waiter
from .fields import Answer, Asking, Fields, Request, S

DOES_WAIT = "TCPStore.cpp: doWait"


class Steps(Fields):
    """The steps of torch's client and of each server."""

    # ---- a client's operation

    @transition(fair=False, moves=[arc(Waiter.IDLE, Waiter.BLOCKED)], cite=DOES_WAIT)
    def wait_for_one(self, s: S, client: Expr, key: Expr) -> None:
        """wait([key]) sends a WAIT."""
        s.when(self.is_torchs(client))
        self.begins(s, client, Asking.WAIT, ord_(key) + 1)

    @transition(fair=False, moves=[arc(Waiter.IDLE, Waiter.BLOCKED)], cite=DOES_WAIT)
    def wait_for_all(self, s: S, client: Expr) -> None:
        """wait(all keys) sends a WAIT."""
        s.when(self.is_torchs(client))
        self.begins(s, client, Asking.WAIT, 0)

    @transition(fair=False, moves=[arc(Waiter.IDLE, Waiter.BLOCKED)], cite="TCPStore.cpp: get")
    def get(self, s: S, client: Expr, key: Expr) -> None:
        """get(key) sends a WAIT first."""
        s.when(self.is_torchs(client))
        self.begins(s, client, Asking.GET, ord_(key) + 1)

    @transition(moves=[arc(Waiter.BLOCKED, Waiter.SATISFIED)], cite=DOES_WAIT)
    def return_from_wait(self, s: S, client: Expr) -> None:
        """wait() reads STOP_WAITING and returns."""
        s.when(s.asking[client] == Asking.WAIT)
        self.reads(s, client, Waiter.BLOCKED, Answer.STOP_WAITING)
        self.ends(s, client, Waiter.SATISFIED)

    @transition(cite="TCPStore.cpp: get")
    def ask_for_value(self, s: S, client: Expr) -> None:
        """get() reads STOP_WAITING and sends a GET."""
        move(s.asking, Asking.GET, Asking.VALUE, at=client)
        self.reads(s, client, Waiter.BLOCKED, Answer.STOP_WAITING)
        s.requests[client].push(kind=Request.GET, target=s.target[client], turn=s.turn[client])

    @transition(moves=[arc(Waiter.BLOCKED, Waiter.SATISFIED)], cite="TCPStore.cpp: get")
    def read_value(self, s: S, client: Expr) -> None:
        """get() reads the value and returns."""
        s.when(s.asking[client] == Asking.VALUE)
        self.reads(s, client, Waiter.BLOCKED, Answer.VALUE, Answer.EMPTY)
        self.ends(s, client, Waiter.SATISFIED)

    @transition(moves=[arc((Waiter.SATISFIED, Waiter.TIMED_OUT), Waiter.IDLE)])
    def go_on(self, s: S, client: Expr) -> None:
        """The client's operation is over, and the next may begin."""
        move(s.waiter, (Waiter.SATISFIED, Waiter.TIMED_OUT), Waiter.IDLE, at=client)
        s.together[client] = False

    @environment()
    def time_ends(self, s: S, client: Expr) -> None:
        """The time of an operation is over; neither end has reacted yet."""
        move(s.expired, False, True, s.waiter[client] == Waiter.BLOCKED, at=client)

    @transition(moves=[arc((Waiter.IDLE, Waiter.BLOCKED), Waiter.DISCONNECTED)])
    def find_connection_lost(self, s: S, client: Expr) -> None:
        """The client finds its connection closed and raises."""
        s.when(self.is_cut(s, client), s.waiter[client].isin((Waiter.IDLE, Waiter.BLOCKED, Waiter.CANCELLING)))
        self.ends(s, client, Waiter.DISCONNECTED)

    # ---- the server

    @transition(moves=[arc(Connection.READY, Connection.BLOCKED)], cite="ddp-initialisation 4.2.6: waitHandler")
    def take_wait(self, s: S, client: Expr) -> None:
        """A WAIT is answered at once if all its keys exist; otherwise the client is registered."""
        target, turn = self.takes(s, client, Request.WAIT)
        there = self.all_there(s, target)
        s.answers[client].push(when=there, kind=Answer.STOP_WAITING, turn=turn)
        self.keeps(s, client, target, there)
        self.registers(s, client, target, turn, ~there)

    @transition(cite="TCPStoreLibUvBackend.cpp: get; ddp-initialisation 4.2.6: getHandler")
    def answer_get(self, s: S, client: Expr) -> None:
        """A GET gets the value; for a missing key, an empty value or (torch 1.9) a closed connection."""
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
        moves=[arc(Connection.CLOSING, Connection.CLOSED)],
        cite="TCPStoreLibUvBackend.cpp: unregisterClient; ddp-initialisation 4.2.6.2: queryFds",
    )
    def forget_connection(self, s: S, client: Expr) -> None:
        """The server finds a connection lost and removes its data."""
        s.when(s.lost[client], ~s.closed[client], ~s.frozen)
        self.closes(s, client, True)
