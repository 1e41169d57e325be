"""Every finding about the creation of groups has a report for torch's maintainers, whose script shows it."""

from __future__ import annotations

from trystate.model.groups.findings import FINDINGS
from trystate.property_tests.adapters.torch_groups.scenarios import SCENARIOS
from trystate.property_tests.support.upstream import upstream_tests

test_the_reports_are_complete, test_a_report_is_ready_to_be_filed, test_its_script_shows_the_defect = upstream_tests(
    FINDINGS, SCENARIOS
)
