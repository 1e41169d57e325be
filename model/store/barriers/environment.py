"""The steps of a barrier that are the same in both editions, and its environment."""

from __future__ import annotations

from ...language import *
from ..vocabulary import Arrival
from .fields import Fields, Reply, Request, S


class Environment(Fields):
    """The steps of a client and the server in both editions; clients arrive, connections break, the key is deleted."""

    @transition(moves=[arc(Arrival.ARRIVED, Arrival.RELEASED)], cite="TCPStore.cpp:barrier")
    def pass_through(self, s: S, client: Expr) -> None:
        """The answer is read: barrier() returns."""
        s.when(~s.cancelling[client])
        self.reads(s, client, Reply.STOP)
        s.place[client] = Arrival.RELEASED
        s.passed[client] = s.passed[client] + 1

    @transition(cite="TCPStoreLibUvBackend.cpp:clearClientWaitState")
    def notice_end(self, s: S, client: Expr) -> None:
        """The server notices a broken connection and withdraws its arrival."""
        s.when(s.lost[client])
        reset(s.held, s.lost, at=client)

    # ---- the environment

    @environment(
        moves=[arc((Arrival.AWAY, Arrival.RELEASED, Arrival.WITHDRAWN), Arrival.ARRIVED)],
        cite="TCPStore.cpp:barrier",
    )
    def arrive(self, s: S, client: Expr) -> None:
        """A client enters the barrier, for the first time or again."""
        s.when(s.place[client] != Arrival.ARRIVED, s.passed[client] < self.rounds)
        s.place[client] = Arrival.ARRIVED
        s.freed[client] = False
        s.requests[client].push(kind=Request.BARRIER)

    @fault("drop", moves=[arc(Arrival.ARRIVED, Arrival.WITHDRAWN)])
    def drop(self, s: S, client: Expr) -> None:
        """A connection breaks or its client dies: barrier() raises, and messages on their way are lost."""
        move(s.place, Arrival.ARRIVED, Arrival.WITHDRAWN, at=client)
        reset(s.cancelling, s.freed, at=client)
        s.requests[client].clear()
        s.replies[client].clear()
        s.held[client] = s.held[client] | s.waiting[client]
        s.waiting[client] = False
        s.lost[client] = s.lost[client] | s.inside[client]
        s.inside[client] = False

    @environment(switch="delete", cite="TCPStoreLibUvBackend.cpp:deleteKey")
    def delete_key(self, s: S) -> None:
        """A client deletes the key with the barrier's name."""
        s.key = 0
