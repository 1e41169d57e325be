"""Facts that a node derives from its own monotonic clock: silent nodes, the end of a last call, and its own lease.

This is a failure detector without a common clock. torch compares the wall clocks of two machines
(dynamic_rendezvous.py, _sanitize). Here each node uses only its own clock.

    member     writes a heartbeat at t0, and has a lease until t0 + lease_seconds, by its clock
    observer   reads that heartbeat at t1 >= t0, and considers the member silent at t1 + expiry_seconds, by its clock

`expiry_seconds` exceeds `lease_seconds` by more than the drift of two clocks that are each wrong by 1 %. So a member
that cannot reach the store stops its workers before any observer expels it. Two groups never train at the same time.
"""

from __future__ import annotations

from collections.abc import Callable

from .state import Settings, State

# The store is away for a minute: no node can write a heartbeat, and no observer can read one. If the minute counted,
# the first observer that is back would find all others silent and expel them. A gap between two reads counts as at most
# this number of intervals.
BLIND_INTERVALS = 1.0


class Observer:
    """The heartbeats that one generator of a node has seen, and when; times in seconds of a monotonic clock."""

    def __init__(self, token: str) -> None:
        self._token = token
        self._looked: float | None = None
        self._watched = 0.0  # total of the seconds in which this observer could read
        self._beats: dict[str, tuple[int, float]] = {}
        self._call: tuple[str, int, int] | None = None
        self._called = 0.0

    def look(self, state: State | None, now: float) -> None:
        """Observe the state that was read just now."""
        if state is None:
            self._beats, self._call = {}, None
        else:
            gap = now - self._looked if self._looked is not None else 0.0
            self._watched += min(gap, BLIND_INTERVALS * state.settings.keep_alive_interval)
            self._beats = {p.node.token: self._seen(p.node.token, p.beats) for p in state.listed()}
            call = (state.life, state.round, state.call) if state.calling else None
            if call != self._call:
                self._call, self._called = call, now
        self._looked = now

    def _seen(self, token: str, beats: int) -> tuple[int, float]:
        known = self._beats.get(token)
        return known if known is not None and known[0] == beats else (beats, self._watched)

    def silent(self, settings: Settings) -> frozenset[str]:
        """The tokens of nodes without a new heartbeat for the window, counting only time with reads."""
        watched, expiry = self._watched, settings.expiry_seconds
        return frozenset(t for t, (_, since) in self._beats.items() if watched - since >= expiry and t != self._token)

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
        """A heartbeat that was begun at `sent` has been written."""
        if self._confirmed is None or sent > self._confirmed:
            self._confirmed = sent
            self.renewed(sent + self._settings.lease_seconds)

    def holds(self, now: float) -> bool:
        return self._confirmed is not None and now - self._confirmed < self._settings.lease_seconds

    def beat_due(self, now: float) -> bool:
        return self._confirmed is None or now - self._confirmed >= self._settings.keep_alive_interval

    @property
    def next_beat(self) -> float:
        """When the next heartbeat is due."""
        return 0.0 if self._confirmed is None else self._confirmed + self._settings.keep_alive_interval
