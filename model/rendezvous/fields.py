"""The rendezvous as one shared state: its fields and machines, and the helpers that the steps of every edition share.

Theory of operation. The shared state lists nodes: participants of the current round, waiting nodes, spares, and in ours
the nodes that the next round expects. A node reads the state, an operator decides (`operators.py`), and the node
changes its copy. It writes the copy by compare-and-set, which succeeds only if the state is still the one that was
read. So read, decision and write are one step here. `holder.py` takes them apart; with two nodes, each step there is
one step here or none. A decision that writes nothing (FINISH) is made on the state that was read, and is also one step.

The agent of a node calls next_rendezvous (EXITING, then JOINING), which returns a rank and a world (RETURNING). Then it
runs workers (RUNNING), and calls next_rendezvous again when a worker fails or the membership changes.

Failures:

- A node dies or stops; the other nodes detect that by the age of its heartbeat.
- The store cannot be reached.
- Nodes were started with different settings.

A step has the name of the Action that it decides, like the change in the runtime. Where two operators decide the same
Action, the steps of the exit and close operators have the operator's name as a prefix (`exit_finish`, `close_finish`).

    environment.py   time that passes, and faults: the same in every edition
    torch.py         torch 1.10, 2.5 to 2.12, and 2.13
    ours.py          the edition TRYSTATE
    properties.py    the properties of every edition

Abstractions. Time: a heartbeat ages FRESH, DUE, EXPIRED; a live node that can reach the store beats before its
heartbeat expires. The last call ends only after every live node that is trying has polled (30 s against 1 s in torch).
Clocks: there are two readings, further apart than the expiry window; `clock_behind` is the earlier one. Rounds: the
counter is modulo `rounds`; the rank and the world that a node returned with are forgotten when its round is replaced.
"""

from __future__ import annotations

from typing import Any

from ..language import *
from .copies import PER_NODE, SCALARS
from .operators import OPERATORS
from .vocabulary import AgentPhase, Deadline, Heartbeat, JoinDeadline, Membership, Round

LEASED = (AgentPhase.RETURNING, AgentPhase.RUNNING)  # acts on the result of next_rendezvous
SHARED = (*SCALARS, *PER_NODE)  # the fields of the shared state
LISTED = (Membership.PARTICIPANT, Membership.WAITING, Membership.REDUNDANT, Membership.EXPECTED)


def written(system: System) -> tuple[Transition, ...]:
    """The steps of a node that write the shared state, in their order."""
    return tuple(t for t in system.transitions if t.kind is Kind.PROTOCOL and not t.effects.keys().isdisjoint(SHARED))


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
    saw_rank = integer(0, "node", per="node", doc="the rank with which it returned")
    saw = flag(per=("node", "node"), doc="it returned with this member")

    crashed = flag(per="node")
    stalled = flag(per="node")
    partitioned = flag(per="node", doc="cannot reach the store, which other nodes can reach")
    interrupted = flag(per="node", doc="stalled, crashed or partitioned since its last heartbeat")
    larger_min = flag(per="node", doc="started with a larger min")
    shorter_window = flag(per="node", doc="started with a shorter expiry window")
    clock_behind = flag(per="node", doc="its clock shows the earlier time")

    def sizes_allowed(self) -> tuple[Condition, ...]:
        return self.min_nodes >= 1, self.min_nodes <= self.max_nodes, self.rounds >= 1

    def lifelines(self) -> Lifelines:
        """The store has the shared state, where heartbeats age; the nodes' fields of a round end with the round."""
        state = "member rank heartbeat_age stamp_behind told predecessor_listed drained"
        steps = "heartbeat_ages heartbeat_expires drain"
        return served("store", f"{state} {steps}", here="returned saw_rank saw interrupted token")

    @machine(Round)
    def round_state(self, s: SymbolicState) -> Any:
        """One round of the rendezvous."""
        joining = ite(s.deadline == Deadline.UNSET, Round.JOINING, Round.LAST_CALL)
        return ite(s.closed, Round.CLOSED, ite(s.complete, Round.COMPLETE, joining))

    membership = machine_of(member, "The list of the shared state that a node is on.")
    heartbeat = machine_of(heartbeat_age, "The age of a node's heartbeat in the shared state.")
    agent = machine_of(phase, "The state of a node's agent.")

    # ---- which nodes can act, and what they see

    def acts(self, s: SymbolicState, node: Expr) -> None:
        """The node is up and reaches the store."""
        s.when(~s.crashed[node], ~s.stalled[node], ~s.partitioned[node], ~s.store_down)

    def enters(self, s: SymbolicState, node: Expr, *phases: AgentPhase) -> None:
        """The node acts and is in one of these phases."""
        self.acts(s, node)
        s.when(s.phase[node].isin(phases))

    def live(self, s: SymbolicState, node: Expr) -> Condition:
        return ~s.crashed[node] & ~s.stalled[node]

    def quorum(self, s: SymbolicState) -> Condition:
        """The number of participants that a round needs."""
        return self.min_nodes

    def participants(self, s: SymbolicState) -> Condition:
        return s.member.count(Membership.PARTICIPANT)

    def decides(self, s: SymbolicState, operator: str, outcome: Any, node: Expr) -> Condition:
        """The edition's operator decides this on the state that the node has read."""
        return OPERATORS[self.edition][operator].when(outcome, self.atoms(s, operator, node))

    def atoms(self, s: SymbolicState, operator: str, node: Expr) -> dict[str, Any]:
        """The values of the atoms that the operators of the edition read."""
        raise NotImplementedError

    # ---- what a step does

    def stamp(self, s: SymbolicState, node: Expr) -> None:
        """The node writes a heartbeat (`_keep_alive`)."""
        s.heartbeat_age[node] = Heartbeat.FRESH
        s.interrupted[node] = False

    def unlist(self, s: SymbolicState, node: Expr) -> None:
        reset(s.member, s.rank, s.heartbeat_age, at=node)

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
        """Ranks follow the order of the nodes' names."""
        return ord_(one) < ord_(other)

    def next_round(self, number: Expr) -> Condition:
        return ite(number + 1 < self.rounds, number + 1, 0)

    def forget_returns(self, s: SymbolicState, replaced: Any) -> None:
        """A rank and a world belong to the current round only; a new round begins without them."""
        reset(s.returned, s.saw, when=replaced)
        for j in s.node:
            # A node between its last sync and its return keeps its rank even if the round is replaced.
            s.saw_rank[j] = ite(replaced & ~self.is_returning(s, j), 0, s.saw_rank[j])

    def is_returning(self, s: SymbolicState, node: Expr) -> Condition:
        return s.phase[node] == AgentPhase.RETURNING

    def record_return(self, s: SymbolicState, node: Expr, copy: SymbolicState, returns: Any = True) -> None:
        """Records the rank and the members that a node returns with, from its copy."""
        s.returned[node] = ite(returns, True, s.returned[node])
        s.saw_rank[node] = ite(returns, copy.rank[node], s.saw_rank[node])
        for j in s.node:
            s.saw[node, j] = ite(returns, copy.member[j] == Membership.PARTICIPANT, s.saw[node, j])

    def goes_on(self, s: SymbolicState, node: Expr, phase: AgentPhase) -> None:
        """A returning node enters `phase` with its rank; if its round was replaced, it keeps no rank."""
        s.saw_rank[node] = ite(s.returned[node], s.saw_rank[node], 0)
        s.phase[node] = phase

    def restart(self, s: SymbolicState, node: Expr, when: Any = True) -> None:
        """The agent calls next_rendezvous again, with a new join deadline."""
        s.phase[node] = ite(when, AgentPhase.EXITING, s.phase[node])
        s.join_deadline[node] = ite(when, JoinDeadline.IN_TIME, s.join_deadline[node])
