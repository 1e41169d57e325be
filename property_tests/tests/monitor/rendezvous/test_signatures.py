"""The signatures of findings name existing steps and properties, and distinguish findings of one property."""

from __future__ import annotations

import pytest

from trystate.model.agent import Agents
from trystate.model.rendezvous.findings import FINDINGS as OF_RENDEZVOUS
from trystate.model.rendezvous.vocabulary import Edition
from trystate.monitor.rendezvous.editions import EDITIONS, Moves, build
from trystate.monitor.rendezvous.signatures import FINDINGS, SIGNATURES, name_of

SUPPOSED = {"silence"}  # a follower's name for an expired heartbeat


def test_a_signature_names_a_finding_a_property_and_steps_that_exist() -> None:
    systems = {edition: build(moves, 3, 2, 3) for edition, moves in EDITIONS.items()}
    steps = {t.name for system in systems.values() for t in system.transitions} | SUPPOSED
    agents = {p.name for p in Agents(edition="TORCH").properties}
    for row in SIGNATURES:
        assert row.finding in FINDINGS
        for edition in row.editions:
            own = {p.name for p in systems[edition].properties}
            assert row.property in (own if row.finding in OF_RENDEZVOUS else agents)
        assert {*row.any_of, *row.none_of} <= steps


def test_the_steps_tell_findings_of_one_property_apart() -> None:
    def named(steps: tuple[str, ...], edition: Edition = Edition.TORCH) -> str | None:
        finding = name_of("members_learn_the_master", steps, edition)
        return finding.number if finding is not None else None

    assert named(("restart_workers", "return_with_cached_master")) == "R1"
    assert named(("crash",)) == "R14"
    assert named(("assertion_error",), Edition.TORCH_2_12) == "R16"
    assert named(("crash",), Edition.TRYSTATE) is None
    assert name_of("rounds_only_advance", (), Edition.TORCH) is None


@pytest.mark.parametrize("moves", EDITIONS.values(), ids=lambda moves: moves.edition.name)
def test_each_step_that_a_follower_takes_is_one_of_the_edition(moves: Moves) -> None:
    known = {t.name for t in build(moves, 3, 2, 3).transitions}
    named = {*moves.forced, *moves.shown, *moves.leaves, moves.last_call}
    named |= {step for steps in moves.returns.values() for step in steps}
    assert named <= known
