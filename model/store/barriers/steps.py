"""The steps of a barrier that are the same in both editions."""

from __future__ import annotations

from ...language import Expr, arc, transition
from ..vocabulary import Arrival
from .fields import Fields, Reply, S


class Steps(Fields):
    """The steps of a client and the server in both editions."""

    @transition(each="client", moves=[arc(Arrival.ARRIVED, Arrival.RELEASED)], cite="TCPStore.cpp:barrier")
    def pass_through(self, s: S, client: Expr) -> None:
        """The answer is read: barrier() returns."""
        s.when(~s.cancelling[client])
        self.reads(s, client, Reply.STOP)
        s.place[client] = Arrival.RELEASED
        s.passed[client] = s.passed[client] + 1

    @transition(each="client", cite="TCPStoreLibUvBackend.cpp:clearClientWaitState")
    def notice_end(self, s: S, client: Expr) -> None:
        """The server notices a broken connection, and withdraws its arrival."""
        s.when(s.lost[client])
        s.held[client] = False
        s.lost[client] = False
