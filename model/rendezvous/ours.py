"""The rendezvous of the edition TRYSTATE: a complete round is never changed, only replaced.

Theory of operation. The members of a complete round, their ranks and their master are written once, together. A member
that leaves, fails, or sees a node waiting or silent replaces the round: its members are *expected* in the next round,
which completes only when each of them has joined, has left, or has been expelled. So no node runs in a round whose
successor runs. The differences from torch's rendezvous, each with the findings that it removes:

- Members, ranks and master are fixed when the round completes (R1 to R4, R6).
- A heartbeat is a counter. An observer expels a member only if the counter has not changed for the window while the
  observer could reach the store; the window is measured by its own monotonic clock (R5, R7, R12, R13). A member stops
  its workers when it could not confirm a heartbeat for the window (its lease), which ends earlier than any observer's
  window (R6, R7).
- No node is removed as a side effect: expelling is a separate operation, which replaces a complete round, so the others
  notice (R14).
- The settings are part of the shared state: a node with other settings is refused (R9, R12).
- A node that finds no seat becomes a spare, also from the wait list (R8). When a seat of an open round is free, because
  the round was replaced or a node has left, a waiting node or a spare takes the seat in the same write.
- A node that could not join leaves; only a member closes (R10).

Options of operators, each off unless a run switches it on:

- A drain marks the listing of a node. A marked participant is expected until its workers are stopped; then it leaves.
  No node has failed, so no restart is spent (`drain`).
- Ranks follow a key in each node's listing. Nodes with equal keys are ranked by name (`rank_key`).
- A member replaces a round for newcomers alone only after it has seen the round complete for an interval, by its own
  clock (`scale_up_interval`). Until then the newcomers' join deadlines do not run.
- A member with a health command is expected in the next round while the command runs, and joins when it passes
  (`health_check`). A node whose command fails removes itself from the lists, and waits off the lists or leaves
  (`unhealthy`).

Abstractions, in addition to those in `fields.py`. Nothing is assumed about polling: the last call may end at any time.
A new process under the address of a dead one stays outside until the dead process's listing is expelled, possibly by
the new process. A newcomer that joins while its dead predecessor is still listed is modelled as another node. A node
that resumes after its lease has ended stops its workers first: one step here, microseconds in the runtime.
"""

from __future__ import annotations

from typing import Any

from ..language import *
from .fields import LEASED, LISTED
from .properties import Rendezvous
from .vocabulary import Action, AgentPhase, Deadline, Edition, Heartbeat, JoinDeadline, Membership, Round

SEATED = (Membership.PARTICIPANT, Membership.EXPECTED)  # has a seat, or a seat is kept for it
QUEUED = (Membership.WAITING, Membership.REDUNDANT)
LIVING = (Heartbeat.FRESH, Heartbeat.DUE)

# Moves that several steps make.
ENLISTS = arc((Heartbeat.NONE, *LIVING), Heartbeat.FRESH)
GROWS = (
    arc(Round.JOINING, (Round.JOINING, Round.LAST_CALL, Round.COMPLETE)),
    arc(Round.LAST_CALL, (Round.LAST_CALL, Round.COMPLETE)),
)
SHRINKS = (arc((Round.JOINING, Round.LAST_CALL), Round.JOINING), arc(Round.LAST_CALL, Round.LAST_CALL))
MOVES_UP = (
    arc(Membership.PARTICIPANT, Membership.EXPECTED, of="others"),
    arc(Membership.WAITING, Membership.PARTICIPANT, of="others"),
)
REPLACES = (arc(Round.COMPLETE, (Round.JOINING, Round.LAST_CALL, Round.COMPLETE)), *MOVES_UP)
# A node leaves an open round: a waiting node or a spare takes its seat, which may complete the round.
TAKES_THE_SEAT = (
    may(QUEUED, Membership.PARTICIPANT, of="others"),
    may(Round.JOINING, (Round.LAST_CALL, Round.COMPLETE)),
    may(Round.LAST_CALL, Round.COMPLETE),
)
RETURNS = arc(AgentPhase.JOINING, AgentPhase.RETURNING)
FAILS = arc(AgentPhase.JOINING, AgentPhase.FAILED)


class Ours(Rendezvous, edition=Edition.TRYSTATE):
    """The steps of our protocol, and the properties that show why the other properties hold."""

    agreed_larger_min = flag(doc="the settings in force have a larger min")
    agreed_shorter_window = flag(doc="the settings in force have a shorter expiry window")
    predecessor_listed = flag(per="node", doc="a new process; its predecessor is still listed under its address")
    later_key = flag(per="node", doc="its rank key sorts after those of the others")
    holds_back = flag(doc="the settings in force have a scale-up interval")
    young = flag(doc="the scale-up interval has not passed since the round was complete")
    rests = flag(per="node", doc="the scale-up interval has not passed since the node saw that, by its clock")
    checks = flag(per="node", doc="has a health command, which runs before it joins")
    unhealthy = flag(per="node", doc="its health command failed and has not passed since")
    drained = flag(per="node", doc="an operator has marked its listing, so it leaves")

    # ---- what a step sees

    def listed(self, s: SymbolicState) -> Condition:
        return s.member.count(*LISTED)

    def agrees(self, s: SymbolicState, node: Expr) -> Condition:
        """A node agrees if it has the settings in force or if no node is listed: the first node sets the settings."""
        same = (s.agreed_larger_min == s.larger_min[node]) & (s.agreed_shorter_window == s.shorter_window[node])
        return same | (self.listed(s) == 0)

    def quorum(self, s: SymbolicState) -> Condition:
        return ite(s.agreed_larger_min, self.min_nodes + 1, self.min_nodes)

    def taken(self, s: SymbolicState) -> Condition:
        """The number of seats that are taken or kept for expected nodes."""
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

    def silent_to(self, s: SymbolicState, observer: Expr | None, node: Expr) -> Condition:
        """The node's heartbeat did not change for the whole window; a new process may also expel its predecessor."""
        expired = s.heartbeat_age[node] == Heartbeat.EXPIRED
        silent = expired if observer is None else expired & ((node != observer) | s.predecessor_listed[node])
        return silent

    # ---- what a step does

    def enlist(self, s: SymbolicState, node: Expr, member: Membership) -> None:
        """Lists a node; the first listed node sets the settings."""
        first = self.listed(s) == 0
        s.agreed_larger_min = ite(first, s.larger_min[node], s.agreed_larger_min)
        s.agreed_shorter_window = ite(first, s.shorter_window[node], s.agreed_shorter_window)
        s.member[node] = member
        s.rank[node] = 0
        self.stamp(s, node)

    def sorts_before(self, s: SymbolicState, one: Expr, other: Expr) -> Condition:
        """Ranks follow the keys of the listings and, among equal keys, the names."""
        same = s.later_key[one] == s.later_key[other]
        return (~s.later_key[one] & s.later_key[other]) | (same & (ord_(one) < ord_(other)))

    def assign_ranks(self, s: SymbolicState, done: Any) -> None:
        """The scale-up interval begins when the round is complete."""
        super().assign_ranks(s, done)
        s.young = s.young | (s.holds_back & done)

    def settle(self, s: SymbolicState) -> Condition:
        """Updates the last call after a change of the lists; completes the round if it is full, and returns that."""
        size = self.participants(s)
        full = ~s.complete & (size == self.max_nodes)
        call = ~s.complete & (size >= self.quorum(s))
        s.deadline = ite(call, ite(s.deadline == Deadline.UNSET, Deadline.RUNNING, s.deadline), Deadline.UNSET)
        self.assign_ranks(s, full)
        return full

    def begin_new_round(self, s: SymbolicState, replaced: Any) -> None:
        """Replaces the round by a new one that expects the members of the old one."""
        kept = not_(replaced)  # not `~`: `replaced` may be the bool True, and ~True is a number
        for j in s.node:
            s.member[j] = ite((s.member[j] == Membership.PARTICIPANT) & replaced, Membership.EXPECTED, s.member[j])
            s.rank[j] = ite(replaced, 0, s.rank[j])
            s.rests[j] = s.rests[j] & kept
        s.young = s.young & kept
        s.complete = ite(replaced, False, s.complete)
        s.round = ite(replaced, self.next_round(s.round), s.round)
        self.forget_returns(s, replaced)

    def move_up(self, s: SymbolicState, replaced: Any) -> None:
        """Waiting nodes become participants first, then spares, each in the order of ranks; drained nodes do not."""
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
        """The drain mark belongs to the listing and is removed with it."""
        super().unlist(s, node)
        s.drained[node] = False

    def returns_if(self, s: SymbolicState, node: Expr, full: Any) -> None:
        """If `full`, the node returns with the written rank, members and master; otherwise it continues to join."""
        self.record_return(s, node, s, full)
        s.join_deadline[node] = ite(full, JoinDeadline.IN_TIME, s.join_deadline[node])
        s.master[node] = ite(full, self.first(s), s.master[node])
        s.rests[node] = ite(full, s.holds_back, s.rests[node])
        s.phase[node] = ite(full, AgentPhase.RETURNING, AgentPhase.JOINING)

    def first(self, s: SymbolicState) -> Condition:
        """The member that sorts before all others, as node + 1 (like `master`)."""
        below = count(
            any_(
                (s.member[k] == Membership.PARTICIPANT) & (self.count_below(s, k) == 0) & (ord_(j) < ord_(k))
                for k in s.node
            )
            for j in s.node
        )
        return ite(self.participants(s) > 0, below + 1, 0)

    def restart(self, s: SymbolicState, node: Expr, when: Any = True) -> None:
        """A restart forgets the master and the scale-up interval, which belong to the old round."""
        super().restart(s, node, when)
        reset(s.master, s.rests, at=node, when=when)

    # ---- the options of nodes

    @environment(switch="rank_key", bound=2)
    def start_with_later_key(self, s: SymbolicState, node: Expr) -> None:
        """A node starts with a rank key that sorts after the other nodes' keys."""
        self.configures(s, node, s.later_key)

    @environment(switch="scale_up_interval")
    def start_with_scale_up_interval(self, s: SymbolicState) -> None:
        """The nodes of a job start with a scale-up interval."""
        s.when(~s.holds_back)
        s.when(all_((s.phase[j] == AgentPhase.EXITING) & (s.member[j] == Membership.OUTSIDE) for j in s.node))
        s.holds_back = True

    @environment(switch="health_check", bound=2)
    def start_with_health_check(self, s: SymbolicState, node: Expr) -> None:
        """A node starts with a health command."""
        self.configures(s, node, s.checks)

    @environment(fair=True)
    def interval_passes(self, s: SymbolicState) -> None:
        """The scale-up interval passes since the round was complete."""
        s.when(s.young)
        s.young = False

    @environment(fair=True)
    def own_interval_passes(self, s: SymbolicState, node: Expr) -> None:
        """A node's scale-up interval, which begins when the node sees the round complete, passes after the round's."""
        move(s.rests, True, False, ~s.young, at=node)

    def guard_join_deadline(self, s: SymbolicState, node: Expr) -> None:
        """A spare has no deadline; a waiting node's deadline begins after the scale-up interval."""
        held_back = s.young | any_(s.rests)
        s.when(s.member[node] != Membership.REDUNDANT, ~((s.member[node] == Membership.WAITING) & held_back))

    def falls_silent(self, s: SymbolicState, node: Expr) -> Condition:
        """The node is down, has left or is partitioned, or an earlier process is listed under its address.

        Clocks are not compared. An observer that cannot reach the store counts no silence. A partitioned node has
        stopped its workers before others take it for dead, because its lease ends first.
        """
        down = s.crashed[node] | s.stalled[node] | (s.phase[node] == AgentPhase.LEFT) | s.predecessor_listed[node]
        return (down | (s.partitioned[node] & ~s.phase[node].isin(LEASED))) & ~s.store_down

    @fault(
        "restart",
        moves=[
            arc(
                (AgentPhase.JOINING, AgentPhase.RETURNING, AgentPhase.RUNNING, AgentPhase.DONE, AgentPhase.FAILED),
                AgentPhase.EXITING,
            )
        ],
    )
    def restart_process(self, s: SymbolicState, node: Expr) -> None:
        """A new process starts under the address of a dead one, which may still be listed; it remembers nothing."""
        move(s.crashed, True, False, at=node)
        s.predecessor_listed[node] = s.member[node] != Membership.OUTSIDE
        s.unhealthy[node] = False
        self.restart(s, node)

    @environment(fair=True, moves=[arc(LEASED, AgentPhase.EXITING)])
    def resume(self, s: SymbolicState, node: Expr) -> None:
        """A stalled process continues; if its lease is over, it stops its workers first."""
        move(s.stalled, True, False, at=node)
        # The others may have expelled the node and formed a round without it while it was stalled.
        self.restart(
            s, node, s.heartbeat_age[node].isin((Heartbeat.NONE, Heartbeat.EXPIRED)) & s.phase[node].isin(LEASED)
        )

    @environment(moves=[arc(LEASED, AgentPhase.EXITING)])
    def lose_lease(self, s: SymbolicState, node: Expr) -> None:
        """A node could not confirm a heartbeat for the whole window, by its own clock: it stops its workers."""
        s.when(self.live(s, node), s.interrupted[node], s.phase[node].isin(LEASED))
        self.restart(s, node)

    @environment(
        switch="drain",
        bound=2,
        moves=[
            *SHRINKS,
            *REPLACES,
            arc(Membership.PARTICIPANT, Membership.EXPECTED),
        ],
    )
    def drain(self, s: SymbolicState, node: Expr) -> None:
        """An operator marks a listed node; a complete round that has the node as a member is replaced."""
        move(s.drained, False, True, ~s.store_down, ~s.closed, s.member[node] != Membership.OUTSIDE, at=node)
        seated = s.member[node] == Membership.PARTICIPANT
        lost = s.complete & seated
        # It may run workers: the next round does not complete before the node has stopped them and has left.
        self.begin_new_round(s, lost)
        s.member[node] = ite(seated, Membership.EXPECTED, s.member[node])
        self.move_up(s, lost)
        self.settle(s)

    # ---- the exit operation

    @transition(
        cite="rendezvous-engine 3.2.3",
        moves=[
            *REPLACES,
            arc(AgentPhase.EXITING, (AgentPhase.JOINING, AgentPhase.RETURNING)),
            arc((*LIVING, Heartbeat.EXPIRED), Heartbeat.FRESH),
            may(Membership.PARTICIPANT, Membership.EXPECTED),
        ],
    )
    def replace_round(self, s: SymbolicState, node: Expr) -> None:
        """A restarting member replaces its round and joins the next one; before a health check it is expected there."""
        self.enters(s, node, AgentPhase.EXITING)
        # The member listed under the address may be an earlier process, which only an expulsion removes.
        s.when(self.decides(s, "exit", Action.REPLACE_ROUND, node), ~s.predecessor_listed[node])
        self.begin_new_round(s, True)
        s.member[node] = self.listed_as(s, node)
        self.stamp(s, node)
        self.move_up(s, True)
        self.returns_if(s, node, self.settle(s))
        s.phase[node] = ite(s.checks[node], AgentPhase.EXITING, s.phase[node])

    def listed_as(self, s: SymbolicState, node: Expr) -> Condition:
        """A node with a health check is expected, so the others wait for it but do not count it."""
        return ite(s.checks[node], Membership.EXPECTED, Membership.PARTICIPANT)

    @transition(cite="rendezvous-engine 3.2.3", moves=[arc(AgentPhase.EXITING, AgentPhase.JOINING)])
    def exit_finish(self, s: SymbolicState, node: Expr) -> None:
        """A node that is in no complete round joins next, unless an older process is listed under its address."""
        self.enters(s, node, AgentPhase.EXITING)
        s.when(self.decides(s, "exit", Action.FINISH, node), ~s.predecessor_listed[node] | s.closed)
        s.when(~s.unhealthy[node] | s.closed)
        s.phase[node] = AgentPhase.JOINING

    # ---- the health command, which runs before a node joins

    @fault("unhealthy")
    def check_fails(self, s: SymbolicState, node: Expr) -> None:
        """The health command of a node fails or does not end in time."""
        move(s.unhealthy, False, True, self.live(s, node), s.phase[node] == AgentPhase.EXITING, s.checks[node], at=node)
        s.when(self.decides(s, "exit", Action.FINISH, node), ~s.predecessor_listed[node], ~s.closed)

    def steps_back(self, s: SymbolicState, node: Expr) -> None:
        """A node whose check failed removes itself from the lists."""
        self.enters(s, node, AgentPhase.EXITING)
        s.when(s.unhealthy[node], ~s.closed)
        self.unlist(s, node)
        self.move_up(s, ~s.complete)
        self.settle(s)

    @transition(
        fair=False,
        moves=[
            arc(AgentPhase.EXITING, AgentPhase.FAILED),
            may(Membership.EXPECTED, Membership.OUTSIDE),
            may((*LIVING, Heartbeat.EXPIRED), Heartbeat.NONE),
            *TAKES_THE_SEAT,
        ],
    )
    def leave_unhealthy(self, s: SymbolicState, node: Expr) -> None:
        """A node whose check failed leaves and ends with the output of its command."""
        self.steps_back(s, node)
        s.phase[node] = AgentPhase.FAILED

    @transition(
        moves=[
            arc(Membership.EXPECTED, Membership.OUTSIDE),
            may((*LIVING, Heartbeat.EXPIRED), Heartbeat.NONE),
            *TAKES_THE_SEAT,
        ]
    )
    def stand_by(self, s: SymbolicState, node: Expr) -> None:
        """A node whose check failed removes itself from the lists, and the check runs again until it passes."""
        s.when(s.member[node] != Membership.OUTSIDE)
        self.steps_back(s, node)

    @environment()
    def check_passes_again(self, s: SymbolicState, node: Expr) -> None:
        """The health command of a node that is on no list passes."""
        s.when(self.live(s, node), s.phase[node] == AgentPhase.EXITING)
        move(s.unhealthy, True, False, s.member[node] == Membership.OUTSIDE, at=node)

    # ---- the join operation

    def joins(self, s: SymbolicState, node: Expr, outcome: Any) -> None:
        """The node is in its join operation, and the operator decides `outcome` on the shared state."""
        self.enters(s, node, AgentPhase.JOINING)
        s.when(self.decides(s, "join", outcome, node))

    @transition(
        cite="rendezvous-engine 4.1",
        moves=[
            *GROWS,
            arc((Membership.OUTSIDE, Membership.EXPECTED), Membership.PARTICIPANT),
            ENLISTS,
            RETURNS,
        ],
    )
    def add_to_participants(self, s: SymbolicState, node: Expr) -> None:
        """A node joins; reaching min starts the last call, reaching max completes the round and returns at once."""
        self.joins(s, node, Action.ADD_TO_PARTICIPANTS)
        self.enlist(s, node, Membership.PARTICIPANT)
        self.returns_if(s, node, self.settle(s))

    @transition(
        cite="rendezvous-engine 4.3",
        moves=[arc(Membership.OUTSIDE, Membership.WAITING), arc(Heartbeat.NONE, Heartbeat.FRESH)],
    )
    def add_to_wait_list(self, s: SymbolicState, node: Expr) -> None:
        """The round is complete and has a seat: the node waits for the next one."""
        self.joins(s, node, Action.ADD_TO_WAIT_LIST)
        self.enlist(s, node, Membership.WAITING)

    @transition(
        cite="dynamic_rendezvous.py:_add_to_redundancy_list",
        moves=[arc((Membership.OUTSIDE, Membership.WAITING), Membership.REDUNDANT), ENLISTS],
    )
    def add_to_redundancy_list(self, s: SymbolicState, node: Expr) -> None:
        """Every seat is taken or kept for an expected node: the node becomes a spare without a deadline."""
        self.joins(s, node, Action.ADD_TO_REDUNDANCY_LIST)
        self.enlist(s, node, Membership.REDUNDANT)
        s.join_deadline[node] = JoinDeadline.IN_TIME

    @transition(cite="rendezvous-engine 4.5", moves=[arc(Round.LAST_CALL, Round.COMPLETE), RETURNS])
    def mark_complete(self, s: SymbolicState, node: Expr) -> None:
        """The last call is over and no node is expected any more: a participant writes members, ranks and master."""
        self.joins(s, node, Action.MARK_RENDEZVOUS_COMPLETE)
        self.assign_ranks(s, True)
        self.returns_if(s, node, True)

    @transition(cite="rendezvous-engine 3.2.4", moves=[RETURNS])
    def finish(self, s: SymbolicState, node: Expr) -> None:
        """A participant finds the round complete and returns with the written rank, members and master."""
        self.joins(s, node, Action.FINISH)
        self.returns_if(s, node, True)

    def fails(self, s: SymbolicState, node: Expr, outcome: Any) -> None:
        """The operator raises."""
        self.joins(s, node, outcome)
        s.phase[node] = AgentPhase.FAILED
        s.join_deadline[node] = JoinDeadline.IN_TIME

    @transition(
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
        """The join deadline has passed or the node is drained: it removes itself from the list and raises an error."""
        self.fails(s, node, Action.WITHDRAW)
        self.unlist(s, node)
        self.move_up(s, ~s.complete)
        self.settle(s)

    @transition(cite="rendezvous-engine 3.2.4", moves=[FAILS])
    def error_timeout(self, s: SymbolicState, node: Expr) -> None:
        """A node that is late and not listed raises RendezvousTimeoutError from next_rendezvous."""
        self.fails(s, node, Action.ERROR_TIMEOUT)

    @transition(cite="rendezvous-engine 3.2.4", moves=[FAILS])
    def error_closed(self, s: SymbolicState, node: Expr) -> None:
        """The rendezvous is closed: next_rendezvous raises RendezvousClosedError with the node that closed and why."""
        self.fails(s, node, Action.ERROR_CLOSED)

    @transition(moves=[FAILS])
    def error_settings(self, s: SymbolicState, node: Expr) -> None:
        """The node's settings are not those in force: next_rendezvous raises RendezvousSettingsError."""
        self.fails(s, node, Action.ERROR_SETTINGS)

    # ---- heartbeats

    @transition(cite="rendezvous-engine 3.2.1, 4.6", moves=[arc((Heartbeat.DUE, Heartbeat.EXPIRED), Heartbeat.FRESH)])
    def keep_alive(self, s: SymbolicState, node: Expr) -> None:
        """A listed node increments its heartbeat, from its first join until it leaves."""
        self.enters(
            s, node, AgentPhase.EXITING, AgentPhase.JOINING, AgentPhase.RETURNING, AgentPhase.RUNNING, AgentPhase.DONE
        )
        s.when(self.decides(s, "keep-alive", Action.KEEP_ALIVE, node), ~s.predecessor_listed[node])
        self.stamp(s, node)

    @transition(
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
        """A node removes silent nodes from the lists; a complete round that loses a member is replaced."""
        self.enters(s, node, AgentPhase.EXITING, AgentPhase.JOINING, AgentPhase.RUNNING, AgentPhase.DONE)
        s.when(self.decides(s, "expel", Action.EXPEL, node))
        self.removes_silent(s, node)

    def removes_silent(self, s: SymbolicState, observer: Expr | None) -> None:
        """Removes the nodes that are silent to the observer; a complete round that loses a member is replaced."""
        before = s.fork()
        members = (self.silent_to(before, observer, j) & (before.member[j] == Membership.PARTICIPANT) for j in s.node)
        lost = before.complete & any_(members)
        # The survivors return from a new round without the lost member. Each of them must stop its workers first:
        # it is expected until it joins, and the new round does not complete before.
        self.begin_new_round(s, lost)
        for j in s.node:
            gone = self.silent_to(before, observer, j)
            s.member[j] = ite(gone, Membership.OUTSIDE, s.member[j])
            s.rank[j] = ite(gone, 0, s.rank[j])
            s.heartbeat_age[j] = ite(gone, Heartbeat.NONE, s.heartbeat_age[j])
            s.predecessor_listed[j] = s.predecessor_listed[j] & ~gone
            s.drained[j] = s.drained[j] & ~gone
        self.move_up(s, ~s.complete)
        self.settle(s)

    @transition(moves=[arc(AgentPhase.RETURNING, AgentPhase.RUNNING)])
    def start_workers(self, s: SymbolicState, node: Expr) -> None:
        """next_rendezvous returns, and the agent starts its workers; neither needs the store."""
        s.when(self.live(s, node), s.phase[node] == AgentPhase.RETURNING)
        self.goes_on(s, node, AgentPhase.RUNNING)

    # ---- the agent

    @transition(
        cite="elastic-node-change 2.3.1 (num_nodes_waiting)",
        moves=[arc(AgentPhase.RUNNING, AgentPhase.EXITING)],
    )
    def restart_workers(self, s: SymbolicState, node: Expr) -> None:
        """A node sees that another waits, that its round is replaced, or that it is expelled: it stops its workers."""
        self.enters(s, node, AgentPhase.RUNNING)
        # A replaced round or an expulsion ends the group, like a node that waits.
        changed = ~s.returned[node] | (s.member[node] != Membership.PARTICIPANT)
        waited = (s.member.count(Membership.WAITING) > 0) & self.takes_newcomers(s, node)
        s.when(~s.closed, named("num_nodes_waiting > 0", changed | waited))
        self.restart(s, node)

    def takes_newcomers(self, s: SymbolicState, node: Expr) -> Condition:
        """The node has seen its round complete for the scale-up interval."""
        return ~s.rests[node]

    @transition(
        cite="rendezvous-engine 3.2.2",
        moves=[arc((Round.JOINING, Round.LAST_CALL, Round.COMPLETE), Round.CLOSED)],
    )
    def mark_closed(self, s: SymbolicState, node: Expr) -> None:
        """A member whose job is over closes the rendezvous and records that."""
        self.enters(s, node, AgentPhase.DONE)
        s.when(self.decides(s, "close", Action.MARK_RENDEZVOUS_CLOSED, node))
        s.closed = True

    @transition(cite="rendezvous-engine 3.2.2", moves=[arc((AgentPhase.FAILED, AgentPhase.DONE), AgentPhase.LEFT)])
    def close_finish(self, s: SymbolicState, node: Expr) -> None:
        """A node that failed to join leaves; a done node leaves if it is not a member or the rendezvous is closed."""
        self.enters(s, node, AgentPhase.FAILED, AgentPhase.DONE)
        s.when((s.phase[node] == AgentPhase.FAILED) | self.decides(s, "close", Action.FINISH, node))
        s.phase[node] = AgentPhase.LEFT

    def comes_first(self, s: SymbolicState, one: Expr, other: Expr) -> Condition:
        """Nodes are ordered by rank key first, then by name."""
        apart = s.later_key[one] != s.later_key[other]
        return (apart & s.later_key[other]) | (~apart & super().comes_first(s, one, other))

    @sometimes(needs="rank_key")
    def keys_turn_the_order(self, s: SymbolicState) -> Condition:
        """In a complete round a node has a lower rank than a node whose name sorts first."""
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
        """A node waits while a member continues to run because its round is within the scale-up interval."""
        runs = any_(self.runs_workers(s, j) & s.returned[j] for j in s.node)
        return s.young & (s.member.count(Membership.WAITING) > 0) & runs

    @step(on=("restart_workers",), witness="a_newcomer_is_held_back", needs="scale_up_interval")
    def newcomers_wait_for_the_interval(self, before: SymbolicState, after: SymbolicState, node: Expr) -> Condition:
        """Within the scale-up interval, no member stops its workers because a node waits."""
        ended = ~before.returned[node] | (before.member[node] != Membership.PARTICIPANT)
        return ended | ~before.young

    @step(on=("join_deadline_passes",), witness="a_newcomer_is_held_back", needs=("scale_up_interval", "join_timeout"))
    def the_held_back_have_time(self, before: SymbolicState, after: SymbolicState, node: Expr) -> Condition:
        """A waiting node's join deadline does not pass within the scale-up interval."""
        return (before.member[node] != Membership.WAITING) | ~before.young

    # ---- a node whose health command fails is in no round

    def tries(self, s: SymbolicState, node: Expr) -> Condition:
        """The node tries to be in a round, and its check has not failed."""
        return super().tries(s, node) & ~s.unhealthy[node]

    @sometimes(needs=("health_check", "unhealthy"))
    def somebody_is_unfit(self, s: SymbolicState) -> Condition:
        """The check of a node failed while the others expect it."""
        return any_(s.unhealthy[j] & (s.member[j] == Membership.EXPECTED) for j in s.node)

    @sometimes(needs=("health_check", "unhealthy"))
    def others_go_on_without_the_unfit(self, s: SymbolicState) -> Condition:
        """A round is complete while a node whose check failed waits until the check passes."""
        stands_by = any_(s.unhealthy[j] & (s.phase[j] == AgentPhase.EXITING) for j in s.node)
        return s.complete & stands_by & any_(s.returned)

    @always(witness="somebody_is_unfit", needs=("health_check", "unhealthy"))
    def the_unfit_take_no_part(self, s: SymbolicState) -> Condition:
        """A node whose check failed has no seat in a round, is on no wait list, and runs nothing."""
        listed = (Membership.PARTICIPANT, *QUEUED)
        return all_(implies(s.unhealthy[j], ~s.member[j].isin(listed) & ~s.phase[j].isin(LEASED)) for j in s.node)

    @step(on=("replace_round",), witness="somebody_is_unfit", needs=("health_check", "unhealthy"))
    def members_are_checked_again(self, before: SymbolicState, after: SymbolicState, node: Expr) -> Condition:
        """A member with a health command is in no later round before the command has run again."""
        return implies(before.checks[node], after.member[node] != Membership.PARTICIPANT)

    @leads_to(needs=("health_check", "unhealthy"))
    def the_unfit_are_not_awaited(self, s: SymbolicState, node: Expr) -> tuple[Condition, Condition]:
        """The others do not wait for a node whose check failed."""
        awaited = s.unhealthy[node] & (s.member[node] == Membership.EXPECTED) & self.is_up(s, node) & ~s.closed
        return awaited, ~awaited

    # ---- why the properties of every edition hold here

    @sometimes()
    def somebody_is_expected(self, s: SymbolicState) -> Condition:
        """A round was replaced, and a member of it has not joined the next one yet."""
        return s.member.any(Membership.EXPECTED)

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
        """A node that acts on its round is listed, and no observer finds it silent."""
        return all_(implies(self.acts_on_its_round(s, j), s.heartbeat_age[j].isin(LIVING)) for j in s.node)

    @always(witness="somebody_is_expected")
    def the_replaced_are_expected(self, s: SymbolicState) -> Condition:
        """A node that acts on a round that has been replaced is expected in the next one."""
        return all_(
            implies(self.acts_on_its_round(s, j) & ~s.returned[j], s.member[j] == Membership.EXPECTED) for j in s.node
        )

    @always(witness="somebody_is_expected")
    def the_complete_expect_nobody(self, s: SymbolicState) -> Condition:
        """A round completes only when each expected node has joined, has left, or has been expelled."""
        return implies(s.complete, s.member.count(Membership.EXPECTED) == 0)

    @always(witness="somebody_is_expected")
    def seats_are_kept(self, s: SymbolicState) -> Condition:
        """The round has a seat for each expected node."""
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

    @always(witness="somebody_waits")
    def free_seats_are_taken(self, s: SymbolicState) -> Condition:
        """While a seat is free, no node is a spare or waits in an open round, except drained nodes."""
        return all_(
            implies(
                s.member[j].isin(QUEUED) & ~((s.member[j] == Membership.WAITING) & s.complete),
                s.drained[j] | (self.taken(s) >= self.max_nodes),
            )
            for j in s.node
        )

    @leads_to()
    def the_expected_come_or_go(self, s: SymbolicState, node: Expr) -> tuple[Condition, Condition]:
        """While some node tries, no node is expected for ever."""
        tries = any_(self.tries(s, j) for j in s.node)
        waits = (s.member[node] == Membership.EXPECTED) & ~s.closed & tries
        return waits, ~waits

    @sometimes(needs="drain")
    def a_member_is_drained(self, s: SymbolicState) -> Condition:
        """A node that an operator has marked still acts on a round."""
        return any_(s.drained[j] & self.acts_on_its_round(s, j) for j in s.node)

    @always(witness="a_member_is_drained", needs="drain")
    def the_drained_take_no_seat(self, s: SymbolicState) -> Condition:
        """A drained node is in no round that completes after its mark."""
        return all_(
            implies(s.drained[j], s.member[j].isin((Membership.EXPECTED, *QUEUED)) & ~s.returned[j]) for j in s.node
        )

    @step(on=("withdraw",), witness="a_member_is_drained", needs="drain")
    def a_drain_spends_no_restart(self, before: SymbolicState, after: SymbolicState, node: Expr) -> Condition:
        """A drained node is not a member of a complete round when it leaves, because that would spend a restart."""
        return implies(before.drained[node], ~(before.complete & (before.member[node] == Membership.PARTICIPANT)))

    @leads_to(needs="drain")
    def the_drained_leave(self, s: SymbolicState, node: Expr) -> tuple[Condition, Condition]:
        """A drained node stops its workers and leaves, unless it dies or the job ends first."""
        stays = s.drained[node] & self.is_up(s, node) & ~s.closed
        return stays, ~stays

    def acts_on_its_round(self, s: SymbolicState, node: Expr) -> Condition:
        """The node acts on the result of next_rendezvous, or is about to."""
        return s.phase[node].isin(LEASED) & self.live(s, node)
