"""torch 1.9: one daemon that reads each request to its end. A wait that is late ends only at the client.

The server keeps the client registered (S18), and half a request stops the server for all clients (S23).
"""

from __future__ import annotations

from ...language import Expr, any_, arc, may, transition
from ..vocabulary import Connection, Edition, Key, Waiter
from .fields import Answer, Asking, S
from .properties import Waits


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
