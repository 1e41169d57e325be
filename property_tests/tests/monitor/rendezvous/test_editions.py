"""The steps that a follower takes exist."""

from __future__ import annotations

import pytest

from trystate.monitor.rendezvous.editions import EDITIONS, Moves, build


@pytest.mark.parametrize("moves", EDITIONS.values(), ids=lambda moves: moves.edition.name)
def test_each_step_that_a_follower_takes_is_one_of_the_edition(moves: Moves) -> None:
    known = {t.name for t in build(moves, 3, 2, 3).transitions}
    named = {*moves.forced, *moves.shown, *moves.leaves, moves.last_call}
    named |= {step for steps in moves.returns.values() for step in steps}
    assert named <= known
