"""The steps of each edition as a follower takes them: those that a line shows, and those that leave no trace.

Rule: data. The steps are the model's; our runtime is followed with all of its writes, which `OursInDetail` has.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from trystate.model.language import System
from trystate.model.rendezvous.detail import OursInDetail
from trystate.model.rendezvous.properties import Rendezvous
from trystate.model.rendezvous.vocabulary import AgentPhase, Edition

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
