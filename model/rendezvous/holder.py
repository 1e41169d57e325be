"""The rendezvous with each node's copy, token and operation taken apart: read, decide, act, write.

This is what `_DistributedRendezvousOpExecutor.run` and `_BackendRendezvousStateHolder.sync` do between two accesses of
the store. `refinement.py` maps it to the coarser system, in which all of it is one step.

Abstractions on top of the coarser system's, all of them milliseconds against seconds: no deadline passes and no
heartbeat expires while a node is between reading and writing with a token that is still good, none ages between being
put into a copy and being written, and none has expired in a copy that the cache serves. A token is good, one write
behind, or further behind.
"""

from __future__ import annotations

import enum
from collections.abc import Iterable
from typing import Any, ClassVar

from ..language import *
from .copies import PER_NODE, SCALARS, Copy
from .fields import Condition
from .torch import TorchState
from .vocabulary import (
    Action,
    AgentPhase,
    Deadline,
    Edition,
    Heartbeat,
    Holder,
    JoinDeadline,
    Membership,
    Operation,
    Raised,
)

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

    # The coarser system shows how these move; here a write can move them in any of its ways.
    round_state = membership = heartbeat = None  # type: ignore[assignment]

    @machine(Operation, each="node")
    def executor(self, s: SymbolicState, node: Expr) -> Any:
        """The state of a node's operation executor."""
        return s.operation[node]

    @machine(Holder, each="node")
    def holder(self, s: SymbolicState, node: Expr) -> Any:
        """A node's copy of the shared state."""
        fresh = ite(s.dirty[node], Holder.DIRTY, Holder.CLEAN)
        return ite(s.token[node] == Token.GOOD, fresh, Holder.STALE)

    @terminal
    def at_rest(self, s: SymbolicState) -> Condition:
        """Each node has left or died."""
        return all_((s.phase[j] == AgentPhase.LEFT) | s.crashed[j] for j in s.node)

    def forget_returns(self, s: SymbolicState, replaced: Any) -> None:
        """A copy that moves on to the next round changes nothing for others: only writing it does."""
        if not isinstance(s, Copy):
            super().forget_returns(s, replaced)

    def at(self, s: SymbolicState, node: Expr, operation: Operation) -> None:
        self.acts(s, node)
        s.when(s.operation[node] == operation)

    def operator_decides(self, s: SymbolicState, node: Expr, outcome: Any) -> Condition:
        """The operator that a node runs decides `outcome` on its copy."""
        copy = Copy(s, node)
        verdict = not_(True)
        for phase, operator in OPERATOR.items():
            verdict = ite(s.phase[node] == phase, self.decides(copy, operator, outcome, node), verdict)  # type: ignore[arg-type]
        return verdict

    def would(self, s: SymbolicState, node: Expr, *outcomes: Any) -> Condition:
        """The node has a copy on which its operation ends like that: nothing that others do can change it."""
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
        """Take the store's state as copy, drop the dead from it (`sync`), and ask the operator next."""
        copy = Copy(s, node)
        for name in SCALARS:
            setattr(copy, name, getattr(s, name))
        for name in PER_NODE:
            for j in s.node:
                getattr(copy, name)[j] = getattr(s, name)[j]
        s.token[node] = Token.GOOD
        self.ask_operator(s, node)

    def ask_operator(self, s: SymbolicState, node: Expr) -> None:
        copy = Copy(s, node)
        s.dirty[node] = False
        s.stamped[node] = False
        s.synced[node] = True
        self.sweep(copy, node)  # type: ignore[arg-type]
        s.operation[node] = Operation.DECIDING
        returns = (s.phase[node] == AgentPhase.JOINING) & self.decides(copy, "join", Action.FINISH, node)  # type: ignore[arg-type]
        self.record_return(s, node, copy, returns)  # type: ignore[arg-type]

    # ---- an operation

    @transition(each="node", moves=[arc(Operation.IDLE, Operation.SYNCING)], cite="rendezvous-engine 2.2.3")
    def begin(self, s: SymbolicState, node: Expr) -> None:
        """A node begins the operation of its phase: exit, join, keep-alive or close."""
        self.at(s, node, Operation.IDLE)
        s.when(s.phase[node].isin(OPERATOR))
        s.operation[node] = Operation.SYNCING

    @transition(each="node", moves=[arc(Operation.IDLE, Operation.DECIDING)], cite="rendezvous-engine 2.2.3.2 (cache)")
    def begin_from_cache(self, s: SymbolicState, node: Expr) -> None:
        """An operation begins within a second of the last sync: its copy is not read again."""
        self.at(s, node, Operation.IDLE)
        s.when(s.phase[node].isin((AgentPhase.JOINING, AgentPhase.RUNNING)), s.synced[node])
        s.operation[node] = Operation.DECIDING
        copy = Copy(s, node)
        s.when(~any_(copy.heartbeat_age[j] == Heartbeat.EXPIRED for j in s.node))
        s.when(~((s.phase[node] == AgentPhase.JOINING) & self.decides(copy, "join", Action.FINISH, node)))  # type: ignore[arg-type]

    @transition(
        each="node",
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
        each="node",
        moves=[
            arc(Operation.SYNCING, Operation.DECIDING),
            arc(Holder.DIRTY, Holder.CLEAN),
            *(arc(h, Holder.STALE, of="others") for h in (Holder.CLEAN, Holder.DIRTY)),
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
        for name in SCALARS:
            setattr(s, name, getattr(copy, name))
        for name in PER_NODE:
            for j in s.node:
                getattr(s, name)[j] = getattr(copy, name)[j]
        for j in s.node:
            behind = ite(s.token[j] == Token.GOOD, Token.PREVIOUS, Token.OLD)
            s.token[j] = ite(j == node, Token.GOOD, behind)
        s.store_stamped = s.stamped[node]
        s.told_won[node] = True
        self.ask_operator(s, node)

    @transition(
        each="node",
        moves=[arc(Operation.SYNCING, Operation.DECIDING), arc(Holder.STALE, Holder.CLEAN)],
        cite="rendezvous-engine 2.2.3.2 (set_state)",
    )
    def write_loses(self, s: SymbolicState, node: Expr) -> None:
        """The store has moved on: the write is refused, the change is lost, the new state is loaded."""
        self.at(s, node, Operation.SYNCING)
        s.when(s.dirty[node], s.token[node] != Token.GOOD)
        # C10dRendezvousBackend.set_state compares bytes: an identical write of another passes for one's own.
        s.told_won[node] = named("same bytes", self.same_bytes(s, node))
        self.load(s, node)

    def same_bytes(self, s: SymbolicState, node: Expr) -> Condition:
        copy = Copy(s, node)
        scalars = [getattr(copy, name) == getattr(s, name) for name in SCALARS]
        lanes = [all_(getattr(copy, name)[j] == getattr(s, name)[j] for j in s.node) for name in PER_NODE]
        unstamped = ~s.stamped[node] & ~s.store_stamped & (s.token[node] == Token.PREVIOUS)
        same = unstamped
        for part in (*scalars, *lanes):
            same = same & part
        return same

    @transition(
        each="node",
        moves=[
            arc(Operation.DECIDING, o)
            for o in (Operation.ACTING, Operation.SYNCING, Operation.FINISHED, Operation.FAILED)
        ],
        cite="rendezvous-engine 2.2.3.1, 3.2",
    )
    def decide(self, s: SymbolicState, node: Expr) -> None:
        """The operator looks at the copy and decides what to do."""
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
        """The node changes its copy as decided, and has it written next."""
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

    @transition(each="node", moves=ACT, cite="rendezvous-engine 4.6")
    def act_keep_alive(self, s: SymbolicState, node: Expr) -> None:
        """The copy gets a fresh heartbeat."""
        copy = self.acting(s, node, Action.KEEP_ALIVE)
        self.copy_stamp(s, copy, node)

    @transition(each="node", moves=ACT, cite="rendezvous-engine 4.1")
    def act_add_to_participants(self, s: SymbolicState, node: Expr) -> None:
        """The copy gets a participant; reaching min sets the deadline, reaching max completes the round."""
        copy = self.acting(s, node, Action.ADD_TO_PARTICIPANTS)
        copy.member[node] = Membership.PARTICIPANT
        copy.rank[node] = 0
        self.copy_stamp(s, copy, node)
        size = self.participants(copy)
        copy.deadline = ite(size == self.min_of(s, node), Deadline.RUNNING, copy.deadline)
        self.assign_ranks(copy, size == self.max_nodes)

    @transition(each="node", moves=ACT, cite="rendezvous-engine 4.3")
    def act_add_to_wait_list(self, s: SymbolicState, node: Expr) -> None:
        """The copy gets a waiting node."""
        copy = self.acting(s, node, Action.ADD_TO_WAIT_LIST)
        copy.member[node] = Membership.WAITING
        self.copy_stamp(s, copy, node)

    @transition(each="node", moves=ACT, cite="rendezvous-engine 4.2")
    def act_remove_from_participants(self, s: SymbolicState, node: Expr) -> None:
        """The copy loses a participant, and its round or deadline if that was one too many."""
        copy = self.acting(s, node, Action.REMOVE_FROM_PARTICIPANTS)
        self.copy_unlist(copy, node)
        self.removal_epilogue(copy, node, True)

    @transition(each="node", moves=ACT, cite="rendezvous-engine 4.4")
    def act_remove_from_wait_list(self, s: SymbolicState, node: Expr) -> None:
        """The copy loses a waiting node."""
        self.copy_unlist(self.acting(s, node, Action.REMOVE_FROM_WAIT_LIST), node)

    @transition(each="node", moves=ACT, cite="rendezvous-engine 4.5")
    def act_mark_complete(self, s: SymbolicState, node: Expr) -> None:
        """The copy's round is complete, with ranks."""
        self.assign_ranks(self.acting(s, node, Action.MARK_RENDEZVOUS_COMPLETE), True)

    @transition(each="node", moves=ACT, cite="rendezvous-engine 4.5")
    def act_mark_closed(self, s: SymbolicState, node: Expr) -> None:
        """The copy is closed."""
        copy = self.acting(s, node, Action.MARK_RENDEZVOUS_CLOSED)
        copy.closed = True

    # ---- the agent between two operations

    @transition(
        each="node",
        moves=[
            arc((Operation.FINISHED, Operation.FAILED), Operation.IDLE),
            arc(AgentPhase.EXITING, AgentPhase.JOINING),
            arc(AgentPhase.JOINING, AgentPhase.RUNNING),
            arc(AgentPhase.JOINING, AgentPhase.FAILED),
            arc((AgentPhase.DONE, AgentPhase.FAILED), AgentPhase.LEFT),
        ],
        cite="elastic-node-change 2.1",
    )
    def conclude(self, s: SymbolicState, node: Expr) -> None:
        """An operation has ended: the agent goes on to the next."""
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
        each="node",
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
    """State holders under time and faults, and what is asked of them."""

    title = "State holders and executors: copies, tokens and compare-and-set explicit"
    Edition: ClassVar[Iterable[enum.Enum]] = (Edition.SEED, Edition.TORCH)

    def between(self, s: SymbolicState, node: Expr) -> Condition:
        """The node has read, and has not yet written or decided that there is nothing to write."""
        return s.operation[node].isin((Operation.DECIDING, Operation.ACTING)) | s.dirty[node]

    def nobody_between(self, s: SymbolicState) -> Condition:
        """No node can still write what it read before now."""
        return ~any_(self.between(s, j) & (s.token[j] == Token.GOOD) & ~s.crashed[j] for j in s.node)

    @environment(fair=True)
    def last_call_passes(self, s: SymbolicState) -> None:
        """The last call ends, after every live node that is trying has polled."""
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

    @environment(each="node", fair=True)
    def heartbeat_ages(self, s: SymbolicState, node: Expr) -> None:
        """The keep-alive interval passes."""
        s.when(s.heartbeat_age[node] == Heartbeat.FRESH)
        self.age(s, node, Heartbeat.FRESH, Heartbeat.DUE)

    @environment(each="node", fair=True)
    def heartbeat_expires(self, s: SymbolicState, node: Expr) -> None:
        """Interval × attempts pass for a node that does not beat."""
        gone = s.phase[node] == AgentPhase.LEFT
        s.when(s.heartbeat_age[node] == Heartbeat.DUE, s.crashed[node] | s.stalled[node] | gone, self.nobody_between(s))
        self.age(s, node, Heartbeat.DUE, Heartbeat.EXPIRED)

    @environment(each="node", switch="join_timeout", cite="rendezvous-engine 3.2.4")
    def join_deadline_passes(self, s: SymbolicState, node: Expr) -> None:
        """A node's join deadline passes."""
        s.when(self.abstract_phase(s, node) == AgentPhase.JOINING, s.join_deadline[node] == JoinDeadline.IN_TIME)
        s.when(~self.between(s, node))
        s.join_deadline[node] = JoinDeadline.ROLLBACK

    @environment(each="node", cite="rendezvous-engine 3.2.4")
    def rollback_window_passes(self, s: SymbolicState, node: Expr) -> None:
        """The 5 s for taking a join back pass."""
        s.when(self.abstract_phase(s, node) == AgentPhase.JOINING, s.join_deadline[node] == JoinDeadline.ROLLBACK)
        s.when(~self.between(s, node))
        s.join_deadline[node] = JoinDeadline.OVER

    @environment(each="node", switch="job_end", bound=2, moves=[arc(AgentPhase.RUNNING, AgentPhase.DONE)])
    def job_ends(self, s: SymbolicState, node: Expr) -> None:
        """The workers of a node are done."""
        s.when(s.phase[node] == AgentPhase.RUNNING, s.operation[node] == Operation.IDLE, self.live(s, node))
        s.phase[node] = AgentPhase.DONE

    @fault(
        "worker_failure",
        each="node",
        moves=[arc(AgentPhase.RUNNING, AgentPhase.EXITING)],
        cite="elastic-node-change 3.3",
    )
    def worker_fails(self, s: SymbolicState, node: Expr) -> None:
        """A worker fails: the agent stops the others and calls next_rendezvous."""
        s.when(s.phase[node] == AgentPhase.RUNNING, s.operation[node] == Operation.IDLE, self.live(s, node))
        s.phase[node] = AgentPhase.EXITING
        s.join_deadline[node] = JoinDeadline.IN_TIME

    @fault("crash", each="node")
    def crash(self, s: SymbolicState, node: Expr) -> None:
        """A process dies."""
        s.when(~s.crashed[node], s.phase[node] != AgentPhase.LEFT)
        s.crashed[node] = True
        s.interrupted[node] = True

    # ---- properties

    @sometimes()
    def a_write_loses(self, s: SymbolicState) -> Condition:
        """A node is about to write on a stale copy."""
        return any_(s.dirty[j] & (s.token[j] != Token.GOOD) & (s.operation[j] == Operation.SYNCING) for j in s.node)

    @sometimes()
    def a_round_is_complete(self, s: SymbolicState) -> Condition:
        """A round is complete with at least min participants."""
        return s.complete & (self.participants(s) >= self.min_nodes)

    @step(each="node", on=("write_loses",), witness="a_write_loses", cite="c10d_rendezvous_backend.py:set_state")
    def lost_writes_are_reported(self, before: SymbolicState, after: SymbolicState, node: Expr) -> Condition:
        """A compare-and-set that was lost is reported as lost."""
        return ~after.told_won[node]

    @always(witness="a_write_loses")
    def a_good_token_means_a_good_copy(self, s: SymbolicState) -> Condition:
        """A clean copy with the store's token is the store's state, less the nodes that it takes for dead."""
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

    @step(each="node", witness="a_round_is_complete")
    def only_writes_change_the_store(self, before: SymbolicState, after: SymbolicState, node: Expr) -> Condition:
        """A node changes the shared state only by a write that wins, and heartbeats age on their own."""
        same = [getattr(before, n) == getattr(after, n) for n in SCALARS]
        lanes = [all_(getattr(before, n)[j] == getattr(after, n)[j] for j in before.node) for n in ("member", "rank")]
        unchanged = not_(not_(True))
        for part in (*same, *lanes):
            unchanged = unchanged & part
        return unchanged | (before.dirty[node] & (before.token[node] == Token.GOOD) & after.told_won[node])


class Holders213(Holders, edition=Edition.TORCH):
    """The redundancy list, which torch 2.13 has alone."""

    @transition(each="node", moves=ACT, cite="dynamic_rendezvous.py")
    def act_add_to_redundancy_list(self, s: SymbolicState, node: Expr) -> None:
        """The copy gets a spare."""
        copy = self.acting(s, node, Action.ADD_TO_REDUNDANCY_LIST)
        copy.member[node] = Membership.REDUNDANT
        self.copy_stamp(s, copy, node)

    @transition(each="node", moves=ACT, cite="dynamic_rendezvous.py")
    def act_remove_from_redundancy_list(self, s: SymbolicState, node: Expr) -> None:
        """The copy loses a spare, whose join deadline starts anew."""
        self.copy_unlist(self.acting(s, node, Action.REMOVE_FROM_REDUNDANCY_LIST), node)
        s.join_deadline[node] = JoinDeadline.IN_TIME
