"""The effects of a node, one by one: the engine's generators on a stage, without any I/O or clock."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from trystate.impl.rendezvous.engine import (
    BACKOFF_ATTEMPTS,
    BACKOFF_SECONDS_MAX,
    BACKOFF_SECONDS_MIN,
    Joined,
    Standing,
    Sync,
    Write,
)
from trystate.impl.rendezvous.state import Settings, State
from trystate.model.rendezvous.vocabulary import Action, Membership
from trystate.property_tests.adapters.our_rendezvous.parts import (
    Stage,
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
    full = replace(state_of(stage), settings=settings(1, 2))
    assert (engine._has_room(stage.state), engine._has_room(full)) == (True, False)
    assert state_of(stage).round == 0 and not newcomer.ended, "its join timeout of 30 s begins after the interval"
    stage.run(3.0)
    state = state_of(stage)
    assert state.round == 1 and tokens(state.participants) == ["token-2"]
    assert "waited for a seat" in state.cause


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


# ---- leaving, closing, done


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
