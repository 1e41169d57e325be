"""The environment of a barrier: clients come, connections break, the key is deleted."""

from __future__ import annotations

from ...language import Expr, arc, environment, fault
from ..vocabulary import Arrival
from .fields import Request, S
from .steps import Steps


class Environment(Steps):
    """Clients come, and connections break."""

    @environment(
        each="client",
        moves=[arc((Arrival.AWAY, Arrival.RELEASED, Arrival.WITHDRAWN), Arrival.ARRIVED)],
        cite="TCPStore.cpp:barrier",
    )
    def arrive(self, s: S, client: Expr) -> None:
        """A client comes to the barrier, for the first time or again."""
        s.when(s.place[client] != Arrival.ARRIVED, s.passed[client] < self.rounds)
        s.place[client] = Arrival.ARRIVED
        s.freed[client] = False
        s.requests[client].push(kind=Request.BARRIER)

    @fault("drop", each="client", moves=[arc(Arrival.ARRIVED, Arrival.WITHDRAWN)])
    def drop(self, s: S, client: Expr) -> None:
        """A connection breaks, or its client dies: barrier() raises; messages on their way are lost."""
        s.when(s.place[client] == Arrival.ARRIVED)
        s.place[client] = Arrival.WITHDRAWN
        s.cancelling[client] = False
        s.freed[client] = False
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
