"""Each node needs only its own clock, which begins anywhere and runs up to 1 % too fast or too slow."""

from __future__ import annotations

import math
from collections.abc import Callable
from contextlib import suppress
from dataclasses import replace
from random import Random

import pytest

from trystate.impl.rendezvous import observer
from trystate.impl.rendezvous.engine import Effect, Engine, Joined, Standing, Sync
from trystate.impl.rendezvous.errors import RendezvousConnectionError
from trystate.impl.rendezvous.observer import WATCHED, Beaten, Lease, Observer
from trystate.impl.rendezvous.state import Settings, State
from trystate.property_tests.adapters.our_rendezvous.parts import Stage, participant
from trystate.property_tests.adapters.simulator.moments import Task, Time
from trystate.property_tests.adapters.simulator.store import Line, Link, Store
from trystate.property_tests.support.mutants import replaced, rewritten, survives

NODES, SWARM, RETRY_SECONDS = 3, 40, 0.1
SLOW, FAST = 0.99, 1.01
AGREED = Settings(1, 3, keep_alive_interval=1.0, keep_alive_max_attempt=3)
# The largest delay of a node's return after an outage, relative to the others, in intervals.
RETURN_MAX = {3: 0.8, 4: 1.0, 8: 1.0}


class Member:
    """A node with our engine, its clock, and its link to the store."""

    def __init__(self, world: World, k: int, rate: float, slow: float) -> None:
        self.world, self.offset, self.rate = world, world.chance.uniform(-1e4, 1e4), rate
        self.frozen_until = 0.0
        self.link = Link(world.time, world.chance, deaf=False)
        self.link.delay = lambda: world.chance.uniform(0.0, slow)  # type: ignore[method-assign]
        self.engine = Engine(participant(k), world.settings, draw=world.chance.random, life="another")
        self.engine.lease.renewed = self.renewed
        self.engine.lease.confirm(self.clock())
        Task(world.time, lambda: self.frozen_until, self.live)

    def clock(self) -> float:
        return self.offset + self.rate * self.world.time.now

    @property
    def disturbed_until(self) -> float:
        return max(self.frozen_until, self.link.cut_until)

    def renewed(self, ends: float) -> None:
        state = self.world.store.state
        listed = state is not None and state.find(self.engine.token) is not None
        assert listed or self.clock() >= ends, f"{self.engine.token} is expelled, and renews its lease"

    def live(self) -> None:
        steps = self.engine.keep_alive(Joined(self.world.state, 0), until=(Standing.EXPELLED, Standing.CLOSED))
        line = Line(self.world.store, self.link, self.clock, self.rate, self.engine.token)
        effect: Effect = next(steps)
        with suppress(StopIteration):
            while True:
                try:
                    effect = steps.send(line.perform(effect))
                except RendezvousConnectionError:
                    self.world.time.sleep(RETRY_SECONDS)
                    effect = replace(effect, seconds=0.0, revision=None) if isinstance(effect, Sync) else effect


class World:
    """The members of one round around one store, in true time. Raises AssertionError if a promise is broken."""

    def __init__(self, chance: Random, attempts: int, interval: float, slow: float) -> None:
        """`slow`: the longest time of a message, in seconds."""
        self.chance, self.time, self.window = chance, Time(), attempts * interval
        self.prompt = slow < interval / 50
        self.settings = Settings(1, NODES, keep_alive_interval=interval, keep_alive_max_attempt=attempts)
        self.state = State("life", self.settings, complete=True, participants=tuple(map(participant, range(NODES))))
        self.store = Store(self.time, self.wrote, self.beaten)
        self.store.state = self.state
        self.members = [Member(self, k, chance.choice([SLOW, 1.0, FAST]), slow) for k in range(NODES)]
        self.gone: set[str] = set()
        self.signs = dict.fromkeys((one.engine.token for one in self.members), 0.0)  # the last one of each

    def beaten(self, token: str) -> None:
        one = next(one for one in self.members if one.engine.token == token)
        if one.engine.lease.holds(one.clock()):
            self.signs[token] = self.time.now

    def wrote(self, before: State | None, after: State, who: str) -> None:
        """Only members without a lease are expelled, and none that could send its heartbeats."""
        listed = {p.node.token for p in after.listed()}
        self.signs[who] = self.time.now
        for one in self.members:
            token = one.engine.token
            if token not in self.gone and token not in listed:
                self.gone.add(token)
                assert not one.engine.lease.holds(one.clock()), f"{who} expels {token}, which has a lease"
                silent = self.time.now - self.signs[token]
                assert silent >= self.window / FAST, f"{who} expels {token} after {silent} s"
                calm = self.time.now - one.disturbed_until
                most = self.window + 2 * self.settings.keep_alive_interval
                assert not self.prompt or calm <= most, f"{who} expels {token}, which could beat for {calm} s"

    def run(self, intervals: float) -> None:
        self.time.run(self.time.now + intervals * self.settings.keep_alive_interval)


def freezes(world: World) -> None:
    """Members stand still for about a window, while messages take long."""
    for _ in range(12):
        world.run(world.chance.uniform(1, 3))
        one = world.chance.choice(world.members)
        one.frozen_until = world.time.now + world.settings.expiry_seconds * world.chance.uniform(1.0, 1.6)
        world.run(world.settings.keep_alive_max_attempt * 1.5)


def outages(world: World) -> None:
    """No member reaches the store for a while, and each returns a little later: no member is expelled for it."""
    interval, attempts = world.settings.keep_alive_interval, world.settings.keep_alive_max_attempt
    for _ in range(4):
        world.run(world.chance.uniform(0, 12))
        end = world.time.now + world.chance.uniform(0, 8) * interval
        for one in world.members:
            one.link.cut_until = end + world.chance.random() * RETURN_MAX[attempts] * interval
        world.run((end - world.time.now) / interval + 2 * attempts)
        assert not world.gone, f"{world.gone} could not reach the store for a while, and were expelled"


def death(world: World) -> None:
    """A member that is cut off for ever is expelled."""
    world.run(world.chance.uniform(1, 12))
    one = world.chance.choice(world.members)
    one.link.cut_until = math.inf
    world.run((world.settings.keep_alive_max_attempt + 2.5) / SLOW)
    assert one.engine.token in world.gone, "a dead member is listed"


def questions_and_answers() -> None:
    """Silence counts from an answer to a question, and a lease from the sending of a heartbeat."""
    here = State("life", AGREED, complete=True, participants=(participant(1), participant(2)))
    observer = Observer("token-2")
    for sent, now in ((0.0, 0.4), (1.0, 1.4), (2.0, 2.4), (3.3, 3.4), (3.4, 3.5)):
        assert not observer.silent(AGREED)
        observer.look(here, now, Beaten(sent, {"token-1": b"7"}))
    assert observer.silent(AGREED) == {"token-1"}
    lease = Lease(AGREED)
    lease.confirm(0.0)
    lease.extend(1.0, 1.4)
    assert lease.next_beat == 2.0
    lease.extend(1.5, 3.5)
    assert not lease.holds(3.5)


def lives_of_the_store() -> None:
    """Another life of the state, and a node that was not watched for a while, begin a new window."""
    here, both = State("life", AGREED, complete=True, participants=(participant(1), participant(2))), {"token-1": b"7"}
    for between in (replace(here, life="another"), None):
        observer = Observer("token-2")
        for now in (0.0, 1.0, 2.0):
            observer.look(here, now, Beaten(now, both))
        observer.look(between, 3.0, Beaten(3.0, both))
        assert observer.silent(AGREED) == frozenset()
    observer = Observer("token-2")
    for now in (0.0, 1.0, 2.0, 3.0):
        observer.look(here, now, Beaten(now, both if now != 2.0 else {}))
        assert observer.silent(AGREED) == frozenset()


def ring() -> None:
    """A node watches the next three that are not done. Silent ones double the number, and a living one resets it."""
    state = State("life", replace(AGREED, max_nodes=99), participants=tuple(participant(k) for k in (7, 3, 5)),
                  expected=(participant(1),), waiting=(participant(9),), spares=(participant(4),))  # fmt: skip
    observer = Observer("token-5")
    assert observer.watched(state) == ("token-7", "token-9", "token-1")
    assert observer.watched(replace(state, done=("token-9",))) == ("token-7", "token-1", "token-3")
    for now in range(4):
        observer.look(state, now, Beaten(now, dict.fromkeys(observer.watched(state))))
    assert observer.silent(AGREED) == {"token-7", "token-9", "token-1"}
    assert observer.watched(state) == ("token-7", "token-9", "token-1", "token-3", "token-4")
    observer.look(state, 4.0, Beaten(4.0, dict.fromkeys(observer.watched(state))))
    observer.look(state, 5.0, Beaten(5.0, dict.fromkeys(observer.watched(state)) | {"token-9": b"1"}))
    assert len(observer.watched(state)) == 3


def windows() -> None:
    """One living node finds all others, on whichever lists they are, in windows that double their number."""
    agreed = replace(AGREED, max_nodes=40)
    nodes = [participant(k) for k in range(40)]
    for state in (
        State("life", agreed, complete=True, participants=tuple(nodes)),
        State("life", agreed, participants=(nodes[0],), expected=tuple(nodes[1:9]), waiting=tuple(nodes[9:20]),
              spares=tuple(nodes[20:])),
    ):  # fmt: skip
        stage = Stage(state)
        engine = stage.engine(0, agreed)
        engine.lease.confirm(0.0)
        stage.start(engine.keep_alive(Joined(state, 0)) if state.complete else engine.join(600.0))
        most = math.ceil(math.log2(39 / WATCHED + 1)) * (agreed.expiry_seconds + 2 * agreed.keep_alive_interval)
        stage.run(most)
        assert stage.state is not None and [p.node.token for p in stage.state.listed()] == ["token-0"]
        assert stage.beats["token-0"] <= most + 20


DIRECTED = (questions_and_answers, lives_of_the_store, ring, windows)


def runs() -> None:
    """Many runs, without shrinking."""
    for seed in range(SWARM):
        chance = Random(seed)
        attempts = [3, 4, 8][seed % 3]
        freezes(World(chance, 3, 0.4, 0.25))
        outages(World(chance, attempts, 10.0, 0.1))
        death(World(chance, 100 if seed < 8 else attempts, 10.0, 0.1))


def everything() -> None:
    for claim in (*DIRECTED, runs):
        claim()


MUTANTS = {
    "the end of an outage expels": replaced(observer, "BLIND_INTERVALS", 1e9),
    "every look is blind": replaced(observer, "BLIND_INTERVALS", 0.1),
    "the window is shorter": replaced(
        Settings, "expiry_seconds", property(lambda s: s.keep_alive_interval * (s.keep_alive_max_attempt - 1))),
    "a heartbeat that stands still is new": rewritten(Observer.look, "before[t][0] == sign", "False"),
    "a heartbeat that moved is old": rewritten(Observer.look, "before[t][0] == sign", "True"),
    "heartbeats are not read": rewritten(Observer.look, "(p.written, self._counters[t])", "(p.written, None)"),
    "writes are no heartbeats": rewritten(Observer.look, "(p.written, self._counters[t])", "(0, self._counters[t])"),
    "silence lasts until the answer": rewritten(Observer.look, "self._advance(beaten.sent, ", "self._advance(now, "),
    "silence begins with the question": rewritten(
        Observer.look, "    self._advance(now, state.settings)\n    before", "    before"),
    "a heartbeat begins a lease that is over": rewritten(Lease.extend, "if self.holds(now):", "if True:"),
    "a heartbeat counts from its answer": rewritten(Lease.extend, "self.confirm(sent)", "self.confirm(now)"),
    "another life goes on": rewritten(Observer.look, " if state.life == self._life else {}", ""),
    "who is done is watched": rewritten(Observer.watched, "state.done, ", ""),
    "everybody watches the same nodes": rewritten(Observer.watched, "(token < self._token, token)", "token"),
    "no more nodes are watched": rewritten(Observer.look, "self._width *= 2", "pass"),
    "ever more nodes are watched": rewritten(Observer.look, "self._width = WATCHED", "pass"),
    "nobody is ever silent": replaced(Observer, "silent", lambda self, agreed: frozenset()),
    "the lease lasts as long as the window": replaced(
        Settings, "lease_seconds", property(lambda s: s.expiry_seconds)),
    "the lease has the same margin whatever the window": replaced(
        Settings, "lease_seconds", property(lambda s: s.expiry_seconds - s.keep_alive_interval / 2)),
    "the lease counts from the end of all time": replaced(Lease, "holds", lambda self, now: True),
}  # fmt: skip


@pytest.mark.parametrize("name", MUTANTS)
def test_every_mutant_is_noticed(name: str) -> None:
    assert not survives(MUTANTS[name], everything)


@pytest.mark.parametrize("name", ["a heartbeat begins a lease that is over", "the lease lasts as long as the window"])
def test_an_expulsion_meets_no_lease_because_of_this(name: str) -> None:
    """The heartbeat that comes between an observer's last read and its write is met by chance too."""
    assert not survives(MUTANTS[name], runs)


@pytest.mark.parametrize("claim", [*DIRECTED, runs], ids=lambda claim: claim.__name__)
def test_no_member_is_expelled_with_a_lease_and_a_dead_one_is(claim: Callable[[], None]) -> None:
    claim()


# ---- the edges


@pytest.mark.parametrize("attempts", [2, 3, 12, 13, 25, 26, 100, 10_000])
def test_the_lease_ends_before_the_window_of_the_fastest_observer(attempts: int) -> None:
    agreed = Settings(1, 2, keep_alive_interval=5.0, keep_alive_max_attempt=attempts)
    assert agreed.lease_seconds / SLOW < agreed.expiry_seconds / FAST
    assert agreed.lease_seconds > agreed.keep_alive_interval  # otherwise there would be no time for a heartbeat


def short_outage(attempts: int, outage: float, back: float) -> set[str]:
    """The nodes silent to an observer after an outage that began just before a heartbeat; times in intervals."""
    agreed = Settings(1, 2, keep_alive_interval=1.0, keep_alive_max_attempt=attempts)
    other, observer = State("life", agreed, participants=(participant(1),)), Observer("me")
    seen: set[str] = set()
    for now in (0.0, 0.999, *(0.999 + outage + k / 10 for k in range(100))):  # the heartbeat is due at 1.0
        observer.look(other, now, Beaten(now, {"token-1": b"2" if now > 0.999 + outage + back else b"1"}))
        seen |= observer.silent(agreed)
        if now > 0.999 + outage + back:
            break
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
    observer.look(replace(calling, version=9, participants=(participant(1, 9),)), 110.0)
    assert observer.call_ends(calling) == 130.0
    for other in (replace(calling, call=2), replace(calling, life="other"), replace(calling, round=1)):
        observer.look(calling, 100.0)
        observer.look(other, 120.0)
        assert observer.call_ends(other) == (122.0 if other.round else 150.0)
    observer.look(replace(calling, participants=()), 140.0)
    observer.look(calling, 141.0)
    assert observer.call_ends(calling) == 171.0


def test_a_lease_begins_with_the_latest_heartbeat_and_not_its_answer() -> None:
    lease, told = Lease(Settings(1, 2, keep_alive_interval=2.0, keep_alive_max_attempt=3)), list[float]()
    lease.renewed = told.append
    assert (lease.next_beat, lease.holds(0.0), lease.beat_due(0.0)) == (0.0, False, True)
    lease.confirm(10.0)
    lease.confirm(9.0)
    assert (lease.next_beat, lease.beat_due(11.9), lease.beat_due(12.0)) == (12.0, False, True)
    assert (lease.holds(14.9), lease.holds(15.0)) == (True, False)
    assert told == [15.0]


@pytest.mark.parametrize(("attempts", "last"), [(1, 12.0), (2, 12.0), (3, 14.0), (100, 201.0)])
def test_a_last_heartbeat_is_due_half_an_interval_before_the_lease_ends(attempts: int, last: float) -> None:
    lease = Lease(Settings(1, 2, keep_alive_interval=2.0, keep_alive_max_attempt=attempts))
    assert lease.last_beat == 0.0
    lease.confirm(10.0)
    assert lease.last_beat == last and (lease.holds(last) or attempts == 1)
