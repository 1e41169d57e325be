"""An agent's reports in the shared state, and the round that follows: one store, several engines, no I/O."""

from __future__ import annotations

from dataclasses import replace

import pytest

pytest.importorskip("torch", reason="the errors of the rendezvous are torch's as well")

from trystate.impl.rendezvous.engine import Engine, Joined, Standing
from trystate.impl.rendezvous.state import State
from trystate.model.rendezvous.vocabulary import Membership
from trystate.property_tests.adapters.our_rendezvous.parts import INTERVAL, Stage, settings, tokens


class Job:
    """Two nodes in a complete round, in which there is a seat for a third."""

    def __init__(self, max_restarts: int = 1) -> None:
        self.stage = Stage()
        self.engines = [
            self.stage.engine(k, settings(2, 3, last_call_timeout=0.0, max_restarts=max_restarts)) for k in range(3)
        ]
        self.joined: list[Joined] = self.stage.gather(*self.engines[:2])

    @property
    def members(self) -> list[Engine]:
        return self.engines[:2]

    @property
    def state(self) -> State:
        assert self.stage.state is not None
        return self.stage.state

    @property
    def standings(self) -> list[Standing]:
        both = zip(self.members, self.joined, strict=True)
        return [engine.standing(joined, self.state, self.stage.now) for engine, joined in both]


def test_nobody_makes_room_for_a_node_that_finds_no_seat() -> None:
    job = Job()
    waits = job.stage.start(job.engines[2].join(600.0))
    job.stage.run()
    job.stage.drop(waits)
    assert len(job.state.waiting) == 1
    job.stage.state = replace(job.state, settings=replace(job.state.settings, max_nodes=2))
    job.engines[0].makes_room = True
    job.stage.start(job.engines[0].keep_alive(job.joined[0]))
    job.stage.run()
    assert (job.state.round, job.state.complete) == (0, True)


@pytest.mark.parametrize(("reported", "standing"), [(True, Standing.CURRENT), (False, Standing.REPLACED)])
def test_a_silent_node_that_has_reported_is_not_expelled(reported: bool, standing: Standing) -> None:
    job = Job()
    if reported:
        job.stage.play(job.engines[0].done(job.joined[0]))
    job.stage.start(job.engines[1].keep_alive(job.joined[1]))
    job.stage.run(20 * INTERVAL)
    assert job.standings[1] is standing


def test_the_next_round_waits_until_a_node_that_gave_notice_has_left() -> None:
    job = Job()
    leaving, staying, third = job.engines
    assert job.stage.play(leaving.give_notice(job.joined[0])) is True
    assert job.stage.play(leaving.give_notice(job.joined[0])) is False, "a notice is given once"
    assert job.standings == [Standing.REPLACED, Standing.REPLACED]
    assert job.state.membership(leaving.token) is Membership.EXPECTED
    job.stage.start(staying.join(600.0, failed=True))
    job.stage.start(third.join(600.0))
    job.stage.run(0.2)
    assert not job.state.complete, "the workers of the leaving node may still run"
    assert job.stage.play(leaving.leave()) is True
    job.stage.run(0.2)
    assert job.state.complete
    assert {*tokens(job.state.participants)} == {staying.token, third.token}
    assert job.state.spent == 1, "the notice spends one; lost peers and the departure spend none"


@pytest.mark.parametrize("noticed", [True, False])
def test_a_member_that_leaves_without_a_restart_left_fails_the_job(noticed: bool) -> None:
    job = Job(max_restarts=0)
    leaving, staying = job.members
    if noticed:
        job.stage.play(leaving.give_notice(job.joined[0]))
    assert job.stage.play(leaving.leave()) is True
    closed = job.state.closed
    assert closed is not None
    assert (closed.by, closed.reason) == ("node0_100_0", "a member left, and no restart is left")
    assert (closed.verdict, job.state.spent, job.standings[1]) == ("failed", 0, Standing.CLOSED)
    assert job.state.find(leaving.token) is None
    assert job.stage.play(staying.leave()) is True
    assert job.state.closed == closed, "a closed job stays closed"
