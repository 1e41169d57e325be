"""The rendezvous in the process of the store: the server applies a node's request in one step, and sends notices.

Theory of operation. In `Ours` a node reads and writes the shared state itself. Here the state is the server's: the step
of a node is the server's application of its request, and the node returns later, when it receives the answer or a
notice (`notice_finishes`, `late_notice_finishes`). The server also takes steps by itself: it completes a round whose
last call is over, expels all silent nodes at once, and replaces a round for nodes that wait. No node completes a round
or expels another.

A notice may be late: the round that it is about has been replaced. A node that returns on it is expected in the next
round, which does not complete before the node has stopped its workers (`promised`).

`rooms.py` takes a request, its answer and the notices apart; each step there is one step here, or none. `trystate prove
served` proves these steps for any number of nodes.

Abstractions, in addition to the abstractions of `ours.py`. A late return keeps neither rank nor master, because its
round is over. After the loss of the server's records another life begins (`another_life`): the nodes that still run in
the life before are not followed, and the round counter continues.
"""

from __future__ import annotations

from typing import Any

from ..language import *
from .detail import OursInDetail
from .fields import LEASED, LISTED
from .ours import ENLISTS, GROWS, LIVING, REPLACES, RETURNS, SHRINKS, TAKES_THE_SEAT, Ours
from .vocabulary import AgentPhase, Deadline, Edition, Heartbeat, Membership, Round

SILENCES = (
    arc(LISTED, Membership.OUTSIDE, of="others"),
    arc(Heartbeat.EXPIRED, Heartbeat.NONE, of="others"),
)  # fmt: skip


class Served(OursInDetail):
    """Our edition with the server's own steps."""

    title = "Dynamic rendezvous in the server's process"
    Edition = (Edition.TRYSTATE,)

    promised = flag(per="node", doc="a notice of a round that has been replaced may still arrive")

    expel = mark_complete = finish = None  # type: ignore[assignment]  # the server's, or `notice_finishes`

    # ---- what a step does

    def returns_if(self, s: SymbolicState, node: Expr, full: Any) -> None:
        """The node returns when it receives the answer."""
        s.phase[node] = ite(s.phase[node] == AgentPhase.EXITING, AgentPhase.JOINING, s.phase[node])

    def begin_new_round(self, s: SymbolicState, replaced: Any) -> None:
        """The notice that the round was complete may still be on its way to its members."""
        for j in s.node:
            joins = (s.phase[j] == AgentPhase.JOINING) & (s.member[j] == Membership.PARTICIPANT)
            s.promised[j] = s.promised[j] | (joins & s.complete & replaced)
        super().begin_new_round(s, replaced)

    def enlist(self, s: SymbolicState, node: Expr, member: Membership) -> None:
        """The answer to a request arrives after each notice that was sent before it."""
        super().enlist(s, node, member)
        s.promised[node] = False

    # ---- the requests of nodes

    replace_round = Ours.replace_round.claiming(
        *REPLACES,
        arc(AgentPhase.EXITING, AgentPhase.JOINING),
        arc((*LIVING, Heartbeat.EXPIRED), Heartbeat.FRESH),
        may(Membership.PARTICIPANT, Membership.EXPECTED),
    )
    add_to_participants = Ours.add_to_participants.claiming(
        *GROWS,
        arc((Membership.OUTSIDE, Membership.EXPECTED), Membership.PARTICIPANT),
        ENLISTS,
    )

    @transition(moves=[RETURNS])
    def notice_finishes(self, s: SymbolicState, node: Expr) -> None:
        """A node receives the answer or the notice that its round is complete, and returns if its lease holds."""
        self.receives(s, node)
        s.when(s.complete, s.member[node] == Membership.PARTICIPANT)
        super().returns_if(s, node, True)

    @transition(moves=[RETURNS])
    def late_notice_finishes(self, s: SymbolicState, node: Expr) -> None:
        """The notice is late: the node returns from a round that has been replaced, and is expected in the next one."""
        self.receives(s, node)
        s.when(s.member[node] == Membership.EXPECTED, s.promised[node], ~s.unhealthy[node])
        reset(s.promised, s.join_deadline, s.master, s.saw_rank, at=node)
        s.phase[node] = AgentPhase.RETURNING

    def receives(self, s: SymbolicState, node: Expr) -> None:
        """The node joins, and its lease holds when it receives the message."""
        s.when(self.live(s, node), s.phase[node] == AgentPhase.JOINING, ~s.predecessor_listed[node])
        s.when(s.heartbeat_age[node].isin(LIVING))

    # ---- the server's own steps

    def serves(self, s: SymbolicState) -> None:
        """The server is up, and the rendezvous is open."""
        s.when(~s.store_down, ~s.closed)

    @environment(fair=True, moves=[arc(Round.LAST_CALL, Round.COMPLETE)])
    def server_completes(self, s: SymbolicState) -> None:
        """The last call is over by the server's clock and no node is expected: members and ranks are fixed."""
        self.serves(s)
        s.when(~s.complete, s.deadline == Deadline.PASSED, s.member.count(Membership.EXPECTED) == 0)
        self.assign_ranks(s, True)

    @environment(fair=True, moves=[*SHRINKS, *REPLACES, *SILENCES, *TAKES_THE_SEAT])
    def server_expels(self, s: SymbolicState) -> None:
        """All nodes that were silent for the window, by the server's clock, are removed from the lists."""
        self.serves(s)
        s.when(any_(x == Heartbeat.EXPIRED for x in s.heartbeat_age))
        self.removes_silent(s, None)

    @environment(moves=[
        arc(Round.COMPLETE, (Round.JOINING, Round.LAST_CALL)),
        arc(Membership.PARTICIPANT, Membership.EXPECTED, of="others"),
        arc(Membership.WAITING, Membership.PARTICIPANT, of="others"),
    ])  # fmt: skip
    def server_makes_room(self, s: SymbolicState) -> None:
        """A node waits for a seat, and the scale-up interval is over by the server's clock: the round is replaced."""
        self.serves(s)
        s.when(s.complete, ~s.young, s.member.count(Membership.WAITING) > 0, self.taken(s) < self.max_nodes)
        self.begin_new_round(s, True)
        self.move_up(s, True)
        self.settle(s)

    # ---- the end of the server's process

    @fault("server_restart", moves=[may((Heartbeat.DUE, Heartbeat.EXPIRED), Heartbeat.FRESH, of="others"),
                                    may(Round.LAST_CALL, Round.LAST_CALL)])  # fmt: skip
    def server_restarts(self, s: SymbolicState) -> None:
        """The server's process ends and begins again with its records: all windows and the last call begin again."""
        for j in s.node:
            s.heartbeat_age[j] = ite(s.heartbeat_age[j] == Heartbeat.NONE, Heartbeat.NONE, Heartbeat.FRESH)
        s.deadline = ite(s.deadline == Deadline.PASSED, Deadline.RUNNING, s.deadline)

    @fault("lost_tail", moves=[
        may(tuple(Round), Round.JOINING), may(LISTED, Membership.OUTSIDE, of="others"),
        may(tuple(Heartbeat), Heartbeat.NONE, of="others"),
        may((*LEASED, AgentPhase.JOINING), AgentPhase.EXITING, of="others"),
    ])  # fmt: skip
    def another_life(self, s: SymbolicState) -> None:
        """The server's process ends, and its last records are lost: another life begins with an empty state."""
        self.serves(s)
        for j in s.node:
            lost = s.phase[j].isin(LEASED) | ((s.phase[j] == AgentPhase.JOINING) & s.unhealthy[j])
            self.restart(s, j, lost)
        reset(s.returned, s.saw, s.saw_rank, s.member, s.rank, s.heartbeat_age, s.drained, s.predecessor_listed)
        reset(s.promised)
        s.complete = s.young = False
        s.deadline = Deadline.UNSET

    @step(on=("server_expels",), witness="two_run")
    def the_server_expels_the_silent(self, before: SymbolicState, after: SymbolicState) -> Condition:
        """The server removes no live, uninterrupted node that joins, runs or is done."""
        active = (*LEASED, AgentPhase.JOINING, AgentPhase.DONE)
        return all_(
            implies(
                before.phase[j].isin(active) & ~before.interrupted[j] & (before.member[j] != Membership.OUTSIDE),
                after.member[j] != Membership.OUTSIDE,
            )
            for j in before.node
        )
