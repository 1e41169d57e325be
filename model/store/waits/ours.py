"""Our server, with clients of torch's and our own.

Clients from `torch_clients` on are our own: they wait and get in one request, and the server keeps its deadline. The
others are torch's. A waiter stays registered under all its keys until no key is missing; between a WAIT and the GET
after it the server keeps the value that ended the wait (`kept`), so the client does not see a delete in between.
"""

from __future__ import annotations

from typing import Any

from ...language import Expr, arc, may, ord_, transition
from ..vocabulary import Connection, Edition, Waiter
from .fields import Answer, Asking, Request, S
from .torch import Cancelling


class Ours(Cancelling, edition=Edition.TRYSTATE):
    """A wait ends when all its keys exist at once; the value that ended it is kept for the GET after it."""

    counts_together = True
    keeps_values = True

    def is_torchs(self, client: Expr) -> Any:
        return ord_(client) < self.torch_clients

    def is_left_to_torch(self, s: S, client: Expr) -> Any:
        """The server is frozen, and the client is torch's, whose waits may have no deadline."""
        return s.frozen & self.is_torchs(client)

    # ---- our client, which waits and gets in one request

    @transition(fair=False, moves=[arc(Waiter.IDLE, Waiter.BLOCKED)])
    def wait_in_one(self, s: S, client: Expr) -> None:
        """wait(all keys) of our client sends one request."""
        s.when(~self.is_torchs(client))
        self.begins(s, client, Asking.WAIT, 0, Request.WAIT_IN_ONE)

    @transition(fair=False, moves=[arc(Waiter.IDLE, Waiter.BLOCKED)])
    def get_in_one(self, s: S, client: Expr, key: Expr) -> None:
        """get(key) of our client sends one request."""
        s.when(~self.is_torchs(client))
        self.begins(s, client, Asking.VALUE, ord_(key) + 1, Request.GET_IN_ONE)

    @transition(moves=[arc(Waiter.BLOCKED, Waiter.TIMED_OUT)])
    def read_timed_out(self, s: S, client: Expr) -> None:
        """Our client reads that the keys did not exist in time: the operation raises."""
        self.reads(s, client, Waiter.BLOCKED, Answer.TIMED_OUT)
        self.ends(s, client, Waiter.TIMED_OUT)

    @transition(
        moves=[
            may(Waiter.BLOCKED, Waiter.DISCONNECTED),
            may((Connection.READY, Connection.BLOCKED), Connection.CLOSING),
        ],
    )
    def stop_reading(self, s: S, client: Expr) -> None:
        """No answer arrives by our client's deadline, later than the server's: it closes the connection and raises."""
        s.when(s.expired[client], self.has_deadline(client), s.frozen | self.is_cut(s, client))
        self.ends(s, client, Waiter.DISCONNECTED)
        self.hangs_up(s, client)

    # ---- the server

    @transition(moves=[arc(Connection.READY, Connection.BLOCKED)])
    def take_wait_in_one(self, s: S, client: Expr) -> None:
        """A wait of our client is answered at once if all its keys exist; otherwise the client is registered."""
        target, turn = self.takes(s, client, Request.WAIT_IN_ONE)
        there = self.all_there(s, target)
        s.answers[client].push(when=there, kind=Answer.STOP_WAITING, turn=turn)
        self.registers(s, client, target, turn, ~there)

    @transition(moves=[arc(Connection.READY, Connection.BLOCKED)])
    def take_get_in_one(self, s: S, client: Expr) -> None:
        """A get of our client gets the value as soon as the key has one."""
        target, turn = self.takes(s, client, Request.GET_IN_ONE)
        value = self.value_of(s, target)
        s.answers[client].push(when=value > 0, kind=Answer.VALUE, turn=turn, value=value)
        self.registers(s, client, target, turn, value == 0)
        s.wants_value[client] = value == 0

    @transition(moves=[arc(Connection.BLOCKED, Connection.READY)])
    def expires(self, s: S, client: Expr) -> None:
        """The deadline of our client's request passes at the server, which unregisters it and answers TIMED_OUT."""
        s.when(s.expired[client], self.is_registered(s, client), ~self.is_torchs(client), ~s.lost[client], ~s.frozen)
        s.answers[client].push(kind=Answer.TIMED_OUT, turn=s.waiting_turn[client])
        self.forgets(s, client)

    @transition(fair=False)
    def compare_set_fails(self, s: S, key: Expr) -> None:
        """Another client's compare_set expects another value and stores nothing."""
        self.serves(s)
        s.when(self.compares > 0)
        s.failed = True
