"""The rendezvous with each node's copy, token and operation taken apart: read, decide, act, write.

This is what `_DistributedRendezvousOpExecutor.run` and `_BackendRendezvousStateHolder.sync` do between two accesses of
the store. `refinement.py` maps it to the coarser system, in which all of it is one step.

Abstractions in addition to the coarser system's, all of them milliseconds against seconds. While a node is between
reading and writing with a token that is still good, no deadline passes and no heartbeat expires. A heartbeat that was
put into a copy does not age before it is written. A copy that the cache serves has no expired heartbeat. A token is
good, one write behind, or further behind.
"""

from __future__ import annotations

import enum
from collections.abc import Iterable
from typing import Any, ClassVar

from ..language import *
from ..language.expressions import FALSE
from .copies import PER_NODE, SCALARS, Copy
from .environment import Environment
from .properties import Rendezvous
from .torch import TorchState
from .vocabulary import *

WRITES = tuple(a for a in Action if a.value < Action.SYNC.value)
ERRORS = (Action.ERROR_CLOSED, Action.ERROR_TIMEOUT, *Raised)
OPERATOR = {
    AgentPhase.EXITING: "exit",
    AgentPhase.JOINING: "join",
    AgentPhase.RUNNING: "keep-alive",
    AgentPhase.DONE: "close",
    AgentPhase.FAILED: "close",
}


class Token(enum.Enum):
    """How far a copy's token is behind the store's."""

    OLD = "two writes or more behind, or none"
    PREVIOUS = "one write behind"
    GOOD = "the store's"


class StateHolders(TorchState):
    """N nodes, each with a copy of the shared state that may be stale."""

    operation = choice(Operation, per="node")
    action = choice(Action, per="node", doc="the operator's decision, while acting")
    dirty = flag(per="node")
    token = choice(Token, per="node")
    synced = flag(per="node", doc="has a copy that the 1 s cache may still serve")
    stamped = flag(per="node", doc="the unwritten change has a time stamp in it")
    store_stamped = flag(doc="the last write had a time stamp in it")
    told_won = flag(per="node", doc="the last write of the node was reported as won")

    copy_complete = flag(per="node")
    copy_closed = flag(per="node")
    copy_deadline = choice(Deadline, per="node")
    copy_round = integer(0, "rounds", per="node")
    copy_member = choice(Membership, per=("node", "node"))
    copy_rank = integer(0, "node", per=("node", "node"))
    copy_heartbeat_age = choice(Heartbeat, per=("node", "node"))

    # The coarser system shows the moves of these machines; here a write can make any of its moves.
    round_state = membership = heartbeat = None  # type: ignore[assignment]

    executor = machine_of(operation, "The state of a node's operation executor.")

    @machine(Holder)
    def holder(self, s: SymbolicState, node: Expr) -> Any:
        """A node's copy of the shared state."""
        fresh = ite(s.dirty[node], Holder.DIRTY, Holder.CLEAN)
        return ite(s.token[node] == Token.GOOD, fresh, Holder.STALE)

    at_rest = Rendezvous.at_rest

    def forget_returns(self, s: SymbolicState, replaced: Any) -> None:
        """A copy that enters the next round changes nothing for other nodes; only its write does."""
        if not isinstance(s, Copy):
            super().forget_returns(s, replaced)

    def at(self, s: SymbolicState, node: Expr, operation: Operation) -> None:
        self.acts(s, node)
        s.when(s.operation[node] == operation)

    def operator_decides(self, s: SymbolicState, node: Expr, outcome: Any) -> Condition:
        """The operator that a node runs decides `outcome` on its copy."""
        copy = Copy(s, node)
        verdict = FALSE
        for phase, operator in OPERATOR.items():
            verdict = ite(s.phase[node] == phase, self.decides(copy, operator, outcome, node), verdict)  # type: ignore[arg-type]
        return verdict

    def would(self, s: SymbolicState, node: Expr, *outcomes: Any) -> Condition:
        """The operator decides one of these on the node's copy, which no other node can change."""
        decided = any_([self.operator_decides(s, node, outcome) for outcome in outcomes])
        return (s.operation[node] == Operation.DECIDING) & decided

    def abstract_phase(self, s: SymbolicState, node: Expr) -> Condition:
        """The node's phase in the coarser system, where reading, deciding and writing are one step."""
        phase = s.phase[node]
        done = (s.operation[node] == Operation.FINISHED) | self.would(s, node, Action.FINISH)
        after = ite(phase == AgentPhase.EXITING, AgentPhase.JOINING, AgentPhase.RETURNING)
        failed = (s.operation[node] == Operation.FAILED) | self.would(s, node, *ERRORS)
        phase = ite(failed & (phase == AgentPhase.JOINING), AgentPhase.FAILED, phase)
        return ite(done & phase.isin((AgentPhase.EXITING, AgentPhase.JOINING)), after, phase)

    def is_returning(self, s: SymbolicState, node: Expr) -> Condition:
        return self.abstract_phase(s, node) == AgentPhase.RETURNING

    def load(self, s: SymbolicState, node: Expr) -> None:
        """Takes the store's state as the copy and removes dead nodes from it (`sync`); the operator decides next."""
        self.transfer(s, Copy(s, node))
        s.token[node] = Token.GOOD
        self.ask_operator(s, node)

    def transfer(self, source: Any, target: Any) -> None:
        """Gives the shared fields of one state to another."""
        for name in SCALARS:
            setattr(target, name, getattr(source, name))
        for name in PER_NODE:
            for j in source.node:
                getattr(target, name)[j] = getattr(source, name)[j]

    def ask_operator(self, s: SymbolicState, node: Expr) -> None:
        copy = Copy(s, node)
        reset(s.dirty, s.stamped, at=node)
        s.synced[node] = True
        self.sweep(copy, node)  # type: ignore[arg-type]
        s.operation[node] = Operation.DECIDING
        returns = (s.phase[node] == AgentPhase.JOINING) & self.decides(copy, "join", Action.FINISH, node)  # type: ignore[arg-type]
        self.record_return(s, node, copy, returns)  # type: ignore[arg-type]

    # ---- an operation

    @transition(moves=[arc(Operation.IDLE, Operation.SYNCING)], cite="rendezvous-engine 2.2.3")
    def begin(self, s: SymbolicState, node: Expr) -> None:
        """A node begins the operation of its phase: exit, join, keep-alive or close."""
        self.at(s, node, Operation.IDLE)
        s.when(s.phase[node].isin(OPERATOR))
        s.operation[node] = Operation.SYNCING

    @transition(moves=[arc(Operation.IDLE, Operation.DECIDING)], cite="rendezvous-engine 2.2.3.2 (cache)")
    def begin_from_cache(self, s: SymbolicState, node: Expr) -> None:
        """An operation begins within a second of the last sync, and the copy is not read again."""
        self.at(s, node, Operation.IDLE)
        s.when(s.phase[node].isin((AgentPhase.JOINING, AgentPhase.RUNNING)), s.synced[node])
        s.operation[node] = Operation.DECIDING
        copy = Copy(s, node)
        s.when(~any_(copy.heartbeat_age[j] == Heartbeat.EXPIRED for j in s.node))
        s.when(~((s.phase[node] == AgentPhase.JOINING) & self.decides(copy, "join", Action.FINISH, node)))  # type: ignore[arg-type]

    @transition(
        moves=[arc(Operation.SYNCING, Operation.DECIDING), arc(Holder.STALE, Holder.CLEAN)],
        cite="rendezvous-engine 2.2.3.2 (get_state)",
    )
    def read(self, s: SymbolicState, node: Expr) -> None:
        """A clean holder reads the shared state."""
        self.at(s, node, Operation.SYNCING)
        s.when(~s.dirty[node])
        s.told_won[node] = False
        self.load(s, node)

    @transition(
        moves=[
            arc(Operation.SYNCING, Operation.DECIDING),
            arc(Holder.DIRTY, Holder.CLEAN),
            arc((Holder.CLEAN, Holder.DIRTY), Holder.STALE, of="others"),
        ],
        cite="rendezvous-engine 2.2.3.2 (set_state)",
    )
    def write_wins(self, s: SymbolicState, node: Expr) -> None:
        """A dirty holder whose token is the store's writes its copy; every other token falls behind."""
        self.at(s, node, Operation.SYNCING)
        s.when(s.dirty[node], s.token[node] == Token.GOOD)
        copy = Copy(s, node)
        self.forget_returns(s, copy.round != s.round)
        for j in s.node:
            s.interrupted[j] = s.interrupted[j] & ~((j == node) & s.stamped[node])
        self.transfer(copy, s)
        for j in s.node:
            behind = ite(s.token[j] == Token.GOOD, Token.PREVIOUS, Token.OLD)
            s.token[j] = ite(j == node, Token.GOOD, behind)
        s.store_stamped = s.stamped[node]
        s.told_won[node] = True
        self.ask_operator(s, node)

    @transition(
        moves=[arc(Operation.SYNCING, Operation.DECIDING), arc(Holder.STALE, Holder.CLEAN)],
        cite="rendezvous-engine 2.2.3.2 (set_state)",
    )
    def write_loses(self, s: SymbolicState, node: Expr) -> None:
        """The store's state has changed: the write is refused, the change is lost, the new state is loaded."""
        self.at(s, node, Operation.SYNCING)
        s.when(s.dirty[node], s.token[node] != Token.GOOD)
        # C10dRendezvousBackend.set_state compares bytes: a node takes an identical write of another node for its own.
        s.told_won[node] = named("same bytes", self.same_bytes(s, node))
        self.load(s, node)

    def same_bytes(self, s: SymbolicState, node: Expr) -> Condition:
        copy = Copy(s, node)
        scalars = [getattr(copy, name) == getattr(s, name) for name in SCALARS]
        lanes = [all_(getattr(copy, name)[j] == getattr(s, name)[j] for j in s.node) for name in PER_NODE]
        return and_(~s.stamped[node], ~s.store_stamped, s.token[node] == Token.PREVIOUS, *scalars, *lanes)

    @transition(
        moves=[
            arc(Operation.DECIDING, (Operation.ACTING, Operation.SYNCING, Operation.FINISHED, Operation.FAILED)),
        ],
        cite="rendezvous-engine 2.2.3.1, 3.2",
    )
    def decide(self, s: SymbolicState, node: Expr) -> None:
        """The operator reads the copy and decides."""
        self.at(s, node, Operation.DECIDING)
        outcomes = {a: self.operator_decides(s, node, a) for a in Action}
        action: Any = Action.KEEP_ALIVE
        for a in WRITES:
            action = ite(outcomes[a], a, action)
        then = ite(
            outcomes[Action.FINISH], Operation.FINISHED, ite(outcomes[Action.SYNC], Operation.SYNCING, Operation.FAILED)
        )
        acting = any_([outcomes[a] for a in WRITES])
        s.action[node] = ite(acting, action, Action.KEEP_ALIVE)
        s.operation[node] = ite(acting, Operation.ACTING, then)

    def acting(self, s: SymbolicState, node: Expr, action: Action) -> Any:
        """The node changes its copy as decided and writes it next."""
        self.at(s, node, Operation.ACTING)
        s.when(s.action[node] == action)
        s.action[node] = Action.KEEP_ALIVE
        s.operation[node] = Operation.SYNCING
        s.dirty[node] = True
        return Copy(s, node)

    def copy_stamp(self, s: SymbolicState, copy: Any, node: Expr) -> None:
        copy.heartbeat_age[node] = Heartbeat.FRESH
        s.stamped[node] = True

    def copy_unlist(self, copy: Any, node: Expr) -> None:
        copy.member[node] = Membership.OUTSIDE
        copy.rank[node] = 0
        copy.heartbeat_age[node] = Heartbeat.NONE


ACT = [arc(Operation.ACTING, Operation.SYNCING), arc(Holder.CLEAN, Holder.DIRTY)]


class Actions(StateHolders):
    """Each action as a change of a copy."""

    @transition(moves=ACT, cite="rendezvous-engine 4.6")
    def act_keep_alive(self, s: SymbolicState, node: Expr) -> None:
        """The copy gets a fresh heartbeat."""
        copy = self.acting(s, node, Action.KEEP_ALIVE)
        self.copy_stamp(s, copy, node)

    @transition(moves=ACT, cite="rendezvous-engine 4.1")
    def act_add_to_participants(self, s: SymbolicState, node: Expr) -> None:
        """The copy gets a participant; reaching min sets the deadline, reaching max completes the round."""
        copy = self.acting(s, node, Action.ADD_TO_PARTICIPANTS)
        copy.member[node] = Membership.PARTICIPANT
        copy.rank[node] = 0
        self.copy_stamp(s, copy, node)
        size = self.participants(copy)
        copy.deadline = ite(size == self.min_of(s, node), Deadline.RUNNING, copy.deadline)
        self.assign_ranks(copy, size == self.max_nodes)

    @transition(moves=ACT, cite="rendezvous-engine 4.3")
    def act_add_to_wait_list(self, s: SymbolicState, node: Expr) -> None:
        """The copy gets a waiting node."""
        copy = self.acting(s, node, Action.ADD_TO_WAIT_LIST)
        copy.member[node] = Membership.WAITING
        self.copy_stamp(s, copy, node)

    @transition(moves=ACT, cite="rendezvous-engine 4.2")
    def act_remove_from_participants(self, s: SymbolicState, node: Expr) -> None:
        """The copy loses a participant; an emptied round is replaced, and a round below min loses its deadline."""
        copy = self.acting(s, node, Action.REMOVE_FROM_PARTICIPANTS)
        self.copy_unlist(copy, node)
        self.removal_epilogue(copy, node, True)

    @transition(moves=ACT, cite="rendezvous-engine 4.4")
    def act_remove_from_wait_list(self, s: SymbolicState, node: Expr) -> None:
        """The copy loses a waiting node."""
        self.copy_unlist(self.acting(s, node, Action.REMOVE_FROM_WAIT_LIST), node)

    @transition(moves=ACT, cite="rendezvous-engine 4.5")
    def act_mark_complete(self, s: SymbolicState, node: Expr) -> None:
        """The copy's round is complete, with ranks."""
        self.assign_ranks(self.acting(s, node, Action.MARK_RENDEZVOUS_COMPLETE), True)

    @transition(moves=ACT, cite="rendezvous-engine 4.5")
    def act_mark_closed(self, s: SymbolicState, node: Expr) -> None:
        """The copy is closed."""
        copy = self.acting(s, node, Action.MARK_RENDEZVOUS_CLOSED)
        copy.closed = True

    # ---- the agent between two operations

    @transition(
        moves=[
            arc((Operation.FINISHED, Operation.FAILED), Operation.IDLE),
            arc(AgentPhase.EXITING, AgentPhase.JOINING),
            arc(AgentPhase.JOINING, (AgentPhase.RUNNING, AgentPhase.FAILED)),
            arc((AgentPhase.DONE, AgentPhase.FAILED), AgentPhase.LEFT),
        ],
        cite="elastic-node-change 2.1",
    )
    def conclude(self, s: SymbolicState, node: Expr) -> None:
        """An operation has ended, and the agent enters its next phase."""
        self.acts(s, node)
        s.when(s.operation[node].isin((Operation.FINISHED, Operation.FAILED)))
        failed = s.operation[node] == Operation.FAILED
        phase = s.phase[node]
        after: Any = ite(phase == AgentPhase.RUNNING, AgentPhase.RUNNING, AgentPhase.LEFT)
        after = ite(phase == AgentPhase.JOINING, ite(failed, AgentPhase.FAILED, AgentPhase.RUNNING), after)
        forgotten = (phase == AgentPhase.JOINING) & ~failed & ~s.returned[node]
        s.saw_rank[node] = ite(forgotten, 0, s.saw_rank[node])
        s.phase[node] = ite(phase == AgentPhase.EXITING, AgentPhase.JOINING, after)
        s.operation[node] = Operation.IDLE

    @transition(
        moves=[arc(AgentPhase.RUNNING, AgentPhase.EXITING), arc(Holder.STALE, Holder.CLEAN)],
        cite="elastic-node-change 2.3.1 (num_nodes_waiting)",
    )
    def restart_workers(self, s: SymbolicState, node: Expr) -> None:
        """num_nodes_waiting reads the state and sees a waiting node: the agent restarts its workers."""
        self.at(s, node, Operation.IDLE)
        s.when(s.phase[node] == AgentPhase.RUNNING)
        self.load(s, node)
        s.told_won[node] = False
        s.operation[node] = Operation.IDLE
        s.when(named("num_nodes_waiting > 0", Copy(s, node).member.count(Membership.WAITING) > 0))
        s.phase[node] = AgentPhase.EXITING
        s.join_deadline[node] = JoinDeadline.IN_TIME


class Holders(Actions):
    """State holders with time and faults, and their properties."""

    title = "State holders and executors: copies, tokens and compare-and-set explicit"
    Edition: ClassVar[Iterable[enum.Enum]] = (Edition.SEED, Edition.TORCH)

    def between(self, s: SymbolicState, node: Expr) -> Condition:
        """The node has read, but has not yet written or decided that it has nothing to write."""
        return s.operation[node].isin((Operation.DECIDING, Operation.ACTING)) | s.dirty[node]

    def nobody_between(self, s: SymbolicState) -> Condition:
        """No node can still write what it read before now."""
        return ~any_(self.between(s, j) & (s.token[j] == Token.GOOD) & ~s.crashed[j] for j in s.node)

    @environment(fair=True)
    def last_call_passes(self, s: SymbolicState) -> None:
        """The last call ends, after every live node that tries to join has polled."""
        s.when(s.deadline == Deadline.RUNNING, self.nobody_between(s))
        joining = AgentPhase.JOINING
        trying = (
            (self.abstract_phase(s, j) == joining) & self.live(s, j) & (s.member[j] != Membership.PARTICIPANT)
            for j in s.node
        )
        s.when(named("every live node has polled", ~any_(trying)))
        s.deadline = Deadline.PASSED
        for j in s.node:
            s.copy_deadline[j] = ite(s.copy_deadline[j] == Deadline.RUNNING, Deadline.PASSED, s.copy_deadline[j])

    def age(self, s: SymbolicState, node: Expr, before: Heartbeat, after: Heartbeat) -> None:
        s.heartbeat_age[node] = ite(s.heartbeat_age[node] == before, after, s.heartbeat_age[node])
        for j in s.node:
            unwritten = (j == node) & s.stamped[j]
            ages = (s.copy_heartbeat_age[j, node] == before) & ~unwritten
            s.copy_heartbeat_age[j, node] = ite(ages, after, s.copy_heartbeat_age[j, node])

    @environment(fair=True)
    def heartbeat_ages(self, s: SymbolicState, node: Expr) -> None:
        """The keep-alive interval passes."""
        s.when(s.heartbeat_age[node] == Heartbeat.FRESH)
        self.age(s, node, Heartbeat.FRESH, Heartbeat.DUE)

    @environment(fair=True)
    def heartbeat_expires(self, s: SymbolicState, node: Expr) -> None:
        """Interval × attempts pass for a node that does not beat."""
        gone = s.phase[node] == AgentPhase.LEFT
        s.when(s.heartbeat_age[node] == Heartbeat.DUE, s.crashed[node] | s.stalled[node] | gone, self.nobody_between(s))
        self.age(s, node, Heartbeat.DUE, Heartbeat.EXPIRED)

    @environment(switch="join_timeout", cite="rendezvous-engine 3.2.4")
    def join_deadline_passes(self, s: SymbolicState, node: Expr) -> None:
        """A node's join deadline passes."""
        s.when(self.abstract_phase(s, node) == AgentPhase.JOINING, s.join_deadline[node] == JoinDeadline.IN_TIME)
        s.when(~self.between(s, node))
        s.join_deadline[node] = JoinDeadline.ROLLBACK

    @environment(cite="rendezvous-engine 3.2.4")
    def rollback_window_passes(self, s: SymbolicState, node: Expr) -> None:
        """The 5 s for taking a join back pass."""
        s.when(self.abstract_phase(s, node) == AgentPhase.JOINING, s.join_deadline[node] == JoinDeadline.ROLLBACK)
        s.when(~self.between(s, node))
        s.join_deadline[node] = JoinDeadline.OVER

    job_ends, worker_fails = Environment.job_ends, Environment.worker_fails

    def works(self, s: SymbolicState, node: Expr) -> None:
        s.when(s.phase[node] == AgentPhase.RUNNING, s.operation[node] == Operation.IDLE, self.live(s, node))

    @fault("crash")
    def crash(self, s: SymbolicState, node: Expr) -> None:
        """A process dies."""
        move(s.crashed, False, True, s.phase[node] != AgentPhase.LEFT, at=node)
        s.interrupted[node] = True

    # ---- properties

    @sometimes()
    def a_write_loses(self, s: SymbolicState) -> Condition:
        """A node is about to write a change of a stale copy."""
        return any_(s.dirty[j] & (s.token[j] != Token.GOOD) & (s.operation[j] == Operation.SYNCING) for j in s.node)

    a_round_is_complete = Rendezvous.a_round_is_complete

    @step(on=("write_loses",), witness="a_write_loses", cite="c10d_rendezvous_backend.py:set_state")
    def lost_writes_are_reported(self, before: SymbolicState, after: SymbolicState, node: Expr) -> Condition:
        """A compare-and-set that loses is reported as lost."""
        return ~after.told_won[node]

    @always(witness="a_write_loses")
    def a_good_token_means_a_good_copy(self, s: SymbolicState) -> Condition:
        """A clean copy with the store's token equals the store's state without the nodes that it takes for dead."""
        return all_(
            implies(
                (s.token[i] == Token.GOOD) & ~s.dirty[i],
                all_(
                    (s.copy_member[i, j] == s.member[j]) | (s.copy_heartbeat_age[i, j] == Heartbeat.NONE)
                    for j in s.node
                ),
            )
            for i in s.node
        )

    @step(witness="a_round_is_complete")
    def only_writes_change_the_store(self, before: SymbolicState, after: SymbolicState, node: Expr) -> Condition:
        """A node changes the shared state only by a write that wins."""
        same = [getattr(before, n) == getattr(after, n) for n in SCALARS]
        lanes = [all_(getattr(before, n)[j] == getattr(after, n)[j] for j in before.node) for n in ("member", "rank")]
        return and_(*same, *lanes) | (before.dirty[node] & (before.token[node] == Token.GOOD) & after.told_won[node])


class Holders213(Holders, edition=Edition.TORCH):
    """Adds the redundancy list, which only torch 2.13 has."""

    @transition(moves=ACT, cite="dynamic_rendezvous.py")
    def act_add_to_redundancy_list(self, s: SymbolicState, node: Expr) -> None:
        """The copy gets a spare."""
        copy = self.acting(s, node, Action.ADD_TO_REDUNDANCY_LIST)
        copy.member[node] = Membership.REDUNDANT
        self.copy_stamp(s, copy, node)

    @transition(moves=ACT, cite="dynamic_rendezvous.py")
    def act_remove_from_redundancy_list(self, s: SymbolicState, node: Expr) -> None:
        """The copy loses a spare, whose join deadline restarts."""
        self.copy_unlist(self.acting(s, node, Action.REMOVE_FROM_REDUNDANCY_LIST), node)
        s.join_deadline[node] = JoinDeadline.IN_TIME
