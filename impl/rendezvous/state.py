"""The shared state of a rendezvous, as in the store: values that are never changed.

Rule: a complete round is never changed, only replaced. Ranks are the order of `participants`, and the first one is the
master: every reader of a complete round reads the same members, ranks and master.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator
from dataclasses import dataclass

from trystate.model.rendezvous.vocabulary import Membership

from ..host.visible import visible
from .command import UNKNOWN, Command

REASON_LENGTH_MAX = 1000  # characters: every node reads the state, all the time
NAMED_MAX = 5  # nodes in one text
RANK_KEY_LENGTH_MAX = 100  # characters: it is in the listing of each node
LISTS = {
    "participants": Membership.PARTICIPANT,
    "expected": Membership.EXPECTED,
    "waiting": Membership.WAITING,
    "spares": Membership.REDUNDANT,
}


@dataclass(frozen=True, slots=True)
class Settings:
    """The settings that all nodes of a rendezvous must have in common; times in seconds."""

    min_nodes: int
    max_nodes: int
    last_call_timeout: float = 30.0  # the first round waits so long for more than min_nodes
    rescale_timeout: float = 0.0  # the last call of every later round, from when no old member is awaited
    keep_alive_interval: float = 5.0  # between two heartbeats
    keep_alive_max_attempt: int = 3  # heartbeats that may be missed
    max_restarts: int = -1  # of the job; -1: each agent counts for itself
    scale_up_interval: float = 0.0  # a complete round is replaced for newcomers alone after so long
    command: Command = UNKNOWN

    @property
    def expiry_seconds(self) -> float:
        """A node whose heartbeat stood still for so long, on the observer's clock, is expelled."""
        return self.keep_alive_interval * self.keep_alive_max_attempt

    @property
    def lease_seconds(self) -> float:
        """A member that could not confirm a heartbeat for so long stops its workers: earlier than any observer."""
        margin = max(self.keep_alive_interval / 2, self.expiry_seconds / 25)  # clocks differ by up to 1 % each
        return self.expiry_seconds - margin

    def differences(self, other: Settings) -> list[str]:
        """`min_nodes is 2, not 3` for each setting that differs: theirs, not ours."""
        names = self.__slots__[:-1]
        pairs = ((name, getattr(other, name), getattr(self, name)) for name in names)
        numbers = (f"{name} is {theirs}, not {ours}" for name, theirs, ours in pairs if theirs != ours)
        return [*numbers, *self.command.differences(other.command)]

    def refusal(self, other: Settings) -> str:
        """The error text for a node whose settings are not those of the rendezvous, with the remedy."""
        text = f"the rendezvous has other settings: {'; '.join(self.differences(other))}. "
        if self.command == other.command:
            return text + "Start this node with them"
        return text + (
            "Give another job an --rdzv-id of its own. For nodes of one job that differ on purpose, leave out what "
            "differs in --rdzv-conf agree_on=program+arguments+nproc, on all of them. Of values a digest is shown (*)"
        )


@dataclass(frozen=True, slots=True)
class Node:
    """One process in the rendezvous: a restarted one has another token, and is another node."""

    address: str
    pid: int
    local_id: int
    token: str

    @property
    def order(self) -> tuple[object, ...]:
        """Addresses as people count them (node2 before node10), then the process."""
        return natural(self.address), self.pid, self.local_id, self.token

    def __str__(self) -> str:
        return visible(f"{self.address}_{self.pid}_{self.local_id}")


def natural(text: str) -> tuple[tuple[int, int, str], ...]:
    """The key by which texts are sorted as people count: rack2 before rack10."""
    parts = re.split(r"(\d+)", text)
    return tuple((1, int(part), "") if part.isdecimal() else (0, 0, part) for part in parts if part)


def named(nodes: Iterable[Node]) -> str:
    """`a_1_0, b_1_0 and 3 more`."""
    names = [str(node) for node in nodes]
    more = f" and {len(names) - NAMED_MAX} more" if len(names) > NAMED_MAX else ""
    return ", ".join(names[:NAMED_MAX]) + more


@dataclass(frozen=True, slots=True)
class Participant:
    """A listed node: its heartbeats so far, and where it would serve the store of a round of which it is the master."""

    node: Node
    host: str
    port: int
    beats: int = 0
    rank_key: str = ""  # the rank of a node without one comes first

    @property
    def order(self) -> tuple[object, ...]:
        """Ranks follow this: the keys, and among equal ones the nodes."""
        return natural(self.rank_key), self.node.order


@dataclass(frozen=True, slots=True)
class Closed:
    """The closing node and its reason; `verdict` is "succeeded", "failed", or "" if it says nothing of the job."""

    by: str
    reason: str
    verdict: str = ""

    def __str__(self) -> str:
        return visible(f"closed by {self.by}: {' '.join(self.reason.split())}")


@dataclass(frozen=True, slots=True)
class State:
    """The rendezvous as the store holds it. `version` and `writer` make every write differ from every other."""

    life: str  # drawn for the first version: a store that has lost its contents begins another incarnation
    settings: Settings
    version: int = 0
    writer: str = ""
    round: int = 0
    complete: bool = False
    call: int = 0  # how many last calls have begun: each has a clock of its own at each node
    revision: int = 0  # counts the changes that another node may wait for; "news" in the encoding
    participants: tuple[Participant, ...] = ()  # of a complete round: in the order of their ranks
    expected: tuple[Participant, ...] = ()
    waiting: tuple[Participant, ...] = ()
    spares: tuple[Participant, ...] = ()
    done: tuple[str, ...] = ()  # tokens of the members of a complete round whose workers have all succeeded
    spent: int = 0  # restarts, of max_restarts
    cause: str = ""  # why the round before was replaced: each node of that round says so in its log
    closed: Closed | None = None
    draining: tuple[str, ...] = ()  # tokens of listed nodes that an operator has marked: they leave

    def listed(self) -> Iterator[Participant]:
        for name in LISTS:
            yield from getattr(self, name)

    def find(self, token: str) -> Participant | None:
        """The listing of a node."""
        return next((one for one in self.listed() if one.node.token == token), None)

    def membership(self, token: str) -> Membership:
        """Where a node is listed."""
        for name, membership in LISTS.items():
            for one in getattr(self, name):
                if one.node.token == token:
                    return membership
        return Membership.OUTSIDE

    @property
    def seats(self) -> int:
        """The number of free seats; those of expected members are kept for them."""
        return self.settings.max_nodes - len(self.participants) - len(self.expected)

    @property
    def quorum(self) -> bool:
        return len(self.participants) >= self.settings.min_nodes

    @property
    def calling(self) -> bool:
        """A last call is on."""
        return self.quorum and not self.complete

    @property
    def restarts_left(self) -> bool:
        """One more failure would not be the last one."""
        return self.settings.max_restarts < 0 or self.spent < self.settings.max_restarts
