"""Our rendezvous needs each of its repairs: without a repair, a property fails that holds with it."""

from __future__ import annotations

import pytest

from trystate.model.checker.verdicts import Report
from trystate.model.language import Form
from trystate.model.rendezvous import Rendezvous
from trystate.model.rendezvous.findings import EVERY_FAULT, FINDINGS
from trystate.model.rendezvous.vocabulary import Edition
from trystate.property_tests.support.nightly import a_third
from trystate.property_tests.support.pinned import report, violated
from trystate.property_tests.support.rendezvous.ablations import (
    ABLATIONS,
    Ablation,
    BeatsForTheDead,
    small,
)


@pytest.mark.parametrize("ablation", a_third(ABLATIONS), ids=str)
def test_an_ablation_violates_a_property_that_holds_with_the_repair(ablation: Ablation) -> None:
    assert violated(report(ablation.asked(Rendezvous))) == set()
    found = report(ablation.asked(ablation.cls))
    assert violated(found) == set(ablation.violated)
    shortest = found.verdict(ablation.violated[0]).run
    assert shortest is not None
    assert len(shortest.path.steps) == ablation.steps


def test_a_violation_of_two_faults_is_missed_by_one_and_found_by_two() -> None:
    def found_of(faults: tuple[str, ...], together: int) -> Report:
        return report(small(BeatsForTheDead, "3 2 3", faults, together))

    assert violated(found_of(EVERY_FAULT, 1)) == set()
    for alone in ("crash", "restart"):
        assert violated(found_of((alone,), 2)) == set()
    found = found_of(("crash", "restart"), 2)
    assert violated(found) == {"enough_nodes_complete_a_round", "the_expected_come_or_go"}
    run = found.verdict("the_expected_come_or_go").run
    assert run is not None
    assert len(run.path.steps) == 29


def test_every_finding_of_the_rendezvous_has_a_repair_that_keeps_it_away() -> None:
    """Except R11 and R17: in the model a write is one step. A write of the runtime has a writer, a version and pauses.

    R18 and R20 are findings of `Deadlines` and `SharedEndpoints`, whose mutants undo the repairs: see test_deadlines
    and test_hosting.
    """
    removed = {number for ablation in ABLATIONS for number in ablation.findings}
    assert removed == {finding.number for finding in FINDINGS.values()} - {"R11", "R17", "R18", "R20"}


def test_every_property_that_is_ours_alone_can_fail() -> None:
    ours, torchs = (
        {p.name for p in Rendezvous(edition=edition).properties if p.form is not Form.SOMETIMES}
        for edition in (Edition.TRYSTATE, Edition.TORCH)
    )
    assert ours - torchs <= {name for ablation in ABLATIONS for name in ablation.violated}
