"""The steps of each edition as a follower takes them: those that a line shows, and those that leave no trace.

Rule: data. The steps are the model's. `OursInDetail` adds the changes of our runtime that the model leaves out; a
test checks that every property of the model holds with them too.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from trystate.model.language import Expr, SymbolicState, System, arc, environment, may, transition
from trystate.model.rendezvous.fields import LISTED
from trystate.model.rendezvous.ours import REPLACES, SHRINKS, Ours
from trystate.model.rendezvous.properties import Rendezvous
from trystate.model.rendezvous.vocabulary import Action, AgentPhase, Edition, Heartbeat, Membership, Round

from .shared_state import Protocol

FAULTS = ("worker_failure", "crash", "stall", "partition", "job_end", "join_timeout")
TORCH_FAULTS = (*FAULTS, "identical_workers", "read_timeout")
OURS_FAULTS = (*FAULTS, "drain", "comes_again")
ROUNDS = 60_000  # modulus of the round counter: a record with more rounds than that goes round, as the model does


@dataclass(frozen=True, slots=True)
class Moves:
    """The steps of one edition, by how they show in a record. All are steps of a node, except `last_call`."""

    edition: Edition
    system: type[System]
    writes: tuple[str, ...]  # each is one successful write of the shared state
    forced: tuple[str, ...]  # taken as soon as the node has read the state, if its table says so
    unseen: tuple[str, ...]  # may have happened since the node's last line: its workers, its deadlines, its agent
    leaves: tuple[str, ...]  # lead to the end of a process that is not killed
    returns: Mapping[str, tuple[str, ...]]  # requests by which agents tell each other: the steps that each can be
    last_call: str = "last_call_passes"


TORCH_WRITES = (
    "exit_remove_from_participants", "add_to_participants", "add_to_wait_list", "add_to_redundancy_list",
    "remove_from_redundancy_list", "mark_complete", "keep_alive", "remove_from_participants", "remove_from_wait_list",
    "mark_closed",
)  # fmt: skip
TORCH_FORCED = ("exit_finish", "finish", "error_closed", "graceful_exit", "close_finish")
TORCH_UNSEEN = (
    "restart_workers", *TORCH_FORCED, "return_with_cached_master", "return_to_connect", "start_workers",
    "start_identical_workers", "worker_fails", "job_ends", "join_deadline_passes", "rollback_window_passes",
    "error_timeout", "wait_times_out",
)  # fmt: skip
TORCH_RETURNS = {
    "set": ("return_as_master",),
    "wait": ("return_to_connect",),
    "get": ("return_to_connect", "connect"),
    "role": ("return_with_cached_master", "connect"),
    "ranks": ("start_workers",),
    "done": ("start_workers", "start_identical_workers", "job_ends"),
}
TORCH_LEAVES = (
    "job_ends",
    "join_deadline_passes",
    "rollback_window_passes",
    "error_timeout",
    "error_closed",
    "close_finish",
)


class OursInDetail(Ours):
    """Our edition with the changes of the runtime that the model leaves out."""

    @transition(
        each="node",
        moves=[
            *REPLACES,
            arc(Membership.PARTICIPANT, Membership.EXPECTED),
            may((Heartbeat.FRESH, Heartbeat.DUE, Heartbeat.EXPIRED), Heartbeat.FRESH),
        ],
    )
    def give_notice(self, s: SymbolicState, node: Expr) -> None:
        """A member replaces its round while its workers still run: for a node that waits, or because it will leave."""
        self.enters(s, node, AgentPhase.RUNNING)
        s.when(~s.closed, s.complete, s.member[node] == Membership.PARTICIPANT, s.returned[node])
        self.begin_new_round(s, True)
        self.stamp(s, node)
        self.move_up(s, True)
        self.settle(s)

    @transition(
        each="node",
        moves=[
            *SHRINKS,
            *REPLACES,
            arc(LISTED, Membership.OUTSIDE),
            may((Heartbeat.FRESH, Heartbeat.DUE, Heartbeat.EXPIRED), Heartbeat.NONE),
            may(tuple(AgentPhase), AgentPhase.LEFT),
        ],
    )
    def leave(self, s: SymbolicState, node: Expr) -> None:
        """A node takes itself off the lists and ends; a complete round that loses a member is replaced."""
        self.leaves(s, node, s.complete & (s.member[node] == Membership.PARTICIPANT))

    @transition(
        each="node",
        moves=[
            *REPLACES,
            arc(Round.COMPLETE, Round.CLOSED),
            arc(Membership.PARTICIPANT, Membership.OUTSIDE),
            may((Heartbeat.FRESH, Heartbeat.DUE, Heartbeat.EXPIRED), Heartbeat.NONE),
            may(tuple(AgentPhase), AgentPhase.LEFT),
        ],
    )
    def leave_and_close(self, s: SymbolicState, node: Expr) -> None:
        """A member leaves a complete round, and no restart is left: one write replaces the round and closes it.

        Source: `withdraw` of `impl/rendezvous/changes.py`. The model counts no restarts.
        """
        s.when(~s.closed, s.complete, s.member[node] == Membership.PARTICIPANT)
        self.leaves(s, node, True)
        s.closed = True

    def leaves(self, s: SymbolicState, node: Expr, lost: Any) -> None:
        """The node goes; `lost`: its complete round with it."""
        self.enters(s, node, *(phase for phase in AgentPhase if phase is not AgentPhase.LEFT))
        s.when(s.member[node].isin(LISTED), ~s.predecessor_listed[node])
        frees = s.drained[node] & (s.member[node] == Membership.EXPECTED)
        self.begin_new_round(s, lost)
        self.unlist(s, node)
        self.move_up(s, lost | frees)
        self.settle(s)
        s.phase[node] = AgentPhase.LEFT

    @environment(each="node", switch="comes_again", bound=1, moves=[arc(AgentPhase.LEFT, AgentPhase.EXITING)])
    def come_again(self, s: SymbolicState, node: Expr) -> None:
        """A node that has stepped back, since its health command failed, joins again."""
        s.when(s.phase[node] == AgentPhase.LEFT, s.member[node] == Membership.OUTSIDE, self.live(s, node))
        self.restart(s, node)

    @transition(each="node", moves=[may((Heartbeat.DUE, Heartbeat.EXPIRED), Heartbeat.FRESH)])
    def mark_done(self, s: SymbolicState, node: Expr) -> None:
        """The workers of a member have succeeded; it says so, which is a heartbeat."""
        self.enters(s, node, AgentPhase.RUNNING)
        s.when(~s.closed, s.complete, s.member[node] == Membership.PARTICIPANT)
        self.stamp(s, node)

    @transition(
        each="node",
        moves=[
            arc((Round.JOINING, Round.LAST_CALL, Round.COMPLETE), Round.CLOSED),
        ],
    )
    def close_as_failed(self, s: SymbolicState, node: Expr) -> None:
        """No restart is left, or a failure is final: a member, or an observer of its silence, closes the rendezvous."""
        self.enters(s, node, AgentPhase.EXITING, AgentPhase.JOINING, AgentPhase.RUNNING)
        seated = s.member[node].isin((Membership.PARTICIPANT, Membership.EXPECTED))
        s.when(~s.closed, seated | self.decides(s, "expel", Action.EXPEL, node))
        s.closed = True


OURS_FORCED = ("exit_finish", "finish", "start_workers", "error_closed", "error_settings")
OURS_WRITES = (
    "add_to_participants", "add_to_wait_list", "add_to_redundancy_list", "mark_complete", "replace_round", "withdraw",
    "keep_alive", "expel", "mark_closed", "give_notice", "mark_done", "leave", "leave_and_close",
    "close_as_failed",
)  # fmt: skip
OURS_UNSEEN = (
    *OURS_FORCED, "restart_workers", "worker_fails", "lose_lease", "job_ends", "join_deadline_passes", "error_timeout",
    "come_again",
)  # fmt: skip

TORCH = Moves(
    Edition.TORCH, Rendezvous, TORCH_WRITES, TORCH_FORCED, TORCH_UNSEEN, TORCH_LEAVES, TORCH_RETURNS
)  # fmt: skip
TORCH_2_12 = Moves(
    Edition.TORCH_2_12, Rendezvous, TORCH_WRITES, (*TORCH_FORCED, "assertion_error"),
    (*TORCH_UNSEEN, "assertion_error"), ("assertion_error", *TORCH_LEAVES), TORCH_RETURNS,
)  # fmt: skip
OURS = Moves(
    Edition.TRYSTATE, OursInDetail, OURS_WRITES, OURS_FORCED, OURS_UNSEEN,
    ("job_ends", "join_deadline_passes", "error_timeout", "error_closed", "close_finish"), {},
)  # fmt: skip
EDITIONS: Mapping[Edition, Moves] = {moves.edition: moves for moves in (TORCH, TORCH_2_12, OURS)}


RAN = {  # the steps with which a node has a rank, a world and a master
    Protocol.TORCH: ("connect", "return_as_master", "return_with_cached_master"),
    Protocol.OURS: ("start_workers",),
}


def build(moves: Moves, nodes: int, low: int, high: int) -> Any:
    """The system of an edition, for so many nodes; each fault may happen, and a follower counts none."""
    faults = dict.fromkeys(TORCH_FAULTS if moves.system is Rendezvous else OURS_FAULTS, 1)
    sizes = {"node": nodes, "min_nodes": low, "max_nodes": high, "rounds": ROUNDS}
    return (
        moves.system(edition=moves.edition, faults=faults, **sizes)
        if moves.system is Rendezvous
        else (moves.system(faults=faults, **sizes))
    )


def said_by(what: str, rest: str) -> tuple[str, AgentPhase]:
    """The name of a request of torch's agents below the round's prefix, and the phase of its node after it."""
    if rest.startswith("MASTER_ADDR"):
        return what, AgentPhase.CONNECTING if what == "wait" else AgentPhase.EXCHANGING
    if "role_info/" in rest and what in ("set", "multi_set"):
        return "role", AgentPhase.EXCHANGING
    if "assigned_ranks/" in rest and what in ("get", "multi_get"):
        return "ranks", AgentPhase.RUNNING
    if rest.endswith("terminal_state/num_members") and what == "add":
        return "done", AgentPhase.DONE
    return "", AgentPhase.RUNNING
