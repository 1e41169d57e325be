"""An agent's reports in the shared state, and the round after them: one store, several engines, no time."""

from __future__ import annotations

import itertools
from collections.abc import Generator
from dataclasses import replace
from typing import Any

import pytest

pytest.importorskip("torch", reason="the errors of the rendezvous are torch's as well")

from trystate.impl.rendezvous import changes
from trystate.impl.rendezvous.engine import Effect, Engine, Joined, Seen, Standing, Write
from trystate.impl.rendezvous.state import Node, Participant, Settings, State
from trystate.model.rendezvous.vocabulary import Membership


class Room:
    """A store's state, and a clock that stands unless it is moved."""

    def __init__(self) -> None:
        self.state: State | None = None
        self.now = 0.0

    def steps(self, generator: Generator[Effect, Seen, Any]) -> Any:
        """Run it until it returns, or waits for somebody: then the generator."""
        effect = next(generator)
        for _ in range(100):
            waits = not isinstance(effect, Write) and effect.seconds > 0
            if waits:
                return generator
            try:
                if isinstance(effect, Write):
                    self.state = effect.state
                effect = generator.send(Seen(self.state, self.now, isinstance(effect, Write)))
            except StopIteration as returned:
                return returned.value
        raise AssertionError("it neither returns nor waits")

    @property
    def seen(self) -> State:
        assert self.state is not None
        return self.state


class Job:
    """`members` nodes in a complete round, and one that waits, if there is room for it."""

    def __init__(self, members: int = 2, *, most: int = 3, max_restarts: int = 1, waits: bool = False) -> None:
        self.room, self.numbers = Room(), itertools.count()
        self.settings = Settings(members, most, last_call_timeout=0.0, max_restarts=max_restarts)
        self.engines = [self.engine() for _ in range(members)]
        for engine in self.engines:
            self.room.steps(engine.join(60))
        self.joined = [self.join(engine) for engine in self.engines]
        if waits:
            self.room.steps(self.engine().join(60))

    def engine(self) -> Engine:
        number = next(self.numbers)
        me = Participant(Node(f"n{number}", 1, 0, f"t{number}"), "h", 1)
        return Engine(me, self.settings, draw=lambda: 0.5, life="L")

    def join(self, engine: Engine) -> Joined:
        state = self.room.seen
        rank = [p.node.token for p in state.participants].index(engine.token)
        assert state.complete
        return Joined(state, rank)

    def standing(self, number: int) -> Standing:
        return self.engines[number].standing(self.joined[number], self.room.state, self.room.now)


def beat(job: Job, number: int) -> None:
    """One look at the state by the keep-alive of a member whose workers run."""
    engine = job.engines[number]
    engine.makes_room = True
    job.room.steps(engine.keep_alive(job.joined[number])).close()


def test_a_member_makes_room_before_any_workers_are_stopped_and_that_spends_nothing() -> None:
    """Workers that lose a peer fail: by then the round is over."""
    job = Job(waits=True, max_restarts=0)
    beat(job, 0)
    assert [job.standing(k) for k in (0, 1)] == [Standing.REPLACED, Standing.REPLACED]
    assert not job.room.seen.complete, "both are expected"
    beat(job, 1)
    for engine in reversed(job.engines):
        job.room.steps(engine.join(60, failed=True))
    state = job.room.seen
    assert (state.spent, state.round, state.complete, len(state.participants)) == (0, 1, True, 3)


def test_a_failure_spends_a_restart_also_where_a_node_waits() -> None:
    job = Job(waits=True)
    job.room.steps(job.engines[0].join(60, failed=True))
    assert job.room.seen.spent == 1


def test_a_failure_spends_nothing_when_the_lease_is_over() -> None:
    """The leases of others may have been over before: then they have stopped their workers, and these failed for it."""
    job = Job(max_restarts=0)
    job.room.now += job.settings.lease_seconds
    job.room.steps(job.engines[0].join(60, failed=True)).close()
    assert (job.room.seen.spent, job.room.seen.round, job.room.seen.closed) == (0, 1, None)


def test_nobody_makes_room_for_nobody_or_when_a_member_has_succeeded() -> None:
    job = Job()
    beat(job, 0)
    assert job.standing(0) is Standing.CURRENT
    job = Job(waits=True)
    job.room.steps(job.engines[1].done(job.joined[1]))
    beat(job, 0)
    assert job.standing(0) is Standing.NEWCOMERS


def test_nobody_makes_room_for_a_node_that_finds_no_seat() -> None:
    job = Job(waits=True)
    job.room.state = replace(job.room.seen, settings=replace(job.settings, max_nodes=2))
    beat(job, 0)
    assert (job.room.seen.round, job.room.seen.complete) == (0, True)


def test_who_has_reported_stays_counted_when_it_leaves() -> None:
    job = Job()
    job.room.steps(job.engines[0].done(job.joined[0]))
    assert job.room.steps(job.engines[0].leave()) is False
    assert job.standing(1) is Standing.CURRENT
    job.room.steps(job.engines[1].done(job.joined[1]))
    assert job.room.seen.closed is not None
    assert job.room.steps(job.engines[0].leave()) is True, "now that it is over it may"


def test_who_has_reported_and_is_silent_is_not_expelled() -> None:
    for reported, standing in ((True, Standing.CURRENT), (False, Standing.REPLACED)):
        job = Job()
        if reported:
            job.room.steps(job.engines[0].done(job.joined[0]))
        beats = job.engines[1].keep_alive(job.joined[1])
        next(beats)
        for _ in range(20):
            job.room.now += job.settings.keep_alive_interval
            effect = beats.send(Seen(job.room.state, job.room.now))
            while isinstance(effect, Write):
                job.room.state = effect.state
                effect = beats.send(Seen(job.room.state, job.room.now, True))
        assert job.standing(1) is standing


def test_notice_ends_the_round_and_nobody_begins_the_next_one_before_that_node_has_left() -> None:
    job = Job(2)
    leaving, staying = job.engines
    third = job.engine()
    assert job.room.steps(leaving.give_notice(job.joined[0])) is True
    assert job.room.steps(leaving.give_notice(job.joined[0])) is False, "it is given once"
    assert (job.standing(0), job.standing(1)) == (Standing.REPLACED, Standing.REPLACED)
    assert job.room.seen.membership(leaving.token) is Membership.EXPECTED
    waiting = job.room.steps(staying.join(60, failed=True))
    other = job.room.steps(third.join(60))
    assert not job.room.seen.complete, "the workers of the first may run on"
    assert job.room.steps(leaving.leave()) is True
    for generator in (waiting, other):
        job.room.now += 0.01
        generator.close()
    job.room.steps(staying.join(60))
    assert job.room.seen.complete
    assert {p.node.token for p in job.room.seen.participants} == {staying.token, third.token}
    assert job.room.seen.spent == 1, "the notice; the workers that lost a peer and the leaving itself spend nothing"


@pytest.mark.parametrize("noticed", [True, False])
def test_a_member_that_leaves_spends_one_restart(noticed: bool) -> None:
    job = Job(3)
    if noticed:
        job.room.steps(job.engines[0].give_notice(job.joined[0]))
    job.room.steps(job.engines[0].leave())
    assert (job.room.seen.spent, job.room.seen.round, job.room.seen.closed) == (1, 1, None)
    assert job.room.seen.find(job.engines[0].token) is None
    for engine in job.engines[1:]:  # these are too few: no round is complete
        job.room.steps(engine.join(60, failed=True)).close()
    job.room.steps(job.engines[1].leave())
    assert (job.room.seen.spent, job.room.seen.round, job.room.seen.closed) == (1, 1, None)


@pytest.mark.parametrize("noticed", [True, False])
def test_a_member_that_leaves_without_a_restart_left_fails_the_job(noticed: bool) -> None:
    job = Job(max_restarts=0)
    if noticed:
        job.room.steps(job.engines[0].give_notice(job.joined[0]))
    assert job.room.steps(job.engines[0].leave()) is True
    closed = job.room.seen.closed
    assert closed is not None
    assert (closed.by, closed.reason) == ("n0_1_0", "a member left, and no restart is left")
    assert (closed.verdict, job.room.seen.spent, job.standing(1)) == ("failed", 0, Standing.CLOSED)
    assert job.room.seen.find(job.engines[0].token) is None
    assert job.room.steps(job.engines[1].leave()) is True
    assert job.room.seen.closed == closed, "what is closed stays so"


def test_departures_are_not_counted_where_restarts_are_not() -> None:
    job = Job(max_restarts=-1)
    job.room.steps(job.engines[0].leave())
    assert (job.room.seen.spent, job.room.seen.round, job.room.seen.closed) == (0, 1, None)


def test_a_heartbeat_whose_answer_is_lost_is_not_written_again_after_an_expulsion() -> None:
    """To whoever did not look in between, the counter would have stood still all the time."""
    job = Job()
    silent, other = job.engines
    job.room.now += job.settings.keep_alive_interval
    beats = silent.keep_alive(job.joined[0])
    next(beats)
    write = beats.send(Seen(job.room.state, job.room.now))
    assert isinstance(write, Write)
    written = write.state.find(silent.token)
    beats.send(Seen(job.room.state, job.room.now))  # it is taken for lost
    assert written is not None
    job.room.state = changes.expel(write.state, other.me, [silent.token])
    job.room.steps(silent.join(60)).close()
    again = job.room.seen.find(silent.token)
    assert again is not None and again.beats > written.beats


def test_notice_is_not_given_by_who_has_reported() -> None:
    job = Job()
    job.room.steps(job.engines[0].done(job.joined[0]))
    assert job.room.steps(job.engines[0].give_notice(job.joined[0])) is False
    assert job.standing(1) is Standing.CURRENT
