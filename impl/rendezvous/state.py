"""The shared state of a rendezvous as immutable values.

Rule: a complete round is never changed, only replaced. Ranks are the order of `participants`, and the first one is the
master: every reader of a complete round reads the same members, ranks and master.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Sized
from dataclasses import dataclass
from functools import lru_cache

from trystate.model.rendezvous.vocabulary import Membership

from ..host.visible import some, visible
from .command import UNKNOWN, Command

REASON_LENGTH_MAX = 1000  # characters: every node reads the state, all the time
NAMED_MAX = 5  # nodes in one text
TEXTS_KEPT = 1 << 16  # names of hosts and keys of ranks, which are compared at each look at a state
RANK_KEY_LENGTH_MAX = 100  # characters: it is in the listing of each node
DIGITS = re.compile(r"(\d+)")
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
    last_call_timeout: float = 30.0  # the last call of the first round, for more nodes than min_nodes
    rescale_timeout: float = 0.0  # the last call of every later round, once no old member is expected
    keep_alive_interval: float = 5.0  # time between two heartbeats
    keep_alive_max_attempt: int = 3  # heartbeats that may be missed
    max_restarts: int = -1  # restarts of the job; -1: each agent counts for itself
    scale_up_interval: float = 0.0  # a complete round lasts this long before newcomers alone may replace it
    command: Command = UNKNOWN

    @property
    def expiry_seconds(self) -> float:
        """The time without a new heartbeat, on the observer's clock, after which a node is expelled."""
        return self.keep_alive_interval * self.keep_alive_max_attempt

    @property
    def lease_seconds(self) -> float:
        """The time without a confirmed heartbeat after which a member stops its workers, before observers expel it."""
        margin = max(self.keep_alive_interval / 2, self.expiry_seconds / 25)  # clocks differ by up to 1 % each
        return self.expiry_seconds - margin

    def refusal_of_drain(self, node: Node, stay: int, done: int) -> str:
        """The reason why the job would not continue without a node, or "".

        Args:
            stay: the number of the other nodes that stay.
            done: the number of nodes whose workers have succeeded.
        """
        if stay < self.min_nodes:
            nodes = f"{stay} node{'s' * (stay != 1)}"
            return (f"without {node} the job has {nodes}, fewer than min_nodes={self.min_nodes}; start another node "
                    "first, or give --force, and the others will wait for one")  # fmt: skip
        if done:
            nodes = f"{done} node{'s' * (done != 1)}"
            return (f"the workers of {nodes} have succeeded, and a new round would run them "
                    "again; let the job end, or give --force")  # fmt: skip
        return ""

    def differences(self, other: Settings) -> list[str]:
        """`min_nodes is 2, not 3` for each setting that differs: the other's value, then this one's."""
        names = self.__slots__[:-1]
        pairs = ((name, getattr(other, name), getattr(self, name)) for name in names)
        numbers = (f"{name} is {theirs}, not {ours}" for name, theirs, ours in pairs if theirs != ours)
        return [*numbers, *self.command.differences(other.command)]

    def refusal(self, other: Settings) -> str:
        """The error text for a node whose settings differ from the settings of the rendezvous, with the remedy."""
        text = f"the rendezvous has other settings: {'; '.join(self.differences(other))}. "
        if self.command == other.command:
            return text + "Start this node with them"
        return text + (
            "Give another job its own --rdzv-id. For nodes of one job that differ on purpose, leave out the differing "
            "part in --rdzv-conf agree_on=program+arguments+nproc, on all nodes. Values are shown as digests (*)"
        )


@dataclass(frozen=True, slots=True)
class Node:
    """One process in the rendezvous. A restarted process has another token and is another node."""

    address: str
    pid: int
    local_id: int
    token: str

    @property
    def order(self) -> bytes:
        """Addresses as people count them (node2 before node10), then the process."""
        numbers = b"%016x%016x" % (self.pid, self.local_id)
        return natural(self.address) + numbers + self.token.encode(errors="surrogatepass")

    def __str__(self) -> str:
        return visible(f"{self.address}_{self.pid}_{self.local_id}")


@lru_cache(maxsize=TEXTS_KEPT)
def natural(text: str) -> bytes:
    """The key by which texts are sorted as people count: rack2 before rack10. Keys can be joined: none begins another.

    A part of other characters comes before a number, and the end of a text before both.
    """
    key = bytearray()
    for part in DIGITS.split(text) if text else ():
        if part.isdecimal():
            digits = b"%d" % int(part)
            key += b"\2" + len(digits).to_bytes(2, "big") + digits
        elif part:
            key += b"\1" + part.encode("utf-8", "surrogatepass").replace(b"\0", b"\0\xff") + b"\0\1"
    return bytes(key) + b"\0"


def named(nodes: Iterable[Node]) -> str:
    """`a_1_0, b_1_0 and 3 more`."""
    return some([str(node) for node in nodes], NAMED_MAX)


@dataclass(frozen=True, slots=True)
class Participant:
    """A listed node, and the address at which it would serve a round's store as its master."""

    node: Node
    host: str
    port: int
    written: int = 0  # the version that the node itself has written last
    rank_key: str = ""  # the rank of a node without one comes first

    @property
    def order(self) -> bytes:
        """The order of the ranks: by key, and then by node."""
        return natural(self.rank_key) + self.node.order


@dataclass(frozen=True, slots=True)
class Closed:
    """The closing node and its reason; `verdict` is "succeeded", "failed", or "" without a result of the job."""

    by: str
    reason: str
    verdict: str = ""

    def __str__(self) -> str:
        return visible(f"closed by {self.by}: {' '.join(self.reason.split())}")


class Counted:
    """The counts that a state has by the lengths of its lists."""

    __slots__ = ()
    settings: Settings
    complete: bool
    spent: int
    participants: Sized
    expected: Sized

    @property
    def seats(self) -> int:
        """The number of free seats; the seats of expected members are kept for them."""
        return self.settings.max_nodes - len(self.participants) - len(self.expected)

    @property
    def quorum(self) -> bool:
        return len(self.participants) >= self.settings.min_nodes

    @property
    def calling(self) -> bool:
        """Whether a last call is in progress."""
        return self.quorum and not self.complete

    @property
    def restarts_left(self) -> bool:
        """Whether the job survives one more failure."""
        return self.settings.max_restarts < 0 or self.spent < self.settings.max_restarts


@dataclass(frozen=True, slots=True)
class State(Counted):
    """The rendezvous as the store holds it. `version` and `writer` make all writes different."""

    life: str  # drawn for the first version: a store that has lost its contents starts another incarnation
    settings: Settings
    version: int = 0
    writer: str = ""
    round: int = 0
    complete: bool = False
    call: int = 0  # number of last calls that have begun: each node measures each one by its own clock
    revision: int = 0  # counts the changes that another node may wait for; "news" in the encoding
    participants: tuple[Participant, ...] = ()  # sorted by rank once the round is complete
    expected: tuple[Participant, ...] = ()
    waiting: tuple[Participant, ...] = ()
    spares: tuple[Participant, ...] = ()
    done: tuple[str, ...] = ()  # tokens of the members of a complete round whose workers have all succeeded
    spent: int = 0  # restarts, of max_restarts
    cause: str = ""  # the reason why the last round was replaced, which each of its nodes logs
    closed: Closed | None = None
    draining: tuple[str, ...] = ()  # tokens of listed nodes that an operator has marked: they leave

    def listed(self) -> Iterator[Participant]:
        for name in LISTS:
            yield from getattr(self, name)

    def find(self, token: str) -> Participant | None:
        """The listing of a node."""
        return next((one for one in self.listed() if one.node.token == token), None)

    def membership(self, token: str) -> Membership:
        """The list that has this node."""
        for name, membership in LISTS.items():
            for one in getattr(self, name):
                if one.node.token == token:
                    return membership
        return Membership.OUTSIDE
