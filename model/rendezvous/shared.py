"""The rendezvous of torch as one shared state: every successful compare-and-set is one atomic step.

A node reads the shared state, drops from its copy whoever it takes for dead, asks an operator what to do,
changes its copy, and writes it. A write by compare-and-set succeeds only on the state that was read, so
read, decision and write are one step here; `holder.py` takes them apart, and every step of that, for two nodes, is
one of these or none. A decision that writes nothing (FINISH) is taken on what was read, and is also one step.

Abstractions. Time: a heartbeat ages FRESH, DUE, EXPIRED; a live node that can reach the store beats before
its heartbeat expires. The last call ends only after every live node that is trying has polled (30 s against
1 s in torch). Clocks: two readings, further apart than the expiry window; `clock_low` is the earlier one.
Rounds: counted modulo `rounds`; what a node returned with is forgotten when its round is replaced.
"""

from __future__ import annotations

import enum
from collections.abc import Iterable
from typing import Any, ClassVar

from ..language import (
    Expr,
    SymbolicState,
    System,
    any_,
    choice,
    constant,
    count,
    flag,
    index,
    integer,
    ite,
    machine,
    may,
    ord_,
)  # fmt: skip
from .operators import OPERATORS
from .vocabulary import Deadline, Edition, Heartbeat, Membership, Patience, Place, Round

S = SymbolicState
Condition = Any  # an Expr: the attributes of a symbolic state are typed as Any
M, H, D, P, R = Membership, Heartbeat, Deadline, Place, Round
BEFORE = (Edition.SEED, Edition.TORCH)  # the editions that have what is repaired in ours
OURS = (Edition.TRYSTATE,)
LEASED = (P.RETURNING, P.RUNNING)  # acts on what it returned with: in ours, only while its lease lasts

# What dropping the dead from a copy can do to the machines, on top of a writer's own moves.
LISTS = (M.PARTICIPANT, M.WAITING, M.REDUNDANT)
BEATS = (H.FRESH, H.DUE, H.EXPIRED)
SWEEP = (
    *may((R.LAST_CALL, R.COMPLETE), R.JOINING),
    *may(LISTS, M.OUTSIDE, of="others"), *may(BEATS, H.NONE, of="others"),
    *may(LISTS, M.OUTSIDE), *may(BEATS, H.NONE),
)  # fmt: skip


class Shared(System):
    """The fields of the rendezvous, and the helpers that every step shares."""

    Edition: ClassVar[Iterable[enum.Enum]] = Edition

    node = index(3, "in the order of their names: the order of ranks")
    min_nodes = constant(2)
    max_nodes = constant(3)
    rounds = constant(1, "modulus of the round counter")

    complete = flag()
    closed = flag()
    deadline = choice(Deadline)
    round = integer(0, "rounds")
    member = choice(Membership, per="node")
    rank = integer(0, "node", per="node", doc="0 unless a participant of a complete round")
    hb = choice(Heartbeat, per="node")
    stamp_low = flag(per="node", editions=BEFORE, doc="the heartbeat was written by the earlier clock")
    published = integer(0, "node", editions=BEFORE, doc="the master under this round's prefix: node + 1, or 0")
    store_down = flag()

    place = choice(Place, per="node")
    patience = choice(Patience, per="node")
    master = integer(0, "node", per="node", doc="the master that a node will use: node + 1, or 0")
    returned = flag(per="node", doc="next_rendezvous returned from the current round")
    saw_rank = integer(0, "node", per="node", doc="... with this rank")
    saw = flag(per=("node", "node"), doc="... with this member")

    crashed = flag(per="node")
    stalled = flag(per="node")
    cut = flag(per="node", doc="cannot reach the store, which others can")
    lapsed = flag(per="node", doc="stalled, crashed or cut off since its last heartbeat")
    sterner = flag(per="node", doc="started with a larger min")
    impatient = flag(per="node", doc="started with a shorter expiry window")
    clock_low = flag(per="node", doc="its clock shows the earlier time")
    ghost = flag(per="node", editions=OURS, doc="a new process; the one before it is listed under its address")

    @machine(Round)
    def round_state(self, s: S) -> Any:
        """One round of the rendezvous."""
        joining = ite(s.deadline == D.UNSET, R.JOINING, R.LAST_CALL)
        return ite(s.closed, R.CLOSED, ite(s.complete, R.COMPLETE, joining))

    @machine(Membership, each="node")
    def membership(self, s: S, node: Expr) -> Any:
        """Where the shared state lists a node."""
        return s.member[node]

    @machine(Heartbeat, each="node")
    def heartbeat(self, s: S, node: Expr) -> Any:
        """The age of a node's heartbeat in the shared state."""
        return s.hb[node]

    @machine(Place, each="node")
    def agent(self, s: S, node: Expr) -> Any:
        """What a node's agent is doing."""
        return s.place[node]

    # ---- who can act, and what it sees

    def acts(self, s: S, node: Expr) -> None:
        """The node is up and reaches the store."""
        s.when(~s.crashed[node], ~s.stalled[node], ~s.cut[node], ~s.store_down)

    def live(self, s: S, node: Expr) -> Condition:
        return ~s.crashed[node] & ~s.stalled[node]

    def expired_for(self, s: S, observer: Expr, node: Expr) -> Condition:
        """`observer` takes `node` for dead (dynamic_rendezvous.py:_sanitize compares wall clocks)."""
        same = s.stamp_low[node] == s.clock_low[observer]
        late = same & (s.hb[node] == H.EXPIRED)
        skewed = (s.hb[node] != H.NONE) & s.stamp_low[node] & ~s.clock_low[observer]
        hasty = s.impatient[observer] & (observer != node) & (s.hb[node] == H.DUE)
        return late | skewed | hasty

    def beat_due(self, s: S, node: Expr) -> Condition:
        """A clock that went back makes a heartbeat look younger than new: none is due."""
        return (s.hb[node] == H.DUE) & (s.stamp_low[node] == s.clock_low[node])

    def min_of(self, s: S, node: Expr) -> Condition:
        return ite(s.sterner[node], self.min_nodes + 1, self.min_nodes)

    def quorum(self, s: S) -> Condition:
        """How many participants a round needs."""
        return self.min_nodes

    def participants(self, s: S) -> Condition:
        return s.member.count(M.PARTICIPANT)

    def sweep(self, s: S, observer: Expr) -> None:
        """Drop from the state whoever `observer` takes for dead (`_sanitize`)."""
        lost = any_(self.expired_for(s, observer, j) & (s.member[j] == M.PARTICIPANT) for j in s.node)
        dead_before = s.fork()
        for j in s.node:
            dead = self.expired_for(dead_before, observer, j)
            s.member[j] = ite(dead, M.OUTSIDE, s.member[j])
            s.rank[j] = ite(dead, 0, s.rank[j])
            s.hb[j] = ite(dead, H.NONE, s.hb[j])
            s.stamp_low[j] = s.stamp_low[j] & ~dead
        self.removal_epilogue(s, observer, lost)

    def removal_epilogue(self, s: S, node: Expr, removed: Any) -> None:
        """`_remove_participant_epilogue`: an emptied round is replaced, one below min loses its deadline."""
        few = self.participants(s) < self.min_of(s, node)
        short = removed & ~s.complete & few
        empty = removed & s.complete & (self.participants(s) == 0)
        s.deadline = ite(short, D.UNSET, s.deadline)
        s.complete = s.complete & ~empty
        s.round = ite(empty, self.next_round(s.round), s.round)
        self.forget_returns(s, empty)

    def next_round(self, number: Expr) -> Condition:
        return ite(number + 1 < self.rounds, number + 1, 0)

    def forget_returns(self, s: S, replaced: Any) -> None:
        """What nodes returned with concerns the current round only: a new one begins with nothing."""
        if self.edition in BEFORE:
            s.published = ite(replaced, 0, s.published)
        for j in s.node:
            s.returned[j] = ite(replaced, False, s.returned[j])
            # A node between its last sync and its return still has its rank, whatever happens to the round.
            s.saw_rank[j] = ite(replaced & ~self.is_returning(s, j), 0, s.saw_rank[j])
        for j in s.node:
            for k in s.node:
                s.saw[j, k] = ite(replaced, False, s.saw[j, k])

    def is_returning(self, s: S, node: Expr) -> Condition:
        return s.place[node] == P.RETURNING

    def goes_on(self, s: S, node: Expr, place: Place) -> None:
        """A returning node uses its rank, and goes on; of a replaced round it keeps nothing."""
        s.saw_rank[node] = ite(s.returned[node], s.saw_rank[node], 0)
        s.place[node] = place

    def record_return(self, s: S, node: Expr, copy: S, returns: Any = True) -> None:
        """Remember with what a node returns: its rank and the members, as its copy has them."""
        s.returned[node] = ite(returns, True, s.returned[node])
        s.saw_rank[node] = ite(returns, copy.rank[node], s.saw_rank[node])
        for j in s.node:
            s.saw[node, j] = ite(returns, copy.member[j] == M.PARTICIPANT, s.saw[node, j])

    def decides(self, s: S, operator: str, outcome: Any, node: Expr) -> Condition:
        """The operator decides this on the swept copy `s`; only a join ever runs into its deadline here."""
        table = OPERATORS[self.edition][operator]
        size = self.participants(s)
        atoms = {
            "closed": s.closed,
            "redundant": s.member[node] == M.REDUNDANT,
            "complete": s.complete,
            "participant": s.member[node] == M.PARTICIPANT,
            "late": (s.patience[node] != Patience.IN_TIME) if operator == "join" else False,
            "rollback": s.patience[node] != Patience.OVER,
            "waiting": s.member[node] == M.WAITING,
            "room": size < self.max_nodes,
            "fits": size <= self.max_nodes,
            "quorum": size >= self.min_of(s, node),
            "last_call": s.deadline != D.UNSET,
            "last_call_over": s.deadline == D.PASSED,
            "beat_due": self.beat_due(s, node),
        }
        return table.when(outcome, atoms)

    def stamp(self, s: S, node: Expr) -> None:
        """Write a heartbeat (`_keep_alive`)."""
        s.hb[node] = H.FRESH
        if self.edition in BEFORE:
            s.stamp_low[node] = s.clock_low[node]
        s.lapsed[node] = False

    def unlist(self, s: S, node: Expr) -> None:
        s.member[node] = M.OUTSIDE
        s.rank[node] = 0
        s.hb[node] = H.NONE
        if self.edition in BEFORE:
            s.stamp_low[node] = False

    def assign_ranks(self, s: S, done: Any) -> None:
        """`_mark_rendezvous_complete`: ranks follow the order of the nodes."""
        before = s.fork()
        for j in s.node:
            below = self.count_below(before, j)
            s.rank[j] = ite(done & (before.member[j] == M.PARTICIPANT), below, s.rank[j])
        s.complete = s.complete | done
        s.deadline = ite(done, D.UNSET, s.deadline)

    def count_below(self, s: S, node: Expr) -> Condition:
        return count((s.member[k] == M.PARTICIPANT) & (ord_(k) < ord_(node)) for k in s.node)
