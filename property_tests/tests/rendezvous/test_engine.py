"""The effects of a node, one by one: the engine's generators on a stage, without any I/O or clock."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from trystate.impl.rendezvous.engine import (
    BACKOFF_ATTEMPTS,
    BACKOFF_SECONDS_MAX,
    BACKOFF_SECONDS_MIN,
    Engine,
    Joined,
    Standing,
    Sync,
    Write,
)
from trystate.impl.rendezvous.errors import RendezvousClosedError, RendezvousSettingsError, RendezvousTimeoutError
from trystate.impl.rendezvous.observer import Lease
from trystate.impl.rendezvous.state import Settings, State
from trystate.model.rendezvous.vocabulary import Action, Membership
from trystate.property_tests.adapters.our_rendezvous.parts import (
    INTERVAL,
    Stage,
    acted,
    changed,
    participant,
    settings,
    tokens,
    waits,
)
from trystate.property_tests.support.mutants import rewritten, survivors


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


def test_the_last_call_gives_others_time_and_no_more() -> None:
    stage, _, joined = group(0, 1, agreed=settings(2, 3, last_call_timeout=30.0))
    assert [one.world_size for one in joined] == [2, 2]
    assert stage.now == 30.0


def test_the_call_of_a_replaced_round_lasts_as_long_as_it_says() -> None:
    stage, engines, _ = group(0, 1, agreed=settings(1, 3, last_call_timeout=7.0, rescale_timeout=2.0))
    began = stage.now
    stage.gather(*engines)
    assert stage.now - began == 2.0


def held_back(makes_room: bool, seconds: float) -> tuple[Stage, Any, Joined, Any]:
    """Two nodes whose round is `seconds` younger than the interval of 100 s, and a third that waits."""
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


@pytest.mark.parametrize("where", ["participant", "waiting"])
def test_a_late_node_removes_itself_from_the_lists_and_the_others_stay(where: str) -> None:
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


def test_a_join_of_a_closed_rendezvous_fails_with_the_closer_and_reason() -> None:
    stage, engines, _ = group(0, agreed=settings(1, 1))
    assert stage.play(engines[0].close("the data set is gone", "failed")) is True
    told = stage.play(stage.engine(1, settings(1, 1)).join(600.0))
    assert isinstance(told, RendezvousClosedError)
    assert str(told) == "the rendezvous was closed by node0_100_0: the data set is gone"
    assert stage.play(engines[0].close("again")) is False


def test_other_settings_are_refused_while_a_node_is_listed() -> None:
    stage, engines, _ = group(0, agreed=settings(1, 1))
    other = settings(1, 2, last_call_timeout=3.0)
    refused = stage.play(stage.engine(1, other).join(600.0))
    assert isinstance(refused, RendezvousSettingsError)
    assert "max_nodes is 1, not 2; last_call_timeout is 30.0, not 3.0" in str(refused)
    stage.play(engines[0].leave())
    assert stage.gather(stage.engine(1, other))[0].state.settings == other


def test_a_lapsed_lease_is_renewed_before_the_round_is_believed() -> None:
    stage, engines, _ = group(0, 1, agreed=settings(2, 3, last_call_timeout=1.0))
    actor = stage.start(engines[0].join(600.0))
    stage.run(1.0)
    other = stage.start(engines[1].join(600.0))
    while not state_of(stage).complete:  # the first node sleeps through that and through its lease
        other.steps_to(Write)
        other.step()
    stage.now += state_of(stage).settings.lease_seconds
    assert not engines[0].lease.holds(stage.now)
    actor.steps_to(Write)
    assert acted(actor.effect).find("token-0") == replace(
        state_of(stage).participants[0], written=state_of(stage).version + 1
    )
    stage.run()
    assert isinstance(actor.result, Joined)
    assert actions(stage, 0)[-1] is Action.KEEP_ALIVE


RULES = {
    "only if the state lists the node": rewritten(
        Engine._look, " and seen.state.find(self.token) is not None", " and seen.state is not None"),
    "only if the lease still holds": rewritten(Lease.extend, "if self.holds(now):", "if True:"),
    "from the time before it was sent": rewritten(Lease.extend, "self.confirm(sent)", "self.confirm(now + 1.0)"),
}  # fmt: skip


def a_heartbeat_renews_the_lease() -> None:
    """A heartbeat renews a lease that holds, if a state that was read after it lists the node."""
    for later, listed, renews in ((INTERVAL, True, True), (INTERVAL, False, False), (3 * INTERVAL, True, False)):
        stage, (one, two), joined = group(0, 1, agreed=settings(2, 3, last_call_timeout=1.0))
        actor = stage.start(one.keep_alive(joined[0], until=(Standing.EXPELLED,)))
        stage.run()
        began = stage.now
        assert one.lease.next_beat == began + INTERVAL and stage.beats["token-0"] == 1
        stage.now += later
        stage.beats["token-1"] += 1
        if not listed:
            stage.state = changed("expel", state_of(stage), two.me, ["token-0"])
        actor.step()
        assert stage.beats["token-0"] == 2
        assert one.lease.next_beat == began + INTERVAL + later * renews
        assert (actor.result is Standing.EXPELLED) is not listed
        assert renews or not listed or acted(actor.effect).writer == "token-0"


def test_a_heartbeat_renews_the_lease() -> None:
    assert survivors(RULES, a_heartbeat_renews_the_lease) == []


def test_an_expulsion_that_misses_a_heartbeat_meets_no_lease() -> None:
    """The heartbeat comes after the observer's last read of the counter, and before its write."""
    stage, engines, joined = group(0, 1, agreed=settings(1, 3, last_call_timeout=1.0))
    asleep, observer = (stage.start(e.keep_alive(j, ())) for e, j in zip(engines, joined, strict=True))
    stage.run()
    stage.drop(asleep)
    while not isinstance(observer.effect, Write):
        stage.now = max(stage.now, observer.wakes)
        observer.step()
    assert observer.effect.action is Action.EXPEL
    asleep.step()
    assert stage.beats["token-0"] == 2 and not engines[0].lease.holds(stage.now)
    assert isinstance(asleep.effect, Write), "only a write of the state can renew its lease"
    observer.step()
    asleep.step()
    assert stage.notes[-1] == ("token-0", Action.KEEP_ALIVE, False) and not engines[0].lease.holds(stage.now)


# ---- lost writes


@pytest.mark.parametrize("draw", [0.0, 0.25, 1.0])
@pytest.mark.parametrize("seats", [9, 5000])
def test_a_lost_write_is_repeated_after_a_growing_bounded_pause(draw: float, seats: int) -> None:
    """The bounds are a time, and the number of free seats: the node assumes no more rivals."""
    stage = Stage(State("life", settings(2, seats)))
    actor = stage.start(stage.engine(0, settings(2, seats), draw).join(600.0))
    for lost in range(14):
        actor.steps_to(Write)
        stage.state = replace(state_of(stage), version=state_of(stage).version + 1)  # another node was faster
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


def test_a_spare_assumes_the_largest_number_of_rivals() -> None:
    """Spares may be more than there are seats."""
    stage, _, _ = group(0, 1, agreed=settings(2, 2))
    actor = stage.start(stage.engine(5, settings(2, 2), 1.0).join(600.0))
    for lost in range(1100):
        actor.steps_to(Write)
        stage.state = replace(state_of(stage), version=state_of(stage).version + 1)
        actor.step()
        span = BACKOFF_SECONDS_MIN * BACKOFF_ATTEMPTS * 2 ** min(lost, 20)  # 2**1100 is not a float
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
    stage.now += 4.0  # the write takes 4 s
    actor.step()
    assert engine.lease.next_beat == INTERVAL


# ---- while the workers run


def standings() -> dict[Standing, tuple[Any, ...]]:
    """For each standing: a state, and the seconds after which it is read."""
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


# ---- leaving, closing, done


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


def test_a_node_that_waits_does_not_spin() -> None:
    """Each wait of a waiting node ends in the future."""
    for low, high, nodes in ((2, 2, 4), (1, 3, 2), (3, 5, 2), (2, 3, 6)):
        stage = Stage()
        actors = [
            stage.start(stage.engine(k, settings(low, high, last_call_timeout=1.0)).join(50.0)) for k in range(nodes)
        ]
        stage.run(200.0, limit=2_000)
        for actor in actors:
            assert not any(isinstance(e, Sync) and e.revision is not None and e.seconds <= 0 for e in actor.effects)
