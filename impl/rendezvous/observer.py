"""What a node knows by its own monotonic clock: who is silent, whose last call is over, and whether its lease holds.

Rule: no clock is compared with another one. An observer measures from its own first sight of something, and whoever
holds a lease measures from before it wrote, so that a lease is over before any observer's window is.
"""

from __future__ import annotations

from collections.abc import Callable

from .state import Settings, State

# However long an observer could not look, maybe because nobody could write either, counts as so many intervals at most.
# Otherwise the end of an outage would expel everybody.
BLIND_INTERVALS = 1.0


class Observer:
    """What one loop of a node has seen, and when; times in seconds of a monotonic clock."""

    def __init__(self, token: str) -> None:
        self._token = token
        self._looked: float | None = None
        self._watched = 0.0  # seconds for which it could see
        self._beats: dict[str, tuple[int, float]] = {}
        self._call: tuple[str, int, int] | None = None
        self._called = 0.0

    def look(self, state: State | None, now: float) -> None:
        """Take in what was read from the store just now."""
        if state is None:
            self._beats, self._call = {}, None
        else:
            gap = now - self._looked if self._looked is not None else 0.0
            self._watched += min(gap, BLIND_INTERVALS * state.settings.interval)
            self._beats = {p.node.token: self._seen(p.node.token, p.beats) for p in state.listed()}
            call = (state.life, state.round, state.call) if state.calling else None
            if call != self._call:
                self._call, self._called = call, now
        self._looked = now

    def _seen(self, token: str, beats: int) -> tuple[int, float]:
        known = self._beats.get(token)
        return known if known is not None and known[0] == beats else (beats, self._watched)

    def silent(self, settings: Settings) -> frozenset[str]:
        """Whose heartbeat stood still for the whole window, as far as one could see."""
        return frozenset(
            token for token, (_, since) in self._beats.items()
            if token != self._token and self._watched - since >= settings.window
        )  # fmt: skip

    def call_ends(self, state: State) -> float:
        """When the last call that is on ends, by this clock."""
        settings = state.settings
        return self._called + (settings.rescale_call if state.round else settings.last_call)


class Lease:
    """How long a node may take itself for a member without hearing from the store. Shared by its threads."""

    def __init__(self, settings: Settings) -> None:
        self._settings = settings
        self._confirmed: float | None = None
        self.renewed: Callable[[float], None] = lambda ends: None  # told when the lease ends, each time that it changes

    def confirm(self, sent: float) -> None:
        """A heartbeat that was begun at `sent` has been written."""
        if self._confirmed is None or sent > self._confirmed:
            self._confirmed = sent
            self.renewed(sent + self._settings.lease)

    def holds(self, now: float) -> bool:
        return self._confirmed is not None and now - self._confirmed < self._settings.lease

    def beat_due(self, now: float) -> bool:
        return self._confirmed is None or now - self._confirmed >= self._settings.interval

    @property
    def next_beat(self) -> float:
        """When the next heartbeat is due."""
        return 0.0 if self._confirmed is None else self._confirmed + self._settings.interval

    def give_up(self) -> None:
        """The node is no member any more, or becomes a new one."""
        self._confirmed = None
