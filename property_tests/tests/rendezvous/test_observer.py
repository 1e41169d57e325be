"""Each node needs only its own clock, which begins anywhere and runs up to 1 % too fast or too slow."""

from __future__ import annotations

from dataclasses import replace
from random import Random

import pytest

from trystate.impl.rendezvous import observer
from trystate.impl.rendezvous.observer import Lease, Observer
from trystate.impl.rendezvous.state import Participant, Settings, State
from trystate.property_tests.adapters.our_rendezvous.parts import participant
from trystate.property_tests.support.mutants import replaced, survivors

NODES, INTERVAL = 3, 1.0
SLOW, FAST = 0.99, 1.01
# The largest delay of a node's return after an outage, relative to the others, in intervals.
RETURN_MAX = {3: 0.9, 4: 1.0, 8: 1.0, 100: 1.0}


class Watcher:
    """A node with the engine's timing: it reads at least once an interval and when its heartbeat is due."""

    def __init__(self, k: int, agreed: Settings, offset: float, rate: float) -> None:
        self.me, self.settings, self.offset, self.rate = participant(k), agreed, offset, rate
        self.observer, self.lease = Observer(self.me.node.token), Lease(agreed)
        self.looks = 0.0  # true time of the next read
        self.cut = False
        self.sights: dict[str, tuple[int, float]] = {}  # the last beats, and the true time since which they are these

    def clock(self, now: float) -> float:
        return self.offset + self.rate * now

    def true(self, clock: float) -> float:
        return (clock - self.offset) / self.rate


class World:
    """Watchers around one store, in true time. Raises AssertionError if a promise is broken."""

    def __init__(self, attempts: int, offsets: list[float], rates: list[float]) -> None:
        self.settings = Settings(1, NODES, keep_alive_interval=INTERVAL, keep_alive_max_attempt=attempts)
        self.watchers = [Watcher(k, self.settings, offsets[k], rates[k]) for k in range(NODES)]
        self.now = 0.0
        self.state = State("life", self.settings, participants=tuple(w.me for w in self.watchers))

    def act(self, watcher: Watcher) -> None:
        """One read, and a heartbeat if it is due."""
        clock = watcher.clock(self.now)
        if not watcher.cut:
            watcher.observer.look(self.state, clock)
            self.judge(watcher, watcher.observer.silent(self.settings))
            if watcher.lease.beat_due(clock):
                watcher.lease.confirm(clock)
                beaten = tuple(self._beaten(p, watcher) for p in self.state.participants)
                self.state = replace(self.state, participants=beaten)
        due = watcher.lease.next_beat if watcher.lease.next_beat > clock else clock + INTERVAL
        watcher.looks = max(watcher.true(min(due, clock + INTERVAL)), self.now + 1e-3)

    def _beaten(self, p: Participant, watcher: Watcher) -> Participant:
        return replace(p, beats=p.beats + 1) if p.node.token == watcher.me.node.token else p

    def judge(self, observer: Watcher, silent: frozenset[str]) -> None:
        window = self.settings.expiry_seconds
        for p, other in zip(self.state.participants, self.watchers, strict=True):
            token = p.node.token
            if observer.sights.get(token, (-1,))[0] != p.beats:
                observer.sights[token] = p.beats, self.now
            if token in silent:
                assert other.cut, f"{token} beats, and is silent to {observer.me.node.token}"
                assert not other.lease.holds(other.clock(self.now)), f"{token} is silent, and its lease holds"
            elif other is not observer:
                stood = self.now - observer.sights[token][1]
                assert stood <= (window + INTERVAL) / SLOW, f"{token} stood still for {stood} s, and is not silent"

    def run(self, seconds: float) -> None:
        until = self.now + seconds
        while (first := min(self.watchers, key=lambda w: w.looks)).looks <= until:
            self.now = max(self.now, first.looks)
            self.act(first)
        self.now = until

    def outage(self, seconds: float, returns: list[float]) -> None:
        """No node reads or writes for `seconds`. Then each returns after a share of the longest permitted time."""
        end = self.now + seconds
        latest = RETURN_MAX[self.settings.keep_alive_max_attempt] * INTERVAL / FAST
        for watcher, part in zip(self.watchers, returns, strict=True):
            watcher.looks = max(watcher.looks, end + part * latest)
            watcher.sights = {token: (beats, end + latest) for token, (beats, _) in watcher.sights.items()}
        self.now = end

    def cut(self, k: int) -> None:
        """A node does not reach the store any more, and continues as long as it has a lease."""
        self.watchers[k].cut = True


def swarm(worlds: int = 60) -> None:
    """Many such runs, without shrinking."""
    chance = Random(7)
    for k in range(worlds):
        rates = [chance.choice([SLOW, 1.0, FAST]) for _ in range(NODES)]
        world = World([2, *RETURN_MAX][k % 5], [chance.uniform(-1e4, 1e4) for _ in range(NODES)], rates)
        for _ in range(4):
            world.run(chance.uniform(0, 12))
            if world.settings.keep_alive_max_attempt in RETURN_MAX:
                world.outage(chance.uniform(0, 8), [chance.random() for _ in range(NODES)])
                world.run(2 * INTERVAL)
        world.cut(chance.randrange(NODES))
        world.run(3 + 1.2 * world.settings.expiry_seconds)


MUTANTS = {
    "the end of an outage expels": replaced(observer, "BLIND_INTERVALS", 1e9),
    "every look is blind": replaced(observer, "BLIND_INTERVALS", 0.1),
    "the window is shorter": replaced(
        Settings, "expiry_seconds", property(lambda s: s.keep_alive_interval * (s.keep_alive_max_attempt - 1))),
    "a heartbeat that stands still is new": replaced(
        Observer, "_seen", lambda self, token, beats: (beats, self._watched)),
    "a heartbeat that moved is old": replaced(
        Observer, "_seen", lambda self, token, beats: self._beats.get(token, (beats, self._watched))),
    "nobody is ever silent": replaced(Observer, "silent", lambda self, agreed: frozenset()),
    "the lease lasts as long as the window": replaced(
        Settings, "lease_seconds", property(lambda s: s.expiry_seconds)),
    "the lease has the same margin whatever the window": replaced(
        Settings, "lease_seconds", property(lambda s: s.expiry_seconds - s.keep_alive_interval / 2)),
    "the lease counts from the end of all time": replaced(Lease, "holds", lambda self, now: True),
}  # fmt: skip


def test_every_mutant_is_noticed() -> None:
    assert survivors(MUTANTS, swarm) == []


# ---- the edges


@pytest.mark.parametrize("attempts", [2, 3, 12, 13, 25, 26, 100, 10_000])
def test_the_lease_ends_before_the_window_of_the_fastest_observer(attempts: int) -> None:
    agreed = Settings(1, 2, keep_alive_interval=5.0, keep_alive_max_attempt=attempts)
    assert agreed.lease_seconds / SLOW < agreed.expiry_seconds / FAST
    assert agreed.lease_seconds > agreed.keep_alive_interval  # otherwise there would be no time for a heartbeat


def short_outage(attempts: int, outage: float, back: float) -> set[str]:
    """The nodes silent to an observer after an outage that began just before a heartbeat; times in intervals."""
    agreed = Settings(1, 2, keep_alive_interval=1.0, keep_alive_max_attempt=attempts)
    other = State("life", agreed, participants=(participant(1, 1),))
    observer = Observer("me")
    observer.look(other, 0.0)
    observer.look(other, 0.999)  # the heartbeat is due at 1.0
    looks = [0.999 + outage + k / 10 for k in range(100)]
    seen: set[str] = set()
    for now in looks:
        beats = 2 if now > 0.999 + outage + back else 1
        observer.look(replace(other, participants=(participant(1, beats),)), now)
        seen |= observer.silent(agreed)
        if beats == 2:
            return seen
    return seen


@pytest.mark.parametrize("attempts", [3, 4, 5, 10])
@pytest.mark.parametrize("outage", [0.5, 1.0, 1.4, 1.5, 1.6, 2.0, 50.0])
def test_nobody_is_silent_who_beats_within_an_interval_after_an_outage(attempts: int, outage: float) -> None:
    assert short_outage(attempts, outage, 0.95) == set()


def test_a_last_call_ends_by_the_clock_of_who_sees_it_begin() -> None:
    agreed = Settings(1, 3, last_call_timeout=30.0, rescale_timeout=2.0)
    calling = State("life", agreed, call=1, participants=(participant(1),))
    observer = Observer("me")
    observer.look(calling, 100.0)
    observer.look(replace(calling, version=9, participants=(participant(1, 5),)), 110.0)
    assert observer.call_ends(calling) == 130.0
    for other in (replace(calling, call=2), replace(calling, life="other"), replace(calling, round=1)):
        observer.look(calling, 100.0)
        observer.look(other, 120.0)
        assert observer.call_ends(other) == (122.0 if other.round else 150.0)
    observer.look(replace(calling, participants=()), 140.0)
    observer.look(calling, 141.0)
    assert observer.call_ends(calling) == 171.0


def test_a_relisted_node_starts_again_and_a_node_is_never_silent_to_itself() -> None:
    agreed = Settings(1, 3, keep_alive_interval=1.0, keep_alive_max_attempt=3)
    here = State("life", agreed, participants=(participant(1), participant(2)))
    observer = Observer("token-2")
    for now in (0.0, 1.0, 2.0, 2.999):
        observer.look(here, now)
    assert observer.silent(agreed) == frozenset()
    observer.look(here, 3.0)
    assert observer.silent(agreed) == {"token-1"}
    observer.look(None, 3.5)
    observer.look(here, 4.0)
    observer.look(here, 5.0)
    observer.look(here, 5.9)
    assert observer.silent(agreed) == frozenset()


def test_a_lease_begins_with_the_latest_heartbeat_and_not_its_answer() -> None:
    lease, told = Lease(Settings(1, 2, keep_alive_interval=2.0, keep_alive_max_attempt=3)), list[float]()
    lease.renewed = told.append
    assert (lease.next_beat, lease.holds(0.0), lease.beat_due(0.0)) == (0.0, False, True)
    lease.confirm(10.0)
    lease.confirm(9.0)
    assert (lease.next_beat, lease.beat_due(11.9), lease.beat_due(12.0)) == (12.0, False, True)
    assert (lease.holds(14.9), lease.holds(15.0)) == (True, False)
    assert told == [15.0]
