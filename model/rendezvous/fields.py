"""The rendezvous as one shared state: its fields, its machines, and what the steps of every edition share.

Theory of operation. The shared state lists nodes: participants of the current round, waiting nodes, spares, and
in ours those that the next round expects. A node reads it, asks an operator what to do (`operators.py`), changes its
copy, and writes it by compare-and-set, which succeeds only on the state that was read. So read, decision and write are
one step here. `holder.py` takes them apart, and each step there, for two nodes, is one of these or none. A
decision that writes nothing (FINISH) is taken on what was read, and is also one step.

The agent of a node calls next_rendezvous (EXITING, then JOINING), returns from it with a rank and a world (RETURNING),
runs workers (RUNNING), and calls it again when a worker fails or when the membership changes. Three things go wrong in
this protocol: a node dies or stops, and others judge that by the age of its heartbeat; the store cannot be reached; and
nodes that were started with other settings meet.

A step has the name of the Action that it decides, as the change in the runtime has. Where two operators decide the same
Action, that of the exit and close operators has the operator's name before it (`exit_finish`, `close_finish`).

    environment.py   time that passes, and faults: the same in every edition
    torch.py         torch 1.10, 2.5 to 2.12, and 2.13
    ours.py          the edition TRYSTATE
    properties.py    what is asked of every edition

Abstractions. Time: a heartbeat ages FRESH, DUE, EXPIRED; a live node that can reach the store beats before its
heartbeat expires. The last call ends only after every live node that is trying has polled (30 s against 1 s in torch).
Clocks: two readings, further apart than the expiry window; `clock_behind` is the earlier one. Rounds: counted modulo
`rounds`; what a node returned with is forgotten when its round is replaced.
"""

from __future__ import annotations

from typing import Any

from ..language import Expr, SymbolicState, System, choice, constant, count, flag, index, integer, ite, machine, ord_
from ..language.lifelines import Lifelines, served
from .operators import OPERATORS
from .vocabulary import AgentPhase, Deadline, Heartbeat, JoinDeadline, Membership, Round

Condition = Any  # an Expr: the attributes of a symbolic state are typed as Any
LEASED = (AgentPhase.RETURNING, AgentPhase.RUNNING)  # acts on what next_rendezvous returned
LISTED = (Membership.PARTICIPANT, Membership.WAITING, Membership.REDUNDANT, Membership.EXPECTED)


class Fields(System):
    """The fields of the rendezvous, and the helpers that the steps of every edition share."""

    node = index(3, "in the order of their names")
    min_nodes = constant(2)
    max_nodes = constant(3)
    rounds = constant(1, "modulus of the round counter")

    complete = flag()
    closed = flag()
    deadline = choice(Deadline)
    round = integer(0, "rounds")
    member = choice(Membership, per="node")
    rank = integer(0, "node", per="node", doc="0 unless a participant of a complete round")
    heartbeat_age = choice(Heartbeat, per="node")
    store_down = flag()

    phase = choice(AgentPhase, per="node")
    join_deadline = choice(JoinDeadline, per="node")
    master = integer(0, "node", per="node", doc="the master that a node will use: node + 1, or 0")
    returned = flag(per="node", doc="next_rendezvous returned from the current round")
    saw_rank = integer(0, "node", per="node", doc="... with this rank")
    saw = flag(per=("node", "node"), doc="... with this member")

    crashed = flag(per="node")
    stalled = flag(per="node")
    partitioned = flag(per="node", doc="cannot reach the store, which others can")
    interrupted = flag(per="node", doc="stalled, crashed or partitioned since its last heartbeat")
    larger_min = flag(per="node", doc="started with a larger min")
    shorter_window = flag(per="node", doc="started with a shorter expiry window")
    clock_behind = flag(per="node", doc="its clock shows the earlier time")

    def sizes_allowed(self) -> tuple[Condition, ...]:
        return self.min_nodes >= 1, self.min_nodes <= self.max_nodes, self.rounds >= 1

    def lifelines(self) -> Lifelines:
        """The store has the shared state, where heartbeats age; with a round, what nodes have of it is over."""
        state = "member rank heartbeat_age stamp_behind told predecessor_listed drained"
        steps = "heartbeat_ages heartbeat_expires drain"
        return served("store", f"{state} {steps}", here="returned saw_rank saw interrupted token")

    @machine(Round)
    def round_state(self, s: SymbolicState) -> Any:
        """One round of the rendezvous."""
        joining = ite(s.deadline == Deadline.UNSET, Round.JOINING, Round.LAST_CALL)
        return ite(s.closed, Round.CLOSED, ite(s.complete, Round.COMPLETE, joining))

    @machine(Membership, each="node")
    def membership(self, s: SymbolicState, node: Expr) -> Any:
        """Where the shared state lists a node."""
        return s.member[node]

    @machine(Heartbeat, each="node")
    def heartbeat(self, s: SymbolicState, node: Expr) -> Any:
        """The age of a node's heartbeat in the shared state."""
        return s.heartbeat_age[node]

    @machine(AgentPhase, each="node")
    def agent(self, s: SymbolicState, node: Expr) -> Any:
        """The state of a node's agent."""
        return s.phase[node]

    # ---- which nodes can act, and what they see

    def acts(self, s: SymbolicState, node: Expr) -> None:
        """The node is up and reaches the store."""
        s.when(~s.crashed[node], ~s.stalled[node], ~s.partitioned[node], ~s.store_down)

    def enters(self, s: SymbolicState, node: Expr, *phases: AgentPhase) -> None:
        """The node acts, in one of these phases."""
        self.acts(s, node)
        s.when(s.phase[node].isin(phases))

    def live(self, s: SymbolicState, node: Expr) -> Condition:
        return ~s.crashed[node] & ~s.stalled[node]

    def quorum(self, s: SymbolicState) -> Condition:
        """How many participants a round needs."""
        return self.min_nodes

    def participants(self, s: SymbolicState) -> Condition:
        return s.member.count(Membership.PARTICIPANT)

    def decides(self, s: SymbolicState, operator: str, outcome: Any, node: Expr) -> Condition:
        """The edition's operator decides this on the state that the node has read."""
        return OPERATORS[self.edition][operator].when(outcome, self.atoms(s, operator, node))

    def atoms(self, s: SymbolicState, operator: str, node: Expr) -> dict[str, Any]:
        """The values of the atoms that the operators of the edition look at."""
        raise NotImplementedError

    # ---- what a step does

    def stamp(self, s: SymbolicState, node: Expr) -> None:
        """Write a heartbeat (`_keep_alive`)."""
        s.heartbeat_age[node] = Heartbeat.FRESH
        s.interrupted[node] = False

    def unlist(self, s: SymbolicState, node: Expr) -> None:
        s.member[node] = Membership.OUTSIDE
        s.rank[node] = 0
        s.heartbeat_age[node] = Heartbeat.NONE

    def assign_ranks(self, s: SymbolicState, done: Any) -> None:
        """`_mark_rendezvous_complete`: ranks follow the order of the nodes."""
        before = s.fork()
        for j in s.node:
            below = self.count_below(before, j)
            s.rank[j] = ite(done & (before.member[j] == Membership.PARTICIPANT), below, s.rank[j])
        s.complete = s.complete | done
        s.deadline = ite(done, Deadline.UNSET, s.deadline)

    def count_below(self, s: SymbolicState, node: Expr) -> Condition:
        return count((s.member[k] == Membership.PARTICIPANT) & self.sorts_before(s, k, node) for k in s.node)

    def sorts_before(self, s: SymbolicState, one: Expr, other: Expr) -> Condition:
        """The order of ranks: that of the nodes' names."""
        return ord_(one) < ord_(other)

    def next_round(self, number: Expr) -> Condition:
        return ite(number + 1 < self.rounds, number + 1, 0)

    def forget_returns(self, s: SymbolicState, replaced: Any) -> None:
        """A rank and a world concern the current round only: a new round begins with none."""
        for j in s.node:
            s.returned[j] = ite(replaced, False, s.returned[j])
            # A node between its last sync and its return still has its rank, whatever happens to the round.
            s.saw_rank[j] = ite(replaced & ~self.is_returning(s, j), 0, s.saw_rank[j])
        for j in s.node:
            for k in s.node:
                s.saw[j, k] = ite(replaced, False, s.saw[j, k])

    def is_returning(self, s: SymbolicState, node: Expr) -> Condition:
        return s.phase[node] == AgentPhase.RETURNING

    def record_return(self, s: SymbolicState, node: Expr, copy: SymbolicState, returns: Any = True) -> None:
        """Remember with what a node returns: its rank and the members, as its copy has them."""
        s.returned[node] = ite(returns, True, s.returned[node])
        s.saw_rank[node] = ite(returns, copy.rank[node], s.saw_rank[node])
        for j in s.node:
            s.saw[node, j] = ite(returns, copy.member[j] == Membership.PARTICIPANT, s.saw[node, j])

    def goes_on(self, s: SymbolicState, node: Expr, phase: AgentPhase) -> None:
        """A returning node uses its rank, and goes on; of a replaced round it keeps nothing."""
        s.saw_rank[node] = ite(s.returned[node], s.saw_rank[node], 0)
        s.phase[node] = phase

    def restart(self, s: SymbolicState, node: Expr, when: Any = True) -> None:
        """The agent calls next_rendezvous again, with a new join deadline."""
        s.phase[node] = ite(when, AgentPhase.EXITING, s.phase[node])
        s.join_deadline[node] = ite(when, JoinDeadline.IN_TIME, s.join_deadline[node])
