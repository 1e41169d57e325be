"""Two-phase commit, as published: Gray and Lamport, "Consensus on Transaction Commit", 2006, module TwoPhase.

Rule: without faults, its graph is the graph of the TLA+ module, which others have counted. Published are 288
states for 3 resource managers (the manifest of tlaplus/Examples, with a depth of 11 levels, which are 10
steps; also stateright's examples/2pc.rs), 8,832 for 5 (stateright) and 50,816 for 6 (a comment at the end of
TwoPhase.tla). All are 6ⁿ + 4ⁿ + 2ⁿ: after an abort each manager is in one of 6 situations (working; prepared
or aborted, each with its promise sent or received; aborted by itself), before any decision in one of
4, after a commit in one of 2. Edges are as this package's engines count them.
"""

from __future__ import annotations

import enum
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


class TwoPhaseCommit(System):
    """Resource managers and their transaction manager; a message, once sent, can be received for ever."""

    title = "Two-phase commit"

    rm = index(3, "resource managers")

    state = choice(Manager, per="rm")
    sent = flag(per="rm", doc="its promise is on its way")
    received = flag(per="rm", doc="the transaction manager has its promise")
    decision = choice(Decision, doc="and, in one step, the message that says so")
    down = flag(doc="the transaction manager has crashed before it decided")

    manager = machine_of(state, "A resource manager.")
    coordinator = machine_of(decision, "The transaction manager.")

    @transition(cite="TwoPhase.tla, TMRcvPrepared")
    def receive_promise(self, s: SymbolicState, rm: Expr) -> None:
        """The transaction manager takes a promise."""
        s.when(s.decision == Decision.NONE, ~s.down, s.sent[rm])
        s.received[rm] = True

    @transition(moves=[arc(Decision.NONE, Decision.COMMIT)], cite="TwoPhase.tla, TMCommit")
    def commit(self, s: SymbolicState) -> None:
        """All have promised: the transaction is committed."""
        s.when(s.decision == Decision.NONE, ~s.down, all_(s.received))
        s.decision = Decision.COMMIT

    @transition(moves=[arc(Decision.NONE, Decision.ABORT)], cite="TwoPhase.tla, TMAbort")
    def abort(self, s: SymbolicState) -> None:
        """The transaction manager has waited long enough."""
        s.when(s.decision == Decision.NONE, ~s.down)
        s.decision = Decision.ABORT

    @transition(moves=[arc(Manager.WORKING, Manager.PREPARED)], cite="TwoPhase.tla, RMPrepare")
    def prepare(self, s: SymbolicState, rm: Expr) -> None:
        """A resource manager promises to follow the decision."""
        s.when(s.state[rm] == Manager.WORKING)
        s.state[rm] = Manager.PREPARED
        s.sent[rm] = True

    @environment(moves=[arc(Manager.WORKING, Manager.ABORTED)], cite="TwoPhase.tla, RMChooseToAbort")
    def refuse(self, s: SymbolicState, rm: Expr) -> None:
        """A resource manager aborts by itself, without a message."""
        s.when(s.state[rm] == Manager.WORKING)
        s.state[rm] = Manager.ABORTED

    @transition(moves=[arc(Manager.PREPARED, Manager.COMMITTED)], cite="TwoPhase.tla, RMRcvCommitMsg")
    def obey_commit(self, s: SymbolicState, rm: Expr) -> None:
        """A resource manager receives the decision to commit."""
        s.when(s.decision == Decision.COMMIT)
        s.state[rm] = Manager.COMMITTED

    @transition(moves=[arc((Manager.WORKING, Manager.PREPARED), Manager.ABORTED)], cite="TwoPhase.tla, RMRcvAbortMsg")
    def obey_abort(self, s: SymbolicState, rm: Expr) -> None:
        """A resource manager receives the decision to abort."""
        s.when(s.decision == Decision.ABORT)
        s.state[rm] = Manager.ABORTED

    @fault("coordinator_crash", cite="Consensus on Transaction Commit, section 4: the protocol may block")
    def crash(self, s: SymbolicState) -> None:
        """The transaction manager crashes before it has decided."""
        s.when(s.decision == Decision.NONE)
        s.down = True

    @terminal
    def all_have_ended(self, s: SymbolicState) -> Any:
        """All managers have committed or aborted."""
        return s.state.all(Manager.COMMITTED, Manager.ABORTED)

    @sometimes()
    def all_commit(self, s: SymbolicState) -> Any:
        """All managers can commit."""
        return s.state.all(Manager.COMMITTED)

    @sometimes()
    def all_abort(self, s: SymbolicState) -> Any:
        """All managers can abort."""
        return s.state.all(Manager.ABORTED)

    @always(witness="all_commit", cite="TCommit.tla, TCConsistent")
    def they_agree(self, s: SymbolicState) -> Any:
        """No manager commits while another aborts."""
        return ~(s.state.any(Manager.COMMITTED) & s.state.any(Manager.ABORTED))

    @step(witness="all_commit")
    def a_decision_is_final(self, before: SymbolicState, after: SymbolicState) -> Any:
        """A decision is never changed."""
        return (before.decision == Decision.NONE) | (after.decision == before.decision)

    @leads_to()
    def promises_are_answered(self, s: SymbolicState, rm: Expr) -> tuple[Expr, Expr]:
        """A resource manager that has promised gets the decision: not so if the transaction manager crashes."""
        return s.state[rm] == Manager.PREPARED, s.state[rm].isin((Manager.COMMITTED, Manager.ABORTED))

    @leads_to()
    def transactions_commit(self, s: SymbolicState) -> tuple[Expr, Expr]:
        """A transaction ends in a commit: not so, one refusal is enough."""
        return s.decision == Decision.NONE, s.decision == Decision.COMMIT


# resource managers: (distinct states, edges, depth in steps)
PINNED = {
    3: (288, 761, 10),
    4: (1_568, 5_377, 13),
    5: (8_832, 37_345, 16),
    6: (50_816, 256_001, 19),
    7: (296_448, 1_735_809, 22),
}
