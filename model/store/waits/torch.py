"""torch 2.13, the libuv server. A wait counts its keys down, so that a key that came and went counts too (S2)."""

from __future__ import annotations

from typing import Any

from ...language import Expr, arc, may, transition
from ..vocabulary import Connection, Edition, Waiter
from .fields import Answer, Asking, Request, S
from .properties import Waits
from .steps import DOES_WAIT


class Cancelling(Waits):
    """torch's client since 2.0, which both servers serve: a wait that is late is taken back, and that is answered."""

    find_connection_lost = Waits.find_connection_lost.claiming(
        *Waits.find_connection_lost.arcs, may(Waiter.CANCELLING, Waiter.DISCONNECTED)
    )

    @transition(each="client", moves=[arc(Waiter.BLOCKED, Waiter.CANCELLING)], cite=DOES_WAIT)
    def time_out(self, s: S, client: Expr) -> None:
        """The wait has lasted too long: torch's client sends CANCEL_WAIT. For a value it waits without end."""
        s.when(s.expired[client], s.waiter[client] == Waiter.BLOCKED, s.asking[client] != Asking.VALUE)
        s.when(self.is_torchs(client))
        s.requests[client].push(when=~s.lost[client], kind=Request.CANCEL_WAIT, turn=s.turn[client])
        s.waiter[client] = Waiter.CANCELLING
        s.asking[client] = Asking.WAIT
        for v in s.value:
            s.held[client, v] = False

    @transition(each="client", cite=DOES_WAIT)
    def read_late_answer(self, s: S, client: Expr) -> None:
        """The wait was satisfied meanwhile: one more answer is to come."""
        self.reads(s, client, Waiter.CANCELLING, Answer.STOP_WAITING)

    @transition(each="client", moves=[arc(Waiter.CANCELLING, Waiter.TIMED_OUT)], cite=DOES_WAIT)
    def read_cancelled(self, s: S, client: Expr) -> None:
        """WAIT_CANCELED is read: the operation raises."""
        self.reads(s, client, Waiter.CANCELLING, Answer.WAIT_CANCELED)
        self.ends(s, client, Waiter.TIMED_OUT)

    @transition(
        each="client",
        moves=[arc(Connection.BLOCKED, Connection.READY)],
        cite="TCPStoreLibUvBackend.cpp: clearClientWaitState",
    )
    def cancel_wait(self, s: S, client: Expr) -> None:
        """A CANCEL_WAIT: the client is taken off every list."""
        _, turn = self.takes(s, client, Request.CANCEL_WAIT)
        self.forgets(s, client)
        self.drops_kept(s, client)
        s.answers[client].push(kind=Answer.WAIT_CANCELED, turn=turn)


class Torch(Cancelling, edition=Edition.TORCH):
    """Every entry in a list of waiters counts once, whatever becomes of its key."""

    def drops_parts(self, s: S, client: Expr, when: Any) -> None:
        """A part of a request stays in the server for good."""

    @transition(
        each="key",
        fair=False,
        moves=[may(Connection.BLOCKED, Connection.READY, of="others")],
        cite="TCPStoreLibUvBackend.cpp: compareAndSet",
    )
    def compare_set_fails(self, s: S, key: Expr) -> None:
        """Another client's compare_set expects what is not there, stores nothing, and wakes all the same."""
        self.serves(s)
        s.when(self.compares > 0)
        s.failed = True
        s.when(s.holds[key] == 0)
        self.wakes(s, key)
