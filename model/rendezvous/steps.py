"""The steps of the protocol: what a node's agent does, each a transition of the shared state."""

from __future__ import annotations

from typing import Any

from ..language import Expr, arc, ite, may, named, transition
from .shared import BEFORE, SWEEP, D, H, M, P, R, S, Shared
from .vocabulary import Action, Edition, Patience, Place, Raised

SEED, TORCH = Edition.SEED, Edition.TORCH
# In 2.13 the master's address and the shared state are read by one TCPStore client, which a `get` that waits locks.
BEATING = {SEED: (P.JOINING, P.CONNECTING, P.RUNNING, P.DONE), TORCH: (P.JOINING, P.RUNNING, P.DONE)}


class Protocol(Shared):
    """The steps of the protocol: what a node's agent does."""

    def enters(self, s: S, node: Expr, *places: Place) -> None:
        self.acts(s, node)
        s.when(s.place[node].isin(places))

    def joins(self, s: S, node: Expr, outcome: Any) -> None:
        """The node is in its join operation, and the operator decides `outcome` on the swept state."""
        self.enters(s, node, P.JOINING)
        self.sweep(s, node)
        s.when(self.decides(s, "join", outcome, node))

    # ---- the exit operation

    @transition(
        each="node", editions=BEFORE, cite="rendezvous-engine 3.2.3, 4.2",
        moves=[
            SWEEP, arc(R.COMPLETE, R.COMPLETE), arc(M.PARTICIPANT, M.OUTSIDE), arc(P.EXITING, P.JOINING),
            arc((H.FRESH, H.DUE), H.NONE),
        ],
    )  # fmt: skip
    def leave_participants(self, s: S, node: Expr) -> None:
        """A restarting node removes itself from the round that it was in."""
        self.enters(s, node, P.EXITING)
        self.sweep(s, node)
        s.when(self.decides(s, "exit", Action.REMOVE_FROM_PARTICIPANTS, node))
        self.unlist(s, node)
        self.removal_epilogue(s, node, True)
        s.place[node] = P.JOINING

    @transition(each="node", editions=BEFORE, cite="rendezvous-engine 3.2.3", moves=[arc(P.EXITING, P.JOINING)])
    def nothing_to_leave(self, s: S, node: Expr) -> None:
        """A node that is no participant goes on to join."""
        self.enters(s, node, P.EXITING)
        copy = s.fork()
        self.sweep(copy, node)
        s.when(self.decides(copy, "exit", Action.FINISH, node))
        s.place[node] = P.JOINING

    # ---- the join operation

    @transition(
        each="node", editions=BEFORE, cite="rendezvous-engine 4.1",
        moves=[
            SWEEP, arc(R.JOINING, R.JOINING), arc((R.JOINING, R.LAST_CALL, R.COMPLETE), R.LAST_CALL),
            arc((R.JOINING, R.LAST_CALL), R.COMPLETE),
            arc((M.OUTSIDE, M.WAITING), M.PARTICIPANT), may(M.REDUNDANT, M.PARTICIPANT),
            arc((H.NONE, H.DUE, H.EXPIRED), H.FRESH), arc(P.JOINING, P.RETURNING),
        ],
    )  # fmt: skip
    def add_to_participants(self, s: S, node: Expr) -> None:
        """A node joins; reaching min starts the last call, reaching max completes the round: it returns at once."""
        self.joins(s, node, Action.ADD_TO_PARTICIPANTS)
        s.member[node] = M.PARTICIPANT
        s.rank[node] = 0
        self.stamp(s, node)
        size = self.participants(s)
        s.deadline = ite(size == self.min_of(s, node), D.RUNNING, s.deadline)
        self.assign_ranks(s, size == self.max_nodes)
        self.record_return(s, node, s, size == self.max_nodes)
        s.place[node] = ite(size == self.max_nodes, P.RETURNING, P.JOINING)

    @transition(
        each="node", editions=BEFORE, cite="rendezvous-engine 4.3; elastic-node-change 2.2.3",
        moves=[
            SWEEP, arc(R.COMPLETE, R.COMPLETE), arc((M.OUTSIDE, M.PARTICIPANT), M.WAITING), may(M.REDUNDANT, M.WAITING),
            arc((H.NONE, H.EXPIRED), H.FRESH),
        ],
    )  # fmt: skip
    def add_to_wait_list(self, s: S, node: Expr) -> None:
        """The round is complete and has room: the node waits for the next one."""
        self.joins(s, node, Action.ADD_TO_WAIT_LIST)
        s.member[node] = M.WAITING
        self.stamp(s, node)

    @transition(
        each="node", editions=[TORCH], cite="dynamic_rendezvous.py:_add_to_redundancy_list",
        moves=[
            SWEEP, arc(R.COMPLETE, R.COMPLETE), arc(M.OUTSIDE, M.REDUNDANT),
            may((M.PARTICIPANT, M.WAITING), M.REDUNDANT), arc(H.NONE, H.FRESH), may(H.EXPIRED, H.FRESH),
        ],
    )  # fmt: skip
    def add_to_redundancy_list(self, s: S, node: Expr) -> None:
        """The round is complete and full: the node becomes a spare."""
        self.joins(s, node, Action.ADD_TO_REDUNDANCY_LIST)
        s.member[node] = M.REDUNDANT
        self.stamp(s, node)

    @transition(
        each="node", editions=[TORCH], cite="dynamic_rendezvous.py:_remove_from_redundancy_list",
        moves=[SWEEP, arc(M.REDUNDANT, M.OUTSIDE), arc((H.FRESH, H.DUE), H.NONE)],
    )  # fmt: skip
    def remove_from_redundancy_list(self, s: S, node: Expr) -> None:
        """The round is no longer full: the spare tries again, with a new join deadline."""
        self.joins(s, node, Action.REMOVE_FROM_REDUNDANCY_LIST)
        self.unlist(s, node)
        s.patience[node] = Patience.IN_TIME

    @transition(
        each="node", editions=BEFORE, cite="rendezvous-engine 4.5",
        moves=[SWEEP, arc(R.LAST_CALL, R.COMPLETE), arc(P.JOINING, P.RETURNING)],
    )  # fmt: skip
    def mark_complete(self, s: S, node: Expr) -> None:
        """The last call is over: a participant fixes the ranks, and returns with what it wrote."""
        self.joins(s, node, Action.MARK_RENDEZVOUS_COMPLETE)
        self.assign_ranks(s, True)
        self.record_return(s, node, s)
        s.place[node] = P.RETURNING

    @transition(each="node", editions=BEFORE, cite="rendezvous-engine 3.2.1, 4.6", moves=[SWEEP, arc(H.DUE, H.FRESH)])
    def keep_alive(self, s: S, node: Expr) -> None:
        """A heartbeat is due: the join operation or the keep-alive timer writes one, until the agent shuts down."""
        self.enters(s, node, *BEATING[self.edition])
        joining = s.place[node] == P.JOINING
        self.sweep(s, node)
        beats = [self.decides(s, operator, Action.KEEP_ALIVE, node) for operator in ("join", "keep-alive")]
        s.when(ite(joining, *beats))
        self.stamp(s, node)

    @transition(
        each="node", editions=BEFORE, cite="rendezvous-engine 3.2.4 (rollback)",
        moves=[SWEEP, arc(M.PARTICIPANT, M.OUTSIDE), arc(P.JOINING, P.FAILED), arc((H.FRESH, H.DUE), H.NONE)],
    )  # fmt: skip
    def give_up_joining(self, s: S, node: Expr) -> None:
        """The join deadline has passed: a participant takes its join back, and fails."""
        self.joins(s, node, Action.REMOVE_FROM_PARTICIPANTS)
        self.unlist(s, node)
        self.removal_epilogue(s, node, True)
        s.place[node] = P.FAILED

    @transition(
        each="node", editions=BEFORE, cite="rendezvous-engine 3.2.4 (rollback)",
        moves=[SWEEP, arc(M.WAITING, M.OUTSIDE), arc(P.JOINING, P.FAILED), arc((H.FRESH, H.DUE), H.NONE)],
    )  # fmt: skip
    def give_up_waiting(self, s: S, node: Expr) -> None:
        """The join deadline has passed: a waiting node leaves the list, and fails."""
        self.joins(s, node, Action.REMOVE_FROM_WAIT_LIST)
        self.unlist(s, node)
        s.place[node] = P.FAILED

    def _raises(self, s: S, node: Expr, outcome: Any, place: Place) -> None:
        self.enters(s, node, P.JOINING)
        copy = s.fork()
        self.sweep(copy, node)
        s.when(self.decides(copy, "join", outcome, node))
        s.place[node] = place

    @transition(each="node", editions=BEFORE, cite="rendezvous-engine 3.2.4", moves=[arc(P.JOINING, P.FAILED)])
    def time_out(self, s: S, node: Expr) -> None:
        """Too late, and nothing to take back: next_rendezvous raises RendezvousTimeoutError."""
        self._raises(s, node, Action.ERROR_TIMEOUT, P.FAILED)

    @transition(each="node", editions=BEFORE, cite="rendezvous-engine 3.2.4", moves=[arc(P.JOINING, P.FAILED)])
    def find_closed(self, s: S, node: Expr) -> None:
        """The rendezvous is closed: next_rendezvous raises RendezvousClosedError."""
        self._raises(s, node, Action.ERROR_CLOSED, P.FAILED)

    @transition(
        each="node", editions=[TORCH], cite="dynamic_rendezvous.py:_RendezvousJoinOp", moves=[arc(P.JOINING, P.FAILED)]
    )
    def exit_gracefully(self, s: S, node: Expr) -> None:
        """A spare of a closed rendezvous: next_rendezvous raises RendezvousGracefulExitError."""
        self._raises(s, node, Raised.GRACEFUL_EXIT, P.FAILED)

    @transition(each="node", editions=[SEED], cite="rendezvous-engine 3.2.4", moves=[arc(P.JOINING, P.FAILED)])
    def compare_no_deadline(self, s: S, node: Expr) -> None:
        """Enough participants but no deadline: comparing None with a time raises TypeError."""
        self._raises(s, node, Raised.TYPE_ERROR, P.FAILED)

    # ---- returning from next_rendezvous

    @transition(each="node", editions=BEFORE, cite="rendezvous-engine 3.2.4", moves=[arc(P.JOINING, P.RETURNING)])
    def finish(self, s: S, node: Expr) -> None:
        """A participant polls and finds the round complete: it returns with what its swept copy says."""
        self.enters(s, node, P.JOINING)
        copy = s.fork()
        self.sweep(copy, node)
        s.when(self.decides(copy, "join", Action.FINISH, node))
        self.record_return(s, node, copy)
        s.place[node] = P.RETURNING

    @transition(each="node", moves=[arc(P.RETURNING, P.RUNNING)])
    def start_workers(self, s: S, node: Expr) -> None:
        """next_rendezvous returns, and the agent starts its workers."""
        self.enters(s, node, P.RETURNING)
        self.goes_on(s, node, P.RUNNING)

    # ---- the agent

    @transition(
        each="node", editions=BEFORE, cite="elastic-node-change 2.3.1 (num_nodes_waiting)",
        moves=[arc(P.RUNNING, P.EXITING)],
    )  # fmt: skip
    def restart_for_newcomers(self, s: S, node: Expr) -> None:
        """The agent sees a waiting node: it stops its workers and calls next_rendezvous."""
        self.enters(s, node, P.RUNNING)
        copy = s.fork()
        self.sweep(copy, node)
        s.when(named("num_nodes_waiting > 0", copy.member.count(M.WAITING) > 0))
        self.restart(s, node)

    def restart(self, s: S, node: Expr, when: Any = True) -> None:
        s.place[node] = ite(when, P.EXITING, s.place[node])
        s.patience[node] = ite(when, Patience.IN_TIME, s.patience[node])

    @transition(
        each="node", editions=BEFORE, cite="rendezvous-engine 3.2.2; dynamic_rendezvous.py:shutdown",
        moves=[SWEEP, arc((R.JOINING, R.LAST_CALL, R.COMPLETE), R.CLOSED)],
    )  # fmt: skip
    def shut_down(self, s: S, node: Expr) -> None:
        """An agent that is done, or whose next_rendezvous raised, closes the rendezvous."""
        self.enters(s, node, P.FAILED, P.DONE)
        self.sweep(s, node)
        s.when(self.decides(s, "close", Action.MARK_RENDEZVOUS_CLOSED, node))
        s.closed = True

    @transition(each="node", editions=BEFORE, cite="rendezvous-engine 3.2.2", moves=[arc((P.FAILED, P.DONE), P.LEFT)])
    def leave(self, s: S, node: Expr) -> None:
        """An agent that is done finds the rendezvous closed, by itself or another, and ends."""
        self.enters(s, node, P.FAILED, P.DONE)
        s.when(self.decides(s, "close", Action.FINISH, node))
        s.place[node] = P.LEFT
