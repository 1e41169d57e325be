"""Two-phase commit, as published: Gray and Lamport, "Consensus on Transaction Commit", 2006, module TwoPhase.

Rule: without faults, its graph is that of the TLA+ module, which others have counted. Published are 288
states for 3 resource managers (the manifest of tlaplus/Examples, with a depth of 11 levels, which are 10
steps; also stateright's examples/2pc.rs), 8,832 for 5 (stateright) and 50,816 for 6 (a comment at the end of
TwoPhase.tla). All are 6ⁿ + 4ⁿ + 2ⁿ: after an abort each manager is in one of 6 situations (working; prepared
or aborted, each with its promise sent or received; aborted of its own accord), before any decision in one of
4, after a commit in one of 2. As managers are interchangeable, the orbits are multisets of the same
situations: C(n+5, 5) + C(n+3, 3) + C(n+1, 1). Edges are as this package's engines count them.
"""

from __future__ import annotations

import enum
from math import comb
from typing import Any

from trystate.model.language import *


class Manager(enum.Enum):
    """The states of a resource manager."""

    WORKING = "has promised nothing"
    PREPARED = "has promised to do as it is told"
    COMMITTED = "has committed"
    ABORTED = "has aborted"


class Decision(enum.Enum):
    """The transaction manager's decision."""

    NONE = "collects promises"
    COMMIT = "to commit"
    ABORT = "to abort"


M, D = Manager, Decision


class TwoPhaseCommit(System):
    """Resource managers and their transaction manager; a message, once sent, can be received for ever."""

    title = "Two-phase commit"

    rm = index(3, "resource managers")

    state = choice(Manager, per="rm")
    sent = flag(per="rm", doc="its promise is on its way")
    received = flag(per="rm", doc="the transaction manager has its promise")
    decision = choice(Decision, doc="and, in one step, the message that says so")
    down = flag(doc="the transaction manager has crashed before it decided")

    @machine(Manager, each="rm")
    def manager(self, s: SymbolicState, rm: Expr) -> Any:
        """A resource manager."""
        return s.state[rm]

    @machine(Decision)
    def coordinator(self, s: SymbolicState) -> Any:
        """The transaction manager."""
        return s.decision

    @transition(each="rm", cite="TwoPhase.tla, TMRcvPrepared")
    def receive_promise(self, s: SymbolicState, rm: Expr) -> None:
        """The transaction manager takes a promise."""
        s.when(s.decision == D.NONE, ~s.down, s.sent[rm])
        s.received[rm] = True

    @transition(moves=[arc(D.NONE, D.COMMIT)], cite="TwoPhase.tla, TMCommit")
    def commit(self, s: SymbolicState) -> None:
        """All have promised: the transaction is committed."""
        s.when(s.decision == D.NONE, ~s.down, all_(s.received))
        s.decision = D.COMMIT

    @transition(moves=[arc(D.NONE, D.ABORT)], cite="TwoPhase.tla, TMAbort")
    def abort(self, s: SymbolicState) -> None:
        """The transaction manager has waited long enough."""
        s.when(s.decision == D.NONE, ~s.down)
        s.decision = D.ABORT

    @transition(each="rm", moves=[arc(M.WORKING, M.PREPARED)], cite="TwoPhase.tla, RMPrepare")
    def prepare(self, s: SymbolicState, rm: Expr) -> None:
        """A resource manager promises to do as it is told."""
        s.when(s.state[rm] == M.WORKING)
        s.state[rm] = M.PREPARED
        s.sent[rm] = True

    @environment(each="rm", moves=[arc(M.WORKING, M.ABORTED)], cite="TwoPhase.tla, RMChooseToAbort")
    def refuse(self, s: SymbolicState, rm: Expr) -> None:
        """A resource manager aborts of its own accord, and tells nobody."""
        s.when(s.state[rm] == M.WORKING)
        s.state[rm] = M.ABORTED

    @transition(each="rm", moves=[arc(M.PREPARED, M.COMMITTED)], cite="TwoPhase.tla, RMRcvCommitMsg")
    def obey_commit(self, s: SymbolicState, rm: Expr) -> None:
        """A resource manager is told to commit."""
        s.when(s.decision == D.COMMIT)
        s.state[rm] = M.COMMITTED

    @transition(each="rm", moves=[arc((M.WORKING, M.PREPARED), M.ABORTED)], cite="TwoPhase.tla, RMRcvAbortMsg")
    def obey_abort(self, s: SymbolicState, rm: Expr) -> None:
        """A resource manager is told to abort."""
        s.when(s.decision == D.ABORT)
        s.state[rm] = M.ABORTED

    @fault("coordinator_crash", cite="Consensus on Transaction Commit, section 4: the protocol may block")
    def crash(self, s: SymbolicState) -> None:
        """The transaction manager crashes before it has decided."""
        s.when(s.decision == D.NONE)
        s.down = True

    @terminal
    def all_have_ended(self, s: SymbolicState) -> Any:
        """Everybody has committed or aborted."""
        return all_(x.isin((M.COMMITTED, M.ABORTED)) for x in s.state)

    @sometimes()
    def all_commit(self, s: SymbolicState) -> Any:
        """Everybody can commit."""
        return all_(x == M.COMMITTED for x in s.state)

    @sometimes()
    def all_abort(self, s: SymbolicState) -> Any:
        """Everybody can abort."""
        return all_(x == M.ABORTED for x in s.state)

    @always(witness="all_commit", cite="TCommit.tla, TCConsistent")
    def they_agree(self, s: SymbolicState) -> Any:
        """Nobody commits while another aborts."""
        return ~(any_(x == M.COMMITTED for x in s.state) & any_(x == M.ABORTED for x in s.state))

    @step(witness="all_commit")
    def a_decision_is_final(self, before: SymbolicState, after: SymbolicState) -> Any:
        """A decision is never changed."""
        return (before.decision == D.NONE) | (after.decision == before.decision)

    @leads_to(each="rm")
    def promises_are_answered(self, s: SymbolicState, rm: Expr) -> tuple[Expr, Expr]:
        """A resource manager that has promised is told the decision: not so if the transaction manager crashes."""
        return s.state[rm] == M.PREPARED, s.state[rm].isin((M.COMMITTED, M.ABORTED))

    @leads_to()
    def transactions_commit(self, s: SymbolicState) -> tuple[Expr, Expr]:
        """A transaction ends in a commit: not so, one refusal is enough."""
        return s.decision == D.NONE, s.decision == D.COMMIT


def states(rms: int) -> int:
    """How many states a system with this many resource managers has."""
    return int(6**rms + 4**rms + 2**rms)


def orbits(rms: int) -> int:
    """How many states there are up to the names of the resource managers."""
    return comb(rms + 5, 5) + comb(rms + 3, 3) + comb(rms + 1, 1)


# resource managers: (distinct states, edges, depth in steps)
PINNED = {
    3: (288, 761, 10),
    4: (1_568, 5_377, 13),
    5: (8_832, 37_345, 16),
    6: (50_816, 256_001, 19),
    7: (296_448, 1_735_809, 22),
    8: (1_745_408, 11_657_217, 25),
}
