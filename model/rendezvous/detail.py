"""Six steps of our rendezvous that `Ours` leaves out: five writes of the runtime, and a node's return.

Theory of operation. `Ours` ends its agents in two ways: a node that is done leaves when the rendezvous is closed, and a
node that could not join leaves. The runtime writes more: a member gives notice while its workers run, leaves, reports
that its workers are done, and closes the rendezvous when no restart is left. A node may do so, and need not: none of
the six is fair. `trystate verify` checks every property of the rendezvous with these steps as well, and
`monitor/rendezvous` follows the record of a job on them.

Not a refinement of `Ours` in the sense of `checker/refinement.py`: a node that closes the rendezvous while it runs, or
that is expected in the next round while it runs by its own write, has no counterpart there.
"""

from __future__ import annotations

from typing import Any

from ..language import Expr, SymbolicState, arc, environment, may, transition
from .fields import LISTED
from .ours import LIVING, MOVES_UP, REPLACES, SHRINKS, TAKES_THE_SEAT, Ours
from .vocabulary import Action, AgentPhase, Heartbeat, Membership, Round

BEATING = (*LIVING, Heartbeat.EXPIRED)
GOES = (*may(BEATING, Heartbeat.NONE), *may(tuple(AgentPhase), AgentPhase.LEFT))


class OursInDetail(Ours):
    """Our edition with the changes of the shared state that `Ours` leaves out."""

    title = "Dynamic rendezvous, with notices, departures, verdicts and returns"

    @transition(
        fair=False,
        moves=[
            arc(Round.COMPLETE, (Round.JOINING, Round.LAST_CALL)),
            *MOVES_UP,
            arc(Membership.PARTICIPANT, Membership.EXPECTED),
            may(BEATING, Heartbeat.FRESH),
        ],
    )
    def give_notice(self, s: SymbolicState, node: Expr) -> None:
        """A member replaces its round while its workers still run, for a node that waits or because it will leave."""
        self.enters(s, node, AgentPhase.RUNNING)
        s.when(~s.closed, s.complete, s.member[node] == Membership.PARTICIPANT, s.returned[node])
        self.begin_new_round(s, True)
        self.stamp(s, node)
        self.move_up(s, True)
        self.settle(s)

    @transition(fair=False, moves=[*SHRINKS, *REPLACES, *TAKES_THE_SEAT, arc(LISTED, Membership.OUTSIDE), *GOES])
    def leave(self, s: SymbolicState, node: Expr) -> None:
        """A node removes itself from the lists and ends; a complete round that loses a member is replaced."""
        self.leaves(s, node, s.complete & (s.member[node] == Membership.PARTICIPANT))

    @transition(
        fair=False,
        moves=[
            arc(Round.COMPLETE, Round.CLOSED),
            *MOVES_UP,
            arc(Membership.REDUNDANT, Membership.PARTICIPANT, of="others"),
            arc(Membership.PARTICIPANT, Membership.OUTSIDE),
            *GOES,
        ],
    )
    def leave_and_close(self, s: SymbolicState, node: Expr) -> None:
        """A member leaves a complete round and no restart is left: one write replaces the round and closes it.

        Source: `withdraw` of `impl/rendezvous/changes.py`. The model counts no restarts.
        """
        s.when(~s.closed, s.complete, s.member[node] == Membership.PARTICIPANT)
        self.leaves(s, node, True)
        s.closed = True

    def leaves(self, s: SymbolicState, node: Expr, lost: Any) -> None:
        """The node leaves; `lost`: its complete round is replaced."""
        self.enters(s, node, *(phase for phase in AgentPhase if phase is not AgentPhase.LEFT))
        s.when(s.member[node].isin(LISTED), ~s.predecessor_listed[node])
        self.begin_new_round(s, lost)
        self.unlist(s, node)
        self.move_up(s, ~s.complete)
        self.settle(s)
        s.phase[node] = AgentPhase.LEFT

    @environment(switch="comes_again", bound=1, moves=[arc(AgentPhase.LEFT, AgentPhase.EXITING)])
    def come_again(self, s: SymbolicState, node: Expr) -> None:
        """A node that stepped back because its health command failed joins again."""
        s.when(s.phase[node] == AgentPhase.LEFT, s.member[node] == Membership.OUTSIDE, self.live(s, node))
        self.restart(s, node)

    @transition(fair=False, moves=[may((Heartbeat.DUE, Heartbeat.EXPIRED), Heartbeat.FRESH)])
    def mark_done(self, s: SymbolicState, node: Expr) -> None:
        """The workers of a member have succeeded: the member writes that, and the write is a heartbeat."""
        self.enters(s, node, AgentPhase.RUNNING)
        s.when(~s.closed, s.complete, s.member[node] == Membership.PARTICIPANT)
        self.stamp(s, node)

    @transition(fair=False, moves=[arc((Round.JOINING, Round.LAST_CALL, Round.COMPLETE), Round.CLOSED)])
    def close_as_failed(self, s: SymbolicState, node: Expr) -> None:
        """No restart is left or a failure is final: a member, or a node that may expel one, closes the rendezvous."""
        self.enters(s, node, AgentPhase.EXITING, AgentPhase.JOINING, AgentPhase.RUNNING)
        seated = s.member[node].isin((Membership.PARTICIPANT, Membership.EXPECTED))
        s.when(~s.closed, seated | self.decides(s, "expel", Action.EXPEL, node))
        s.closed = True
