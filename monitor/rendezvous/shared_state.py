"""A value of the store, torch's or ours, in one form: the nodes on each list, their ranks and heartbeats."""

from __future__ import annotations

import enum
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from trystate.impl.rendezvous import encoding
from trystate.impl.rendezvous import state as our_state
from trystate.impl.rendezvous.errors import RendezvousStateError
from trystate.model.errors import TrystateError
from trystate.model.rendezvous.vocabulary import Membership

from .. import torch_state
from ..record import STATE

SENTINEL = b"Y2FuaW1hZGFt"  # torch's backend writes it to learn whether there is a state


class Protocol(enum.Enum):
    """The two rendezvous."""

    TORCH = "torch's c10d rendezvous"
    OURS = "trystate's rendezvous"


class NoState(TrystateError, ValueError):
    """A value is no state of a rendezvous; the text says why."""


@dataclass(frozen=True, slots=True, order=True)
class NodeName:
    """A node, in the order of the ranks. A process that was started again is another one."""

    order: Any
    name: str = field(compare=False)
    token: str = field(compare=False, default="")

    def __str__(self) -> str:
        return self.name


@dataclass(frozen=True, slots=True)
class Terms:
    """The settings in force, as far as the state has them; times in seconds."""

    low: int
    high: int
    interval: float
    attempts: int
    last_call: float
    rescale: float
    restarts: int


@dataclass(frozen=True, slots=True)
class Snapshot:
    """One state of the store."""

    round: int = 0
    complete: bool = False
    closed: bool = False
    deadline: float | None = None  # torch's: seconds of the clock of its writer
    members: Mapping[NodeName, Membership] = field(default_factory=dict)
    ranks: Mapping[NodeName, int] = field(default_factory=dict)  # of a complete round
    beats: Mapping[NodeName, float] = field(default_factory=dict)  # torch: a time of that node's clock; ours: a count
    writer: str = ""  # ours: the token of the node
    life: str = ""
    version: int = 0
    done: frozenset[str] = frozenset()
    draining: frozenset[str] = frozenset()  # ours: the tokens of nodes that an operator has marked
    spent: int = 0
    terms: Terms | None = None
    failed: bool = False  # ours: it was closed as failed
    said: str = ""  # why it was closed, or the round before was replaced

    def listed(self, membership: Membership) -> list[NodeName]:
        return sorted(who for who, kind in self.members.items() if kind is membership)


def identify(key: str) -> tuple[Protocol, str] | None:
    """The protocol and the run of a state's key; None: it is another key."""
    found = STATE.search(key)
    if found is None:
        return None
    return (Protocol.TORCH, found["torch"]) if found["torch"] is not None else (Protocol.OURS, found["ours"])


def read(protocol: Protocol, value: bytes | None) -> Snapshot | None:
    """The state that a value is; None for torch's sentinel, which is written where there is no state yet.

    Raises:
        NoState: it is none.
    """
    if value is None:
        raise NoState("the record has left out the value of the state")
    if protocol is Protocol.OURS:
        return _of_ours(value)
    return None if value == SENTINEL else _of_torch(value)


def _of_torch(value: bytes) -> Snapshot:
    try:
        found = torch_state.read(value)
    except torch_state.NoTorchState as error:
        raise NoState(str(error)) from None
    who = {node: NodeName(node, str(node)) for node in _torch_nodes(found)}
    members = dict.fromkeys(map(who.__getitem__, found.redundancy_list), Membership.REDUNDANT)
    members |= dict.fromkeys(map(who.__getitem__, found.wait_list), Membership.WAITING)
    members |= dict.fromkeys(map(who.__getitem__, found.participants), Membership.PARTICIPANT)
    ranks = {who[node]: rank for node, rank in found.participants.items()} if found.complete else {}
    beats = {who[node]: stamp for node, stamp in found.last_heartbeats.items()}
    return Snapshot(found.round, found.complete, found.closed, found.deadline, members, ranks, beats)


def _torch_nodes(found: torch_state.TorchState) -> set[torch_state.TorchNode]:
    return {*found.participants, *found.wait_list, *found.redundancy_list, *found.last_heartbeats}


def _of_ours(value: bytes) -> Snapshot:
    try:
        found = encoding.decode(value)
    except RendezvousStateError as error:
        raise NoState(str(error)) from None
    return of_our_state(found)


def of_our_state(found: our_state.State) -> Snapshot:
    """A state of our rendezvous."""
    who = {p.node.token: NodeName(p.order, str(p.node), p.node.token) for p in found.listed()}
    members = {
        who[p.node.token]: membership for name, membership in our_state.LISTS.items() for p in getattr(found, name)
    }
    ranks = {who[p.node.token]: rank for rank, p in enumerate(found.participants)} if found.complete else {}
    settings, end = found.settings, found.closed
    return Snapshot(
        found.round, found.complete, end is not None, None, members, ranks,
        beats={who[p.node.token]: p.beats for p in found.listed()},
        writer=found.writer, life=found.life, version=found.version, done=frozenset(found.done),
        draining=frozenset(found.draining), spent=found.spent,
        terms=Terms(
            settings.min_nodes, settings.max_nodes, settings.keep_alive_interval, settings.keep_alive_max_attempt,
            settings.last_call_timeout, settings.rescale_timeout, settings.max_restarts,
        ),
        failed=end is not None and end.verdict == "failed",
        said=str(end) if end is not None else found.cause,
    )  # fmt: skip


def closes_alone(previous: Snapshot, snapshot: Snapshot) -> bool:
    """A write closes our rendezvous, and changes nothing else: an operator may do that (`trystate close`)."""
    same = previous.members == snapshot.members and previous.beats == snapshot.beats
    unchanged = (previous.round, previous.complete) == (snapshot.round, snapshot.complete)
    return bool(snapshot.writer) and snapshot.closed and not previous.closed and same and unchanged
