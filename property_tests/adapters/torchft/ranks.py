"""The ranks of a replica at the shipped manager: the subject of `Managers`.

Theory of operation. A rank is a client of the manager server, and its request waits in a thread. The lighthouse
has another replica as the second member of each quorum: its request is the answer. A request for a quorum is in the
manager when the manager returns the metadata that came with it. A vote has no such effect: it is there when the kernel
has acknowledged its bytes, and the manager has answered two later requests of the rank. A rank's request ends when its
connection is cut; a request to the lighthouse fails when the connection of the manager is cut.

Rule: `observe` reads the answers and the lighthouse, never the model.
"""

from __future__ import annotations

from collections.abc import Mapping
from functools import partialmethod
from typing import Any

from trystate.model.torchft.manager import Managers
from trystate.model.torchft.vocabulary import Rank

from ...harness.subjects import Refused
from .replicas import HEARTBEAT_MS, OfServers, Status
from .shipped import LONG, Call, Client, await_, connections, cut, extension, manager, port_of

REPLICA, OTHER = 0, 1


class RankClient:
    """The state of a rank, as its program has it."""

    def __init__(self, number: int, port: int) -> None:
        self.number, self.at, self.step = number, Rank.IDLE, 0
        self.call: Call | None = None
        self.connect(port)

    def connect(self, port: int) -> None:
        self.client = Client("ManagerClient", port)


class Ranks(OfServers):
    """The subject."""

    TRIED = ("answer",)

    def __init__(self, system: Managers) -> None:
        super().__init__(system)
        self._ranks: list[RankClient] = []
        self._other: Any = None  # the client of the other replica

    def abandon(self) -> None:
        """End the servers and, with them, all calls."""
        calls = [rank.call for rank in self._ranks if rank.call is not None]
        self._lighthouse = self._manager = self._other = None
        for call in calls:
            call.join()
        self._ranks = []

    def reset(self) -> None:
        """A new lighthouse, a manager, and its ranks."""
        self._lighthouse = extension().LighthouseServer(
            bind="127.0.0.1:0", min_replicas=2, join_timeout_ms=HEARTBEAT_MS, quorum_tick_ms=HEARTBEAT_MS,
            heartbeat_timeout_ms=100 * HEARTBEAT_MS,
        )  # fmt: skip
        self._port = port_of(self._lighthouse)
        self._other = Client("LighthouseClient", self._port)
        self._theirs = {*connections(self._port)}
        self._manager = manager(REPLICA, self._port, self.sizes["rank"])
        self._door = port_of(self._manager)
        self._ranks = [RankClient(n, self._door) for n in range(self.sizes["rank"])]
        self._metadata = 0
        await_(lambda: REPLICA in Status(self._port).ages_ms, "the manager starts")
        self._age()

    # ---- what the servers do

    def _age(self) -> None:
        """The replica's last heartbeat was earlier: its next request is seen by the age 0."""
        self.clock.set(self.clock.now - 1)
        self._other.of.heartbeat(f"r{REPLICA}", LONG)
        self.clock.set(self.clock.now)

    @property
    def _is_sent(self) -> bool:
        return Status(self._port).ages_ms[REPLICA] == 0

    def _turns(self, rank: RankClient) -> None:
        for _ in range(3):
            rank.client.of._checkpoint_metadata(rank.number, LONG)

    def _collect(self, waiting: Rank, to: Rank) -> None:
        """The answers of the calls that have ended."""
        for rank in self._ranks:
            if rank.at is waiting and rank.call is not None and rank.call.is_done:
                assert rank.call.error is None, rank.call.error
                rank.step += waiting is Rank.VOTING and rank.call.result
                rank.at, rank.call = to, None

    # ---- the steps

    def _ask(self, rank: int) -> None:
        one = self._ranks[rank]
        self._metadata += 1
        metadata = str(self._metadata)
        one.call = Call(one.client.of._quorum, rank, one.step, metadata, False, True, 0, LONG)
        one.at = Rank.WAITING
        await_(lambda: self._known(one) == metadata, "the request arrives")
        for _ in range(3):
            self._turns(one)
            Status(self._port)

    def _known(self, rank: RankClient) -> str:
        try:
            return str(rank.client.of._checkpoint_metadata(rank.number, LONG))
        except RuntimeError:  # the rank is not known yet
            return ""

    def _answer(self) -> None:
        if not self._is_sent:
            raise Refused("no request is at the lighthouse")
        waiting = [rank for rank in self._ranks if rank.at is Rank.WAITING]
        self._other.of.quorum(f"r{OTHER}", LONG)
        for rank in waiting:
            assert rank.call is not None
            rank.call.join()
        self._collect(Rank.WAITING, Rank.TRAINING)
        self._age()

    def _lighthouse_fails(self) -> None:
        for descriptor in {*connections(self._port)} - self._theirs:
            cut(descriptor)
        for rank in self._ranks:
            self._turns(rank)
        self._age()

    def _vote(self, rank: int, *, agrees: bool = True) -> None:
        one = self._ranks[rank]
        before = one.client.bytes_acknowledged
        one.at = Rank.VOTING
        one.call = Call(one.client.of.should_commit, rank, one.step, agrees, LONG)
        await_(lambda: one.client.bytes_acknowledged > before, "the vote arrives")
        self._turns(one)
        for each in self._ranks:
            if each.at is Rank.VOTING and each.call is not None:
                self._turns(each)
                each.call.settle()
        self._collect(Rank.VOTING, Rank.IDLE)

    _veto = partialmethod(_vote, agrees=False)

    def _time_out(self, rank: int) -> None:
        one = self._ranks[rank]
        one.client.cut()
        assert one.call is not None
        one.call.join()
        one.connect(self._door)
        one.at, one.call = Rank.IDLE, None
        self._turns(one)

    # ---- what can be seen

    def observe(self) -> Mapping[str, Any]:
        """The ranks, and whether a request of the manager is at the lighthouse."""
        seen: dict[str, Any] = {"sent": self._is_sent}
        for n, rank in enumerate(self._ranks):
            seen |= {f"at[{n}]": rank.at, f"step[{n}]": rank.step}
        return seen
