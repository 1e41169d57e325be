"""Our barrier: a table of clients, apart from the keys. An arrival moves with its client to a new connection."""

from __future__ import annotations

from ...language import Expr, arc, environment, transition
from ..vocabulary import Arrival, Edition
from .fields import Condition, Reply, Request, S
from .properties import Barriers


class Ours(Barriers, edition=Edition.TRYSTATE):
    """A table of the clients that have arrived; its server decides what came first."""

    @transition(each="client", moves=[arc(Arrival.ARRIVED, Arrival.WITHDRAWN)])
    def raise_timeout(self, s: S, client: Expr) -> None:
        """The server says that it was not in time: barrier() raises."""
        self.reads(s, client, Reply.TIMED_OUT)
        s.place[client] = Arrival.WITHDRAWN

    @transition(each="client")
    def count_in(self, s: S, client: Expr) -> None:
        """The server enters the client into its table; the last arrival opens the barrier."""
        self.takes(s, client, Request.BARRIER)
        s.inside[client] = True
        s.lost[client] = False  # it has come again
        self.moves(s, client)
        s.waiting[client] = True
        self.release(s, self.arrived(s) >= self.world, client)

    def moves(self, s: S, client: Expr) -> None:
        """An arrival on a broken connection is found to be this client's, and gives way to its new one."""
        s.held[client] = False

    @environment(each="client", switch="timeout")
    def run_out_of_time(self, s: S, client: Expr) -> None:
        """The deadline of an arrival passes at the server: it is withdrawn, and the client is told."""
        s.when(s.waiting[client])
        s.waiting[client] = False
        self.answer(s, client, Reply.TIMED_OUT)

    @environment(switch="write")
    def write_key(self, s: S) -> None:
        """A client sets the key with the barrier's name."""
        s.key = 1

    def counted(self, s: S) -> Condition:
        return self.arrived(s)
