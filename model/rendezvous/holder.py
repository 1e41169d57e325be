"""The rendezvous with each node's copy, token and operation taken apart: read, decide, act, write.

This is what `_DistributedRendezvousOpExecutor.run` and `_BackendRendezvousStateHolder.sync` do between two
accesses of the store. `refinement.py` maps it to the coarser system, in which all of it is one step.

Abstractions on top of the coarser system's, all of them milliseconds against seconds: no deadline passes and no
heartbeat expires while somebody is between reading and writing with a token that is still good, none ages between
being put into a copy and being written, and none has expired in a copy that the cache serves. A token is good, one
write behind, or further behind.
"""

from __future__ import annotations

import enum
from typing import Any

from ..language import (
    Expr,
    all_,
    always,
    any_,
    arc,
    choice,
    environment,
    fault,
    flag,
    implies,
    integer,
    ite,
    machine,
    named,
    not_,
    sometimes,
    step,
    terminal,
    transition,
)  # fmt: skip
from .copies import PER_NODE, SCALARS, Copy
from .shared import BEFORE, Condition, D, H, M, P, S, Shared
from .vocabulary import Action, Deadline, Edition, Heartbeat, Holder, Membership, Operation, Patience, Place, Raised

O, A = Operation, Action  # noqa: E741  as short as the M, H, D, P, R beside it
WRITES = tuple(a for a in Action if a.value < Action.SYNC.value)
ERRORS = (A.ERROR_CLOSED, A.ERROR_TIMEOUT, *Raised)
OPERATOR = {P.EXITING: "exit", P.JOINING: "join", P.RUNNING: "keep-alive", P.DONE: "close", P.FAILED: "close"}


class Token(enum.Enum):
    """How far a copy's token is behind the store's."""

    OLD = "two writes or more behind, or none"
    PREVIOUS = "one write behind"
    GOOD = "the store's"


class StateHolders(Shared):
    """N nodes, each with a copy of the shared state that may be stale."""

    title = "State holders and executors: copies, tokens and compare-and-set explicit"
    Edition = BEFORE

    operation = choice(Operation, per="node")
    action = choice(Action, per="node", doc="what the operator decided, while acting")
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
    copy_hb = choice(Heartbeat, per=("node", "node"))

    # The coarser system shows how these move; here a write can move them in any of its ways.
    round_state = membership = heartbeat = None  # type: ignore[assignment]

    @machine(Operation, each="node")
    def executor(self, s: S, node: Expr) -> Any:
        """What a node's operation executor is at."""
        return s.operation[node]

    @machine(Holder, each="node")
    def holder(self, s: S, node: Expr) -> Any:
        """A node's copy of the shared state."""
        fresh = ite(s.dirty[node], Holder.DIRTY, Holder.CLEAN)
        return ite(s.token[node] == Token.GOOD, fresh, Holder.STALE)

    @terminal
    def at_rest(self, s: S) -> Condition:
        """Everybody has left or died."""
        return all_((s.place[j] == P.LEFT) | s.crashed[j] for j in s.node)

    def forget_returns(self, s: S, replaced: Any) -> None:
        """A copy that moves on to the next round changes nothing for others: only writing it does."""
        if not isinstance(s, Copy):
            super().forget_returns(s, replaced)

    def at(self, s: S, node: Expr, operation: Operation) -> None:
        self.acts(s, node)
        s.when(s.operation[node] == operation)

    def operator_decides(self, s: S, node: Expr, outcome: Any) -> Condition:
        """The operator that a node runs decides `outcome` on its copy."""
        copy = Copy(s, node)
        verdict = not_(True)
        for place, operator in OPERATOR.items():
            verdict = ite(s.place[node] == place, self.decides(copy, operator, outcome, node), verdict)  # type: ignore[arg-type]
        return verdict

    def would(self, s: S, node: Expr, *outcomes: Any) -> Condition:
        """The node has a copy on which its operation ends like that: nothing that others do can change it."""
        decided = any_([self.operator_decides(s, node, outcome) for outcome in outcomes])
        return (s.operation[node] == O.DECIDING) & decided

    def abstract_place(self, s: S, node: Expr) -> Condition:
        """The node's place in the coarser system, where reading, deciding and writing are one step."""
        place = s.place[node]
        done = (s.operation[node] == O.FINISHED) | self.would(s, node, A.FINISH)
        after = ite(place == P.EXITING, P.JOINING, P.RETURNING)
        failed = (s.operation[node] == O.FAILED) | self.would(s, node, *ERRORS)
        place = ite(failed & (place == P.JOINING), P.FAILED, place)
        return ite(done & place.isin((P.EXITING, P.JOINING)), after, place)

    def is_returning(self, s: S, node: Expr) -> Condition:
        return self.abstract_place(s, node) == P.RETURNING

    def load(self, s: S, node: Expr) -> None:
        """Take the store's state as copy, drop the dead from it (`sync`), and ask the operator next."""
        copy = Copy(s, node)
        for name in SCALARS:
            setattr(copy, name, getattr(s, name))
        for name in PER_NODE:
            for j in s.node:
                getattr(copy, name)[j] = getattr(s, name)[j]
        s.token[node] = Token.GOOD
        self._decide_next(s, node)

    def _decide_next(self, s: S, node: Expr) -> None:
        copy = Copy(s, node)
        s.dirty[node] = False
        s.stamped[node] = False
        s.synced[node] = True
        self.sweep(copy, node)  # type: ignore[arg-type]
        s.operation[node] = O.DECIDING
        returns = (s.place[node] == P.JOINING) & self.decides(copy, "join", A.FINISH, node)  # type: ignore[arg-type]
        self.record_return(s, node, copy, returns)  # type: ignore[arg-type]

    # ---- an operation

    @transition(each="node", moves=[arc(O.IDLE, O.SYNCING)], cite="rendezvous-engine 2.2.3")
    def begin(self, s: S, node: Expr) -> None:
        """A node begins the operation of its place: exit, join, keep-alive or close."""
        self.at(s, node, O.IDLE)
        s.when(s.place[node].isin(OPERATOR))
        s.operation[node] = O.SYNCING

    @transition(each="node", moves=[arc(O.IDLE, O.DECIDING)], cite="rendezvous-engine 2.2.3.2 (cache)")
    def begin_from_cache(self, s: S, node: Expr) -> None:
        """An operation begins within a second of the last sync: its copy is not read again."""
        self.at(s, node, O.IDLE)
        s.when(s.place[node].isin((P.JOINING, P.RUNNING)), s.synced[node])
        s.operation[node] = O.DECIDING
        copy = Copy(s, node)
        s.when(~any_(copy.hb[j] == H.EXPIRED for j in s.node))
        s.when(~((s.place[node] == P.JOINING) & self.decides(copy, "join", A.FINISH, node)))  # type: ignore[arg-type]

    @transition(
        each="node", moves=[arc(O.SYNCING, O.DECIDING), arc(Holder.STALE, Holder.CLEAN)],
        cite="rendezvous-engine 2.2.3.2 (get_state)",
    )  # fmt: skip
    def read(self, s: S, node: Expr) -> None:
        """A clean holder reads the shared state."""
        self.at(s, node, O.SYNCING)
        s.when(~s.dirty[node])
        s.told_won[node] = False
        self.load(s, node)

    @transition(
        each="node",
        moves=[
            arc(O.SYNCING, O.DECIDING), arc(Holder.DIRTY, Holder.CLEAN),
            *(arc(h, Holder.STALE, of="others") for h in (Holder.CLEAN, Holder.DIRTY)),
        ],
        cite="rendezvous-engine 2.2.3.2 (set_state)",
    )  # fmt: skip
    def write_wins(self, s: S, node: Expr) -> None:
        """A dirty holder whose token is the store's writes its copy; every other token falls behind."""
        self.at(s, node, O.SYNCING)
        s.when(s.dirty[node], s.token[node] == Token.GOOD)
        copy = Copy(s, node)
        self.forget_returns(s, copy.round != s.round)
        for j in s.node:
            s.lapsed[j] = s.lapsed[j] & ~((j == node) & s.stamped[node])
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
        self._decide_next(s, node)

    @transition(
        each="node", moves=[arc(O.SYNCING, O.DECIDING), arc(Holder.STALE, Holder.CLEAN)],
        cite="rendezvous-engine 2.2.3.2 (set_state)",
    )  # fmt: skip
    def write_loses(self, s: S, node: Expr) -> None:
        """The store has moved on: the write is refused, the change is lost, the new state is loaded."""
        self.at(s, node, O.SYNCING)
        s.when(s.dirty[node], s.token[node] != Token.GOOD)
        # C10dRendezvousBackend.set_state compares bytes: an identical write of another passes for one's own.
        s.told_won[node] = named("same bytes", self._same_bytes(s, node))
        self.load(s, node)

    def _same_bytes(self, s: S, node: Expr) -> Condition:
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
        moves=[arc(O.DECIDING, o) for o in (O.ACTING, O.SYNCING, O.FINISHED, O.FAILED)],
        cite="rendezvous-engine 2.2.3.1, 3.2",
    )  # fmt: skip
    def decide(self, s: S, node: Expr) -> None:
        """The operator looks at the copy and decides what to do."""
        self.at(s, node, O.DECIDING)
        outcomes = {a: self.operator_decides(s, node, a) for a in Action}
        action: Any = Action.KEEP_ALIVE
        for a in WRITES:
            action = ite(outcomes[a], a, action)
        then = ite(outcomes[A.FINISH], O.FINISHED, ite(outcomes[A.SYNC], O.SYNCING, O.FAILED))
        acting = any_([outcomes[a] for a in WRITES])
        s.action[node] = ite(acting, action, Action.KEEP_ALIVE)
        s.operation[node] = ite(acting, O.ACTING, then)

    def acting(self, s: S, node: Expr, action: Action) -> Any:
        """The node changes its copy as decided, and has it written next."""
        self.at(s, node, O.ACTING)
        s.when(s.action[node] == action)
        s.action[node] = Action.KEEP_ALIVE
        s.operation[node] = O.SYNCING
        s.dirty[node] = True
        return Copy(s, node)

    def copy_stamp(self, s: S, copy: Any, node: Expr) -> None:
        copy.hb[node] = H.FRESH
        s.stamped[node] = True

    def copy_unlist(self, copy: Any, node: Expr) -> None:
        copy.member[node] = M.OUTSIDE
        copy.rank[node] = 0
        copy.hb[node] = H.NONE


ACT = [arc(O.ACTING, O.SYNCING), arc(Holder.CLEAN, Holder.DIRTY)]


class Actions(StateHolders):
    """What each action does to a copy."""

    @transition(each="node", moves=ACT, cite="rendezvous-engine 4.6")
    def act_keep_alive(self, s: S, node: Expr) -> None:
        """The copy gets a fresh heartbeat."""
        copy = self.acting(s, node, A.KEEP_ALIVE)
        self.copy_stamp(s, copy, node)

    @transition(each="node", moves=ACT, cite="rendezvous-engine 4.1")
    def act_add_to_participants(self, s: S, node: Expr) -> None:
        """The copy gets a participant; reaching min sets the deadline, reaching max completes the round."""
        copy = self.acting(s, node, A.ADD_TO_PARTICIPANTS)
        copy.member[node] = M.PARTICIPANT
        copy.rank[node] = 0
        self.copy_stamp(s, copy, node)
        size = self.participants(copy)
        copy.deadline = ite(size == self.min_of(s, node), D.RUNNING, copy.deadline)
        self.assign_ranks(copy, size == self.max_nodes)

    @transition(each="node", moves=ACT, cite="rendezvous-engine 4.3")
    def act_add_to_wait_list(self, s: S, node: Expr) -> None:
        """The copy gets a waiting node."""
        copy = self.acting(s, node, A.ADD_TO_WAIT_LIST)
        copy.member[node] = M.WAITING
        self.copy_stamp(s, copy, node)

    @transition(each="node", editions=[Edition.TORCH], moves=ACT, cite="dynamic_rendezvous.py")
    def act_add_to_redundancy_list(self, s: S, node: Expr) -> None:
        """The copy gets a spare."""
        copy = self.acting(s, node, A.ADD_TO_REDUNDANCY_LIST)
        copy.member[node] = M.REDUNDANT
        self.copy_stamp(s, copy, node)

    @transition(each="node", moves=ACT, cite="rendezvous-engine 4.2")
    def act_remove_from_participants(self, s: S, node: Expr) -> None:
        """The copy loses a participant, and its round or deadline if that was one too many."""
        copy = self.acting(s, node, A.REMOVE_FROM_PARTICIPANTS)
        self.copy_unlist(copy, node)
        self.removal_epilogue(copy, node, True)

    @transition(each="node", moves=ACT, cite="rendezvous-engine 4.4")
    def act_remove_from_wait_list(self, s: S, node: Expr) -> None:
        """The copy loses a waiting node."""
        self.copy_unlist(self.acting(s, node, A.REMOVE_FROM_WAIT_LIST), node)

    @transition(each="node", editions=[Edition.TORCH], moves=ACT, cite="dynamic_rendezvous.py")
    def act_remove_from_redundancy_list(self, s: S, node: Expr) -> None:
        """The copy loses a spare, whose join deadline starts anew."""
        self.copy_unlist(self.acting(s, node, A.REMOVE_FROM_REDUNDANCY_LIST), node)
        s.patience[node] = Patience.IN_TIME

    @transition(each="node", moves=ACT, cite="rendezvous-engine 4.5")
    def act_mark_complete(self, s: S, node: Expr) -> None:
        """The copy's round is complete, with ranks."""
        self.assign_ranks(self.acting(s, node, A.MARK_RENDEZVOUS_COMPLETE), True)

    @transition(each="node", moves=ACT, cite="rendezvous-engine 4.5")
    def act_mark_closed(self, s: S, node: Expr) -> None:
        """The copy is closed."""
        copy = self.acting(s, node, A.MARK_RENDEZVOUS_CLOSED)
        copy.closed = True

    # ---- the agent between two operations

    @transition(
        each="node",
        moves=[
            arc((O.FINISHED, O.FAILED), O.IDLE), arc(P.EXITING, P.JOINING), arc(P.JOINING, P.RUNNING),
            arc(P.JOINING, P.FAILED), arc((P.DONE, P.FAILED), P.LEFT),
        ],
        cite="elastic-node-change 2.1",
    )  # fmt: skip
    def conclude(self, s: S, node: Expr) -> None:
        """An operation has ended: the agent goes on to the next."""
        self.acts(s, node)
        s.when(s.operation[node].isin((O.FINISHED, O.FAILED)))
        failed = s.operation[node] == O.FAILED
        place = s.place[node]
        after: Any = ite(place == P.RUNNING, P.RUNNING, P.LEFT)
        after = ite(place == P.JOINING, ite(failed, P.FAILED, P.RUNNING), after)
        forgotten = (place == P.JOINING) & ~failed & ~s.returned[node]
        s.saw_rank[node] = ite(forgotten, 0, s.saw_rank[node])
        s.place[node] = ite(place == P.EXITING, P.JOINING, after)
        s.operation[node] = O.IDLE

    @transition(
        each="node", moves=[arc(P.RUNNING, P.EXITING), arc(Holder.STALE, Holder.CLEAN)],
        cite="elastic-node-change 2.3.1 (num_nodes_waiting)",
    )  # fmt: skip
    def restart_for_newcomers(self, s: S, node: Expr) -> None:
        """num_nodes_waiting reads the state and sees a waiting node: the agent restarts its workers."""
        self.at(s, node, O.IDLE)
        s.when(s.place[node] == P.RUNNING)
        self.load(s, node)
        s.told_won[node] = False
        s.operation[node] = O.IDLE
        s.when(named("num_nodes_waiting > 0", Copy(s, node).member.count(M.WAITING) > 0))
        s.place[node] = P.EXITING
        s.patience[node] = Patience.IN_TIME


class Holders(Actions):
    """State holders under time and faults, and what is asked of them."""

    def between(self, s: S, node: Expr) -> Condition:
        """The node has read, and has not yet written or decided that there is nothing to write."""
        return s.operation[node].isin((O.DECIDING, O.ACTING)) | s.dirty[node]

    def nobody_between(self, s: S) -> Condition:
        """Nobody can still write what it read before now."""
        return ~any_(self.between(s, j) & (s.token[j] == Token.GOOD) & ~s.crashed[j] for j in s.node)

    @environment(fair=True)
    def last_call_passes(self, s: S) -> None:
        """The last call ends, after every live node that is trying has polled."""
        s.when(s.deadline == D.RUNNING, self.nobody_between(s))
        joining = P.JOINING
        trying = (
            (self.abstract_place(s, j) == joining) & self.live(s, j) & (s.member[j] != M.PARTICIPANT) for j in s.node
        )
        s.when(named("every live node has polled", ~any_(trying)))
        s.deadline = D.PASSED
        for j in s.node:
            s.copy_deadline[j] = ite(s.copy_deadline[j] == D.RUNNING, D.PASSED, s.copy_deadline[j])

    def _age(self, s: S, node: Expr, before: Heartbeat, after: Heartbeat) -> None:
        s.hb[node] = ite(s.hb[node] == before, after, s.hb[node])
        for j in s.node:
            unwritten = (j == node) & s.stamped[j]
            ages = (s.copy_hb[j, node] == before) & ~unwritten
            s.copy_hb[j, node] = ite(ages, after, s.copy_hb[j, node])

    @environment(each="node", fair=True)
    def heartbeat_ages(self, s: S, node: Expr) -> None:
        """The keep-alive interval passes."""
        s.when(s.hb[node] == H.FRESH)
        self._age(s, node, H.FRESH, H.DUE)

    @environment(each="node", fair=True)
    def heartbeat_expires(self, s: S, node: Expr) -> None:
        """Interval × attempts pass for a node that does not beat."""
        gone = s.place[node] == P.LEFT
        s.when(s.hb[node] == H.DUE, s.crashed[node] | s.stalled[node] | gone, self.nobody_between(s))
        self._age(s, node, H.DUE, H.EXPIRED)

    @environment(each="node", switch="join_timeout", cite="rendezvous-engine 3.2.4")
    def join_deadline_passes(self, s: S, node: Expr) -> None:
        """A node's join deadline passes."""
        s.when(self.abstract_place(s, node) == P.JOINING, s.patience[node] == Patience.IN_TIME)
        s.when(~self.between(s, node))
        s.patience[node] = Patience.ROLLBACK

    @environment(each="node", cite="rendezvous-engine 3.2.4")
    def rollback_window_passes(self, s: S, node: Expr) -> None:
        """The 5 s for taking a join back pass."""
        s.when(self.abstract_place(s, node) == P.JOINING, s.patience[node] == Patience.ROLLBACK)
        s.when(~self.between(s, node))
        s.patience[node] = Patience.OVER

    @environment(each="node", switch="job_end", bound=2, moves=[arc(P.RUNNING, P.DONE)])
    def job_ends(self, s: S, node: Expr) -> None:
        """The workers of a node are done."""
        s.when(s.place[node] == P.RUNNING, s.operation[node] == O.IDLE, self.live(s, node))
        s.place[node] = P.DONE

    @fault("worker_failure", each="node", moves=[arc(P.RUNNING, P.EXITING)], cite="elastic-node-change 3.3")
    def worker_fails(self, s: S, node: Expr) -> None:
        """A worker fails: the agent stops the others and calls next_rendezvous."""
        s.when(s.place[node] == P.RUNNING, s.operation[node] == O.IDLE, self.live(s, node))
        s.place[node] = P.EXITING
        s.patience[node] = Patience.IN_TIME

    @fault("crash", each="node")
    def crash(self, s: S, node: Expr) -> None:
        """A process dies."""
        s.when(~s.crashed[node], s.place[node] != P.LEFT)
        s.crashed[node] = True
        s.lapsed[node] = True

    # ---- properties

    @sometimes()
    def a_write_loses(self, s: S) -> Condition:
        """Somebody is about to write on a stale copy."""
        return any_(s.dirty[j] & (s.token[j] != Token.GOOD) & (s.operation[j] == O.SYNCING) for j in s.node)

    @sometimes()
    def a_round_is_complete(self, s: S) -> Condition:
        """A round is complete with at least min participants."""
        return s.complete & (self.participants(s) >= self.min_nodes)

    @step(each="node", on=("write_loses",), witness="a_write_loses", cite="c10d_rendezvous_backend.py:set_state")
    def lost_writes_are_reported(self, before: S, after: S, node: Expr) -> Condition:
        """A compare-and-set that was lost is reported as lost."""
        return ~after.told_won[node]

    @always(witness="a_write_loses")
    def a_good_token_means_a_good_copy(self, s: S) -> Condition:
        """A clean copy with the store's token is the store's state, less whoever it takes for dead."""
        return all_(
            implies(
                (s.token[i] == Token.GOOD) & ~s.dirty[i],
                all_((s.copy_member[i, j] == s.member[j]) | (s.copy_hb[i, j] == H.NONE) for j in s.node),
            )
            for i in s.node
        )

    @step(each="node", witness="a_round_is_complete")
    def only_writes_change_the_store(self, before: S, after: S, node: Expr) -> Condition:
        """A node changes the shared state only by a write that wins, and heartbeats age on their own."""
        same = [getattr(before, n) == getattr(after, n) for n in SCALARS]
        lanes = [all_(getattr(before, n)[j] == getattr(after, n)[j] for j in before.node) for n in ("member", "rank")]
        unchanged = not_(not_(True))
        for part in (*same, *lanes):
            unchanged = unchanged & part
        return unchanged | (before.dirty[node] & (before.token[node] == Token.GOOD) & after.told_won[node])


__all__ = ["Holders", "Place", "Token"]
