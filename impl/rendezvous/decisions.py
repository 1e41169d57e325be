"""Decisions for the log: values that an engine derives from its writes, and that a driver logs.

Rule: a decision is made by one node, in one write, and that node logs it once, when the write is won. The other nodes
log the new standing of their round (`standing`), with the cause that the state keeps.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Any

from trystate.model.rendezvous.vocabulary import Action

from .state import Participant, State

EVENTS = {
    "joining":  "the node begins to look for a round",
    "waiting":  "the node waits for a seat of the next round",
    "spare":    "the node has no seat, and takes the seat of a node that ends",
    "joined":   "the node is a member of a complete round, and has met the others",
    "broken":   "the round was over before its members had met",
    "standing": "the standing of the node's round, as seen by the node",
    "expelled": "nodes were taken off the lists for want of heartbeats",
    "replaced": "a complete round was replaced by the next one",
    "spent":    "a restart of the job was spent",
    "done":     "the workers of the node have succeeded",
    "drained":  "an operator has drained the node, which has left",
    "left":     "the node has taken itself off the lists",
    "closed":   "the rendezvous was closed for all nodes",
    "unused":   "the job has ended, and the node was a spare or waited for a seat",
    "failed":   "the node's operation has failed",
}  # fmt: skip


@dataclass(frozen=True, slots=True)
class Decision:
    """One of the EVENTS, and what it was about."""

    event: str
    details: dict[str, Any] = field(default_factory=dict)


def decided(action: Action, before: State | None, after: State, me: Participant) -> Iterator[Decision]:
    """The decisions in the write that turns `before` into `after`, in the order in which a reader wants them."""
    gone = _gone(before, after) if action is Action.EXPEL and before is not None else []
    leaves = action is Action.WITHDRAW and before is not None and before.complete
    members = before.participants if leaves and before is not None else ()
    return made(action, before, after, gone, any(p.node.token == me.node.token for p in members))


def made(action: Action, before: Any, after: Any, gone: list[str], member: bool) -> Iterator[Decision]:
    """The decisions in a change.

    Args:
        before, after: each has `round`, `spent` and `closed`; `after` also has the values of the details.
        gone: the nodes that were expelled.
        member: whether a node that has left was a member of a complete round.
    """
    if gone:  # or closed names them
        yield Decision("expelled", {"nodes": gone, "silent_seconds": round(after.settings.expiry_seconds, 3)})
    if action is Action.WITHDRAW:
        yield Decision("left", {"member": member})
    if before is not None and after.round != before.round:
        yield Decision("replaced", {"replaced_round": before.round, "cause": after.cause})
    if before is not None and after.spent > before.spent:
        yield Decision("spent", {"restart": after.spent, "of": after.settings.max_restarts, "cause": after.cause})
    if action is Action.MARK_DONE:
        yield Decision("done", {"members_done": len(after.done), "of": len(after.participants)})
    if action is Action.ADD_TO_WAIT_LIST:
        yield Decision("waiting", {"cause": f"round {after.round} is complete, and has a seat left"})
    if action is Action.ADD_TO_REDUNDANCY_LIST:
        yield Decision("spare", {"cause": f"all seats are taken: max_nodes={after.settings.max_nodes}"})
    if after.closed is not None and (before is None or before.closed is None):
        yield Decision("closed", {"reason": after.closed.reason, "verdict": after.closed.verdict})


def _gone(before: State, after: State) -> list[str]:
    left = {p.node.token for p in after.listed()}
    return [str(p.node) for p in before.listed() if p.node.token not in left]
