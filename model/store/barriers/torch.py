"""torch 2.13, the libuv server: the count is a key, and is never decremented (S11), reset (S12) or protected (S13)."""

from __future__ import annotations

from ...language import Condition, Expr, arc, environment, ite, move, transition
from ..vocabulary import Arrival, Edition
from .fields import Reply, Request, S
from .properties import Barriers


class Torch(Barriers, edition=Edition.TORCH):
    """Each request adds 1 to a key; the client gives up by its own clock."""

    @environment(switch="timeout", cite="TCPStore.cpp:barrier: poll, then CANCEL_WAIT")
    def give_up(self, s: S, client: Expr) -> None:
        """The client's time is over: it sends CANCEL_WAIT."""
        move(s.cancelling, False, True, s.place[client] == Arrival.ARRIVED, at=client)
        s.requests[client].push(kind=Request.CANCEL)

    @transition(cite="TCPStore.cpp:barrier: 0 means read once more")
    def read_on(self, s: S, client: Expr) -> None:
        """The barrier opened before the cancel arrived: the client reads one more answer."""
        s.when(s.cancelling[client])
        self.reads(s, client, Reply.STOP)

    @transition(
        moves=[arc(Arrival.ARRIVED, Arrival.WITHDRAWN)],
        cite="TCPStore.cpp:barrier: 1 raises, and so does 0 and then 1",
    )
    def raise_cancelled(self, s: S, client: Expr) -> None:
        """The cancel is answered: barrier() raises, whatever was read before."""
        self.reads(s, client, Reply.CANCELED)
        s.cancelling[client] = False
        s.place[client] = Arrival.WITHDRAWN

    @transition(cite="TCPStoreLibUvBackend.cpp:LibUVStoreDaemon::barrier")
    def count_in(self, s: S, client: Expr) -> None:
        """The server adds 1 to the key; the last arrival opens the barrier."""
        self.takes(s, client, Request.BARRIER)
        s.inside[client] = True
        s.key = ite(s.key < self.world, s.key + 1, self.world)
        opens = s.key >= self.world
        s.waiting[client] = ~opens
        self.release(s, opens, client)

    @transition(cite="TCPStoreLibUvBackend.cpp:clearClientWaitState")
    def take_cancel(self, s: S, client: Expr) -> None:
        """The server removes the client from the list of waiters; the count stays."""
        self.takes(s, client, Request.CANCEL)
        s.waiting[client] = False
        self.answer(s, client, Reply.CANCELED)

    @environment(switch="write", cite="TCPStoreLibUvBackend.cpp:wakeupWaitingClients")
    def write_key(self, s: S) -> None:
        """A client sets the key with the barrier's name: the clients that wait under it are woken."""
        s.key = 1
        self.release(s, True)

    def counted(self, s: S) -> Condition:
        return s.key
