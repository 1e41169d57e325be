"""The editions: torch 1.9, torch 2.13's libuv server, and ours.

torch 1.9 has one daemon, which reads each request to its end. A wait that is late ends only at the client: the server
keeps the client registered (S18). Half a request stops the server for all clients (S23).

torch 2.13 counts the keys of a wait down, so a key that was set and deleted counts too (S2).

Our server has clients of torch's and our own. Clients from `torch_clients` on are our own: they wait and get in one
request, and the server keeps its deadline. A waiter stays registered under all its keys until no key is missing.
Between a WAIT and the GET after it the server keeps the value that ended the wait (`kept`), so the client does not see
a delete in between.
"""

from __future__ import annotations

from typing import Any

from ...language import *
from ..vocabulary import Connection, Edition, Key, Waiter
from .fields import Answer, Asking, Request, S
from .properties import DOES_WAIT, Waits


class Seed(Waits, edition=Edition.SEED):
    """Waits cannot be cancelled, and answers have no numbers."""

    refuses_missing = True

    def serves(self, s: S) -> None:
        """The daemon reads a request to its end before it reads another."""
        super().serves(s)
        s.when(~any_(s.half))

    @transition(
        moves=[arc(Waiter.BLOCKED, Waiter.TIMED_OUT)],
        cite="TCPStore.cpp (1.9): SO_RCVTIMEO; nothing is sent, and the connection stays in use",
    )
    def time_out_silently(self, s: S, client: Expr) -> None:
        """The socket's receive timeout passes: the operation raises, and the server is not notified."""
        s.when(s.expired[client])
        self.ends(s, client, Waiter.TIMED_OUT)

    @transition(
        cite="ddp-initialisation 4.2.6: answers have no numbers",
        moves=[
            arc(Waiter.BLOCKED, Waiter.DISCONNECTED),
            arc((Connection.READY, Connection.BLOCKED), Connection.CLOSING),
        ],
    )
    def read_out_of_step(self, s: S, client: Expr) -> None:
        """The client reads an answer of the wrong kind: the operation raises, and the client closes the connection."""
        expected = (s.asking[client] != Asking.VALUE) == (s.answers[client].head.kind == Answer.STOP_WAITING)
        s.when(~expected)
        self.reads(s, client, Waiter.BLOCKED, *Answer)
        self.ends(s, client, Waiter.DISCONNECTED)
        self.hangs_up(s, client)

    answer_get = Waits.answer_get.claiming(may((Connection.READY, Connection.BLOCKED), Connection.CLOSED))

    @transition(fair=False, moves=[arc(Key.ABSENT, Key.PRESENT)], cite="ddp-initialisation 4.2.6: compareSetHandler")
    def compare_set_creates(self, s: S, key: Expr) -> None:
        """Another client's compare_set expects no value, stores one, and wakes no client."""
        self.serves(s)
        s.when(self.compares > 0, s.holds[key] == 0)
        self.comes_to_hold(s, key, 1)


class Cancelling(Waits):
    """torch's client since 2.0, which both servers serve: a late wait is cancelled, and the cancel is answered."""

    find_connection_lost = Waits.find_connection_lost.also(may(Waiter.CANCELLING, Waiter.DISCONNECTED))

    @transition(moves=[arc(Waiter.BLOCKED, Waiter.CANCELLING)], cite=DOES_WAIT)
    def time_out(self, s: S, client: Expr) -> None:
        """A wait times out and torch's client sends CANCEL_WAIT; for a value the client waits without end."""
        s.when(s.expired[client], s.waiter[client] == Waiter.BLOCKED, s.asking[client] != Asking.VALUE)
        s.when(self.is_torchs(client))
        s.requests[client].push(when=~s.lost[client], kind=Request.CANCEL_WAIT, turn=s.turn[client])
        s.waiter[client] = Waiter.CANCELLING
        reset(s.asking, s.held, at=client)

    @transition(cite=DOES_WAIT)
    def read_late_answer(self, s: S, client: Expr) -> None:
        """The wait was satisfied meanwhile: the client must read one more answer."""
        self.reads(s, client, Waiter.CANCELLING, Answer.STOP_WAITING)

    @transition(moves=[arc(Waiter.CANCELLING, Waiter.TIMED_OUT)], cite=DOES_WAIT)
    def read_cancelled(self, s: S, client: Expr) -> None:
        """The client reads WAIT_CANCELED: the operation raises."""
        self.reads(s, client, Waiter.CANCELLING, Answer.WAIT_CANCELED)
        self.ends(s, client, Waiter.TIMED_OUT)

    @transition(
        moves=[arc(Connection.BLOCKED, Connection.READY)],
        cite="TCPStoreLibUvBackend.cpp: clearClientWaitState",
    )
    def cancel_wait(self, s: S, client: Expr) -> None:
        """A CANCEL_WAIT removes the client from every list."""
        _, turn = self.takes(s, client, Request.CANCEL_WAIT)
        self.forgets(s, client)
        self.drops_kept(s, client)
        s.answers[client].push(kind=Answer.WAIT_CANCELED, turn=turn)


class Torch(Cancelling, edition=Edition.TORCH):
    """Every entry in a list of waiters counts once, even if its key is deleted later."""

    def drops_parts(self, s: S, client: Expr, when: Any) -> None:
        """The server keeps a part of a request for good."""

    @transition(
        fair=False,
        moves=[may(Connection.BLOCKED, Connection.READY, of="others")],
        cite="TCPStoreLibUvBackend.cpp: compareAndSet",
    )
    def compare_set_fails(self, s: S, key: Expr) -> None:
        """Another client's compare_set of a missing key expects a value and stores nothing, but wakes the waiters."""
        self.serves(s)
        s.when(self.compares > 0)
        s.failed = True
        s.when(s.holds[key] == 0)
        self.wakes(s, key)


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
