"""The input and output of a follower: options, certain steps, nodes, and the ranks with which they ran."""

from __future__ import annotations

from dataclasses import dataclass

from trystate.model.rendezvous.vocabulary import AgentPhase, Edition, Membership

from .shared_state import NodeName


@dataclass(frozen=True, slots=True)
class Options:
    """The settings that a record does not have, or that a user corrects. Times in seconds."""

    low: int | None = None  # None: the record shows it
    high: int | None = None
    interval: float = 5.0  # torch's keep_alive_interval
    attempts: int = 3  # torch's keep_alive_max_attempt
    edition: Edition | None = None  # None: by the key
    shown: bool = False  # interval or attempts come from the record or from torch's defaults


@dataclass(frozen=True, slots=True)
class TakenStep:
    """A step of the model that was taken, at a line. `node` is None for a step without a node."""

    time: float
    place: str
    step: str
    node: NodeName | None
    round: int = 0


@dataclass(frozen=True, slots=True)
class Trail:
    """The steps that lead to a state, the last one first, since the set had one member."""

    before: Trail | None
    event: TakenStep


@dataclass(slots=True)
class Node:
    """A node with its possible values: a set with more than one member is undecided."""

    name: str
    phases: set[AgentPhase]
    membership: Membership
    ranks: set[int]
    worlds: set[int]
    masters: set[str]
    gone: float | None


@dataclass(slots=True)
class Runs:
    """The start of a node's workers, with its rank, the number of members and the master."""

    time: float
    round: int
    node: NodeName
    rank: int
    world: int
    master: str


def unrolled(trail: Trail | None) -> list[TakenStep]:
    """The steps of a trail, the oldest first."""
    out = []
    while trail is not None:
        out.append(trail.event)
        trail = trail.before
    return out[::-1]
