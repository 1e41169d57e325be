"""The steps that a follower takes exist, and those that our runtime has beside the model's keep every property."""

from __future__ import annotations

from typing import Any

import pytest
from trystate.model.checker.verdicts import Status
from trystate.model.language import Form
from trystate.model.rendezvous.vocabulary import Edition
from trystate.monitor.rendezvous.editions import EDITIONS, Moves, OursInDetail, build

from trystate.check import check

DETAILS = {"give_notice", "leave", "leave_and_close", "mark_done", "close_as_failed", "come_again"}


@pytest.mark.parametrize("moves", EDITIONS.values(), ids=lambda moves: moves.edition.name)
def test_each_step_that_a_follower_takes_is_one_of_the_edition(moves: Moves) -> None:
    known = {t.name for t in build(moves, 3, 2, 3).transitions}
    named = {*moves.writes, *moves.forced, *moves.unseen, *moves.leaves, moves.last_call}
    named |= {step for steps in moves.returns.values() for step in steps}
    assert named <= known


@pytest.mark.parametrize(
    ("sizes", "faults", "states"),
    [
        ({"node": 2, "min_nodes": 1, "max_nodes": 2}, ("crash", "worker_failure", "job_end"), 34428),
        ({"node": 2, "min_nodes": 2, "max_nodes": 2}, ("stall", "join_timeout"), 33442),
        ({"node": 2, "min_nodes": 1, "max_nodes": 2}, ("drain",), 8970),
        ({"node": 2, "min_nodes": 1, "max_nodes": 2}, ("comes_again",), 7430),
    ],
)
def test_the_changes_that_the_model_leaves_out_keep_every_property(
    sizes: dict[str, int], faults: tuple[str, ...], states: int
) -> None:
    report = check(OursInDetail(rounds=2, faults=faults, **sizes))
    asked = [v for v in report.verdicts if v.property.form is not Form.SOMETIMES]
    assert {v.property.name for v in asked if v.status is not Status.HOLDS} == set()
    assert report.exploration.distinct == states


class Forgetful(OursInDetail):
    """A mutant: a member that leaves a complete round leaves it as it is."""

    def begin_new_round(self, s: Any, replaced: Any) -> None:
        """No round is ever replaced."""


def test_a_change_that_leaves_a_complete_round_as_it_is_is_found() -> None:
    report = check(Forgetful(node=2, min_nodes=1, max_nodes=2, rounds=2))
    assert {"what_returned_stays_written", "ranks_are_dense"} & {
        v.property.name for v in report.verdicts if v.status is Status.VIOLATED
    }


def test_the_details_are_those_that_the_model_lacks() -> None:
    model = {t.name for t in build(EDITIONS[Edition.TRYSTATE], 2, 2, 2).transitions}
    assert model >= DETAILS
