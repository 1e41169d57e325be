"""The environment of waits: other clients write, connections are lost, the server stops."""

from __future__ import annotations

from ...language import Expr, arc, fault, ite, may, transition
from ..vocabulary import Connection, Key
from .fields import S
from .steps import Steps

WAKES = arc(Connection.BLOCKED, Connection.READY, of="others")


class Environment(Steps):
    """The writes of other clients, and lost connections."""

    @transition(fair=False, moves=[arc(Key.ABSENT, Key.PRESENT), WAKES], cite="ddp-initialisation 4.2.6: setHandler")
    def set_key(self, s: S, key: Expr) -> None:
        """Another client sets the key, or adds or appends to it."""
        self.serves(s)
        self.comes_to_hold(s, key, ite(s.holds[key] < self.size_of("value"), s.holds[key] + 1, 1))
        self.wakes(s, key)

    @transition(fair=False, moves=[arc(Key.PRESENT, Key.ABSENT)], cite="ddp-initialisation 4.2.6: deleteHandler")
    def delete_key(self, s: S, key: Expr) -> None:
        """Another client deletes the key, and no client is notified."""
        self.serves(s)
        s.when(self.deletes > 0, s.holds[key] > 0)
        s.holds[key] = 0
        s.failed = False
        self.goes_missing(s, key)

    @transition(
        fair=False,
        moves=[arc(Key.ABSENT, Key.PRESENT), may(Connection.BLOCKED, Connection.READY, of="others")],
        cite="TCPStoreLibUvBackend.cpp: compareAndSet",
    )
    def compare_set_creates(self, s: S, key: Expr) -> None:
        """Another client's compare_set expects no value and stores one."""
        self.serves(s)
        s.when(self.compares > 0, s.holds[key] == 0)
        self.comes_to_hold(s, key, 1)
        self.wakes(s, key)

    # ---- faults

    @fault("drop", moves=[arc((Connection.READY, Connection.BLOCKED), Connection.CLOSING)])
    def drop(self, s: S, client: Expr) -> None:
        """A connection is lost in both directions; each end notices that later."""
        s.when(~self.is_cut(s, client))
        self.hangs_up(s, client)

    @fault("half_frame", moves=[arc(Connection.READY, Connection.CLOSING), may(Connection.BLOCKED, Connection.CLOSING)])
    def drop_half_way(self, s: S, client: Expr) -> None:
        """A connection is lost after half of a request has arrived."""
        s.when(~self.is_cut(s, client), ~s.requests[client].is_empty)
        s.half[client] = True
        self.hangs_up(s, client)

    @fault("freeze")
    def freeze(self, s: S) -> None:
        """The server stops but its connections stay open (a stopped process, a host that is cut off)."""
        s.when(~s.frozen)
        s.frozen = True
