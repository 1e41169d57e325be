"""A value of the store, torch's or ours, in one form: the nodes on each list, their ranks and heartbeats."""

from __future__ import annotations

import enum
import re
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from typing import Any

from trystate.impl.rendezvous import encoding
from trystate.impl.rendezvous.errors import RendezvousStateError
from trystate.impl.rendezvous.state import LISTS, Closed, Settings, State
from trystate.impl.store.record.format import is_state
from trystate.model.errors import TrystateError
from trystate.model.rendezvous.vocabulary import Membership

from .. import torch_state
from ..torch_state import TorchState

SENTINEL = b"Y2FuaW1hZGFt"  # torch's backend writes it to find out whether a state exists
TORCHS, OURS_BEGIN, OURS_END = "torch.rendezvous.", "trystate/", "/state"
BEAT = re.compile(r"trystate/(?P<run>.+)/beat/(?P<token>[^/]+)$")  # the counter of a node's heartbeats


class Protocol(enum.Enum):
    """The two rendezvous."""

    TORCH = "torch's c10d rendezvous"
    OURS = "trystate's rendezvous"


class NoState(TrystateError, ValueError):
    """A value is not a state of a rendezvous; the text gives the reason."""


@dataclass(frozen=True, slots=True, order=True)
class NodeName:
    """A node, in the order of the ranks. A restarted process is another node."""

    order: Any
    name: str = field(compare=False)
    token: str = field(compare=False, default="")

    def __str__(self) -> str:
        return self.name


@dataclass(frozen=True, slots=True)
class Snapshot:
    """One state of the store."""

    round: int = 0
    complete: bool = False
    closed: Closed | None = None  # all texts are empty for torch, whose state lacks them
    deadline: float | None = None  # torch's: seconds of the clock of its writer
    members: Mapping[NodeName, Membership] = field(default_factory=dict)  # list by list
    ranks: Mapping[NodeName, int] = field(default_factory=dict)  # the ranks of a complete round
    beats: Mapping[NodeName, float] = field(default_factory=dict)  # torch: a time of its clock; ours: `of_ours`
    writer: str = ""  # ours: the token of the node
    life: str = ""
    version: int = 0
    done: frozenset[str] = frozenset()  # ours: the tokens of members whose workers have succeeded
    draining: frozenset[str] = frozenset()  # ours: the tokens of nodes that an operator has marked
    spent: int = 0
    cause: str = ""  # ours: the reason why the last round was replaced
    settings: Settings | None = None  # None: torch's

    @property
    def calling(self) -> bool:
        """Whether a last call is in progress."""
        if self.settings is None:
            return self.deadline is not None
        return not self.complete and len(self.listed(Membership.PARTICIPANT)) >= self.settings.min_nodes

    def listed(self, membership: Membership) -> list[NodeName]:
        return sorted(who for who, kind in self.members.items() if kind is membership)


def identify(key: str) -> tuple[Protocol, str] | None:
    """The protocol and the run of a state's key; None: it is another key."""
    if not is_state(key.encode("latin-1", "replace")):
        return None
    if TORCHS in key:
        return Protocol.TORCH, key.rpartition(TORCHS)[2]
    return Protocol.OURS, key[key.rindex(OURS_BEGIN) + len(OURS_BEGIN) :].removesuffix(OURS_END)


def read(protocol: Protocol, value: bytes | None) -> Snapshot | None:
    """The state in a value; None for torch's sentinel, which is written before the first state.

    Raises:
        NoState: the value is not a state.
    """
    if value is None:
        raise NoState("the record lacks the value of the state")
    try:
        if protocol is Protocol.OURS:
            return of_ours(encoding.decode(value, recorded=True))
        return None if value == SENTINEL else of_torchs(torch_state.read(value))
    except (RendezvousStateError, torch_state.NoTorchState) as error:
        raise NoState(str(error)) from None


def of_torchs(found: TorchState) -> Snapshot:
    """The snapshot of a state of torch's rendezvous."""
    ranks = found.participants
    nodes = {*ranks, *found.wait_list, *found.redundancy_list, *found.last_heartbeats}
    who = {node: NodeName(node, str(node)) for node in nodes}
    lists = {
        Membership.REDUNDANT: sorted(found.redundancy_list),
        Membership.WAITING: sorted(found.wait_list),
        Membership.PARTICIPANT: sorted(ranks, key=lambda node: (ranks[node], node)),
    }
    return Snapshot(
        found.round, found.complete, Closed("", "") if found.closed else None, found.deadline,
        members={who[node]: membership for membership, listed in lists.items() for node in listed},
        ranks={who[node]: rank for node, rank in ranks.items()} if found.complete else {},
        beats={who[node]: stamp for node, stamp in found.last_heartbeats.items()},
    )  # fmt: skip


def of_ours(found: State) -> Snapshot:
    """The snapshot of a state of our rendezvous. `beats` has the last version that each node has written itself."""
    who = {p.node.token: NodeName(p.order, str(p.node), p.node.token) for p in found.listed()}
    return Snapshot(
        found.round, found.complete, found.closed,
        members={who[p.node.token]: membership for name, membership in LISTS.items() for p in getattr(found, name)},
        ranks={who[p.node.token]: rank for rank, p in enumerate(found.participants)} if found.complete else {},
        beats={who[p.node.token]: p.written for p in found.listed()},
        writer=found.writer, life=found.life, version=found.version, done=frozenset(found.done),
        draining=frozenset(found.draining), spent=found.spent, cause=found.cause, settings=found.settings,
    )  # fmt: skip


def counted(found: Snapshot, counters: Mapping[str, int]) -> Snapshot:
    """A snapshot of ours in which `beats` grows with each heartbeat of a node, by the counters of the tokens."""
    return replace(found, beats={who: n + counters.get(who.token, 0) for who, n in found.beats.items()})


def closes_alone(previous: Snapshot, snapshot: Snapshot) -> bool:
    """Whether a write closes our rendezvous and changes nothing else, like an operator's (`trystate close`)."""
    same = previous.members == snapshot.members and previous.beats == snapshot.beats
    unchanged = (previous.round, previous.complete) == (snapshot.round, snapshot.complete)
    return bool(snapshot.writer and snapshot.closed and not previous.closed) and same and unchanged
