"""What an agent says in the shared state, and what that makes of the round: one store, several engines, no time."""

from __future__ import annotations

import itertools
from collections.abc import Generator
from typing import Any

import pytest

pytest.importorskip("torch", reason="the errors of the rendezvous are torch's as well")

from trystate.impl.rendezvous.engine import Effect, Engine, Joined, Seen, Standing, Write
from trystate.impl.rendezvous.errors import RendezvousClosedError
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
        self.settings = Settings(members, most, last_call=0.0, max_restarts=max_restarts)
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


def test_a_failure_spends_a_restart_once_for_all_members() -> None:
    job = Job()
    for engine in job.engines:
        job.room.steps(engine.join(60, failed=True))
    assert (job.room.seen.spent, job.room.seen.round, job.room.seen.complete) == (1, 1, True)


def test_a_failure_spends_nothing_where_a_node_waits() -> None:
    """Others have stopped their workers for it, maybe, and a worker fails when it loses a peer."""
    job = Job(waits=True, max_restarts=0)
    assert job.standing(0) is Standing.NEWCOMERS
    job.room.steps(job.engines[0].join(60, failed=True))
    assert (job.room.seen.spent, job.room.seen.round, job.room.seen.closed) == (0, 1, None)


def test_a_failure_without_restarts_left_fails_the_job() -> None:
    job = Job(max_restarts=0)
    with pytest.raises(RendezvousClosedError, match="its workers failed, and no restart is left"):
        job.room.steps(job.engines[0].join(60, failed=True))
    assert job.room.seen.closed is not None and job.room.seen.closed.verdict == "failed"
    assert job.standing(1) is Standing.CLOSED


def test_the_last_report_closes_the_job_as_succeeded() -> None:
    job = Job()
    assert job.room.steps(job.engines[0].done(job.joined[0])) is True
    assert job.room.seen.closed is None
    assert job.room.steps(job.engines[1].done(job.joined[1])) is True
    assert job.room.seen.closed is not None and job.room.seen.closed.verdict == "succeeded"


def test_a_report_of_a_round_that_was_replaced_counts_for_nothing() -> None:
    job = Job()
    job.room.steps(job.engines[1].join(60, failed=True))
    assert job.room.steps(job.engines[0].done(job.joined[0])) is False
    assert job.room.seen.done == ()
    assert job.standing(0) is Standing.REPLACED


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
            job.room.now += job.settings.interval
            effect = beats.send(Seen(job.room.state, job.room.now))
            while isinstance(effect, Write):
                job.room.state = effect.state
                effect = beats.send(Seen(job.room.state, job.room.now, True))
        assert job.standing(1) is standing


def test_notice_ends_the_round_and_nobody_begins_the_next_one_before_that_node_has_left() -> None:
    job = Job(2, max_restarts=0)
    job.settings = Settings(2, 3, max_restarts=0)
    leaving, staying = job.engines
    third = job.engine()
    third.settings = staying.settings
    assert job.room.steps(leaving.give_notice(job.joined[0])) is True
    assert job.room.steps(leaving.give_notice(job.joined[0])) is False, "it is given once"
    assert (job.standing(0), job.standing(1)) == (Standing.REPLACED, Standing.REPLACED)
    assert job.room.seen.membership(leaving.token) is Membership.EXPECTED
    waiting = job.room.steps(staying.join(60, failed=True))
    other = job.room.steps(third.join(60))
    assert not job.room.seen.complete, "the workers of the first may run on"
    assert job.room.seen.spent == 0
    assert job.room.steps(leaving.leave()) is True
    for generator in (waiting, other):
        job.room.now += 0.01
        generator.close()
    job.room.steps(staying.join(60))
    assert job.room.seen.complete
    assert {p.node.token for p in job.room.seen.participants} == {staying.token, third.token}


def test_notice_is_not_given_by_who_has_reported() -> None:
    job = Job()
    job.room.steps(job.engines[0].done(job.joined[0]))
    assert job.room.steps(job.engines[0].give_notice(job.joined[0])) is False
    assert job.standing(1) is Standing.CURRENT
