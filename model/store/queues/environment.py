"""The environment of a queue: the key is set, elements are pushed, connections are lost."""

from __future__ import annotations

from ...language import Expr, arc, fault, may, transition
from ..vocabulary import Connection, Key
from .fields import Element, S
from .steps import Steps

WAKES = may(Connection.BLOCKED, Connection.READY, of="others")


class Environment(Steps):
    """The steps of other clients, and lost connections."""

    @transition(fair=False, moves=[WAKES], cite="TCPStoreLibUvBackend.cpp: set")
    def set_key(self, s: S) -> None:
        """Another client sets the key."""
        s.when(s.stored == Key.ABSENT)
        s.stored = Key.PRESENT
        self.remembers(s)
        self.wakes_all_on_key(s)

    def pushes(self, s: S) -> None:
        """Another client pushes the next element."""
        s.when(s.pushed < self.sizes["element"])
        s.pushed = s.pushed + 1
        s.queue.push(element=s.pushed)
        self.remembers(s)

    @fault(
        "drop",
        each="client",
        moves=[
            arc((Connection.READY, Connection.BLOCKED), Connection.CLOSING),
            arc(Element.ANSWERED, Element.LOST, of="others"),
        ],
    )
    def drop(self, s: S, client: Expr) -> None:
        """A connection is lost, in both directions; either end finds out when it does."""
        s.when(~s.lost[client])
        self.hangs_up(s, client)
