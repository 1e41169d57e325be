"""One property of one system, decided now; and the run of the plan that shows a finding."""

from __future__ import annotations

from collections.abc import Iterable

from trystate.model.checker.check import DEADLOCK_FREEDOM
from trystate.model.checker.engine import OnProgress, quiet
from trystate.model.checker.expectations import Finding, Run
from trystate.model.checker.verdicts import Verdict
from trystate.model.errors import UsageError
from trystate.model.language import System

from . import registry
from .machine import check


def decide(system: System, name: str, on_progress: OnProgress = quiet) -> Verdict:
    """The verdict on one property, without asking any other.

    Raises:
        UsageError: the system has no such property.
    """
    known = [p.name for p in (*system.properties, DEADLOCK_FREEDOM)]
    if name not in known:
        raise UsageError(registry.unknown("property", name, known))
    return check(system, on_progress=on_progress, properties=(name,)).verdict(name)


def showcase(finding: Finding, runs: Iterable[Run]) -> tuple[Run, str] | None:
    """The first planned run and property that show a finding; a property that it explains alone goes first."""
    labels = {finding.name, finding.number}
    found = [(run, p, why) for run in runs for p, why in run.findings.items() if labels & set(why)]
    run, name, _ = min(found, key=lambda one: len(one[2]) > 1, default=(None, "", ()))
    return (run, name) if run is not None else None
