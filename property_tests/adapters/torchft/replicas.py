"""Replicas at the shipped lighthouse: the subject of `Lighthouse`.

Theory of operation. A replica is a client of the lighthouse. A request for a quorum waits in a thread. The page
`/status` of the lighthouse has the heartbeats with their ages, the number of participants and the previous quorum. The
clock does not advance by itself: a tick is one tick of it, the join timeout 160 ticks, and a heartbeat becomes too old
because it was sent while the clock showed an earlier time. A replica whose step has failed sends its request through a
manager, because only a manager sends `commit_failures`. Healing and the choice of the process group are in manager.py
of torchft: here they follow from the answers.

Rule: `observe` reads the page and the answers, never the model.
"""

from __future__ import annotations

import re
import urllib.request
from collections.abc import Mapping
from functools import partialmethod
from typing import Any

from trystate.model.language import System
from trystate.model.torchft.lighthouse import Lighthouse
from trystate.model.torchft.vocabulary import At

from ...harness.subjects import Refused
from ..steps import Replacing, Steps
from .shipped import LONG, Call, Client, Clock, await_, extension, manager, port_of, silence

TICK_MS = 10
PORTION = 10  # ticks at once: a request that is behind by 16 quorums fails
JOIN_MS = 16 * PORTION * TICK_MS  # more ticks than are tried while a replica waits
HEARTBEAT_MS = 10**7
ROUNDS = 3  # after three answers a server has handled all earlier messages
PARTICIPANTS = re.compile(r"\[(\d+)/(\d+) participants healthy\]")
AGE = re.compile(r"r(\d): seen (\S+)s ago")


class Status:
    """The page of the lighthouse."""

    def __init__(self, port: int) -> None:
        with urllib.request.urlopen(f"http://127.0.0.1:{port}/status") as page:
            text = page.read().decode()
        found = PARTICIPANTS.search(text)
        assert found is not None
        self.participants = int(found[2])
        self.number = int(text.partition("Current quorum_id: ")[2].split()[0])
        self.has_previous = "Previous quorum id" in text
        self.members = frozenset(int(n) for n in re.findall(r"<b>r(\d)</b>", text))
        self.ages_ms = {int(n): round(float(age) * 1000) for n, age in AGE.findall(text)}


class Replica:
    """The state of a replica, as its program has it."""

    def __init__(self, number: int) -> None:
        self.number, self.at, self.step, self.failed = number, At.AWAY, 0, False
        self.of: int | None = None
        self.group: int | None = None
        self.call: Call | None = None
        self.manager: Any = None


class OfServers(Steps, Replacing):
    """Subjects of the shipped servers. Use one as a context manager, because the clock is one for the process."""

    def __init__(self, system: System) -> None:
        self.sizes, self.clock = system.sizes, Clock()

    def replace(self, stack: Any) -> None:
        stack.enter_context(self.clock)
        stack.enter_context(silence())


class Replicas(OfServers):
    """The subject."""

    TRIED = ("tick",)

    def __init__(self, system: Lighthouse) -> None:
        super().__init__(system)
        self._replicas: list[Replica] = []
        self._clients: list[Client] = []

    def abandon(self) -> None:
        """End the servers and, with them, all calls."""
        calls = [r.call for r in self._replicas if r.call is not None]
        self._server, self._clients, self._replicas = None, [], []
        for call in calls:
            call.join()

    def reset(self) -> None:
        """A new lighthouse, and no replica."""
        self._replicas = [Replica(n) for n in range(self.sizes["node"])]
        self._records: list[tuple[int, frozenset[int]]] = []
        self._serve()

    def _serve(self) -> None:
        self._server = extension().LighthouseServer(
            bind="127.0.0.1:0", min_replicas=self.sizes["least"], join_timeout_ms=JOIN_MS,
            quorum_tick_ms=TICK_MS, heartbeat_timeout_ms=HEARTBEAT_MS,
        )  # fmt: skip
        self._port = port_of(self._server)
        self._clients = [Client("LighthouseClient", self._port) for _ in self._replicas]
        self._stale: set[int] = set()  # dead replicas that still participate
        self._known, self._status = 0, Status(self._port)

    # ---- what the server does

    def _turns(self) -> None:
        """Let the server handle what it has received, and its timers."""
        for _ in range(ROUNDS):
            self._status = Status(self._port)

    def _settle(self) -> None:
        """Wait until each request is answered or participates."""
        await_(self._is_at_rest, "the lighthouse comes to rest")
        status = self._status
        if status.participants < self._waiting + len(self._stale):
            self._stale.clear()
        if status.number != self._known:
            self._known = status.number
            self._records.append((status.number, status.members))
        for replica in self._replicas:
            if replica.call is not None and replica.call.is_done:
                self._answered(replica, replica.call)

    @property
    def _waiting(self) -> int:
        return sum(r.call is not None and not r.call.is_done for r in self._replicas)

    def _is_at_rest(self) -> bool:
        self._status = Status(self._port)
        return self._status.participants - self._waiting in (0, len(self._stale))

    def _answered(self, replica: Replica, call: Call) -> None:
        assert call.error is None, call.error
        if replica.manager is None:
            found = call.result.quorum_id, [int(p.replica_id[1:]) for p in call.result.participants]
        else:
            found = call.result.quorum_id, [int(name[1:]) for name in call.result.replica_ids]
        number, members = self._records[-1]
        assert found == (number, sorted(members)), f"the answer is {found}, and the status {self._records[-1]}"
        replica.call = replica.manager = None
        replica.at, replica.of = At.TRAINING, len(self._records) - 1
        if replica.group is None or self._records[replica.group][0] != number:
            replica.group = replica.of

    def _beat(self, node: int, ago_ms: int = 0) -> None:
        """Send a heartbeat whose time is `ago_ms` in the past."""
        self.clock.set(self.clock.now - ago_ms)
        self._clients[node].of.heartbeat(f"r{node}", LONG)
        self.clock.set(self.clock.now)

    def _await_beat(self, node: int) -> None:
        await_(lambda: Status(self._port).ages_ms.get(node) == 0, "the request arrives")

    # ---- the steps

    def _start(self, node: int) -> None:
        self._beat(node)
        self._replicas[node].at = At.IDLE

    def _ask(self, node: int, *, shrink_only: bool = False) -> None:
        replica = self._replicas[node]
        replica.at = At.WAITING
        self._beat(node, 1)
        if replica.failed:
            self._ask_through_manager(replica, shrink_only)
        else:
            request = self._clients[node].of.quorum
            replica.call = Call(request, f"r{node}", LONG, step=replica.step, shrink_only=shrink_only)
        self._await_beat(node)
        self._settle()

    def _ask_through_manager(self, replica: Replica, shrink_only: bool) -> None:
        replica.manager = manager(replica.number, self._port)
        self._await_beat(replica.number)  # a manager begins with a heartbeat
        self._beat(replica.number, 1)
        client = Client("ManagerClient", port_of(replica.manager))
        replica.call = Call(client.of._quorum, 0, replica.step, "", shrink_only, True, 1, LONG)

    _ask_to_shrink = partialmethod(_ask, shrink_only=True)

    def _tick(self) -> None:
        if len(self._records) == self.sizes["quorum"]:
            raise Refused("the model's bound of quorums is reached")
        before = self.observe()
        self.clock.advance(TICK_MS)
        self._turns()
        self._settle()
        if self.observe() == before:
            raise Refused("the tick changes nothing")

    def _join_timeout_passes(self) -> None:
        for _ in range(JOIN_MS // TICK_MS // PORTION):
            self.clock.advance(PORTION * TICK_MS)
            self._turns()
        self._settle()

    def _commit(self, quorum: int) -> None:
        members = [r for r in self._replicas if r.number in self._records[quorum][1]]
        highest = max(r.step for r in members)
        for replica in members:
            replica.at, replica.step, replica.failed, replica.of = At.IDLE, highest + 1, False, None

    def _fail_step(self, node: int) -> None:
        replica = self._replicas[node]
        replica.at, replica.failed, replica.of = At.IDLE, True, None

    def _complete(self, node: int) -> None:
        self._replicas[node] = Replica(node)
        self._replicas[node].at = At.GONE

    def _crash(self, node: int) -> None:
        replica = self._replicas[node]
        if replica.call is not None:
            self._withdraw(replica)
            self._stale.add(node)
        self._complete(node)

    def _withdraw(self, replica: Replica) -> None:
        """End the connection of a request."""
        if replica.manager is not None:
            replica.manager.shutdown()
            replica.manager = None
        else:
            self._clients[replica.number].cut()
        assert replica.call is not None
        replica.call.join()
        self._clients[replica.number] = Client("LighthouseClient", self._port)
        self._turns()

    def _expire(self, node: int) -> None:
        self._beat(node, 2 * HEARTBEAT_MS)

    _pause = _expire

    def _restart(self) -> None:
        for replica in self._replicas:
            if replica.call is not None:
                self._withdraw(replica)
                replica.call, replica.at = None, At.IDLE
        self._server = None
        self._serve()

    # ---- what can be seen

    def observe(self) -> Mapping[str, Any]:
        """The replicas, their heartbeats and participation, and the quorums."""
        status = self._status = Status(self._port)
        waiting = [r.call is not None for r in self._replicas]
        stale = self._stale if status.participants == sum(waiting) + len(self._stale) else set()
        seen: dict[str, Any] = {"number": status.number, "formed": len(self._records)}
        seen["last"] = len(self._records) - 1 if status.has_previous else None
        if status.has_previous and self._records[-1] != (status.number, status.members):
            seen["last"] = f"the quorum {status.number} of {sorted(status.members)}"
        for n, replica in enumerate(self._replicas):
            seen |= {f"at[{n}]": replica.at, f"step[{n}]": replica.step, f"of[{n}]": replica.of}
            seen |= {f"group[{n}]": replica.group, f"failed[{n}]": replica.failed}
            seen[f"beats[{n}]"] = status.ages_ms.get(n, HEARTBEAT_MS) < HEARTBEAT_MS
            seen[f"asks[{n}]"] = waiting[n] or n in stale
        for q, (number, members) in enumerate(self._records):
            seen[f"number_of[{q}]"] = number
            seen |= {f"member[{q}][{n}]": n in members for n in range(len(self._replicas))}
        return seen
