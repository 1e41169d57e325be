"""Who is the master of a group, and how its members learn it: the end of next_rendezvous."""

from __future__ import annotations

from ..language import Expr, any_, arc, ite, named, not_, ord_, transition
from .shared import BEFORE, Condition, M, P, S
from .surroundings import Surroundings
from .vocabulary import Edition

TORCH = Edition.TORCH


class Masters(Surroundings):
    """In torch 1.10 the agent of rank 0 publishes its address for every round; in 2.13 it is cached."""

    start_workers = None  # type: ignore[assignment]  # in three variants here

    def _serves(self, s: S, node: Expr) -> Condition:
        """The node creates a store and publishes its address."""
        first = s.saw_rank[node] == 0
        own = s.master[node] == ord_(node) + 1
        return first & ~own if self.edition is TORCH else first

    def falls_silent(self, s: S, node: Expr) -> Condition:
        """In 2.13 also a node that waits for a master that no member is about to publish: it cannot beat meanwhile."""
        silent = super().falls_silent(s, node)
        if self.edition is not TORCH:
            return silent
        # A member that finds the round complete, or returns, publishes within a poll of 1 s: long before the expiry.
        comes = any_(self._returns_soon(s, j) & self.live(s, j) & ~s.cut[j] for j in s.node)
        in_vain = ~s.returned[node] | ((s.published == 0) & ~comes)
        return silent | ((s.place[node] == P.CONNECTING) & in_vain)

    def _returns_soon(self, s: S, node: Expr) -> Condition:
        finds = (s.place[node] == P.JOINING) & (s.member[node] == M.PARTICIPANT) & s.complete
        return (s.place[node] == P.RETURNING) | finds

    def _cached(self, s: S, node: Expr) -> Condition:
        return s.master[node] != 0 if self.edition is TORCH else not_(True)

    @transition(
        each="node", editions=BEFORE, cite="dynamic_rendezvous.py:next_rendezvous",
        moves=[arc(P.RETURNING, P.RUNNING)],
    )  # fmt: skip
    def return_as_master(self, s: S, node: Expr) -> None:
        """Rank 0 returns: it serves the store of the group and publishes its address for the round."""
        self.enters(s, node, P.RETURNING)
        s.when(named("serves the store", self._serves(s, node)))
        s.master[node] = ord_(node) + 1
        s.published = ite(s.returned[node], ord_(node) + 1, s.published)
        self.goes_on(s, node, P.RUNNING)

    @transition(
        each="node", editions=[TORCH], cite="dynamic_rendezvous.py:next_rendezvous", moves=[arc(P.RETURNING, P.RUNNING)]
    )
    def return_with_cached_master(self, s: S, node: Expr) -> None:
        """A node that knows a master from an earlier round returns with that one."""
        self.enters(s, node, P.RETURNING)
        s.when(named("has a cached master", self._cached(s, node) & ~self._serves(s, node)))
        self.goes_on(s, node, P.RUNNING)

    @transition(
        each="node", editions=BEFORE, cite="dynamic_rendezvous.py:next_rendezvous",
        moves=[arc(P.RETURNING, P.CONNECTING)],
    )  # fmt: skip
    def return_to_connect(self, s: S, node: Expr) -> None:
        """Any other node waits for the master's address under the prefix of the round."""
        self.enters(s, node, P.RETURNING)
        s.when(named("knows no master", ~self._cached(s, node) & ~self._serves(s, node)))
        self.goes_on(s, node, P.CONNECTING)

    @transition(
        each="node", editions=BEFORE, cite="dynamic_rendezvous.py:next_rendezvous",
        moves=[arc(P.CONNECTING, P.RUNNING)],
    )  # fmt: skip
    def connect(self, s: S, node: Expr) -> None:
        """The master's address is there."""
        self.enters(s, node, P.CONNECTING)
        s.when(s.returned[node], s.published != 0)
        s.master[node] = s.published
        s.place[node] = P.RUNNING
