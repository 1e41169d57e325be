"""The effects of a node, one by one: the engine's generators on a stage, without any I/O and without a clock."""

from __future__ import annotations

from collections.abc import Generator
from dataclasses import replace
from typing import Any

import pytest

from trystate.impl.rendezvous.engine import (
    BACKOFF_ATTEMPTS,
    BACKOFF_SECONDS_MAX,
    BACKOFF_SECONDS_MIN,
    Effect,
    Engine,
    Joined,
    Seen,
    Standing,
    Sync,
    Write,
)
from trystate.impl.rendezvous.errors import RendezvousClosedError, RendezvousSettingsError, RendezvousTimeoutError
from trystate.impl.rendezvous.state import Settings, State
from trystate.model.rendezvous.vocabulary import Action, Membership
from trystate.property_tests.adapters.our_rendezvous.parts import (
    INTERVAL,
    Stage,
    acted,
    participant,
    settings,
    tokens,
    waits,
)


def group(*ks: int, agreed: Settings) -> tuple[Stage, list[Any], list[Joined]]:
    """A stage, engines, and the round that they are in."""
    stage = Stage()
    engines = [stage.engine(k, agreed) for k in ks]
    return stage, engines, stage.gather(*engines)


def state_of(stage: Stage) -> State:
    assert stage.state is not None
    return stage.state


def actions(stage: Stage, k: int) -> list[Action]:
    return [action for token, action, won in stage.notes if token == f"token-{k}" and won]


# ---- next_rendezvous


def test_alone_and_enough_is_complete_with_one_write() -> None:
    stage, _, (joined,) = group(0, agreed=settings(1, 1))
    assert (joined.rank, joined.world_size, joined.master.host) == (0, 1, "host0")
    assert (state_of(stage).version, state_of(stage).life, stage.now) == (1, "life-0-0", 0.0)


def test_who_fills_the_round_completes_it_and_all_read_the_same_one() -> None:
    stage, _, joined = group(2, 0, 1, agreed=settings(2, 3))
    assert {one.state for one in joined} == {state_of(stage)}
    assert [one.rank for one in joined] == [2, 0, 1]
    assert {one.master.node.token for one in joined} == {"token-0"}
    assert stage.now == 0.0


def test_the_last_call_gives_others_time_and_no_more() -> None:
    stage, _, joined = group(0, 1, agreed=settings(2, 3, last_call_timeout=30.0))
    assert [one.world_size for one in joined] == [2, 2]
    assert stage.now == 30.0


def test_who_comes_during_the_last_call_is_in_the_round() -> None:
    stage = Stage()
    early = [stage.start(stage.engine(k, settings(2, 4, last_call_timeout=30.0)).join(600.0)) for k in (0, 1)]
    stage.run(29.0)
    late = stage.start(stage.engine(2, settings(2, 4, last_call_timeout=30.0)).join(600.0))
    stage.run(2.0)
    assert [one.result.world_size for one in (*early, late)] == [3, 3, 3]


def test_a_round_that_is_replaced_waits_for_its_members_and_not_for_its_last_call() -> None:
    stage, engines, _ = group(0, 1, agreed=settings(1, 3, last_call_timeout=7.0, rescale_timeout=0.0))
    first = stage.start(engines[0].join(600.0))
    stage.run(4.0)
    assert tokens(state_of(stage).expected) == ["token-1"]
    assert state_of(stage).calling and not first.ended  # a quorum, the last call over, and somebody expected
    joined = stage.play(engines[1].join(600.0))
    stage.run()
    assert first.result.state == joined.state
    assert joined.state.round == 1


def test_the_call_of_a_replaced_round_lasts_as_long_as_it_says() -> None:
    stage, engines, _ = group(0, 1, agreed=settings(1, 3, last_call_timeout=7.0, rescale_timeout=2.0))
    began = stage.now
    stage.gather(*engines)
    assert stage.now - began == 2.0


def test_an_expected_member_that_is_gone_holds_the_round_back_for_a_window_and_an_interval_at_most() -> None:
    stage, engines, _ = group(0, 1, agreed=settings(1, 3, last_call_timeout=1.0))
    began = stage.now
    (joined,) = stage.gather(engines[0])
    assert (joined.world_size, joined.state.round) == (1, 1)
    window = joined.state.settings.expiry_seconds
    assert window <= stage.now - began <= window + INTERVAL


def test_a_newcomer_waits_and_moves_up_when_the_round_is_replaced() -> None:
    stage, engines, joined = group(0, 1, agreed=settings(1, 3, last_call_timeout=1.0))
    newcomer = stage.start(stage.engine(2, settings(1, 3, last_call_timeout=1.0)).join(600.0))
    stage.run(1.0)
    assert tokens(state_of(stage).waiting) == ["token-2"]
    assert engines[0].standing(joined[0], stage.state, stage.now) is Standing.NEWCOMERS
    again = stage.gather(*engines)
    stage.run()
    assert again[0].world_size == newcomer.result.world_size == 3


def held_back(makes_room: bool, seconds: float) -> tuple[Stage, Any, Joined, Any]:
    """Two nodes whose round is younger than the interval of 100 s, by so many seconds, and a third that waits."""
    agreed = settings(1, 3, last_call_timeout=1.0, scale_up_interval=100.0)
    stage, engines, joined = group(0, 1, agreed=agreed)
    for engine, one in zip(engines, joined, strict=True):
        engine.makes_room = makes_room
        stage.start(engine.keep_alive(one, until=(Standing.REPLACED,)))
    stage.run(40.0)
    newcomer = stage.start(stage.engine(2, agreed).join(30.0))
    stage.run(60.0 - seconds)
    return stage, engines[0], joined[0], newcomer


def test_a_newcomer_waits_for_the_scale_up_interval_and_no_longer() -> None:
    stage, engine, joined, newcomer = held_back(True, 1.0)
    assert tokens(state_of(stage).waiting) == ["token-2"]
    assert engine.standing(joined, stage.state, stage.now) is Standing.CURRENT
    assert state_of(stage).round == 0 and not newcomer.ended, "its join timeout of 30 s begins after the interval"
    stage.run(3.0)
    state = state_of(stage)
    assert state.round == 1 and tokens(state.participants) == ["token-2"]
    assert "waited for a seat" in state.cause


def test_an_agent_hears_of_a_newcomer_after_the_scale_up_interval() -> None:
    stage, engine, joined, _ = held_back(False, 1.0)
    assert engine.standing(joined, stage.state, stage.now) is Standing.CURRENT
    stage.run(3.0)
    assert engine.standing(joined, stage.state, stage.now) is Standing.NEWCOMERS
    assert state_of(stage).round == 0


def test_a_failure_takes_in_the_newcomer_that_was_held_back() -> None:
    stage, engine, _, newcomer = held_back(False, 50.0)
    again = stage.start(engine.join(600.0, failed=True))
    stage.run(20.0)
    assert state_of(stage).round >= 1
    assert "token-2" in tokens((*state_of(stage).participants, *state_of(stage).expected))
    assert again.ended or newcomer.ended or not state_of(stage).complete


def test_a_newcomer_that_nobody_takes_in_gives_up_after_the_interval_and_its_own_time() -> None:
    stage, _, _, newcomer = held_back(False, 0.0)
    stage.run(60.0)
    assert not newcomer.ended
    stage.run(20.0)
    assert isinstance(newcomer.result, RendezvousTimeoutError)


def test_a_spare_has_no_deadline_and_steps_in_for_who_leaves() -> None:
    stage, engines, joined = group(0, 1, agreed=settings(2, 2))
    beating = [stage.start(e.keep_alive(j)) for e, j in zip(engines, joined, strict=True)]
    spare = stage.start(stage.engine(2, settings(2, 2)).join(20.0))
    stage.run(100.0)
    assert tokens(state_of(stage).spares) == ["token-2"]
    assert not spare.ended
    assert engines[0].standing(joined[0], stage.state, stage.now) is Standing.CURRENT
    stage.drop(*beating)
    assert stage.play(engines[1].leave()) is True
    (left,) = stage.gather(engines[0])
    stage.run()
    assert (left.rank, spare.result.rank, left.state.round) == (0, 1, 1)
    assert spare.result.state == left.state


@pytest.mark.parametrize("where", ["participant", "waiting"])
def test_who_is_late_takes_itself_off_the_lists_and_the_others_stay(where: str) -> None:
    agreed = settings(2, 4, last_call_timeout=1.0)
    stage, engines, joined = group(0, 1, agreed=agreed) if where == "waiting" else (Stage(), [], [])
    beating = [stage.start(e.keep_alive(j)) for e, j in zip(engines, joined, strict=True)]
    began = stage.now
    late = stage.start(stage.engine(5, agreed).join(12.0))
    stage.run(20.0)
    assert isinstance(late.result, RendezvousTimeoutError)
    assert "join_timeout=12 s" in str(late.result) and "min_nodes=2" in str(late.result)
    assert actions(stage, 5)[-1] is Action.WITHDRAW
    assert state_of(stage).membership("token-5") is Membership.OUTSIDE
    assert state_of(stage).closed is None and not any(one.ended for one in beating)
    assert stage.now - began == 20.0


def test_too_late_from_the_start_writes_nothing() -> None:
    stage = Stage()
    assert isinstance(stage.play(stage.engine(0, settings()).join(0.0)), RendezvousTimeoutError)
    assert stage.state is None and not stage.notes


def test_who_joins_what_is_closed_is_told_by_whom_and_why() -> None:
    stage, engines, _ = group(0, agreed=settings(1, 1))
    assert stage.play(engines[0].close("the data set is gone", "failed")) is True
    told = stage.play(stage.engine(1, settings(1, 1)).join(600.0))
    assert isinstance(told, RendezvousClosedError)
    assert str(told) == "the rendezvous was closed by node0_100_0: the data set is gone"
    assert stage.play(engines[0].close("again")) is False


def test_other_settings_are_refused_with_what_differs_and_taken_when_nobody_is_listed() -> None:
    stage, engines, _ = group(0, agreed=settings(1, 1))
    other = settings(1, 2, last_call_timeout=3.0)
    refused = stage.play(stage.engine(1, other).join(600.0))
    assert isinstance(refused, RendezvousSettingsError)
    assert "max_nodes is 1, not 2; last_call_timeout is 30.0, not 3.0" in str(refused)
    stage.play(engines[0].leave())
    assert stage.gather(stage.engine(1, other))[0].state.settings == other


def test_a_failure_without_a_restart_left_closes_and_everybody_is_told() -> None:
    stage, engines, _ = group(0, 1, agreed=settings(2, 2, max_restarts=0))
    told = stage.play(engines[0].join(600.0, failed=True))
    assert isinstance(told, RendezvousClosedError) and "no restart is left" in str(told)
    assert isinstance(stage.play(engines[1].join(600.0)), RendezvousClosedError)


def test_two_that_fail_at_once_spend_one_restart() -> None:
    stage, engines, _ = group(0, 1, agreed=settings(2, 2, max_restarts=1))
    actors = [stage.start(one.join(600.0, failed=True)) for one in engines]
    stage.run(1.0)
    assert [one.result.state.spent for one in actors] == [1, 1]


def test_a_lapsed_lease_is_renewed_before_the_round_is_believed() -> None:
    stage, engines, _ = group(0, 1, agreed=settings(2, 3, last_call_timeout=1.0))
    actor = stage.start(engines[0].join(600.0))
    stage.run(1.0)
    other = stage.start(engines[1].join(600.0))
    while not state_of(stage).complete:  # the first one sleeps through that, and through its lease
        other.steps_to(Write)
        other.step()
    stage.now += state_of(stage).settings.lease_seconds
    assert not engines[0].lease.holds(stage.now)
    actor.steps_to(Write)
    assert acted(actor.effect).find("token-0") == replace(state_of(stage).participants[0], beats=3)
    stage.run()
    assert isinstance(actor.result, Joined)
    assert actions(stage, 0)[-1] is Action.KEEP_ALIVE


# ---- lost writes


@pytest.mark.parametrize("draw", [0.0, 0.25, 1.0])
@pytest.mark.parametrize("seats", [9, 5000])
def test_a_lost_write_is_tried_again_after_a_pause_that_grows_and_is_bounded(draw: float, seats: int) -> None:
    """By time, and by the seats that are left: no more nodes than these are tried with."""
    stage = Stage(State("life", settings(2, seats)))
    actor = stage.start(stage.engine(0, settings(2, seats), draw).join(600.0))
    for lost in range(14):
        actor.steps_to(Write)
        stage.state = replace(state_of(stage), version=state_of(stage).version + 1)  # somebody else was faster
        actor.step()
        pause = waits(actor.effect)
        assert pause.revision is None
        attempts = min(BACKOFF_ATTEMPTS * 2**lost, seats)
        assert pause.seconds == draw * min(BACKOFF_SECONDS_MAX, BACKOFF_SECONDS_MIN * attempts)
        actor.step()
    actor.steps_to(Write)
    actor.step()
    assert state_of(stage).membership("token-0") is Membership.PARTICIPANT
    assert len([won for *_, won in stage.notes if not won]) == 14


def test_who_takes_no_seat_has_as_many_rivals_as_may_be() -> None:
    """Spares may be more than there are seats."""
    stage, _, _ = group(0, 1, agreed=settings(2, 2))
    actor = stage.start(stage.engine(5, settings(2, 2), 1.0).join(600.0))
    for lost in range(1100):
        actor.steps_to(Write)
        stage.state = replace(state_of(stage), version=state_of(stage).version + 1)
        actor.step()
        span = BACKOFF_SECONDS_MIN * BACKOFF_ATTEMPTS * 2 ** min(lost, 20)  # 2**1100 is no float
        assert waits(actor.effect).seconds == min(BACKOFF_SECONDS_MAX, span)
        actor.step()


def test_a_lost_write_confirms_no_lease() -> None:
    stage = Stage(State("life", settings(2, 9)))
    engine = stage.engine(0, settings(2, 9))
    actor = stage.start(engine.join(600.0))
    actor.steps_to(Write)
    stage.state = replace(state_of(stage), version=1)
    actor.step()
    assert not engine.lease.holds(stage.now)


def test_a_lease_counts_from_before_the_write() -> None:
    stage = Stage()
    engine = stage.engine(0, settings(2, 3))
    actor = stage.start(engine.join(600.0))
    actor.steps_to(Write)
    stage.now += 4.0  # the write takes so long
    actor.step()
    assert engine.lease.next_beat == INTERVAL


# ---- while the workers run


def test_a_member_beats_once_an_interval_and_writes_nothing_else() -> None:
    stage, (engine,), (joined,) = group(0, agreed=settings(1, 1))
    stage.start(engine.keep_alive(joined))
    stage.run(10 * INTERVAL)
    assert actions(stage, 0)[1:] == [Action.KEEP_ALIVE] * 10
    assert state_of(stage).revision == joined.state.revision


def test_a_member_that_stopped_is_expelled_by_the_others_and_learns_it() -> None:
    stage, engines, joined = group(0, 1, agreed=settings(1, 2))
    alive = stage.start(engines[0].keep_alive(joined[0]))
    stage.run(25.0)
    assert Action.EXPEL in actions(stage, 0)
    assert state_of(stage).membership("token-1") is Membership.OUTSIDE
    assert engines[0].standing(joined[0], stage.state, stage.now) is Standing.REPLACED
    assert stage.play(engines[1].keep_alive(joined[1])) is Standing.EXPELLED
    assert alive in stage.actors


def standings() -> dict[Standing, tuple[Any, ...]]:
    """For each standing: what has happened since, and when it is looked."""
    state = group(0, 1, agreed=settings(2, 3, last_call_timeout=0.0))[2][0].state
    closed = group(0, agreed=settings(1, 1))
    closed[0].play(closed[1][0].close("over"))
    return {
        Standing.CURRENT: (state, 0.0),
        Standing.NEWCOMERS: (replace(state, waiting=(participant(2),)), 0.0),
        Standing.REPLACED: (replace(state, round=state.round + 1), 0.0),
        Standing.EXPELLED: (replace(state, participants=state.participants[1:]), 0.0),
        Standing.LAPSED: (state, state.settings.lease_seconds),
        Standing.CLOSED: (replace(state, closed=state_of(closed[0]).closed), 0.0),
    }


@pytest.mark.parametrize("standing", Standing)
def test_a_standing_is_read_off_the_state_and_the_clock(standing: Standing) -> None:
    stage, engines, joined = group(0, 1, agreed=settings(2, 3, last_call_timeout=0.0))
    state, later = standings()[standing]
    state = replace(state, life=state_of(stage).life)
    assert engines[0].standing(joined[0], state, stage.now + later) is standing


def test_a_store_without_the_state_or_with_another_life_has_forgotten_the_member() -> None:
    stage, engines, joined = group(0, 1, agreed=settings(1, 2))
    for state in (None, replace(state_of(stage), life="another")):
        assert engines[0].standing(joined[0], state, stage.now) is Standing.EXPELLED


@pytest.mark.parametrize("lost", ["closed", "expelled", "lapsed"])
def test_the_heartbeats_end_when_the_membership_does(lost: str) -> None:
    stage, (engine,), (joined,) = group(0, agreed=settings(1, 1))
    actor = stage.start(engine.keep_alive(joined))
    stage.run(1.0)
    if lost == "closed":
        stage.play(engine.close("over"))
    elif lost == "expelled":
        stage.state = replace(state_of(stage), participants=())
    else:
        stage.now += joined.state.settings.lease_seconds
    stage.run(INTERVAL)
    assert actor.result is Standing[lost.upper()]


def works(engine: Engine, begun: list[int]) -> Generator[Effect, Seen, None]:
    """An agent whose workers run, and stop at once when their round is over."""
    while True:
        engine.makes_room = False
        joined = yield from engine.join(600.0)
        begun.append(joined.state.round)
        engine.makes_room = True
        yield from engine.keep_alive(joined, until=(Standing.REPLACED, Standing.EXPELLED))


def test_a_node_that_dies_waiting_without_a_seat_does_not_make_the_others_restart_for_ever() -> None:
    """Rounds shorter than the window would never see it silent."""
    stage, agreed, begun = Stage(), settings(1, 2, last_call_timeout=0.0), [list[int](), list[int]()]
    stage.start(works(stage.engine(0, agreed), begun[0]))
    stage.run()
    alive = stage.start(works(stage.engine(1, agreed), begun[1]))
    dies = stage.start(stage.engine(2, agreed).join(600.0))
    for newcomer in (alive, dies):  # both see the one seat, before the member sees either
        newcomer.steps_to(Write)
        newcomer.step()
    assert tokens(state_of(stage).waiting) == ["token-1", "token-2"]
    stage.drop(dies)
    stage.run(100.0)
    assert begun == [[0, 1], [1]]
    assert state_of(stage).complete and state_of(stage).find("token-2") is None


# ---- leaving, closing, done


def test_leaving_is_done_once() -> None:
    stage, engines, _ = group(0, 1, agreed=settings(1, 2))
    assert [stage.play(engines[1].leave()) for _ in range(2)] == [True, False]
    assert tokens(state_of(stage).expected) == ["token-0"]


def checked(failed: bool, **more: Any) -> tuple[Stage, list[Any], Any]:
    """Three nodes, the first of which is about to be checked, and the others join again."""
    stage, engines, joined = group(0, 1, 2, agreed=settings(1, 3, last_call_timeout=1.0, **more))
    stage.start(engines[0].keep_alive(joined[0], until=(Standing.CLOSED, Standing.EXPELLED)))
    assert stage.play(engines[0].step_out(failed)) is True
    assert stage.play(engines[0].step_out(failed)) is False, "it is done once"
    assert engines[1].standing(joined[1], stage.state, stage.now) is not Standing.CURRENT
    return stage, engines, [stage.start(one.join(600.0, failed=failed)) for one in engines[1:]]


def test_who_is_checked_is_expected_and_nobody_begins_before_it_joins() -> None:
    stage, engines, others = checked(True, max_restarts=3)
    stage.run(100.0)
    state = state_of(stage)
    assert (tokens(state.participants), tokens(state.expected)) == (["token-1", "token-2"], ["token-0"])
    assert not any(one.ended for one in others), "it beats, and is not expelled"
    fit = stage.play(engines[0].join(600.0, failed=True), seconds=1.0)
    stage.run()
    assert [fit.world_size, *(one.result.world_size for one in others)] == [3, 3, 3]
    assert (fit.state.round, fit.state.spent) == (1, 1), "the failure that brought the round down, once"
    assert "its workers failed" in fit.state.cause


def test_who_fails_its_check_steps_back_and_spends_nothing() -> None:
    stage, engines, others = checked(False, max_restarts=3)
    assert stage.play(engines[0].leave()) is True
    stage.run(2.0)
    assert [one.result.world_size for one in others] == [2, 2]
    assert (state_of(stage).round, state_of(stage).spent, state_of(stage).closed) == (1, 0, None)


def test_a_failure_without_a_restart_left_closes_before_any_check() -> None:
    stage, engines, _ = group(0, 1, agreed=settings(1, 2, max_restarts=0))
    assert stage.play(engines[0].step_out(failed=True)) is True
    closed = state_of(stage).closed
    assert closed is not None and closed.verdict == "failed"


def test_notice_replaces_the_round_and_nobody_begins_the_next_one_before_the_node_has_left() -> None:
    stage, engines, joined = group(0, 1, agreed=settings(1, 2))
    assert [stage.play(engines[1].give_notice(joined[1])) for _ in range(2)] == [True, False]
    assert engines[0].standing(joined[0], stage.state, stage.now) is Standing.REPLACED
    other = stage.start(engines[0].join(600.0))
    stage.run(1.0)
    assert not other.ended
    assert stage.play(engines[1].leave()) is True
    stage.run()
    assert (other.result.world_size, other.result.state.round) == (1, 1)


def test_only_a_member_closes_unless_it_has_to() -> None:
    stage, _, _ = group(0, agreed=settings(1, 1))
    stranger = stage.engine(3, settings(1, 1))
    assert stage.play(stranger.close("not mine")) is False
    assert stage.play(stranger.close("the user said so", anyway=True)) is True
    closed = state_of(stage).closed
    assert closed is not None and (closed.by, closed.reason) == ("node3_103_0", "the user said so")
    empty = Stage()
    assert empty.play(empty.engine(0, settings()).close("before anybody", anyway=True)) is True
    assert state_of(empty).closed is not None


def test_the_last_one_who_is_done_closes_for_all() -> None:
    stage, engines, joined = group(0, 1, agreed=settings(2, 2))
    assert stage.play(engines[1].done(joined[1])) is True
    assert state_of(stage).closed is None
    assert stage.play(engines[0].done(joined[0])) is True
    closed = state_of(stage).closed
    assert closed is not None and closed.verdict == "succeeded"


def test_nobody_is_done_with_a_round_that_was_replaced() -> None:
    stage, engines, joined = group(0, 1, agreed=settings(2, 2))
    stage.start(engines[0].join(600.0))
    stage.run()
    assert stage.play(engines[1].done(joined[1])) is False
    assert state_of(stage).done == ()


# ---- the store loses everything


def test_a_store_that_lost_its_contents_is_begun_anew() -> None:
    stage, engines, joined = group(0, 1, agreed=settings(2, 2))
    stage.state = None
    again = stage.gather(*engines)
    assert {one.state.round for one in again} == {0}
    assert again[0].state.participants[0].beats > joined[0].state.participants[0].beats


def test_a_state_that_is_begun_anew_has_another_life_whoever_begins_it() -> None:
    stage, engines, joined = group(0, agreed=settings(1, 1))
    stage.state = None
    (again,) = stage.gather(*engines)
    assert (again.state.life, again.state.round) != (joined[0].state.life, joined[0].state.round)


def test_nobody_spins() -> None:
    """A node that waits, waits for something that is yet to come."""
    for low, high, nodes in ((2, 2, 4), (1, 3, 2), (3, 5, 2), (2, 3, 6)):
        stage = Stage()
        actors = [
            stage.start(stage.engine(k, settings(low, high, last_call_timeout=1.0)).join(50.0)) for k in range(nodes)
        ]
        stage.run(200.0, limit=2_000)
        for actor in actors:
            assert not any(isinstance(e, Sync) and e.revision is not None and e.seconds <= 0 for e in actor.effects)
