"""The rendezvous of torch 1.10 (SEED), 2.5 to 2.12 (TORCH_2_12) and 2.13 (TORCH).

Theory of operation. Before an operator decides, a node removes from its copy each node that it takes for dead
(`sweep`). One write has this and its own change, and the removed node is not notified. Reaching min sets the deadline
of the last call; reaching max completes the round at once; after the last call, any participant completes it. A node
that finds the round complete waits for the next one. A member sees in num_nodes_waiting that a node waits, stops its
workers, and calls next_rendezvous: the exit operator removes it from the round, and the join operator adds it to the
next one.

Each member of a complete round then learns the master. The agent of rank 0 serves a store and publishes its address
under the prefix of the round; the others wait there for it (CONNECTING). Then each agent publishes its number of
workers and waits for the numbers of all members (EXCHANGING); with `identical_workers` this exchange is skipped.

    Torch       the steps of all editions
    Torch110    compares a deadline that may be None
    Torch213    has a redundancy list for the spares of a full round, and caches the master
    Torch212    like Torch213, but a rank 0 that has cached another's master raises AssertionError (R16)

The defects are in `findings.py`: a complete round is changed by members that leave it or are removed from it
(R1 to R4, R6, R14), expiry compares wall clocks (R5, R7, R13), and settings are never agreed (R9, R12).
"""

from __future__ import annotations

from typing import Any, ClassVar

from ..language import *
from ..language.expressions import FALSE
from .fields import Fields
from .properties import Rendezvous
from .vocabulary import Action, AgentPhase, Deadline, Edition, Heartbeat, JoinDeadline, Membership, Raised, Round

# The additional moves of the machines when a writer removes dead nodes from its copy.
LISTS = (Membership.PARTICIPANT, Membership.WAITING, Membership.REDUNDANT)
BEATS = (Heartbeat.FRESH, Heartbeat.DUE, Heartbeat.EXPIRED)
SWEEP = (
    *may((Round.LAST_CALL, Round.COMPLETE), Round.JOINING),
    *may(LISTS, Membership.OUTSIDE, of="others"),
    *may(BEATS, Heartbeat.NONE, of="others"),
    *may(LISTS, Membership.OUTSIDE),
    *may(BEATS, Heartbeat.NONE),
)
UNLISTED = arc((Heartbeat.FRESH, Heartbeat.DUE), Heartbeat.NONE)
FAILS = arc(AgentPhase.JOINING, AgentPhase.FAILED)
RETURNS = arc(AgentPhase.JOINING, AgentPhase.RETURNING)
RUNS = arc(AgentPhase.RETURNING, AgentPhase.RUNNING)
EXCHANGES = arc(AgentPhase.RETURNING, AgentPhase.EXCHANGING)


class TorchState(Fields):
    """The shared state of torch, `_sanitize`, and the atoms that the operators read."""

    stamp_behind = flag(per="node", doc="the heartbeat was written by the earlier clock")
    published = integer(0, "node", doc="the master under this round's prefix: node + 1, or 0")

    def atoms(self, s: SymbolicState, operator: str, node: Expr) -> dict[str, Any]:
        """The values of the atoms on the swept copy; only a join can miss its deadline here."""
        size = self.participants(s)
        member = s.member[node]
        return {
            "closed": s.closed,
            "redundant": member == Membership.REDUNDANT,
            "complete": s.complete,
            "participant": member == Membership.PARTICIPANT,
            "late": (s.join_deadline[node] != JoinDeadline.IN_TIME) if operator == "join" else False,
            "rollback": s.join_deadline[node] != JoinDeadline.OVER,
            "waiting": member == Membership.WAITING,
            "room": size < self.max_nodes,
            "fits": size <= self.max_nodes,
            "quorum": size >= self.min_of(s, node),
            "last_call": s.deadline != Deadline.UNSET,
            "last_call_over": s.deadline == Deadline.PASSED,
            "beat_due": self.beat_due(s, node),
        }

    def min_of(self, s: SymbolicState, node: Expr) -> Condition:
        """The min that a node was started with; nodes may have different ones (R9)."""
        return ite(s.larger_min[node], self.min_nodes + 1, self.min_nodes)

    def beat_due(self, s: SymbolicState, node: Expr) -> Condition:
        """A heartbeat is due; after a clock went back, its time stamp is in the future and it is never due (R13)."""
        return (s.heartbeat_age[node] == Heartbeat.DUE) & (s.stamp_behind[node] == s.clock_behind[node])

    def expired_for(self, s: SymbolicState, observer: Expr, node: Expr) -> Condition:
        """`observer` takes `node` for dead (dynamic_rendezvous.py:_sanitize compares wall clocks)."""
        age = s.heartbeat_age[node]
        late = (s.stamp_behind[node] == s.clock_behind[observer]) & (age == Heartbeat.EXPIRED)
        # R5. The observer's clock is ahead of the clock that stamped the heartbeat, by more than the window.
        skewed = (age != Heartbeat.NONE) & s.stamp_behind[node] & ~s.clock_behind[observer]
        # R12. The observer judges by its own window, which is shorter than the interval of the others.
        hasty = s.shorter_window[observer] & (observer != node) & (age == Heartbeat.DUE)
        return late | skewed | hasty

    def sweep(self, s: SymbolicState, observer: Expr) -> None:
        """Removes from the state each node that `observer` takes for dead (`_sanitize`)."""
        lost = any_(self.expired_for(s, observer, j) & (s.member[j] == Membership.PARTICIPANT) for j in s.node)
        dead_before = s.fork()
        for j in s.node:
            dead = self.expired_for(dead_before, observer, j)
            s.member[j] = ite(dead, Membership.OUTSIDE, s.member[j])
            s.rank[j] = ite(dead, 0, s.rank[j])
            s.heartbeat_age[j] = ite(dead, Heartbeat.NONE, s.heartbeat_age[j])
            s.stamp_behind[j] = s.stamp_behind[j] & ~dead
        self.removal_epilogue(s, observer, lost)

    def removal_epilogue(self, s: SymbolicState, node: Expr, removed: Any) -> None:
        """`_remove_participant_epilogue`: an emptied round is replaced; a round below min loses its deadline."""
        few = self.participants(s) < self.min_of(s, node)
        short = removed & ~s.complete & few
        empty = removed & s.complete & (self.participants(s) == 0)
        s.deadline = ite(short, Deadline.UNSET, s.deadline)
        s.complete = s.complete & ~empty
        s.round = ite(empty, self.next_round(s.round), s.round)
        self.forget_returns(s, empty)

    def forget_returns(self, s: SymbolicState, replaced: Any) -> None:
        """The address of a master is kept under the prefix of its round."""
        s.published = ite(replaced, 0, s.published)
        super().forget_returns(s, replaced)

    def stamp(self, s: SymbolicState, node: Expr) -> None:
        """The heartbeat is the wall-clock time of the node."""
        super().stamp(s, node)
        s.stamp_behind[node] = s.clock_behind[node]

    def unlist(self, s: SymbolicState, node: Expr) -> None:
        super().unlist(s, node)
        s.stamp_behind[node] = False


class Torch(Rendezvous, TorchState):
    """The steps that all editions of torch share."""

    beating: ClassVar[tuple[AgentPhase, ...]] = (
        AgentPhase.JOINING,
        AgentPhase.CONNECTING,
        AgentPhase.RUNNING,
        AgentPhase.DONE,
    )

    # ---- time and processes

    def guard_last_call(self, s: SymbolicState) -> None:
        """The last call lasts 30 s and a node polls every second, so each live node that tries has polled."""
        trying = (
            (s.phase[j] == AgentPhase.JOINING)
            & self.live(s, j)
            & ~s.partitioned[j]
            & ~s.store_down
            & (s.member[j] != Membership.PARTICIPANT)
            for j in s.node
        )
        s.when(named("every live node has polled", ~any_(trying)))

    def falls_silent(self, s: SymbolicState, node: Expr) -> Condition:
        """The node is down, has left, is partitioned or without a store, or its clock went back."""
        down = s.crashed[node] | s.stalled[node] | (s.phase[node] == AgentPhase.LEFT)
        return down | s.store_down | s.partitioned[node] | (s.clock_behind[node] & ~s.stamp_behind[node])

    @environment(cite="rendezvous-engine 3.2.4")
    def rollback_window_passes(self, s: SymbolicState, node: Expr) -> None:
        """The 5 s for taking a join back pass."""
        move(s.join_deadline, JoinDeadline.ROLLBACK, JoinDeadline.OVER, s.phase[node] == AgentPhase.JOINING, at=node)

    @fault(
        "restart",
        moves=[
            arc((AgentPhase.JOINING, AgentPhase.CONNECTING, AgentPhase.RUNNING), AgentPhase.EXITING),
            may((AgentPhase.RETURNING, AgentPhase.DONE, AgentPhase.FAILED), AgentPhase.EXITING),
        ],
    )
    def restart_process(self, s: SymbolicState, node: Expr) -> None:
        """A new process starts under the address of a dead one; it remembers nothing."""
        s.when(s.crashed[node])
        reset(s.crashed, s.master, at=node)
        self.restart(s, node)

    @environment(fair=True)
    def resume(self, s: SymbolicState, node: Expr) -> None:
        """A stalled process continues."""
        move(s.stalled, True, False, at=node)

    # ---- the exit operation

    @transition(
        cite="rendezvous-engine 3.2.3, 4.2",
        moves=[
            SWEEP,
            arc(Round.COMPLETE, Round.COMPLETE),
            arc(Membership.PARTICIPANT, Membership.OUTSIDE),
            arc(AgentPhase.EXITING, AgentPhase.JOINING),
            UNLISTED,
        ],
    )
    def exit_remove_from_participants(self, s: SymbolicState, node: Expr) -> None:
        """A restarting node removes itself from its round."""
        self.enters(s, node, AgentPhase.EXITING)
        self.sweep(s, node)
        s.when(self.decides(s, "exit", Action.REMOVE_FROM_PARTICIPANTS, node))
        self.unlist(s, node)
        self.removal_epilogue(s, node, True)
        s.phase[node] = AgentPhase.JOINING

    @transition(cite="rendezvous-engine 3.2.3", moves=[arc(AgentPhase.EXITING, AgentPhase.JOINING)])
    def exit_finish(self, s: SymbolicState, node: Expr) -> None:
        """A node that is not a participant joins next."""
        self.enters(s, node, AgentPhase.EXITING)
        copy = s.fork()
        self.sweep(copy, node)
        s.when(self.decides(copy, "exit", Action.FINISH, node))
        s.phase[node] = AgentPhase.JOINING

    # ---- the join operation

    def joins(self, s: SymbolicState, node: Expr, outcome: Any) -> None:
        """The node is in its join operation, and the operator decides `outcome` on the swept state."""
        self.enters(s, node, AgentPhase.JOINING)
        self.sweep(s, node)
        s.when(self.decides(s, "join", outcome, node))

    def fails(self, s: SymbolicState, node: Expr, outcome: Any) -> None:
        """The operator raises; the node's swept copy is not written."""
        self.enters(s, node, AgentPhase.JOINING)
        copy = s.fork()
        self.sweep(copy, node)
        s.when(self.decides(copy, "join", outcome, node))
        s.phase[node] = AgentPhase.FAILED

    @transition(
        cite="rendezvous-engine 4.1",
        moves=[
            SWEEP,
            arc(Round.JOINING, Round.JOINING),
            arc((Round.JOINING, Round.LAST_CALL, Round.COMPLETE), Round.LAST_CALL),
            arc((Round.JOINING, Round.LAST_CALL), Round.COMPLETE),
            arc((Membership.OUTSIDE, Membership.WAITING), Membership.PARTICIPANT),
            may(Membership.REDUNDANT, Membership.PARTICIPANT),
            arc((Heartbeat.NONE, Heartbeat.DUE, Heartbeat.EXPIRED), Heartbeat.FRESH),
            RETURNS,
        ],
    )
    def add_to_participants(self, s: SymbolicState, node: Expr) -> None:
        """A node joins; reaching min starts the last call, reaching max completes the round and returns at once."""
        self.joins(s, node, Action.ADD_TO_PARTICIPANTS)
        s.member[node] = Membership.PARTICIPANT
        s.rank[node] = 0
        self.stamp(s, node)
        size = self.participants(s)
        # R9. The size is compared only with this node's min: if mins differ, it can exceed all with no deadline set.
        s.deadline = ite(size == self.min_of(s, node), Deadline.RUNNING, s.deadline)
        full = size == self.max_nodes
        self.assign_ranks(s, full)
        self.record_return(s, node, s, full)
        s.phase[node] = ite(full, AgentPhase.RETURNING, AgentPhase.JOINING)

    @transition(
        cite="rendezvous-engine 4.3; elastic-node-change 2.2.3",
        moves=[
            SWEEP,
            arc(Round.COMPLETE, Round.COMPLETE),
            arc((Membership.OUTSIDE, Membership.PARTICIPANT), Membership.WAITING),
            may(Membership.REDUNDANT, Membership.WAITING),
            arc((Heartbeat.NONE, Heartbeat.EXPIRED), Heartbeat.FRESH),
        ],
    )
    def add_to_wait_list(self, s: SymbolicState, node: Expr) -> None:
        """The round is complete and has room: the node waits for the next one."""
        self.joins(s, node, Action.ADD_TO_WAIT_LIST)
        s.member[node] = Membership.WAITING
        self.stamp(s, node)

    @transition(cite="rendezvous-engine 4.5", moves=[SWEEP, arc(Round.LAST_CALL, Round.COMPLETE), RETURNS])
    def mark_complete(self, s: SymbolicState, node: Expr) -> None:
        """The last call is over: a participant assigns the ranks and returns."""
        self.joins(s, node, Action.MARK_RENDEZVOUS_COMPLETE)
        self.assign_ranks(s, True)
        self.record_return(s, node, s)
        s.phase[node] = AgentPhase.RETURNING

    @transition(cite="rendezvous-engine 3.2.4", moves=[RETURNS])
    def finish(self, s: SymbolicState, node: Expr) -> None:
        """A participant polls and finds the round complete. It returns with the nodes that are not dead in its copy."""
        self.enters(s, node, AgentPhase.JOINING)
        copy = s.fork()
        self.sweep(copy, node)
        s.when(self.decides(copy, "join", Action.FINISH, node))
        # R3, R4. A member that has left or died since is not in the copy: the node returns with a smaller world.
        self.record_return(s, node, copy)
        s.phase[node] = AgentPhase.RETURNING

    @transition(
        cite="rendezvous-engine 3.2.4 (rollback)",
        moves=[SWEEP, arc(Membership.PARTICIPANT, Membership.OUTSIDE), FAILS, UNLISTED],
    )
    def remove_from_participants(self, s: SymbolicState, node: Expr) -> None:
        """The join deadline has passed: a participant takes its join back and fails."""
        self.joins(s, node, Action.REMOVE_FROM_PARTICIPANTS)
        self.unlist(s, node)
        self.removal_epilogue(s, node, True)
        s.phase[node] = AgentPhase.FAILED

    @transition(
        cite="rendezvous-engine 3.2.4 (rollback)",
        moves=[SWEEP, arc(Membership.WAITING, Membership.OUTSIDE), FAILS, UNLISTED],
    )
    def remove_from_wait_list(self, s: SymbolicState, node: Expr) -> None:
        """The join deadline has passed: a waiting node leaves the list and fails."""
        self.joins(s, node, Action.REMOVE_FROM_WAIT_LIST)
        self.unlist(s, node)
        s.phase[node] = AgentPhase.FAILED

    @transition(cite="rendezvous-engine 3.2.4", moves=[FAILS])
    def error_timeout(self, s: SymbolicState, node: Expr) -> None:
        """A node is late and has nothing to take back: next_rendezvous raises RendezvousTimeoutError."""
        self.fails(s, node, Action.ERROR_TIMEOUT)

    @transition(cite="rendezvous-engine 3.2.4", moves=[FAILS])
    def error_closed(self, s: SymbolicState, node: Expr) -> None:
        """The rendezvous is closed: next_rendezvous raises RendezvousClosedError."""
        self.fails(s, node, Action.ERROR_CLOSED)

    # ---- heartbeats

    @transition(cite="rendezvous-engine 3.2.1, 4.6", moves=[SWEEP, arc(Heartbeat.DUE, Heartbeat.FRESH)])
    def keep_alive(self, s: SymbolicState, node: Expr) -> None:
        """A heartbeat is due: the join operation or the keep-alive timer writes one, until the agent shuts down."""
        self.enters(s, node, *self.beating)
        s.when(named("no wait at the store is in its way", ~self.is_blocked(s, node)))
        joining = s.phase[node] == AgentPhase.JOINING
        self.sweep(s, node)
        beats = [self.decides(s, operator, Action.KEEP_ALIVE, node) for operator in ("join", "keep-alive")]
        s.when(ite(joining, *beats))
        self.stamp(s, node)

    def is_blocked(self, s: SymbolicState, node: Expr) -> Condition:
        """The node waits at the store, and its client serves one call at a time."""
        return FALSE

    # ---- returning from next_rendezvous

    def serves(self, s: SymbolicState, node: Expr) -> Condition:
        """The node creates a store and publishes its address."""
        return s.saw_rank[node] == 0

    def has_cached_master(self, s: SymbolicState, node: Expr) -> Condition:
        """The node has a master from an earlier round."""
        return FALSE

    @transition(cite="dynamic_rendezvous.py:next_rendezvous", moves=[RUNS])
    def return_as_master(self, s: SymbolicState, node: Expr) -> None:
        """Rank 0 returns: it serves the store of the group and publishes its address for the round."""
        self.enters(s, node, AgentPhase.RETURNING)
        s.when(named("serves the store", self.serves(s, node)))
        s.master[node] = ord_(node) + 1
        s.published = ite(s.returned[node], ord_(node) + 1, s.published)
        self.has_master(s, node)

    @transition(cite="dynamic_rendezvous.py:next_rendezvous", moves=[arc(AgentPhase.RETURNING, AgentPhase.CONNECTING)])
    def return_to_connect(self, s: SymbolicState, node: Expr) -> None:
        """Any other node waits for the master's address under the prefix of the round."""
        self.enters(s, node, AgentPhase.RETURNING)
        s.when(named("has no cached master", ~self.has_cached_master(s, node) & ~self.serves(s, node)))
        self.goes_on(s, node, AgentPhase.CONNECTING)

    @transition(cite="dynamic_rendezvous.py:next_rendezvous", moves=[arc(AgentPhase.CONNECTING, AgentPhase.RUNNING)])
    def connect(self, s: SymbolicState, node: Expr) -> None:
        """The master's address is published, and the node connects to it."""
        self.enters(s, node, AgentPhase.CONNECTING)
        s.when(s.returned[node], s.published != 0)
        s.master[node] = s.published
        self.has_master(s, node)

    def has_master(self, s: SymbolicState, node: Expr) -> None:
        """next_rendezvous returns, and the agent continues with its rank."""
        self.goes_on(s, node, AgentPhase.RUNNING)

    # ---- the agent

    @transition(
        cite="elastic-node-change 2.3.1 (num_nodes_waiting)",
        moves=[arc(AgentPhase.RUNNING, AgentPhase.EXITING)],
    )
    def restart_workers(self, s: SymbolicState, node: Expr) -> None:
        """The agent sees a waiting node: it stops its workers and calls next_rendezvous."""
        self.enters(s, node, AgentPhase.RUNNING)
        copy = s.fork()
        self.sweep(copy, node)
        s.when(named("num_nodes_waiting > 0", copy.member.count(Membership.WAITING) > 0))
        self.restart(s, node)

    @transition(
        cite="rendezvous-engine 3.2.2; dynamic_rendezvous.py:shutdown",
        moves=[SWEEP, arc((Round.JOINING, Round.LAST_CALL, Round.COMPLETE), Round.CLOSED)],
    )
    def mark_closed(self, s: SymbolicState, node: Expr) -> None:
        """An agent that is done, or whose next_rendezvous raised, closes the rendezvous."""
        # R10. A node that came too late for the round shuts down like any other, and closes it for its members.
        self.enters(s, node, AgentPhase.FAILED, AgentPhase.DONE)
        self.sweep(s, node)
        s.when(self.decides(s, "close", Action.MARK_RENDEZVOUS_CLOSED, node))
        s.closed = True

    @transition(cite="rendezvous-engine 3.2.2", moves=[arc((AgentPhase.FAILED, AgentPhase.DONE), AgentPhase.LEFT)])
    def close_finish(self, s: SymbolicState, node: Expr) -> None:
        """An agent that is done or has failed finds the rendezvous closed and ends."""
        self.enters(s, node, AgentPhase.FAILED, AgentPhase.DONE)
        s.when(self.decides(s, "close", Action.FINISH, node))
        s.phase[node] = AgentPhase.LEFT

    def hangs_without_a_master(self, s: SymbolicState) -> Condition:
        coming = any_(
            (s.phase[j] == AgentPhase.RETURNING)
            | ((s.phase[j] == AgentPhase.JOINING) & (s.member[j] == Membership.PARTICIPANT))
            for j in s.node
        )
        return s.phase.any(AgentPhase.CONNECTING) & (s.published == 0) & ~coming


class Torch110(Torch, edition=Edition.SEED):
    """The step that only torch 1.10 has."""

    @transition(cite="rendezvous-engine 3.2.4", moves=[FAILS])
    def type_error(self, s: SymbolicState, node: Expr) -> None:
        """The round has enough participants but no deadline: comparing None with a time raises TypeError."""
        self.fails(s, node, Raised.TYPE_ERROR)


class Torch213(Torch, edition=Edition.TORCH):
    """The steps that torch 1.10 lacks: the redundancy list, and a master that outlives its round."""

    told = flag(per="node", doc="its number of workers is under this round's prefix (role_info)")

    # The agent's store and the shared state share one TCPStore client, which a `get` or `wait` locks until it ends
    # (R15). The node beats again as soon as the wait is over; a node that is done beats before it closes.
    beating: ClassVar[tuple[AgentPhase, ...]] = (*Torch.beating, AgentPhase.EXCHANGING)

    def is_blocked(self, s: SymbolicState, node: Expr) -> Condition:
        connects = (s.phase[node] == AgentPhase.CONNECTING) & ~(s.returned[node] & (s.published != 0))
        exchanges = (s.phase[node] == AgentPhase.EXCHANGING) & ~(s.returned[node] & self.has_ranks(s, node))
        return connects | exchanges

    def falls_silent(self, s: SymbolicState, node: Expr) -> Condition:
        """A node also falls silent while it waits at the store for members that are not about to come."""
        lingers = (s.phase[node] == AgentPhase.DONE) & ~self.passes_barrier(s, node)
        return super().falls_silent(s, node) | self.waits_in_vain(s, node) | lingers

    def waits_in_vain(self, s: SymbolicState, node: Expr) -> Condition:
        """The node waits for the master's address, or for the ranks of its workers, and no member is about to come."""
        # A member that is about to come finds the round complete within a poll of 1 s, long before the expiry.
        connects = (s.phase[node] == AgentPhase.CONNECTING) & ~self.learns_soon(s, node)
        exchanges = (s.phase[node] == AgentPhase.EXCHANGING) & ~self.starts_soon(s, node)
        return connects | exchanges

    def learns_soon(self, s: SymbolicState, node: Expr) -> Condition:
        """The master's address is published or is about to be published."""
        comes = any_(self.returns_soon(s, j) & self.reaches(s, j) for j in s.node)
        return s.returned[node] & ((s.published != 0) | comes)

    def returns_soon(self, s: SymbolicState, node: Expr) -> Condition:
        finds = (s.phase[node] == AgentPhase.JOINING) & (s.member[node] == Membership.PARTICIPANT) & s.complete
        return (s.phase[node] == AgentPhase.RETURNING) | finds

    def reaches(self, s: SymbolicState, node: Expr) -> Condition:
        return self.live(s, node) & ~s.partitioned[node]

    def starts_soon(self, s: SymbolicState, node: Expr) -> Condition:
        """The ranks of its workers are assigned, or all missing numbers of workers are about to be published."""
        late = any_(s.saw[node, j] & ~s.told[j] for j in s.node)
        all_come = all_(~s.saw[node, j] | s.told[j] | self.tells_soon(s, j) for j in s.node)
        return s.returned[node] & (self.has_ranks(s, node) | (late & all_come))

    def tells_soon(self, s: SymbolicState, node: Expr) -> Condition:
        connects = (s.phase[node] == AgentPhase.CONNECTING) & self.learns_soon(s, node)
        return self.reaches(s, node) & (self.returns_soon(s, node) | connects)

    def has_ranks(self, s: SymbolicState, node: Expr) -> Condition:
        """Whether a rank 0 has assigned the ranks of this node's workers.

        It does so when it has read the number of workers of each node in its world.
        """
        return any_(
            s.told[j]
            & (s.saw_rank[j] == 0)
            & ((j == node) | (s.saw_rank[node] != 0))
            & (s.saw_rank[node] < self.world_of(s, j))
            & all_((ord_(r) >= self.world_of(s, j)) | self.is_told(s, ord_(r)) for r in s.node)
            for j in s.node
        )

    def world_of(self, s: SymbolicState, node: Expr) -> Condition:
        return count(s.saw[node, j] for j in s.node)

    def is_told(self, s: SymbolicState, rank: Condition) -> Condition:
        """A member that returned with this rank has published its number of workers."""
        return any_(s.told[j] & (s.saw_rank[j] == rank) for j in s.node)

    def passes_barrier(self, s: SymbolicState, node: Expr) -> Condition:
        """Each member of its world is done too."""
        done = (AgentPhase.DONE, AgentPhase.LEFT)
        return s.returned[node] & all_(~s.saw[node, j] | s.phase[j].isin(done) for j in s.node)

    @transition(
        cite="dynamic_rendezvous.py:_add_to_redundancy_list",
        moves=[
            SWEEP,
            arc(Round.COMPLETE, Round.COMPLETE),
            arc(Membership.OUTSIDE, Membership.REDUNDANT),
            may((Membership.PARTICIPANT, Membership.WAITING), Membership.REDUNDANT),
            arc(Heartbeat.NONE, Heartbeat.FRESH),
            may(Heartbeat.EXPIRED, Heartbeat.FRESH),
        ],
    )
    def add_to_redundancy_list(self, s: SymbolicState, node: Expr) -> None:
        """The round is complete and full: the node becomes a spare."""
        self.joins(s, node, Action.ADD_TO_REDUNDANCY_LIST)
        s.member[node] = Membership.REDUNDANT
        self.stamp(s, node)

    @transition(
        cite="dynamic_rendezvous.py:_remove_from_redundancy_list",
        moves=[SWEEP, arc(Membership.REDUNDANT, Membership.OUTSIDE), UNLISTED],
    )
    def remove_from_redundancy_list(self, s: SymbolicState, node: Expr) -> None:
        """The round is no longer full: the spare tries again, with a new join deadline."""
        self.joins(s, node, Action.REMOVE_FROM_REDUNDANCY_LIST)
        self.unlist(s, node)
        s.join_deadline[node] = JoinDeadline.IN_TIME

    @transition(cite="dynamic_rendezvous.py:_RendezvousJoinOp", moves=[FAILS])
    def graceful_exit(self, s: SymbolicState, node: Expr) -> None:
        """A spare finds the rendezvous closed: next_rendezvous raises RendezvousGracefulExitError."""
        self.fails(s, node, Raised.GRACEFUL_EXIT)

    def serves(self, s: SymbolicState, node: Expr) -> Condition:
        # R1. Rank 0 of an earlier round keeps its store, and does not publish it under the new round's prefix.
        return super().serves(s, node) & ~(s.master[node] == ord_(node) + 1)

    def has_cached_master(self, s: SymbolicState, node: Expr) -> Condition:
        return s.master[node] != 0

    @transition(cite="dynamic_rendezvous.py:next_rendezvous", moves=[EXCHANGES])
    def return_with_cached_master(self, s: SymbolicState, node: Expr) -> None:
        """A node that has a master from an earlier round returns with that master."""
        # R2. A newcomer that sorts first has become rank 0, and serves another store for the same round.
        self.enters(s, node, AgentPhase.RETURNING)
        s.when(named("has a cached master", self.has_cached_master(s, node) & ~self.cannot_use_it(s, node)))
        self.has_master(s, node)

    def has_master(self, s: SymbolicState, node: Expr) -> None:
        """next_rendezvous returns: the agent publishes its number of workers and waits for the ranks of its workers."""
        s.told[node] = s.returned[node]
        self.goes_on(s, node, AgentPhase.EXCHANGING)

    def forget_returns(self, s: SymbolicState, replaced: Any) -> None:
        """The numbers of workers are kept under the prefix of the round."""
        reset(s.told, when=replaced)
        super().forget_returns(s, replaced)

    return_as_master = Torch.return_as_master.claiming(EXCHANGES)
    connect = Torch.connect.claiming(arc(AgentPhase.CONNECTING, AgentPhase.EXCHANGING))
    restart_process = Torch.restart_process.also(may(AgentPhase.EXCHANGING, AgentPhase.EXITING))

    @transition(cite="api.py:_assign_worker_ranks", moves=[arc(AgentPhase.EXCHANGING, AgentPhase.RUNNING)])
    def start_workers(self, s: SymbolicState, node: Expr) -> None:
        """All members have published their numbers of workers: the agent gets its workers' ranks and starts them."""
        self.enters(s, node, AgentPhase.EXCHANGING)
        s.when(s.returned[node], named("has the ranks of its workers", self.has_ranks(s, node)))
        s.phase[node] = AgentPhase.RUNNING

    @environment(
        switch="identical_workers",
        bound=4,
        cite="api.py:_assign_worker_ranks (TORCH_ELASTIC_WORKER_IDENTICAL)",
        moves=[arc(AgentPhase.EXCHANGING, AgentPhase.RUNNING)],
    )
    def start_identical_workers(self, s: SymbolicState, node: Expr) -> None:
        """All nodes have the same number of workers: the agent computes the ranks itself and starts at once."""
        self.enters(s, node, AgentPhase.EXCHANGING)
        s.phase[node] = AgentPhase.RUNNING

    @environment(
        switch="read_timeout",
        bound=4,
        cite="c10d_rendezvous_backend.py: read_timeout",
        moves=[arc((AgentPhase.CONNECTING, AgentPhase.EXCHANGING), AgentPhase.FAILED)],
    )
    def wait_times_out(self, s: SymbolicState, node: Expr) -> None:
        """A read of the master's address, or of ranks, raises DistStoreError after read_timeout: the agent ends."""
        # read_timeout is 60 s. The agent closes the rendezvous, even while other members run (R1, R15).
        self.enters(s, node, AgentPhase.CONNECTING, AgentPhase.EXCHANGING)
        s.when(named("no member is about to end its wait", self.waits_in_vain(s, node)))
        self.goes_on(s, node, AgentPhase.FAILED)

    def cannot_use_it(self, s: SymbolicState, node: Expr) -> Condition:
        """The node has a cached master but must serve its own store."""
        return self.serves(s, node)


class Torch212(Torch213, edition=Edition.TORCH_2_12):
    """torch 2.5 to 2.12: only the first master creates a store, and a later rank 0 asserts that it has one."""

    def serves(self, s: SymbolicState, node: Expr) -> Condition:
        return super().serves(s, node) & ~self.has_cached_master(s, node)

    def cannot_use_it(self, s: SymbolicState, node: Expr) -> Condition:
        """The node is rank 0 and has cached another node's master."""
        return self.has_cached_master(s, node) & (s.saw_rank[node] == 0) & (s.master[node] != ord_(node) + 1)

    @transition(cite="dynamic_rendezvous.py:next_rendezvous", moves=[arc(AgentPhase.RETURNING, AgentPhase.FAILED)])
    def assertion_error(self, s: SymbolicState, node: Expr) -> None:
        """Rank 0 has cached another node's master and has no store: next_rendezvous raises AssertionError."""
        # R16. The agent ends and closes the rendezvous; the members that wait for its address never get it.
        self.enters(s, node, AgentPhase.RETURNING)
        s.when(named("has no store to serve", self.cannot_use_it(s, node)))
        self.goes_on(s, node, AgentPhase.FAILED)
