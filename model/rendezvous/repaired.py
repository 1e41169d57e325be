"""The repaired protocol: a complete round is never changed, only replaced, and never before its members have stopped.

What is different from torch's, each against the finding that it removes:

- The members of a complete round, their ranks and their master are written once, together (R1 to R4). Whoever leaves,
  fails, or sees a node waiting or silent replaces the round: its members are *expected* in the next one, which
  completes only when each of them has come, has gone, or has been expelled. So nobody runs in a round whose successor
  runs (R6).
- A heartbeat is a counter. An observer expels a member only if that counter stood still on the observer's own
  monotonic clock while it could see the store (R5, R7, R12, R13). A member stops its workers when it could not confirm
  a heartbeat for as long (its lease), which its own clock tells earlier than any observer's (R6, R7).
- Nobody is dropped in passing: expelling is an operation of its own, which replaces a complete round, so that the
  others notice (R14).
- The settings are part of the shared state: who has others is refused (R9, R12).
- Who finds no seat becomes a spare, also from the wait list (R8). Waiting nodes and spares move up when a round is
  replaced.
- A node that could not join leaves; only a member closes (R10).

Abstractions, beside those of `shared.py`. Nothing is assumed about polling: the last call may end at any time. A new
process under the address of a dead one stays outside until that one's listing is expelled (it may itself be who does
that); a newcomer that joins beside a dead listing is another node. A node that comes back after its lease has ended
stops its workers before it does anything else: one step here, microseconds in the runtime.
"""

from __future__ import annotations

from typing import Any

from ..language import Expr, any_, arc, count, environment, fault, flag, ite, may, named, ord_, transition
from .masters import Masters
from .operators import OPERATORS
from .shared import BEATS, LEASED, OURS, Condition, D, H, M, P, R, S
from .vocabulary import Action, Edition, Membership, Patience

LISTED = (M.PARTICIPANT, M.WAITING, M.REDUNDANT, M.EXPECTED)
LIVING = (H.FRESH, H.DUE)

# Moves that several steps make.
ENLISTS = arc((H.NONE, *LIVING), H.FRESH)
GROWS = (
    *(arc(R.JOINING, r) for r in (R.JOINING, R.LAST_CALL, R.COMPLETE)),
    *(arc(R.LAST_CALL, r) for r in (R.LAST_CALL, R.COMPLETE)),
)
SHRINKS = (arc((R.JOINING, R.LAST_CALL), R.JOINING), arc(R.LAST_CALL, R.LAST_CALL))
REPLACES = (
    *(arc(R.COMPLETE, r) for r in (R.JOINING, R.LAST_CALL, R.COMPLETE)),
    arc(M.PARTICIPANT, M.EXPECTED, of="others"), arc((M.WAITING, M.REDUNDANT), M.PARTICIPANT, of="others"),
)  # fmt: skip


class Repaired(Masters):
    """The steps of the repaired protocol."""

    agreed_stern = flag(doc="the settings in force have a larger min", editions=OURS)
    agreed_hasty = flag(doc="the settings in force have a shorter expiry window", editions=OURS)

    # ---- what a step sees

    def listed(self, s: S) -> Condition:
        return s.member.count(*LISTED)

    def agrees(self, s: S, node: Expr) -> Condition:
        """The settings of a rendezvous in which nobody is listed are those of who comes first."""
        same = (s.agreed_stern == s.sterner[node]) & (s.agreed_hasty == s.impatient[node])
        return same | (self.listed(s) == 0)

    def quorum(self, s: S) -> Condition:
        if self.edition not in OURS:
            return super().quorum(s)
        return ite(s.agreed_stern, self.min_nodes + 1, self.min_nodes)

    def taken(self, s: S) -> Condition:
        return s.member.count(M.PARTICIPANT, M.EXPECTED)

    def rules(self, s: S, operator: str, outcome: Any, node: Expr) -> Condition:
        """The operator of this edition decides this on the shared state."""
        return OPERATORS[Edition.TRYSTATE][operator].when(outcome, self.atoms(s, node))

    def atoms(self, s: S, node: Expr) -> dict[str, Any]:
        """What the operators look at."""
        member = s.member[node]
        return {
            "closed": s.closed,
            "agrees": self.agrees(s, node),
            "complete": s.complete,
            "participant": member == M.PARTICIPANT,
            "expected": member == M.EXPECTED,
            "waiting": member == M.WAITING,
            "redundant": member == M.REDUNDANT,
            "listed": member.isin(LISTED),
            "late": s.patience[node] != Patience.IN_TIME,
            "seat": self.taken(s) < self.max_nodes,
            "lease": s.hb[node] != H.EXPIRED,
            "ready": (s.deadline == D.PASSED) & (s.member.count(M.EXPECTED) == 0),
            "beat_due": s.hb[node].isin((H.DUE, H.EXPIRED)),
            "silent": any_(self.silent_to(s, node, j) for j in s.node),
        }

    def silent_to(self, s: S, observer: Expr, node: Expr) -> Condition:
        """The node's heartbeat stood still for the whole window. A new process may say so of the one before it."""
        return (s.hb[node] == H.EXPIRED) & ((node != observer) | s.ghost[node])

    # ---- what a step does

    def enlist(self, s: S, node: Expr, member: Membership) -> None:
        """List a node. The first one brings the settings."""
        first = self.listed(s) == 0
        s.agreed_stern = ite(first, s.sterner[node], s.agreed_stern)
        s.agreed_hasty = ite(first, s.impatient[node], s.agreed_hasty)
        s.member[node] = member
        s.rank[node] = 0
        self.stamp(s, node)

    def settle(self, s: S) -> Condition:
        """After every change of the lists: the last call begins or is off, or the round is full. True: it completes."""
        size = self.participants(s)
        full = ~s.complete & (size == self.max_nodes)
        call = ~s.complete & (size >= self.quorum(s))
        s.deadline = ite(call, ite(s.deadline == D.UNSET, D.RUNNING, s.deadline), D.UNSET)
        self.assign_ranks(s, full)
        return full

    def replace_round(self, s: S, replaced: Any) -> None:
        """A new round, in which the members of the old one are expected."""
        for j in s.node:
            s.member[j] = ite((s.member[j] == M.PARTICIPANT) & replaced, M.EXPECTED, s.member[j])
            s.rank[j] = ite(replaced, 0, s.rank[j])
        s.complete = ite(replaced, False, s.complete)
        s.round = ite(replaced, self.next_round(s.round), s.round)
        self.forget_returns(s, replaced)

    def move_up(self, s: S, replaced: Any) -> None:
        """Waiting nodes first, then spares, each in the order of their names."""
        before = s.fork()
        seats = self.max_nodes - self.taken(before)
        waiting = before.member.count(M.WAITING)
        for j in s.node:
            kind = before.member[j]
            ahead = count((before.member[k] == kind) & (ord_(k) < ord_(j)) for k in s.node)
            place = ite(kind == M.REDUNDANT, waiting + ahead, ahead)
            moves = kind.isin((M.WAITING, M.REDUNDANT)) & (place < seats)
            s.member[j] = ite(moves & replaced, M.PARTICIPANT, kind)

    def returns_if(self, s: S, node: Expr, full: Any) -> None:
        """Who completes a round returns with what it wrote, in time."""
        self.record_return(s, node, s, full)
        s.patience[node] = ite(full, Patience.IN_TIME, s.patience[node])
        s.master[node] = ite(full, self.first(s), s.master[node])
        s.place[node] = ite(full, P.RETURNING, P.JOINING)

    def first(self, s: S) -> Condition:
        """The member with rank 0, as `master` counts: node + 1."""
        below = count(~any_((s.member[k] == M.PARTICIPANT) & (ord_(k) <= ord_(j)) for k in s.node) for j in s.node)
        return ite(self.participants(s) > 0, below + 1, 0)

    # ---- leaving a round

    @transition(
        each="node", editions=OURS, cite="rendezvous-engine 3.2.3",
        moves=[*REPLACES, arc(P.EXITING, P.JOINING), arc(P.EXITING, P.RETURNING), arc(BEATS, H.FRESH)],
    )  # fmt: skip
    def replace(self, s: S, node: Expr) -> None:
        """A member that restarts replaces its round, and is the first of the next one."""
        self.enters(s, node, P.EXITING)
        s.when(self.rules(s, "exit", Action.REPLACE_ROUND, node), ~s.ghost[node])
        self.replace_round(s, True)
        s.member[node] = M.PARTICIPANT
        self.stamp(s, node)
        self.move_up(s, True)
        self.returns_if(s, node, self.settle(s))

    @transition(each="node", editions=OURS, cite="rendezvous-engine 3.2.3", moves=[arc(P.EXITING, P.JOINING)])
    def go_on_to_join(self, s: S, node: Expr) -> None:
        """A node that is in no complete round goes on to join, unless an older process is listed under its address."""
        self.enters(s, node, P.EXITING)
        s.when(self.rules(s, "exit", Action.FINISH, node), ~s.ghost[node] | s.closed)
        s.place[node] = P.JOINING

    # ---- the join operation

    def joins_by(self, s: S, node: Expr, outcome: Any) -> None:
        self.enters(s, node, P.JOINING)
        s.when(self.rules(s, "join", outcome, node))

    @transition(
        each="node", editions=OURS, cite="rendezvous-engine 4.1",
        moves=[*GROWS, arc((M.OUTSIDE, M.WAITING, M.REDUNDANT, M.EXPECTED), M.PARTICIPANT), ENLISTS,
               arc(P.JOINING, P.RETURNING)],
    )  # fmt: skip
    def take_seat(self, s: S, node: Expr) -> None:
        """A node joins; reaching min starts the last call, reaching max completes the round: it returns at once."""
        self.joins_by(s, node, Action.ADD_TO_PARTICIPANTS)
        self.enlist(s, node, M.PARTICIPANT)
        self.returns_if(s, node, self.settle(s))

    @transition(
        each="node", editions=OURS, cite="rendezvous-engine 4.3",
        moves=[arc((M.OUTSIDE, M.REDUNDANT), M.WAITING), ENLISTS],
    )  # fmt: skip
    def wait_for_the_next(self, s: S, node: Expr) -> None:
        """The round is complete and has a seat: the node waits for the next one."""
        self.joins_by(s, node, Action.ADD_TO_WAIT_LIST)
        self.enlist(s, node, M.WAITING)

    @transition(
        each="node", editions=OURS, cite="dynamic_rendezvous.py:_add_to_redundancy_list",
        moves=[arc((M.OUTSIDE, M.WAITING), M.REDUNDANT), ENLISTS],
    )  # fmt: skip
    def become_spare(self, s: S, node: Expr) -> None:
        """No seat is free, or it is kept for the expected: the node becomes a spare, without a deadline."""
        self.joins_by(s, node, Action.ADD_TO_REDUNDANCY_LIST)
        self.enlist(s, node, M.REDUNDANT)
        s.patience[node] = Patience.IN_TIME

    @transition(
        each="node", editions=OURS, cite="rendezvous-engine 4.5",
        moves=[arc(R.LAST_CALL, R.COMPLETE), arc(P.JOINING, P.RETURNING)],
    )  # fmt: skip
    def complete_round(self, s: S, node: Expr) -> None:
        """The last call is over and nobody is expected any more: a participant writes members, ranks and master."""
        self.joins_by(s, node, Action.MARK_RENDEZVOUS_COMPLETE)
        self.assign_ranks(s, True)
        self.returns_if(s, node, True)

    @transition(each="node", editions=OURS, cite="rendezvous-engine 3.2.4", moves=[arc(P.JOINING, P.RETURNING)])
    def find_complete(self, s: S, node: Expr) -> None:
        """A participant finds the round complete, and returns with what is written there."""
        self.joins_by(s, node, Action.FINISH)
        self.returns_if(s, node, True)

    def fails_by(self, s: S, node: Expr, outcome: Any) -> None:
        self.joins_by(s, node, outcome)
        s.place[node] = P.FAILED
        s.patience[node] = Patience.IN_TIME

    @transition(
        each="node", editions=OURS, cite="rendezvous-engine 3.2.4",
        moves=[*SHRINKS, arc((M.PARTICIPANT, M.WAITING, M.EXPECTED), M.OUTSIDE), arc(LIVING, H.NONE),
               arc(P.JOINING, P.FAILED)],
    )  # fmt: skip
    def withdraw(self, s: S, node: Expr) -> None:
        """The join deadline has passed: the node takes itself off the list, and raises RendezvousTimeoutError."""
        self.fails_by(s, node, Action.WITHDRAW)
        self.unlist(s, node)
        self.settle(s)

    @transition(each="node", editions=OURS, cite="rendezvous-engine 3.2.4", moves=[arc(P.JOINING, P.FAILED)])
    def be_late(self, s: S, node: Expr) -> None:
        """Too late, and not listed: next_rendezvous raises RendezvousTimeoutError."""
        self.fails_by(s, node, Action.ERROR_TIMEOUT)

    @transition(each="node", editions=OURS, cite="rendezvous-engine 3.2.4", moves=[arc(P.JOINING, P.FAILED)])
    def be_told_of_the_end(self, s: S, node: Expr) -> None:
        """The rendezvous is closed: next_rendezvous raises RendezvousClosedError, and says by whom and why."""
        self.fails_by(s, node, Action.ERROR_CLOSED)

    @transition(each="node", editions=OURS, moves=[arc(P.JOINING, P.FAILED)])
    def be_refused(self, s: S, node: Expr) -> None:
        """The node's settings are not those in force: next_rendezvous raises RendezvousSettingsError."""
        self.fails_by(s, node, Action.ERROR_SETTINGS)

    # ---- heartbeats

    @transition(
        each="node", editions=OURS, cite="rendezvous-engine 3.2.1, 4.6",
        moves=[arc((H.DUE, H.EXPIRED), H.FRESH)],
    )  # fmt: skip
    def beat(self, s: S, node: Expr) -> None:
        """A listed node counts its heartbeat up, from the first join until it leaves."""
        self.enters(s, node, P.EXITING, P.JOINING, P.RETURNING, P.RUNNING, P.DONE)
        s.when(self.rules(s, "keep-alive", Action.KEEP_ALIVE, node), ~s.ghost[node])
        self.stamp(s, node)

    @transition(
        each="node", editions=OURS,
        moves=[*SHRINKS, *REPLACES, arc(LISTED, M.OUTSIDE, of="others"), arc(H.EXPIRED, H.NONE, of="others"),
               may(M.PARTICIPANT, M.EXPECTED), may((M.WAITING, M.REDUNDANT), M.PARTICIPANT),
               arc(LISTED, M.OUTSIDE), arc(H.EXPIRED, H.NONE)],
    )  # fmt: skip
    def expel(self, s: S, node: Expr) -> None:
        """The silent are taken off the lists; a complete round that loses a member is replaced."""
        self.enters(s, node, P.EXITING, P.JOINING, P.RUNNING, P.DONE)
        s.when(self.rules(s, "expel", Action.EXPEL, node))
        before = s.fork()
        members = (self.silent_to(before, node, j) & (before.member[j] == M.PARTICIPANT) for j in s.node)
        lost = before.complete & any_(members)
        self.replace_round(s, lost)
        for j in s.node:
            gone = self.silent_to(before, node, j)
            s.member[j] = ite(gone, M.OUTSIDE, s.member[j])
            s.rank[j] = ite(gone, 0, s.rank[j])
            s.hb[j] = ite(gone, H.NONE, s.hb[j])
            s.ghost[j] = s.ghost[j] & ~gone
        self.move_up(s, lost)
        self.settle(s)

    # ---- the agent

    @transition(
        each="node", editions=OURS, cite="elastic-node-change 2.3.1 (num_nodes_waiting)",
        moves=[arc(P.RUNNING, P.EXITING)],
    )  # fmt: skip
    def restart_for_a_change(self, s: S, node: Expr) -> None:
        """A node sees that somebody waits, that its round is replaced, or that it is expelled: it stops its workers."""
        self.enters(s, node, P.RUNNING)
        changed = ~s.returned[node] | (s.member[node] != M.PARTICIPANT)
        s.when(~s.closed, named("num_nodes_waiting > 0", changed | (s.member.count(M.WAITING) > 0)))
        self.restart(s, node)

    @transition(
        each="node", editions=OURS, cite="rendezvous-engine 3.2.2",
        moves=[arc((R.JOINING, R.LAST_CALL, R.COMPLETE), R.CLOSED)],
    )  # fmt: skip
    def close(self, s: S, node: Expr) -> None:
        """A member whose job is over closes the rendezvous, and says so."""
        self.enters(s, node, P.DONE)
        s.when(self.rules(s, "close", Action.MARK_RENDEZVOUS_CLOSED, node))
        s.closed = True

    @transition(each="node", editions=OURS, cite="rendezvous-engine 3.2.2", moves=[arc((P.FAILED, P.DONE), P.LEFT)])
    def go(self, s: S, node: Expr) -> None:
        """A node that failed to join just goes; one that is done goes when the rendezvous is closed, or without it."""
        self.enters(s, node, P.FAILED, P.DONE)
        s.when((s.place[node] == P.FAILED) | self.rules(s, "close", Action.FINISH, node))
        s.place[node] = P.LEFT

    @transition(each="node", editions=OURS, moves=[arc(P.RETURNING, P.RUNNING)])
    def start(self, s: S, node: Expr) -> None:
        """next_rendezvous returns, and the agent starts its workers; neither needs the store."""
        s.when(self.live(s, node), s.place[node] == P.RETURNING)
        self.goes_on(s, node, P.RUNNING)

    def restart(self, s: S, node: Expr, when: Any = True) -> None:
        """In ours a master belongs to its round."""
        super().restart(s, node, when)
        if self.edition in OURS:
            s.master[node] = ite(when, 0, s.master[node])

    # ---- processes

    @fault(
        "restart", each="node", editions=OURS,
        moves=[arc((P.JOINING, P.RETURNING, P.RUNNING, P.DONE, P.FAILED), P.EXITING)],
    )  # fmt: skip
    def start_anew(self, s: S, node: Expr) -> None:
        """A new process starts under the address of a dead one, which may still be listed; it remembers nothing."""
        s.when(s.crashed[node])
        s.crashed[node] = False
        s.ghost[node] = s.member[node] != M.OUTSIDE
        self.restart(s, node)

    @environment(each="node", editions=OURS, fair=True, moves=[arc(LEASED, P.EXITING)])
    def wake_up(self, s: S, node: Expr) -> None:
        """A stalled process goes on; if its lease is over, it begins by stopping its workers."""
        s.when(s.stalled[node])
        s.stalled[node] = False
        self.restart(s, node, s.hb[node].isin((H.NONE, H.EXPIRED)) & s.place[node].isin(LEASED))

    @environment(each="node", editions=OURS, moves=[arc(LEASED, P.EXITING)])
    def lose_the_lease(self, s: S, node: Expr) -> None:
        """A node could not confirm a heartbeat for the whole window, by its own clock: it stops its workers."""
        s.when(self.live(s, node), s.lapsed[node], s.place[node].isin(LEASED))
        self.restart(s, node)
