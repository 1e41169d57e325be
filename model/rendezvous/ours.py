"""The rendezvous of the edition TRYSTATE: a complete round is never changed, only replaced.

Theory of operation. The members of a complete round, their ranks and their master are written once, together. A member
that leaves, fails, or sees a node waiting or silent replaces the round: its members are *expected* in the next one,
which completes only when each of them has come, has gone, or has been expelled. So no node runs in a round whose
successor runs. The differences from torch's rendezvous, each with the finding that it removes:

- Members, ranks and master are fixed when the round completes (R1 to R4, R6).
- A heartbeat is a counter. An observer expels a member only if that counter stood still on the observer's own monotonic
  clock while it could see the store (R5, R7, R12, R13). A member stops its workers when it could not confirm a
  heartbeat for as long (its lease), which its own clock tells earlier than any observer's (R6, R7).
- No node is dropped in passing: expelling is an operation of its own, which replaces a complete round, so that the
  others notice (R14).
- The settings are part of the shared state: a node with other settings is refused (R9, R12).
- A node that finds no seat becomes a spare, also from the wait list (R8). Waiting nodes and spares move up when a round
  is replaced.
- A node that could not join leaves; only a member closes (R10).

Options of operators, each off unless a run switches it on:

- A drain marks the listing of a node. A marked participant is expected until its workers are stopped; then it leaves.
  Nobody has failed, so that no restart is spent (`drain`).
- Ranks follow a key in each node's listing, before the names (`rank_key`).
- A round is replaced for newcomers alone once a member has seen it complete for an interval, by its own clock
  (`scale_up_interval`). Until then the newcomers' join deadlines do not run.
- A member with a health command is expected in the next round while that runs, and joins when it passes
  (`health_check`). One whose command fails steps back, and stands by outside of all lists or leaves (`unhealthy`).

Abstractions, beside those of `fields.py`. Nothing is assumed about polling: the last call may end at any time. A new
process under the address of a dead one stays outside until the dead one's listing is expelled, maybe by itself; a
newcomer that joins beside a dead listing is another node. A node that resumes after its lease has ended stops its
workers before it does anything else: one step here, microseconds in the runtime.
"""

from __future__ import annotations

from typing import Any

from ..language import *
from .fields import LEASED, LISTED, Condition
from .properties import Rendezvous
from .vocabulary import Action, AgentPhase, Deadline, Edition, Heartbeat, JoinDeadline, Membership, Round

SEATED = (Membership.PARTICIPANT, Membership.EXPECTED)  # has a seat, or one is kept for it
QUEUED = (Membership.WAITING, Membership.REDUNDANT)
LIVING = (Heartbeat.FRESH, Heartbeat.DUE)

# Moves that several steps make.
ENLISTS = arc((Heartbeat.NONE, *LIVING), Heartbeat.FRESH)
GROWS = (
    *(arc(Round.JOINING, r) for r in (Round.JOINING, Round.LAST_CALL, Round.COMPLETE)),
    *(arc(Round.LAST_CALL, r) for r in (Round.LAST_CALL, Round.COMPLETE)),
)
SHRINKS = (arc((Round.JOINING, Round.LAST_CALL), Round.JOINING), arc(Round.LAST_CALL, Round.LAST_CALL))
MOVES_UP = (
    arc(Membership.PARTICIPANT, Membership.EXPECTED, of="others"),
    arc(QUEUED, Membership.PARTICIPANT, of="others"),
)
REPLACES = (*(arc(Round.COMPLETE, r) for r in (Round.JOINING, Round.LAST_CALL, Round.COMPLETE)), *MOVES_UP)
# A drained node goes: a waiting node or a spare takes its seat, which may complete the round.
TAKES_THE_SEAT = (
    may(QUEUED, Membership.PARTICIPANT, of="others"),
    *(may(Round.JOINING, r) for r in (Round.LAST_CALL, Round.COMPLETE)),
    may(Round.LAST_CALL, Round.COMPLETE),
)
RETURNS = arc(AgentPhase.JOINING, AgentPhase.RETURNING)
FAILS = arc(AgentPhase.JOINING, AgentPhase.FAILED)


class Ours(Rendezvous, edition=Edition.TRYSTATE):
    """The steps of our protocol, and the properties that say why it holds."""

    agreed_larger_min = flag(doc="the settings in force have a larger min")
    agreed_shorter_window = flag(doc="the settings in force have a shorter expiry window")
    predecessor_listed = flag(per="node", doc="a new process; the one before it is listed under its address")
    later_key = flag(per="node", doc="its rank key sorts after those of the others")
    holds_back = flag(doc="the settings in force have a scale-up interval")
    young = flag(doc="that interval has not passed since the round was complete")
    rests = flag(per="node", doc="... since the node saw that, by its own clock")
    checks = flag(per="node", doc="has a health command, which runs before it joins")
    unhealthy = flag(per="node", doc="that failed, and has not passed since")
    drained = flag(per="node", doc="an operator has marked its listing: it leaves")

    # ---- what a step sees

    def listed(self, s: SymbolicState) -> Condition:
        return s.member.count(*LISTED)

    def agrees(self, s: SymbolicState, node: Expr) -> Condition:
        """The settings of a rendezvous in which no node is listed are those of the first that comes."""
        same = (s.agreed_larger_min == s.larger_min[node]) & (s.agreed_shorter_window == s.shorter_window[node])
        return same | (self.listed(s) == 0)

    def quorum(self, s: SymbolicState) -> Condition:
        return ite(s.agreed_larger_min, self.min_nodes + 1, self.min_nodes)

    def taken(self, s: SymbolicState) -> Condition:
        """How many seats are taken, or kept for expected nodes."""
        return s.member.count(*SEATED)

    def atoms(self, s: SymbolicState, operator: str, node: Expr) -> dict[str, Any]:
        """The values of the atoms on the shared state."""
        member = s.member[node]
        return {
            "closed": s.closed,
            "agrees": self.agrees(s, node),
            "complete": s.complete,
            "participant": member == Membership.PARTICIPANT,
            "expected": member == Membership.EXPECTED,
            "waiting": member == Membership.WAITING,
            "redundant": member == Membership.REDUNDANT,
            "listed": member.isin(LISTED),
            "late": s.join_deadline[node] != JoinDeadline.IN_TIME,
            "seat": self.taken(s) < self.max_nodes,
            "lease": s.heartbeat_age[node] != Heartbeat.EXPIRED,
            "ready": (s.deadline == Deadline.PASSED) & (s.member.count(Membership.EXPECTED) == 0),
            "beat_due": s.heartbeat_age[node].isin((Heartbeat.DUE, Heartbeat.EXPIRED)),
            "silent": any_(self.silent_to(s, node, j) for j in s.node),
            "drained": s.drained[node],
        }

    def silent_to(self, s: SymbolicState, observer: Expr, node: Expr) -> Condition:
        """The node's heartbeat stood still for the whole window. A new process may say so of the one before it."""
        return (s.heartbeat_age[node] == Heartbeat.EXPIRED) & ((node != observer) | s.predecessor_listed[node])

    # ---- what a step does

    def enlist(self, s: SymbolicState, node: Expr, member: Membership) -> None:
        """List a node. The first one brings the settings."""
        first = self.listed(s) == 0
        s.agreed_larger_min = ite(first, s.larger_min[node], s.agreed_larger_min)
        s.agreed_shorter_window = ite(first, s.shorter_window[node], s.agreed_shorter_window)
        s.member[node] = member
        s.rank[node] = 0
        self.stamp(s, node)

    def sorts_before(self, s: SymbolicState, one: Expr, other: Expr) -> Condition:
        """Ranks follow the keys of the listings, and among equal keys the names."""
        same = s.later_key[one] == s.later_key[other]
        return (~s.later_key[one] & s.later_key[other]) | (same & (ord_(one) < ord_(other)))

    def assign_ranks(self, s: SymbolicState, done: Any) -> None:
        """With a complete round its interval begins."""
        super().assign_ranks(s, done)
        s.young = s.young | (s.holds_back & done)

    def settle(self, s: SymbolicState) -> Condition:
        """After every change of the lists: the last call begins or is off, or the round is full. True: it completes."""
        size = self.participants(s)
        full = ~s.complete & (size == self.max_nodes)
        call = ~s.complete & (size >= self.quorum(s))
        s.deadline = ite(call, ite(s.deadline == Deadline.UNSET, Deadline.RUNNING, s.deadline), Deadline.UNSET)
        self.assign_ranks(s, full)
        return full

    def begin_new_round(self, s: SymbolicState, replaced: Any) -> None:
        """A new round, in which the members of the old one are expected."""
        for j in s.node:
            s.member[j] = ite((s.member[j] == Membership.PARTICIPANT) & replaced, Membership.EXPECTED, s.member[j])
            s.rank[j] = ite(replaced, 0, s.rank[j])
            s.rests[j] = s.rests[j] & ~replaced if replaced is not True else False
        s.young = s.young & ~replaced if replaced is not True else False
        s.complete = ite(replaced, False, s.complete)
        s.round = ite(replaced, self.next_round(s.round), s.round)
        self.forget_returns(s, replaced)

    def move_up(self, s: SymbolicState, replaced: Any) -> None:
        """Waiting nodes first, then spares, each in the order of ranks; a drained one stays."""
        before = s.fork()
        seats = self.max_nodes - self.taken(before)
        waiting = count((before.member[k] == Membership.WAITING) & ~before.drained[k] for k in s.node)
        for j in s.node:
            kind = before.member[j]
            ahead = count(
                (before.member[k] == kind) & ~before.drained[k] & self.sorts_before(before, k, j) for k in s.node
            )
            place = ite(kind == Membership.REDUNDANT, waiting + ahead, ahead)
            moves = kind.isin(QUEUED) & ~before.drained[j] & (place < seats)
            s.member[j] = ite(moves & replaced, Membership.PARTICIPANT, kind)

    def unlist(self, s: SymbolicState, node: Expr) -> None:
        """The mark is the listing's."""
        super().unlist(s, node)
        s.drained[node] = False

    def returns_if(self, s: SymbolicState, node: Expr, full: Any) -> None:
        """If `full`, the node returns with the rank, members and master that are written; otherwise it joins on."""
        self.record_return(s, node, s, full)
        s.join_deadline[node] = ite(full, JoinDeadline.IN_TIME, s.join_deadline[node])
        s.master[node] = ite(full, self.first(s), s.master[node])
        s.rests[node] = ite(full, s.holds_back, s.rests[node])
        s.phase[node] = ite(full, AgentPhase.RETURNING, AgentPhase.JOINING)

    def first(self, s: SymbolicState) -> Condition:
        """The member that sorts before all others, as `master` counts: node + 1."""
        below = count(
            any_(
                (s.member[k] == Membership.PARTICIPANT) & (self.count_below(s, k) == 0) & (ord_(j) < ord_(k))
                for k in s.node
            )
            for j in s.node
        )
        return ite(self.participants(s) > 0, below + 1, 0)

    def restart(self, s: SymbolicState, node: Expr, when: Any = True) -> None:
        """A master belongs to its round, and so does what a node knows of its age."""
        super().restart(s, node, when)
        s.master[node] = ite(when, 0, s.master[node])
        s.rests[node] = ite(when, False, s.rests[node])

    # ---- what nodes are started with

    @environment(each="node", switch="rank_key", bound=2)
    def start_with_later_key(self, s: SymbolicState, node: Expr) -> None:
        """A node starts with a rank key that sorts after those of the others."""
        self.configures(s, node)
        s.when(~s.later_key[node])
        s.later_key[node] = True

    @environment(switch="scale_up_interval")
    def start_with_scale_up_interval(self, s: SymbolicState) -> None:
        """The nodes of a job start with a scale-up interval."""
        s.when(~s.holds_back)
        s.when(all_((s.phase[j] == AgentPhase.EXITING) & (s.member[j] == Membership.OUTSIDE) for j in s.node))
        s.holds_back = True

    @environment(each="node", switch="health_check", bound=2)
    def start_with_health_check(self, s: SymbolicState, node: Expr) -> None:
        """A node starts with a health command."""
        self.configures(s, node)
        s.when(~s.checks[node])
        s.checks[node] = True

    @environment(fair=True)
    def interval_passes(self, s: SymbolicState) -> None:
        """The scale-up interval passes since the round was complete."""
        s.when(s.young)
        s.young = False

    @environment(each="node", fair=True)
    def own_interval_passes(self, s: SymbolicState, node: Expr) -> None:
        """The scale-up interval passes since a node saw the round complete: its own clock begins later."""
        s.when(s.rests[node], ~s.young)
        s.rests[node] = False

    def guard_join_deadline(self, s: SymbolicState, node: Expr) -> None:
        """A spare has no deadline; that of a node which waits begins after the scale-up interval."""
        held_back = s.young | any_(s.rests)
        s.when(s.member[node] != Membership.REDUNDANT, ~((s.member[node] == Membership.WAITING) & held_back))

    def falls_silent(self, s: SymbolicState, node: Expr) -> Condition:
        """The node is down, gone, or partitioned, or a process before it is listed under its address.

        No clock is compared. An observer that does not reach the store counts no silence. A partitioned node has
        stopped its workers before others take it for dead: its lease ends first.
        """
        down = s.crashed[node] | s.stalled[node] | (s.phase[node] == AgentPhase.LEFT) | s.predecessor_listed[node]
        return (down | (s.partitioned[node] & ~s.phase[node].isin(LEASED))) & ~s.store_down

    @fault(
        "restart",
        each="node",
        moves=[
            arc(
                (AgentPhase.JOINING, AgentPhase.RETURNING, AgentPhase.RUNNING, AgentPhase.DONE, AgentPhase.FAILED),
                AgentPhase.EXITING,
            )
        ],
    )
    def restart_process(self, s: SymbolicState, node: Expr) -> None:
        """A new process starts under the address of a dead one, which may still be listed; it remembers nothing."""
        s.when(s.crashed[node])
        s.crashed[node] = False
        s.predecessor_listed[node] = s.member[node] != Membership.OUTSIDE
        s.unhealthy[node] = False
        self.restart(s, node)

    @environment(each="node", fair=True, moves=[arc(LEASED, AgentPhase.EXITING)])
    def resume(self, s: SymbolicState, node: Expr) -> None:
        """A stalled process goes on; if its lease is over, it begins by stopping its workers."""
        s.when(s.stalled[node])
        s.stalled[node] = False
        # The others may have expelled the node, and formed a round without it, while it stood still.
        self.restart(
            s, node, s.heartbeat_age[node].isin((Heartbeat.NONE, Heartbeat.EXPIRED)) & s.phase[node].isin(LEASED)
        )

    @environment(each="node", moves=[arc(LEASED, AgentPhase.EXITING)])
    def lose_lease(self, s: SymbolicState, node: Expr) -> None:
        """A node could not confirm a heartbeat for the whole window, by its own clock: it stops its workers."""
        s.when(self.live(s, node), s.interrupted[node], s.phase[node].isin(LEASED))
        self.restart(s, node)

    @environment(
        each="node",
        switch="drain",
        bound=2,
        moves=[*SHRINKS, *REPLACES, arc(Membership.PARTICIPANT, Membership.EXPECTED)],
    )
    def drain(self, s: SymbolicState, node: Expr) -> None:
        """An operator marks a listed node, and replaces a complete round that it is a member of."""
        s.when(~s.store_down, ~s.closed, s.member[node] != Membership.OUTSIDE, ~s.drained[node])
        seated = s.member[node] == Membership.PARTICIPANT
        lost = s.complete & seated
        s.drained[node] = True
        # It may run workers: the next round does not complete before it has stopped them, and has left.
        self.begin_new_round(s, lost)
        s.member[node] = ite(seated, Membership.EXPECTED, s.member[node])
        self.move_up(s, lost)
        self.settle(s)

    # ---- the exit operation

    @transition(
        each="node",
        cite="rendezvous-engine 3.2.3",
        moves=[
            *REPLACES,
            arc(AgentPhase.EXITING, AgentPhase.JOINING),
            arc(AgentPhase.EXITING, AgentPhase.RETURNING),
            arc((*LIVING, Heartbeat.EXPIRED), Heartbeat.FRESH),
            may(Membership.PARTICIPANT, Membership.EXPECTED),
        ],
    )
    def replace_round(self, s: SymbolicState, node: Expr) -> None:
        """A member that restarts replaces its round: it is the first of the next one, or expected, for its check."""
        self.enters(s, node, AgentPhase.EXITING)
        # The member listed under the address may be the process before this one, which only an expulsion takes off.
        s.when(self.decides(s, "exit", Action.REPLACE_ROUND, node), ~s.predecessor_listed[node])
        self.begin_new_round(s, True)
        s.member[node] = self.listed_as(s, node)
        self.stamp(s, node)
        self.move_up(s, True)
        self.returns_if(s, node, self.settle(s))
        s.phase[node] = ite(s.checks[node], AgentPhase.EXITING, s.phase[node])

    def listed_as(self, s: SymbolicState, node: Expr) -> Condition:
        """The others wait for a node that is checked, and do not count it."""
        return ite(s.checks[node], Membership.EXPECTED, Membership.PARTICIPANT)

    @transition(each="node", cite="rendezvous-engine 3.2.3", moves=[arc(AgentPhase.EXITING, AgentPhase.JOINING)])
    def exit_finish(self, s: SymbolicState, node: Expr) -> None:
        """A node that is in no complete round goes on to join, unless an older process is listed under its address."""
        self.enters(s, node, AgentPhase.EXITING)
        s.when(self.decides(s, "exit", Action.FINISH, node), ~s.predecessor_listed[node] | s.closed)
        s.when(~s.unhealthy[node] | s.closed)
        s.phase[node] = AgentPhase.JOINING

    # ---- the health command, which runs before a node joins

    @fault("unhealthy", each="node")
    def check_fails(self, s: SymbolicState, node: Expr) -> None:
        """The health command of a node fails, or does not end in time."""
        s.when(self.live(s, node), s.phase[node] == AgentPhase.EXITING, s.checks[node], ~s.unhealthy[node])
        s.when(self.decides(s, "exit", Action.FINISH, node), ~s.predecessor_listed[node], ~s.closed)
        s.unhealthy[node] = True

    def steps_back(self, s: SymbolicState, node: Expr) -> None:
        """A node whose check failed takes itself off the list."""
        self.enters(s, node, AgentPhase.EXITING)
        s.when(s.unhealthy[node], ~s.closed)
        self.unlist(s, node)
        self.settle(s)

    @transition(
        each="node",
        fair=False,
        moves=[
            arc(AgentPhase.EXITING, AgentPhase.FAILED),
            may(Membership.EXPECTED, Membership.OUTSIDE),
            may((*LIVING, Heartbeat.EXPIRED), Heartbeat.NONE),
        ],
    )
    def leave_unhealthy(self, s: SymbolicState, node: Expr) -> None:
        """A node whose check failed leaves, and ends with the output of its command."""
        self.steps_back(s, node)
        s.phase[node] = AgentPhase.FAILED

    @transition(
        each="node",
        moves=[arc(Membership.EXPECTED, Membership.OUTSIDE), may((*LIVING, Heartbeat.EXPIRED), Heartbeat.NONE)],
    )
    def stand_by(self, s: SymbolicState, node: Expr) -> None:
        """A node whose check failed steps back, and is checked again until it passes."""
        s.when(s.member[node] != Membership.OUTSIDE)
        self.steps_back(s, node)

    @environment(each="node")
    def check_passes_again(self, s: SymbolicState, node: Expr) -> None:
        """The health command of a node that stands by passes."""
        s.when(self.live(s, node), s.phase[node] == AgentPhase.EXITING)
        s.when(s.unhealthy[node], s.member[node] == Membership.OUTSIDE)
        s.unhealthy[node] = False

    # ---- the join operation

    def joins(self, s: SymbolicState, node: Expr, outcome: Any) -> None:
        """The node is in its join operation, and the operator decides `outcome` on the shared state."""
        self.enters(s, node, AgentPhase.JOINING)
        s.when(self.decides(s, "join", outcome, node))

    @transition(
        each="node",
        cite="rendezvous-engine 4.1",
        moves=[
            *GROWS,
            arc(
                (Membership.OUTSIDE, Membership.WAITING, Membership.REDUNDANT, Membership.EXPECTED),
                Membership.PARTICIPANT,
            ),
            ENLISTS,
            RETURNS,
        ],
    )
    def add_to_participants(self, s: SymbolicState, node: Expr) -> None:
        """A node joins; reaching min starts the last call, reaching max completes the round: it returns at once."""
        self.joins(s, node, Action.ADD_TO_PARTICIPANTS)
        self.enlist(s, node, Membership.PARTICIPANT)
        self.returns_if(s, node, self.settle(s))

    @transition(
        each="node",
        cite="rendezvous-engine 4.3",
        moves=[arc((Membership.OUTSIDE, Membership.REDUNDANT), Membership.WAITING), ENLISTS],
    )
    def add_to_wait_list(self, s: SymbolicState, node: Expr) -> None:
        """The round is complete and has a seat: the node waits for the next one."""
        self.joins(s, node, Action.ADD_TO_WAIT_LIST)
        self.enlist(s, node, Membership.WAITING)

    @transition(
        each="node",
        cite="dynamic_rendezvous.py:_add_to_redundancy_list",
        moves=[arc((Membership.OUTSIDE, Membership.WAITING), Membership.REDUNDANT), ENLISTS],
    )
    def add_to_redundancy_list(self, s: SymbolicState, node: Expr) -> None:
        """No seat is free, or it is kept for the expected: the node becomes a spare, without a deadline."""
        self.joins(s, node, Action.ADD_TO_REDUNDANCY_LIST)
        self.enlist(s, node, Membership.REDUNDANT)
        s.join_deadline[node] = JoinDeadline.IN_TIME

    @transition(
        each="node",
        cite="rendezvous-engine 4.5",
        moves=[arc(Round.LAST_CALL, Round.COMPLETE), RETURNS],
    )
    def mark_complete(self, s: SymbolicState, node: Expr) -> None:
        """The last call is over and no node is expected any more: a participant writes members, ranks and master."""
        self.joins(s, node, Action.MARK_RENDEZVOUS_COMPLETE)
        self.assign_ranks(s, True)
        self.returns_if(s, node, True)

    @transition(each="node", cite="rendezvous-engine 3.2.4", moves=[RETURNS])
    def finish(self, s: SymbolicState, node: Expr) -> None:
        """A participant finds the round complete, and returns with what is written there."""
        self.joins(s, node, Action.FINISH)
        self.returns_if(s, node, True)

    def fails(self, s: SymbolicState, node: Expr, outcome: Any) -> None:
        """The operator raises."""
        self.joins(s, node, outcome)
        s.phase[node] = AgentPhase.FAILED
        s.join_deadline[node] = JoinDeadline.IN_TIME

    @transition(
        each="node",
        cite="rendezvous-engine 3.2.4",
        moves=[
            *SHRINKS,
            arc((Membership.PARTICIPANT, Membership.WAITING, Membership.EXPECTED), Membership.OUTSIDE),
            arc(Membership.REDUNDANT, Membership.OUTSIDE),
            arc(LIVING, Heartbeat.NONE),
            may(Heartbeat.EXPIRED, Heartbeat.NONE),
            *TAKES_THE_SEAT,
            FAILS,
        ],
    )
    def withdraw(self, s: SymbolicState, node: Expr) -> None:
        """The join deadline has passed, or the node is drained: it takes itself off the list, and raises an error."""
        self.fails(s, node, Action.WITHDRAW)
        frees = s.drained[node] & (s.member[node] == Membership.EXPECTED)
        self.unlist(s, node)
        self.move_up(s, frees)
        self.settle(s)

    @transition(each="node", cite="rendezvous-engine 3.2.4", moves=[FAILS])
    def error_timeout(self, s: SymbolicState, node: Expr) -> None:
        """Too late, and not listed: next_rendezvous raises RendezvousTimeoutError."""
        self.fails(s, node, Action.ERROR_TIMEOUT)

    @transition(each="node", cite="rendezvous-engine 3.2.4", moves=[FAILS])
    def error_closed(self, s: SymbolicState, node: Expr) -> None:
        """The rendezvous is closed: next_rendezvous raises RendezvousClosedError, and says by whom and why."""
        self.fails(s, node, Action.ERROR_CLOSED)

    @transition(each="node", moves=[FAILS])
    def error_settings(self, s: SymbolicState, node: Expr) -> None:
        """The node's settings are not those in force: next_rendezvous raises RendezvousSettingsError."""
        self.fails(s, node, Action.ERROR_SETTINGS)

    # ---- heartbeats

    @transition(
        each="node",
        cite="rendezvous-engine 3.2.1, 4.6",
        moves=[arc((Heartbeat.DUE, Heartbeat.EXPIRED), Heartbeat.FRESH)],
    )
    def keep_alive(self, s: SymbolicState, node: Expr) -> None:
        """A listed node counts its heartbeat up, from the first join until it leaves."""
        self.enters(
            s, node, AgentPhase.EXITING, AgentPhase.JOINING, AgentPhase.RETURNING, AgentPhase.RUNNING, AgentPhase.DONE
        )
        s.when(self.decides(s, "keep-alive", Action.KEEP_ALIVE, node), ~s.predecessor_listed[node])
        self.stamp(s, node)

    @transition(
        each="node",
        moves=[
            *SHRINKS,
            *REPLACES,
            arc(LISTED, Membership.OUTSIDE, of="others"),
            arc(Heartbeat.EXPIRED, Heartbeat.NONE, of="others"),
            may(Membership.PARTICIPANT, Membership.EXPECTED),
            may(QUEUED, Membership.PARTICIPANT),
            *TAKES_THE_SEAT,
            arc(LISTED, Membership.OUTSIDE),
            arc(Heartbeat.EXPIRED, Heartbeat.NONE),
        ],
    )
    def expel(self, s: SymbolicState, node: Expr) -> None:
        """The silent are taken off the lists; a complete round that loses a member is replaced."""
        self.enters(s, node, AgentPhase.EXITING, AgentPhase.JOINING, AgentPhase.RUNNING, AgentPhase.DONE)
        s.when(self.decides(s, "expel", Action.EXPEL, node))
        before = s.fork()
        members = (self.silent_to(before, node, j) & (before.member[j] == Membership.PARTICIPANT) for j in s.node)
        lost = before.complete & any_(members)
        frees = any_(
            self.silent_to(before, node, j) & before.drained[j] & (before.member[j] == Membership.EXPECTED)
            for j in s.node
        )
        # The survivors return from a new round, without the lost member. Each of them has to stop its workers first:
        # until it comes, it is expected, and the new round does not complete.
        self.begin_new_round(s, lost)
        for j in s.node:
            gone = self.silent_to(before, node, j)
            s.member[j] = ite(gone, Membership.OUTSIDE, s.member[j])
            s.rank[j] = ite(gone, 0, s.rank[j])
            s.heartbeat_age[j] = ite(gone, Heartbeat.NONE, s.heartbeat_age[j])
            s.predecessor_listed[j] = s.predecessor_listed[j] & ~gone
            s.drained[j] = s.drained[j] & ~gone
        self.move_up(s, lost | frees)
        self.settle(s)

    @transition(each="node", moves=[arc(AgentPhase.RETURNING, AgentPhase.RUNNING)])
    def start_workers(self, s: SymbolicState, node: Expr) -> None:
        """next_rendezvous returns, and the agent starts its workers; neither needs the store."""
        s.when(self.live(s, node), s.phase[node] == AgentPhase.RETURNING)
        self.goes_on(s, node, AgentPhase.RUNNING)

    # ---- the agent

    @transition(
        each="node",
        cite="elastic-node-change 2.3.1 (num_nodes_waiting)",
        moves=[arc(AgentPhase.RUNNING, AgentPhase.EXITING)],
    )
    def restart_workers(self, s: SymbolicState, node: Expr) -> None:
        """A node sees that another waits, that its round is replaced, or that it is expelled: it stops its workers."""
        self.enters(s, node, AgentPhase.RUNNING)
        # A round that was replaced, or an expulsion, ends the group as well as a node that waits.
        changed = ~s.returned[node] | (s.member[node] != Membership.PARTICIPANT)
        waited = (s.member.count(Membership.WAITING) > 0) & self.takes_newcomers(s, node)
        s.when(~s.closed, named("num_nodes_waiting > 0", changed | waited))
        self.restart(s, node)

    def takes_newcomers(self, s: SymbolicState, node: Expr) -> Condition:
        """The node has seen its round complete for the scale-up interval."""
        return ~s.rests[node]

    @transition(
        each="node",
        cite="rendezvous-engine 3.2.2",
        moves=[arc((Round.JOINING, Round.LAST_CALL, Round.COMPLETE), Round.CLOSED)],
    )
    def mark_closed(self, s: SymbolicState, node: Expr) -> None:
        """A member whose job is over closes the rendezvous, and says so."""
        self.enters(s, node, AgentPhase.DONE)
        s.when(self.decides(s, "close", Action.MARK_RENDEZVOUS_CLOSED, node))
        s.closed = True

    @transition(
        each="node", cite="rendezvous-engine 3.2.2", moves=[arc((AgentPhase.FAILED, AgentPhase.DONE), AgentPhase.LEFT)]
    )
    def close_finish(self, s: SymbolicState, node: Expr) -> None:
        """A node that failed to join just goes; one that is done goes when the rendezvous is closed, or without it."""
        self.enters(s, node, AgentPhase.FAILED, AgentPhase.DONE)
        s.when((s.phase[node] == AgentPhase.FAILED) | self.decides(s, "close", Action.FINISH, node))
        s.phase[node] = AgentPhase.LEFT

    def comes_first(self, s: SymbolicState, one: Expr, other: Expr) -> Condition:
        """The order of the rank keys, before that of the nodes."""
        apart = s.later_key[one] != s.later_key[other]
        return (apart & s.later_key[other]) | (~apart & super().comes_first(s, one, other))

    @sometimes(needs="rank_key")
    def keys_turn_the_order(self, s: SymbolicState) -> Condition:
        """In a complete round a node has a lower rank than one whose name sorts before its own."""
        member = [Membership.PARTICIPANT]
        return s.complete & any_(
            s.member[j].isin(member) & s.member[k].isin(member) & (ord_(j) < ord_(k)) & (s.rank[k] < s.rank[j])
            for j in s.node
            for k in s.node
        )

    @always(witness="keys_turn_the_order", needs="rank_key")
    def who_sorts_first_is_the_master(self, s: SymbolicState) -> Condition:
        """Each node that returned uses the member with the first key as its master."""
        return all_(
            implies(
                s.returned[j] & (s.master[j] == ord_(k) + 1),
                (s.member[k] == Membership.PARTICIPANT)
                & ~any_((s.member[m] == Membership.PARTICIPANT) & self.comes_first(s, m, k) for m in s.node),
            )
            for j in s.node
            for k in s.node
        )

    # ---- newcomers wait for the scale-up interval

    @sometimes(needs="scale_up_interval")
    def a_newcomer_is_held_back(self, s: SymbolicState) -> Condition:
        """A node waits, and a member runs on, since its round is young."""
        runs = any_(self.runs_workers(s, j) & s.returned[j] for j in s.node)
        return s.young & (s.member.count(Membership.WAITING) > 0) & runs

    @step(each="node", on=("restart_workers",), witness="a_newcomer_is_held_back", needs="scale_up_interval")
    def newcomers_wait_for_the_interval(self, before: SymbolicState, after: SymbolicState, node: Expr) -> Condition:
        """No member of a young round stops its workers because a node waits."""
        ended = ~before.returned[node] | (before.member[node] != Membership.PARTICIPANT)
        return ended | ~before.young

    @step(
        each="node",
        on=("join_deadline_passes",),
        witness="a_newcomer_is_held_back",
        needs=("scale_up_interval", "join_timeout"),
    )
    def the_held_back_have_time(self, before: SymbolicState, after: SymbolicState, node: Expr) -> Condition:
        """The join deadline of a node does not pass while a young round holds it back."""
        return (before.member[node] != Membership.WAITING) | ~before.young

    # ---- a node that its health command finds unfit is in no round

    def tries(self, s: SymbolicState, node: Expr) -> Condition:
        """A node whose check failed does not want to be in a round."""
        return super().tries(s, node) & ~s.unhealthy[node]

    @sometimes(needs=("health_check", "unhealthy"))
    def somebody_is_unfit(self, s: SymbolicState) -> Condition:
        """The check of a node failed while the others expect it."""
        return any_(s.unhealthy[j] & (s.member[j] == Membership.EXPECTED) for j in s.node)

    @sometimes(needs=("health_check", "unhealthy"))
    def others_go_on_without_the_unfit(self, s: SymbolicState) -> Condition:
        """A round is complete without a node whose check failed, which stands by."""
        stands_by = any_(s.unhealthy[j] & (s.phase[j] == AgentPhase.EXITING) for j in s.node)
        return s.complete & stands_by & any_(s.returned)

    @always(witness="somebody_is_unfit", needs=("health_check", "unhealthy"))
    def the_unfit_take_no_part(self, s: SymbolicState) -> Condition:
        """A node whose check failed has no seat of a round, waits for none, and runs nothing."""
        listed = (Membership.PARTICIPANT, *QUEUED)
        return all_(implies(s.unhealthy[j], ~s.member[j].isin(listed) & ~s.phase[j].isin(LEASED)) for j in s.node)

    @step(each="node", on=("replace_round",), witness="somebody_is_unfit", needs=("health_check", "unhealthy"))
    def members_are_checked_again(self, before: SymbolicState, after: SymbolicState, node: Expr) -> Condition:
        """A member with a health command is in no later round before that has run again."""
        return implies(before.checks[node], after.member[node] != Membership.PARTICIPANT)

    @leads_to(each="node", needs=("health_check", "unhealthy"))
    def the_unfit_are_not_awaited(self, s: SymbolicState, node: Expr) -> tuple[Condition, Condition]:
        """The others do not wait for a node whose check failed."""
        awaited = s.unhealthy[node] & (s.member[node] == Membership.EXPECTED) & self.is_up(s, node) & ~s.closed
        return awaited, ~awaited

    # ---- why the properties of every edition hold here

    @sometimes()
    def somebody_is_expected(self, s: SymbolicState) -> Condition:
        """A round was replaced, and not all of its members have come."""
        return any_(x == Membership.EXPECTED for x in s.member)

    @always(witness="two_return")
    def what_returned_stays_written(self, s: SymbolicState) -> Condition:
        """A complete round is never changed: a node that returned from it has the rank and members listed there."""
        return all_(
            implies(
                s.returned[j],
                s.complete
                & (s.saw_rank[j] == s.rank[j])
                & all_(s.saw[j, k] == (s.member[k] == Membership.PARTICIPANT) for k in s.node),
            )
            for j in s.node
        )

    @step(witness="somebody_is_expected")
    def a_round_ends_for_all(self, before: SymbolicState, after: SymbolicState) -> Condition:
        """A complete round ends by being replaced, for all of its members at once."""
        ends = before.complete & ~after.complete
        return implies(ends, ~any_(after.returned[j] | (after.rank[j] != 0) for j in before.node))

    @always(witness="two_run")
    def who_runs_has_a_lease(self, s: SymbolicState) -> Condition:
        """A node that acts on what it returned with is listed, and silent to no observer."""
        return all_(implies(self.acts_on_its_round(s, j), s.heartbeat_age[j].isin(LIVING)) for j in s.node)

    @always(witness="somebody_is_expected")
    def the_replaced_are_expected(self, s: SymbolicState) -> Condition:
        """A node that acts on a round that has been replaced is expected in the next one."""
        return all_(
            implies(self.acts_on_its_round(s, j) & ~s.returned[j], s.member[j] == Membership.EXPECTED) for j in s.node
        )

    @always(witness="somebody_is_expected")
    def the_complete_expect_nobody(self, s: SymbolicState) -> Condition:
        """A round completes only when each expected node has come, has gone, or has been expelled."""
        return implies(s.complete, s.member.count(Membership.EXPECTED) == 0)

    @always(witness="somebody_is_expected")
    def seats_are_kept(self, s: SymbolicState) -> Condition:
        """There is a seat for each expected node."""
        return s.member.count(*SEATED) <= self.max_nodes

    @always(witness="a_round_is_complete")
    def the_listed_agree(self, s: SymbolicState) -> Condition:
        """Each listed node has the settings in force."""
        return all_(
            implies(
                s.member[j] != Membership.OUTSIDE,
                (s.larger_min[j] == s.agreed_larger_min) & (s.shorter_window[j] == s.agreed_shorter_window),
            )
            for j in s.node
        )

    @leads_to(each="node")
    def the_expected_come_or_go(self, s: SymbolicState, node: Expr) -> tuple[Condition, Condition]:
        """While some node tries, no node is expected for ever."""
        tries = any_(self.tries(s, j) for j in s.node)
        waits = (s.member[node] == Membership.EXPECTED) & ~s.closed & tries
        return waits, ~waits

    @sometimes(needs="drain")
    def a_member_is_drained(self, s: SymbolicState) -> Condition:
        """A node that an operator has marked still acts on a round, and is expected in the next one until it leaves."""
        return any_(s.drained[j] & self.acts_on_its_round(s, j) for j in s.node)

    @always(witness="a_member_is_drained", needs="drain")
    def the_drained_take_no_seat(self, s: SymbolicState) -> Condition:
        """A drained node is in no round that completes after its mark."""
        return all_(
            implies(s.drained[j], s.member[j].isin((Membership.EXPECTED, *QUEUED)) & ~s.returned[j]) for j in s.node
        )

    @step(each="node", on=("withdraw",), witness="a_member_is_drained", needs="drain")
    def a_drain_spends_no_restart(self, before: SymbolicState, after: SymbolicState, node: Expr) -> Condition:
        """A drained node is no member of a complete round when it leaves: that would spend a restart."""
        return implies(before.drained[node], ~(before.complete & (before.member[node] == Membership.PARTICIPANT)))

    @leads_to(each="node", needs="drain")
    def the_drained_leave(self, s: SymbolicState, node: Expr) -> tuple[Condition, Condition]:
        """A drained node stops its workers and leaves, unless it dies or the job ends first."""
        stays = s.drained[node] & self.is_up(s, node) & ~s.closed
        return stays, ~stays

    def acts_on_its_round(self, s: SymbolicState, node: Expr) -> Condition:
        """The node acts on what next_rendezvous returned to it, or is about to."""
        return s.phase[node].isin(LEASED) & self.live(s, node)
