"""torch 1.9: one daemon that reads each request to its end. A wait that is late ends at the client alone.

The server goes on waiting for the client (S18), and half a request stops it for all (S23).
"""

from __future__ import annotations

from ...language import Expr, any_, arc, may, transition
from ..vocabulary import Connection, Edition, Key, Waiter
from .fields import Answer, Asking, S
from .properties import Waits


class Seed(Waits, edition=Edition.SEED):
    """Waits cannot be taken back, and answers have no numbers."""

    refuses_missing = True

    def serves(self, s: S) -> None:
        """The daemon reads a request to its end before it looks at another."""
        super().serves(s)
        s.when(~any_(s.half[j] for j in s.client))

    @transition(
        each="client",
        moves=[arc(Waiter.BLOCKED, Waiter.TIMED_OUT)],
        cite="TCPStore.cpp (1.9): SO_RCVTIMEO; nothing is sent, and the connection stays in use",
    )
    def time_out_silently(self, s: S, client: Expr) -> None:
        """The socket's receive timeout: the operation raises, and the server is not told."""
        s.when(s.expired[client])
        self.ends(s, client, Waiter.TIMED_OUT)

    @transition(
        each="client",
        cite="ddp-initialisation 4.2.6: answers have no numbers",
        moves=[
            arc(Waiter.BLOCKED, Waiter.DISCONNECTED),
            arc((Connection.READY, Connection.BLOCKED), Connection.CLOSING),
        ],
    )
    def read_out_of_step(self, s: S, client: Expr) -> None:
        """An answer of another kind is read: it makes no sense, the operation raises, and the client hangs up."""
        expected = (s.asking[client] != Asking.VALUE) == (s.answers[client].head.kind == Answer.STOP_WAITING)
        s.when(~expected)
        self.reads(s, client, Waiter.BLOCKED, *Answer)
        self.ends(s, client, Waiter.DISCONNECTED)
        self.hangs_up(s, client)

    answer_get = Waits.answer_get.claiming(may((Connection.READY, Connection.BLOCKED), Connection.CLOSED))

    @transition(
        each="key", fair=False, moves=[arc(Key.ABSENT, Key.PRESENT)], cite="ddp-initialisation 4.2.6: compareSetHandler"
    )
    def compare_set_creates(self, s: S, key: Expr) -> None:
        """Another client's compare_set, which expects no value, stores one, and wakes nobody."""
        self.serves(s)
        s.when(self.compares > 0, s.holds[key] == 0)
        self.comes_to_hold(s, key, 1)
