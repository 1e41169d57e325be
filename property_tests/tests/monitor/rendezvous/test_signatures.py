"""The signatures of the findings name what exists, and tell findings that share a property apart."""

from __future__ import annotations

from trystate.model.rendezvous.vocabulary import Edition
from trystate.monitor.rendezvous.editions import EDITIONS, build
from trystate.monitor.rendezvous.judging import CLOSED, UNANSWERED
from trystate.monitor.rendezvous.signatures import FINDINGS, SIGNATURES, name_of

SUPPOSED = {"silence"}  # a follower's word for a heartbeat that has expired


def test_a_signature_names_a_finding_a_property_and_steps_that_exist() -> None:
    systems = {edition: build(moves, 3, 2, 3) for edition, moves in EDITIONS.items()}
    steps = {t.name for system in systems.values() for t in system.transitions} | SUPPOSED
    for row in SIGNATURES:
        assert row.finding in FINDINGS
        for edition in row.editions:
            assert row.property in {p.name for p in systems[edition].properties} | {CLOSED, UNANSWERED}
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
