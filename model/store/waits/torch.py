"""torch 2.13, the libuv server: a wait counts its keys down, so a key that was set and deleted counts too (S2)."""

from __future__ import annotations

from typing import Any

from ...language import Expr, arc, may, reset, transition
from ..vocabulary import Connection, Edition, Waiter
from .fields import Answer, Asking, Request, S
from .properties import Waits
from .steps import DOES_WAIT


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
