"""The steps of each edition for a follower: the steps that a line shows, and the steps without a trace.

Rule: data only. The steps are the model's; our runtime is followed with all its writes, which `OursInDetail` has.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from trystate.model.language import Kind, System
from trystate.model.language.transitions import Rule, fault_bounds
from trystate.model.rendezvous.detail import OursInDetail
from trystate.model.rendezvous.fields import SHARED, written
from trystate.model.rendezvous.properties import Rendezvous
from trystate.model.rendezvous.vocabulary import AgentPhase, Edition

from .shared_state import Protocol

ROUNDS = 60_000  # modulus of the round counter: with more rounds it wraps around, like the model's
# No line shows these faults: a store that is down records nothing, clocks and health commands are not in the state, and
# a process that is started again is another node. No line shows a step `start_with_`: the settings are in the state.
NOT_RECORDED = ("outage", "restart", "clock_step", "unhealthy")
SUPPOSED = {"crashed", "stalled", "partitioned"}  # fields that a follower sets, for a node that is silent


@dataclass(frozen=True, slots=True)
class Moves:
    """The steps of one edition, by their evidence in a record. All are steps of a node."""

    edition: Edition
    system: type[System]
    forced: tuple[str, ...]  # taken as soon as the node has read the state, if its table decides so
    shown: tuple[str, ...]  # steps that do not change the shared state, but have a line
    leaves: tuple[str, ...]  # steps that lead to the end of a process that is not killed
    returns: Mapping[str, tuple[str, ...]]  # requests by which agents exchange data: the steps that each can be

    @property
    def faults(self) -> tuple[str, ...]:
        """The faults and switches whose effect a record may show."""
        rules = self.system.for_edition(self.edition).declarations().items()
        settings = {r.fault for name, r in rules if isinstance(r, Rule) and name.startswith("start_with_")}
        return tuple(fault for fault in fault_bounds(dict(rules)) if fault not in {*NOT_RECORDED, *settings})

    def writes(self, system: System) -> tuple[str, ...]:
        """The steps that are one successful write of the shared state, without the steps of health commands."""
        unfit = ("leave_unhealthy", "stand_by")
        return tuple(t.name for t in written(system) if t.name not in unfit)

    def traceless(self, system: System) -> tuple[str, ...]:
        """The steps that may have happened since the node's last line, with the node's own steps first."""
        steps = sorted(system.transitions, key=lambda t: t.kind is not Kind.PROTOCOL)
        return tuple(
            t.name for t in steps
            if t.params and t.name not in self.shown and not t.effects.keys() & {*SHARED, *SUPPOSED}
        )  # fmt: skip


# A `close_finish` is not among them: the read may be of a heartbeat, which is written while the agent ends.
TORCH_FORCED = ("exit_finish", "finish", "error_closed", "graceful_exit")
TORCH_SHOWN = ("return_as_master", "connect")
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

TORCH = Moves(Edition.TORCH, Rendezvous, TORCH_FORCED, TORCH_SHOWN, TORCH_LEAVES, TORCH_RETURNS)
TORCH_2_12 = Moves(
    Edition.TORCH_2_12, Rendezvous, (*TORCH_FORCED, "assertion_error"), TORCH_SHOWN, ("assertion_error", *TORCH_LEAVES),
    TORCH_RETURNS,
)  # fmt: skip
OURS = Moves(
    Edition.TRYSTATE, OursInDetail, ("exit_finish", "finish", "start_workers", "error_closed", "error_settings"),
    ("close_finish",), ("job_ends", "join_deadline_passes", "error_timeout", "error_closed", "close_finish"), {},
)  # fmt: skip
EDITIONS: Mapping[Edition, Moves] = {moves.edition: moves for moves in (TORCH, TORCH_2_12, OURS)}


RAN = {  # the steps with which a node has a rank, a world and a master
    Protocol.TORCH: ("connect", "return_as_master", "return_with_cached_master"),
    Protocol.OURS: ("start_workers",),
}


def build(moves: Moves, nodes: int, low: int, high: int) -> Any:
    """The system of an edition for `nodes` nodes; each fault may happen, and a follower does not count faults."""
    sizes = {"node": nodes, "min_nodes": low, "max_nodes": high, "rounds": ROUNDS}
    return moves.system(edition=moves.edition, faults=dict.fromkeys(moves.faults, 1), **sizes)


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
