"""Measures rooms: rendezvous of many nodes at one server of ours.

    python benchmarks/rooms.py [--quick] [--only PART]

A real node is a `Member` on its own connection; the nodes share four processes, and the server is another one. The
seconds of a round end when its last node has returned, and are without the last call. `requests` counts the requests of
all nodes, answered or not; `lost` are requests that were sent again. The nodes of each round must agree on members,
ranks and master.
"""

from __future__ import annotations

import contextlib
import heapq
import os
import random
import resource
import selectors
import tempfile
import time
from collections import Counter
from collections.abc import Callable, Iterator
from multiprocessing.connection import Connection
from pathlib import Path
from typing import Any

from common import LOOPBACK, Part, ask, compare, processes, show

from trystate.impl.rendezvous.engine import Standing
from trystate.impl.rendezvous.rooms.member import Member
from trystate.impl.rendezvous.rooms.messages import JOIN
from trystate.impl.rendezvous.state import Node, Participant, Settings
from trystate.impl.store.client.rooms import RoomConnection
from trystate.impl.store.tcp import TCPStore
from trystate.model.store.vocabulary import Status
from trystate.property_tests.support.stores.recorded import Command

CREWS = 4  # processes of nodes
LIMIT_SECONDS = 300.0
OVER = (Standing.REPLACED, Standing.EXPELLED, Standing.LAPSED)
OPEN_SECONDS = 60.0
CALL_SECONDS = 1.0  # the last call


def settings_of(size: int) -> Settings:
    return Settings(size - 1, size + 1, last_call_timeout=CALL_SECONDS)


def member(number: int, settings: Settings) -> Member:
    node = Node(f"node{number}", 1, 0, f"t{number:05d}")
    return Member(Participant(node, f"host{number}", 29_000), settings)


def heard(member: Member, data: bytes, notice: bool, now: float) -> bool:
    """Let a member receive a message; returns whether its join has ended. Its agent has no workers to stop."""
    joining = member.joining
    member.heard(data, notice, now)
    ended = joining and not member.joining
    member.results.clear()
    if member.joined is not None and member.standing(now) in OVER:
        member.join(now, LIMIT_SECONDS)
    return ended


# ---- real connections


class Crew:
    """The nodes of one process."""

    def __init__(self, pipe: Connection, port: int, settings: Settings) -> None:
        self.pipe, self.settings, self.store = pipe, settings, TCPStore(LOOPBACK, port)
        self.members: dict[int, Member] = {}
        self.connections: dict[int, RoomConnection] = {}
        self.counts = Counter[str]()
        self.returned: dict[int, float] = {}
        self.selector, self.wakes = selectors.DefaultSelector(), list[tuple[float, int]]()
        self.selector.register(pipe, selectors.EVENT_READ)

    def loop(self) -> None:
        while True:
            now = time.monotonic()
            while self.wakes and self.wakes[0][0] <= now:
                number = heapq.heappop(self.wakes)[1]
                if number in self.members:
                    self.wake(number, now)
            pause = self.wakes[0][0] - now if self.wakes else LIMIT_SECONDS
            for key, _ in self.selector.select(max(0.0, min(pause, LIMIT_SECONDS))):
                if key.fileobj is self.pipe:
                    name, *arguments = self.pipe.recv()
                    if name == "end":
                        return
                    self.pipe.send(getattr(self, name)(*arguments))
                else:
                    self.receive(key.data)

    def wake(self, number: int, now: float) -> None:
        if number not in self.connections:
            with contextlib.suppress(Exception):  # the server is away
                self.connect(number)
        elif not self.members[number].woke(now):
            self.drop(number)
        self.pump(number)

    def connect(self, number: int) -> None:
        opened = RoomConnection.open(self.store, "job", OPEN_SECONDS)
        self.connections[number] = opened
        self.selector.register(opened, selectors.EVENT_READ, number)
        self.members[number].connected(time.monotonic())

    def drop(self, number: int) -> None:
        self.counts["reconnected"] += 1
        opened = self.connections.pop(number)
        self.selector.unregister(opened)
        opened.close()
        self.members[number].disconnected()

    def receive(self, number: int) -> None:
        try:
            messages = self.connections[number].receive()
        except Exception:
            self.drop(number)
            return self.pump(number)
        now, member = time.monotonic(), self.members[number]
        for message in messages:
            assert message.status in (Status.OK, Status.NOTICE), message.data
            self.counts["notices"] += message.status is Status.NOTICE
            self.counts["bytes back"] += len(message.data)
            if heard(member, message.data, message.status is Status.NOTICE, now):
                assert member.error is None, member.error
                self.returned[number] = now
        self.pump(number)

    def pump(self, number: int) -> None:
        member, now = self.members[number], time.monotonic()
        opened = self.connections.get(number)
        if opened is None:
            return heapq.heappush(self.wakes, (now + random.uniform(0.05, 0.5), number))
        while (data := member.take(now)) is not None:
            self.counts["requests"] += 1
            self.counts[f"kind {data[0]}"] += 1
            self.counts["bytes there"] += len(data)
            opened.send(data)
        heapq.heappush(self.wakes, (member.wakes(now), number))

    # The calls of the benchmark.

    def come(self, numbers: list[int]) -> None:
        for number in numbers:
            self.members[number] = member(number, self.settings)
            self.connect(number)

    def join(self, numbers: list[int] | None = None, failed: bool = False) -> None:
        for number in self.members if numbers is None else numbers:
            self.members[number].join(time.monotonic(), LIMIT_SECONDS, failed=failed)
            self.pump(number)

    def make_room(self) -> None:
        for each in self.members.values():
            each.makes_room = True

    def beat(self) -> bool:
        """Whether each node has a lease and is in its round."""
        return all(each.standing(time.monotonic()) is Standing.CURRENT for each in self.members.values())

    def die(self, number: int) -> None:
        self.drop(number)
        del self.members[number]

    def count(self) -> tuple[Counter[str], dict[int, float]]:
        found = self.counts, self.returned
        self.counts, self.returned = Counter(), {}
        return found

    def places(self) -> list[tuple[Any, ...]]:
        found = [each.joined for each in self.members.values() if each.joined is not None]
        return [(one.life, one.round, one.participants, one.members, one.master, one.rank) for one in found]


def crew(pipe: Connection, port: int, settings: Settings) -> None:
    Crew(pipe, port, settings).loop()


class Nodes:
    """All nodes, and the server."""

    def __init__(self, size: int, data: Path | None) -> None:
        self.size, self.kept = size, () if data is None else ("--data", str(data))
        self.server = Command("serve", *self.kept)
        self.pipes = processes(crew, [(self.server.port, settings_of(size))] * CREWS)

    def ask(self, name: str, *arguments: Any, of: int | None = None) -> list[Any]:
        return ask((name, *arguments), self.pipes if of is None else [self.pipes[of]])

    def cpu(self) -> float:
        fields = Path(f"/proc/{self.server.process.pid}/stat").read_text().rsplit(")", 1)[1].split()
        return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")

    def until(self, number: int) -> None:
        """Wait until all nodes are in the round of this number, and check that they agree."""
        ends = time.monotonic() + LIMIT_SECONDS
        while len(places := [p for found in self.ask("places") for p in found if p[1] == number]) < self.size:
            assert time.monotonic() < ends, f"{len(places)} of {self.size} nodes are in round {number}"
            time.sleep(0.05)
        assert len({place[:5] for place in places}) == 1
        assert sorted(place[5] for place in places) == list(range(self.size))

    def dies(self) -> None:
        self.ask("die", self.size - 1, of=(self.size - 1) % CREWS)
        self.size -= 1
        self.until(2)

    def comes(self) -> None:
        self.size += 1
        self.ask("make_room")
        self.ask("come", [self.size], of=0)
        self.ask("join", [self.size], of=0)
        self.until(3)

    def loses_its_server(self) -> None:
        self.server.__exit__()
        self.server = Command("serve", *self.kept, port=self.server.port)
        time.sleep(2.0)
        while not all(self.ask("beat")):
            time.sleep(0.05)
        self.until(3)

    def end(self) -> None:
        for pipe in self.pipes:
            pipe.send(("end",))
        self.server.__exit__()


@contextlib.contextmanager
def nodes(size: int, data: bool) -> Iterator[Nodes]:
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (min(hard, 4 * size + 1000), hard))
    with tempfile.TemporaryDirectory() as folder:
        found = Nodes(size, Path(folder, "data") if data else None)
        try:
            yield found
        finally:
            found.end()
            resource.setrlimit(resource.RLIMIT_NOFILE, (soft, hard))


def real(sizes: tuple[tuple[int, bool], ...]) -> None:
    """A first round, a failure, five seconds of heartbeats, a death, a newcomer, and a killed server."""
    lines = []
    for size, data in sizes:
        with nodes(size, data) as found:
            for number in range(CREWS):
                found.ask("come", list(range(size))[number::CREWS], of=number)
            phases: dict[str, Callable[[], object]] = {
                "first round": lambda found=found: (found.ask("join"), found.until(0)),  # type: ignore[misc]
                "a failure": lambda found=found: (found.ask("join", [0], True, of=0), found.until(1)),  # type: ignore[misc]
                "5 s of heartbeats": lambda: time.sleep(5.0),
                "a death": found.dies,
                "a newcomer": found.comes,
                **({"the server is killed": found.loses_its_server} if data else {}),
            }
            title = f"{size:,}{', --data' if data else ''}"
            lines += [[f"{title}: {what}", *measured(found, do)] for what, do in phases.items()]
    heads = ["N", "seconds", "requests", "for a node", "joins", "notices", "bytes of a node", "server, CPU s", "lost"]
    show("Real connections on the loopback; the first round with its last call", heads, lines)


def measured(found: Nodes, do: Callable[[], object]) -> list[str]:
    found.ask("count")
    before, began = found.cpu(), time.monotonic()
    do()
    counts, returned = Counter[str](), dict[int, float]()
    for some, times in found.ask("count"):
        counts += some
        returned |= times
    there, back = (counts[f"bytes {way}"] / found.size for way in ("there", "back"))
    return [
        f"{max(returned.values()) - began:.2f}" if returned else "-", f"{counts['requests']:,}",
        f"{counts['requests'] / found.size:.2f}", f"{counts[f'kind {JOIN}']:,}", f"{counts['notices']:,}",
        f"{there:.0f} + {back:.0f}", f"{max(0.0, found.cpu() - before):.2f}", f"{counts['reconnected']}",
    ]  # fmt: skip


PARTS: dict[str, Part] = {
    "real": lambda quick, times: real(((64, False),) if quick else ((512, False), (2_000, False), (2_000, True))),
}


if __name__ == "__main__":
    compare(__doc__, PARTS, 1)
