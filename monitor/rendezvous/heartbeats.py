"""The keep-alive settings of torch's nodes, inferred from the heartbeats of a record: torch's states lack them.

Theory of operation. A torch node renews its heartbeat when it is older than the interval, in whole seconds. So no
renewal comes earlier, by the clock of its writer, and the earliest of several come soon after it. The interval times
the attempts is the window: an older heartbeat is dropped with the next write of another node. So the oldest heartbeat
that a writer has kept is younger than the window, and the youngest dropped one is older. If the record does not decide,
torch's defaults are used.
"""

from __future__ import annotations

import math
from collections.abc import Iterable
from dataclasses import dataclass, field, replace

from ..record import Flaw, Line
from .known import Options
from .nodes import CONNECTIONS_MAX, NODES_MAX
from .shared_state import NodeName, NoState, Protocol, Snapshot, identify, read

RUNS_MAX = 64
SEVERAL = 3  # renewals that show the interval
CACHE_SECONDS = 2.5  # limit of the age of a copy that a torch node writes back
INTERVAL, ATTEMPTS = Options().interval, Options().attempts


@dataclass(slots=True)
class RunHeartbeats:
    """The heartbeats of one rendezvous."""

    last: Snapshot = field(default_factory=Snapshot)
    shortest: list[float] = field(default_factory=list)  # the shortest times between two heartbeats of a node
    shown: dict[NodeName, float] = field(default_factory=dict)  # the time of the line with the newest heartbeat
    nodes: dict[int, NodeName] = field(default_factory=dict)  # the node of each connection
    kept: float = 0.0  # the oldest heartbeat that another node has left in the state
    dropped: float = math.inf  # the youngest one that another node has dropped

    def take(self, line: Line, snapshot: Snapshot) -> None:
        """Take the next state."""
        last, self.last = self.last, snapshot
        newer = [who for who, at in snapshot.beats.items() if at > last.beats.get(who, math.inf)]
        same = replace(snapshot, beats={}, deadline=None) == replace(last, beats={}, deadline=None)
        if len(newer) == 1 and len(self.nodes) < CONNECTIONS_MAX:
            self.nodes.setdefault(line.connection, newer[0])
            if same:
                gap = snapshot.beats[newer[0]] - last.beats[newer[0]]
                self.shortest = sorted([*self.shortest, gap])[:SEVERAL]
        writer = self.nodes.get(line.connection)
        if writer is not None:
            ages = {who: line.time - self.shown.get(who, line.time) for who in last.beats if who != writer}
            self.dropped = min([self.dropped, *(age for who, age in ages.items() if who not in snapshot.beats)])
            self.kept = max([self.kept, *(age for who, age in ages.items() if who in snapshot.beats)])
        for who, at in snapshot.beats.items():
            if at != last.beats.get(who) and (who in self.shown or len(self.shown) < NODES_MAX):
                self.shown[who] = line.time

    def options(self, given: Options) -> Options:
        """The given settings, completed by the ones that the record shows, or by torch's defaults."""
        interval = given.interval or self._interval()
        attempts = given.attempts or self._attempts(interval)
        return replace(given, interval=interval, attempts=attempts, shown=not (given.interval and given.attempts))

    def _interval(self) -> float:
        if len(self.shortest) == SEVERAL or (self.shortest and self.shortest[0] < INTERVAL):
            return float(max(math.floor(self.shortest[0]), 1))
        return INTERVAL

    def _attempts(self, interval: float) -> int:
        window = interval * ATTEMPTS
        if window > self.dropped:
            return max(math.floor(self.dropped / interval), 1)
        if window < self.kept - CACHE_SECONDS:
            most = self.dropped if self.dropped < math.inf else self.kept
            return max(math.floor(most / interval), ATTEMPTS)
        return ATTEMPTS


def heard(lines: Iterable[Line | Flaw], given: Options) -> dict[str, Options]:
    """The settings of each torch rendezvous in a record, by the key of its state; 0 in `given` means not given."""
    found: dict[str, RunHeartbeats] = {}
    for line in lines:
        if isinstance(line, Flaw) or line.what != "write" or line.fields.get("again"):
            continue
        identity = identify(line.key)
        if identity is None or identity[0] is not Protocol.TORCH or (line.key not in found and len(found) >= RUNS_MAX):
            continue
        try:
            snapshot = read(Protocol.TORCH, line.value)
        except NoState:
            continue
        if snapshot is not None:
            found.setdefault(line.key, RunHeartbeats()).take(line, snapshot)
    return {key: each.options(given) for key, each in found.items()}
