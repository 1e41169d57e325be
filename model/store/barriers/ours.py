"""Our barrier: a table of clients, separate from the keys. An arrival moves with its client to a new connection."""

from __future__ import annotations

from ...language import *
from ..vocabulary import Arrival, Edition
from .fields import Reply, Request, S
from .properties import Barriers


class Ours(Barriers, edition=Edition.TRYSTATE):
    """The server has a table of the clients that have arrived, and decides what came first."""

    @transition(moves=[arc(Arrival.ARRIVED, Arrival.WITHDRAWN)])
    def raise_timeout(self, s: S, client: Expr) -> None:
        """The client reads that it was not in time: barrier() raises."""
        self.reads(s, client, Reply.TIMED_OUT)
        s.place[client] = Arrival.WITHDRAWN

    @transition()
    def count_in(self, s: S, client: Expr) -> None:
        """The server enters the client into its table; the last arrival opens the barrier."""
        self.takes(s, client, Request.BARRIER)
        s.inside[client] = True
        s.lost[client] = False  # it has arrived again
        self.moves(s, client)
        s.waiting[client] = True
        self.release(s, self.arrived(s) >= self.world, client)

    def moves(self, s: S, client: Expr) -> None:
        """The client's new arrival replaces its arrival on a broken connection."""
        s.held[client] = False

    @environment(switch="timeout")
    def run_out_of_time(self, s: S, client: Expr) -> None:
        """The deadline of an arrival passes at the server: it withdraws the arrival and notifies the client."""
        move(s.waiting, True, False, at=client)
        self.answer(s, client, Reply.TIMED_OUT)

    @environment(switch="write")
    def write_key(self, s: S) -> None:
        """A client sets the key with the barrier's name."""
        s.key = 1

    def counted(self, s: S) -> Condition:
        return self.arrived(s)
