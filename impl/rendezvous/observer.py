"""Facts that a node derives from its own monotonic clock: silent nodes, the end of a last call, and its own lease.

Theory of operation. This is a failure detector without a common clock. torch compares the wall clocks of two machines
(dynamic_rendezvous.py, _sanitize). Here each node uses only its own clock.

    member     adds 1 to its counter at t0, and has a lease until t0 + lease_seconds, by its clock
    observer   reads the counter at t1 >= t0, and considers the member silent at t1 + expiry_seconds, by its clock

`expiry_seconds` exceeds `lease_seconds` by more than the drift of two clocks that are each wrong by 1 %. So a member
that cannot reach the store stops its workers before any observer expels it. Two groups never train at the same time.

A counter is a separate key, so no heartbeat is lost to another node's write. But an expulsion does not exclude a
heartbeat: a counter may change after an observer has read it, and before the observer expels the node. Four rules make
that harmless. The first two are the member's, the others are the observer's:

1. An addition renews the lease from the time before it was sent, and only if a read of the state that began after the
   answer lists the node. A store that has lost its contents renews no lease.
2. An addition renews only a lease that still holds when that read is answered (`Lease.extend`). A lease that has ended
   begins again only with a won write of the state, and that excludes an expulsion: both replace the state that was
   read. The write puts its version into the node's listing (`written`), and an observer takes it for a heartbeat.
3. Silence ends when the last read of the counter was sent, and begins when the first read was answered.
4. An observer that begins to watch a node, and one that sees another life of the state, begins a new window.

Suppose that an observer expels a member, and that the member's lease holds after that. The lease began with a won write
or with an addition. The state of the expulsion has that write in it, so the observer has seen it in `written`, and the
window after it was longer than the lease. If the observer has seen the addition, the same holds (3). If it has not, the
addition came after the last read of the counter, which was sent a window after the observer saw the heartbeat before.
So the lease of that heartbeat had ended, and the addition renewed nothing (2).

The ring. The listed nodes form a ring in the order of their tokens. Tokens are random, so nodes that fail
together, such as the nodes of a rack, are not neighbours, and the order does not change when nodes change lists. A node
watches the next `WATCHED` nodes of the ring, without members whose workers have succeeded: their processes may end. So
each node has observers until its `WATCHED` predecessors end at once. A node whose watched nodes are all silent
watches twice as many from then on, until one of them shows a heartbeat. So one living node finds r silent nodes behind
it within log2(r / WATCHED + 1) windows, rounded up, whichever lists they are on: a round that waits for an expected
node finds it silent too.
"""

from __future__ import annotations

import heapq
import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field

from .state import Settings, State

# The store is away for a minute: no node can send a heartbeat, and no observer can read one. If the minute counted, the
# first observer that is back would find all others silent and expel them. A gap between two reads counts as at most
# this number of intervals.
BLIND_INTERVALS = 1.0
WATCHED = 3  # nodes that a node watches
MARGIN_SECONDS = 0.001  # a read at the end of a window is sent this much later: numbers are rounded
Counter = bytes | None  # compared, never interpreted; None: the node has not added anything yet


@dataclass(frozen=True, slots=True)
class Beat:
    """A heartbeat to send: add 1 to the counter of `token`, then read the counters of `watched`; not before `due`."""

    token: str
    due: float
    watched: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class Beaten:
    """A heartbeat that was sent: the clock before it, and the counters that were read after it."""

    sent: float
    counters: Mapping[str, Counter] = field(default_factory=dict)


class Observer:
    """The heartbeats that one generator of a node has seen, and when; times in seconds of a monotonic clock."""

    def __init__(self, token: str) -> None:
        self._token = token
        self._looked: float | None = None
        self._watched = 0.0  # total of the seconds in which this observer could read
        self._read = 0.0  # the total when the counters were last requested
        self._life = ""
        self._counters: Mapping[str, Counter] = {}
        self._signs: dict[str, tuple[tuple[int, Counter], float]] = {}  # signs of the watched nodes, and their times
        self._width = WATCHED
        self._call: tuple[str, int, int] | None = None
        self._called = 0.0

    def look(self, state: State | None, now: float, beaten: Beaten | None = None) -> None:
        """Observe the state that was read just now, and the counters that were read before it."""
        if state is None:
            self._signs, self._counters, self._call, self._looked = {}, {}, None, now
            return
        if beaten is not None:
            self._advance(beaten.sent, state.settings)
            self._counters, self._read = beaten.counters, self._watched
        self._advance(now, state.settings)
        before, self._life = self._signs if state.life == self._life else {}, state.life
        signs = {t: (p.written, self._counters[t]) for p in state.listed() if (t := p.node.token) in self._counters}
        self._signs = {t: before[t] if t in before and before[t][0] == sign else (sign, self._watched)
                       for t, sign in signs.items()}  # fmt: skip
        if any(before[t] != one for t, one in self._signs.items() if t in before):
            self._width = WATCHED
        elif beaten is not None and signs and len(self.silent(state.settings)) == len(signs):
            self._width *= 2
        call = (state.life, state.round, state.call) if state.calling else None
        if call != self._call:
            self._call, self._called = call, now

    def _advance(self, now: float, settings: Settings) -> None:
        gap = now - self._looked if self._looked is not None else 0.0
        self._watched += min(gap, BLIND_INTERVALS * settings.keep_alive_interval)
        self._looked = now

    def watched(self, state: State) -> tuple[str, ...]:
        """The tokens of the nodes to watch: the next ones of the ring."""
        others = {p.node.token for p in state.listed()}.difference(state.done, (self._token,))
        return tuple(heapq.nsmallest(self._width, others, key=lambda token: (token < self._token, token)))

    def silent(self, settings: Settings) -> frozenset[str]:
        """The tokens of watched nodes without a new heartbeat for the window, counting only time with reads."""
        return frozenset(t for t, (_, since) in self._signs.items() if self._read - since >= settings.expiry_seconds)

    def ends(self, settings: Settings) -> float:
        """The time at which the first watched node would be silent."""
        left = (since + settings.expiry_seconds - self._watched for token, (_, since) in self._signs.items()
                if token not in self.silent(settings))  # fmt: skip
        return (self._looked or 0.0) + min(left, default=math.inf) + MARGIN_SECONDS

    def call_ends(self, state: State) -> float:
        """The time at which the current last call ends, from this observer's first sight of it."""
        settings = state.settings
        return self._called + (settings.rescale_timeout if state.round else settings.last_call_timeout)


class Lease:
    """The time until which a node may consider itself a member without reaching the store. Shared by its threads."""

    def __init__(self, settings: Settings) -> None:
        self._settings = settings
        self._confirmed: float | None = None
        self.renewed: Callable[[float], None] = lambda ends: None  # called with the new end of the lease

    def confirm(self, sent: float) -> None:
        """A write that was begun at `sent` has been won, and lists the node."""
        if self._confirmed is None or sent > self._confirmed:
            self._confirmed = sent
            self.renewed(sent + self._settings.lease_seconds)

    def extend(self, sent: float, now: float) -> None:
        """A heartbeat was begun at `sent`, and a state that was read after it, at `now`, lists the node."""
        if self.holds(now):  # an observer may have expelled the node otherwise: see the module's docstring
            self.confirm(sent)

    def holds(self, now: float) -> bool:
        return self._confirmed is not None and now - self._confirmed < self._settings.lease_seconds

    def beat_due(self, now: float) -> bool:
        return self._confirmed is None or now - self._confirmed >= self._settings.keep_alive_interval

    @property
    def next_beat(self) -> float:
        """When the next heartbeat is due."""
        return 0.0 if self._confirmed is None else self._confirmed + self._settings.keep_alive_interval

    @property
    def last_beat(self) -> float:
        """The latest time for a heartbeat: half an interval before the lease ends, and not before `next_beat`."""
        late = self._settings.lease_seconds - self._settings.keep_alive_interval / 2
        return 0.0 if self._confirmed is None else max(self.next_beat, self._confirmed + late)
