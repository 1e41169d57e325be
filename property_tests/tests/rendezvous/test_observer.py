"""A node's own clock alone tells it enough, with clocks that begin anywhere and run up to 1 % too fast or too slow."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from random import Random

import pytest
from hypothesis import settings as hypothesis_settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, precondition, rule

from trystate.impl.rendezvous import observer
from trystate.impl.rendezvous.observer import Lease, Observer
from trystate.impl.rendezvous.state import Participant, Settings, State
from trystate.property_tests.adapters.our_rendezvous.parts import participant
from trystate.property_tests.support.mutants import Mutant, replaced, survivors

NODES, INTERVAL = 3, 1.0
SLOW, FAST = 0.99, 1.01
# How much later than the others a node may be to write again when the store is back, in intervals.
RETURN_MAX = {3: 0.9, 4: 1.0, 8: 1.0, 100: 1.0}


class Watcher:
    """A node that beats and looks as the engine does: after an interval at most, and when its heartbeat is due."""

    def __init__(self, k: int, agreed: Settings, offset: float, rate: float) -> None:
        self.me, self.settings, self.offset, self.rate = participant(k), agreed, offset, rate
        self.observer, self.lease = Observer(self.me.node.token), Lease(agreed)
        self.looks = 0.0  # in true time: when next
        self.cut = False
        self.sights: dict[str, tuple[int, float]] = {}  # the beats that it saw last, and since which true time

    def clock(self, now: float) -> float:
        return self.offset + self.rate * now

    def true(self, clock: float) -> float:
        return (clock - self.offset) / self.rate


class World:
    """Watchers around one store; time is true here. Raises AssertionError where a promise is broken."""

    def __init__(self, attempts: int, offsets: list[float], rates: list[float]) -> None:
        self.settings = Settings(1, NODES, keep_alive_interval=INTERVAL, keep_alive_max_attempt=attempts)
        self.watchers = [Watcher(k, self.settings, offsets[k], rates[k]) for k in range(NODES)]
        self.now = 0.0
        self.state = State("life", self.settings, participants=tuple(w.me for w in self.watchers))

    def act(self, watcher: Watcher) -> None:
        """One look, and a heartbeat if that is due."""
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
        """Nobody reads or writes for so long; then each comes back after some part of the time that it may take."""
        end = self.now + seconds
        latest = RETURN_MAX[self.settings.keep_alive_max_attempt] * INTERVAL / FAST
        for watcher, part in zip(self.watchers, returns, strict=True):
            watcher.looks = max(watcher.looks, end + part * latest)
            watcher.sights = {token: (beats, end + latest) for token, (beats, _) in watcher.sights.items()}
        self.now = end

    def cut(self, k: int) -> None:
        """A node does not reach the store any more, and goes on as long as it has a lease."""
        self.watchers[k].cut = True


PARTS = st.floats(0, 1)


class Watching(RuleBasedStateMachine):
    """Nodes that beat, are cut off, and lose the store together."""

    @initialize(
        attempts=st.sampled_from([2, *RETURN_MAX]),
        offsets=st.lists(st.floats(-1e4, 1e4), min_size=NODES, max_size=NODES),
        rates=st.lists(st.floats(SLOW, FAST), min_size=NODES, max_size=NODES),
    )
    def begin(self, attempts: int, offsets: list[float], rates: list[float]) -> None:
        self.world = World(attempts, offsets, rates)

    @rule(part=PARTS)
    def time_passes(self, part: float) -> None:
        self.world.run(part * 2 * min(self.world.settings.expiry_seconds, 8.0))

    @rule(k=st.integers(0, NODES - 1))
    def is_cut_off(self, k: int) -> None:
        self.world.cut(k)

    @precondition(lambda self: self.world.settings.keep_alive_max_attempt in RETURN_MAX)
    @rule(intervals=st.floats(0, 12), returns=st.lists(PARTS, min_size=NODES, max_size=NODES))
    def the_store_is_away(self, intervals: float, returns: list[float]) -> None:
        self.world.outage(intervals * INTERVAL, returns)
        self.world.run(2 * INTERVAL)  # until everybody is back: the next outage is another one


TestWatching = Watching.TestCase
TestWatching.settings = hypothesis_settings(stateful_step_count=20)


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


def lease_of(function: Callable[[Settings], float]) -> Mutant:
    return replaced(Settings, "lease_seconds", property(function))


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
    "the lease lasts as long as the window": lease_of(lambda s: s.expiry_seconds),
    "the lease has the same margin whatever the window": lease_of(
        lambda s: s.expiry_seconds - s.keep_alive_interval / 2),
    "the lease counts from the end of all time": replaced(Lease, "holds", lambda self, now: True),
}  # fmt: skip


def test_every_mutant_is_noticed() -> None:
    assert survivors(MUTANTS, swarm) == []


# ---- the edges


@pytest.mark.parametrize("attempts", [2, 3, 12, 13, 25, 26, 100, 10_000])
def test_the_lease_ends_before_the_window_of_the_fastest_observer(attempts: int) -> None:
    agreed = Settings(1, 2, keep_alive_interval=5.0, keep_alive_max_attempt=attempts)
    assert agreed.lease_seconds / SLOW < agreed.expiry_seconds / FAST
    assert agreed.lease_seconds > agreed.keep_alive_interval  # or there would be no time to beat


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


def test_who_is_listed_again_begins_anew_and_who_is_oneself_is_never_silent() -> None:
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


def test_a_lease_is_that_of_the_latest_heartbeat_whenever_its_confirmation_comes() -> None:
    lease, told = Lease(Settings(1, 2, keep_alive_interval=2.0, keep_alive_max_attempt=3)), list[float]()
    lease.renewed = told.append
    assert (lease.next_beat, lease.holds(0.0), lease.beat_due(0.0)) == (0.0, False, True)
    lease.confirm(10.0)
    lease.confirm(9.0)
    assert (lease.next_beat, lease.beat_due(11.9), lease.beat_due(12.0)) == (12.0, False, True)
    assert (lease.holds(14.9), lease.holds(15.0)) == (True, False)
    assert told == [15.0]
    lease.give_up()
    assert not lease.holds(10.0)
