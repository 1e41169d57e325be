"""`trystate replay`: shows a known defect twice: in the model's shortest counterexample, and on the real torch.

A defect of torch 1.9 and of torchcomms is shown in the model only.
"""

from __future__ import annotations

import argparse
import sys
from importlib.metadata import version

from rich.table import Table

from trystate.diagrams import sequence_text
from trystate.model import releases
from trystate.model.checker.expectations import Finding
from trystate.model.checker.verdicts import Status
from trystate.model.errors import UsageError
from trystate.property_tests import replays
from trystate.property_tests.adapters.replays import ScheduleError
from trystate.property_tests.adapters.versions import PACKAGES, compared_as, prepare_for_torch, torch_problem
from trystate.search.machine import decide
from trystate.search.plans import showcase

from .. import registry
from ..exits import Exit
from ..progress import Reporter
from ..report.summary import stdout_console


def replay_options(p: argparse.ArgumentParser) -> None:
    p.add_argument("name", nargs="?", metavar="NAME", help="a finding's name or number")
    p.add_argument("--list", action="store_true", help="list the findings")
    p.add_argument(
        "--report", action="store_true", dest="as_report", help="print the report for the maintainers, with the script"
    )


def replay(args: argparse.Namespace) -> int:
    """Carry out the command; returns the exit code."""
    if args.list:
        _list()
        return Exit.OK
    if args.name is None:
        raise UsageError("no finding is named: give a finding's name or number; trystate replay --list shows them")
    finding = registry.finding_named(args.name)
    if args.as_report:
        return _report(finding)
    print(f"{finding.number} {finding.name}: {finding.title}")
    if finding.workaround:
        print(f"Workaround on {finding.of}: {finding.workaround}")
    if finding.remedy:
        print(f"Remedy: {finding.remedy}")
    decided, code = _show_in_model(finding), _replay_on_torch(finding)
    return code if decided or code != Exit.OK else Exit.INCOMPLETE


def _list() -> None:
    table = Table(box=None)
    for head in ("number", "name", "torch", "title"):
        table.add_column(head)
    for finding in registry.findings().values():
        table.add_row(finding.number, finding.name, releases.span(finding), finding.title)
    stdout_console().print(table)


def _report(finding: Finding) -> int:
    if reason := _not_replayed(finding):
        raise UsageError(f"{finding.number} has no report and no script: {reason}")
    print(replays.report(finding), end="")
    return Exit.OK


def _not_replayed(finding: Finding) -> str:
    """Why no script replays a finding; empty if one does."""
    if releases.is_out_of_reach(finding):
        return f"it was last seen in torch {finding.until}, and no torch that can be installed has it"
    if finding.of == "torch" or replays.script(finding).is_file():
        return ""
    return f"its model was written from the source of {finding.of}, which was not run"


def _show_in_model(finding: Finding) -> bool:
    """Show the model's counterexample; returns whether the search decided its property."""
    shown = showcase(finding, registry.plan())
    if shown is None:
        print("\nNo run of the plan shows it in the model.")
        return True
    run, name = shown
    system = run.build()
    reporter = Reporter()
    with reporter.doing(f"checking {name} in {system.label}"):
        verdict = decide(system, name, reporter.search)
    print(f"\nIn the model, {name}: {verdict.property.doc}")
    if verdict.status is not Status.VIOLATED or verdict.run is None:
        print(f"{verdict.status.value} in {system.label} {verdict.reason}".rstrip())
        return verdict.status is not Status.NOT_DECIDED
    print(f"violated, shortest counterexample:\n\n{sequence_text(system, verdict.run)}", flush=True)
    return True


def _replay_on_torch(finding: Finding) -> int:
    if reason := _not_replayed(finding):
        print(f"\nNot replayed: {reason}.")
        return Exit.OK
    package = PACKAGES.get(finding.of)
    problem = torch_problem() or (package.problem() if package else None)
    if problem is not None:
        print(f"not replayed: {problem}", file=sys.stderr)
        return Exit.INCOMPLETE
    installed = version("torch")
    absence = package.absence(finding) if package else releases.absence(installed, finding)
    if absence:
        print(f"\n{absence}", flush=True)
        if not package and not releases.is_over(installed, finding):
            return Exit.OK  # this torch lacks what the finding is about: there is nothing to run
    prepare_for_torch()
    try:
        print(f"On {compared_as()}{f', {package.file()}' if package else ''}:\n", flush=True)
        reproduced = replays.replay(replays.script(finding), lambda line: print(f"  {line}", flush=True))
    except ScheduleError as error:
        print(f"not replayed: torch did not follow the schedule: {error}", file=sys.stderr)
        return Exit.INCOMPLETE
    if absence:
        print(
            "reproduced: unexpected for this release" if reproduced else "not reproduced, as expected of this release"
        )
        return Exit.FAILED if reproduced else Exit.OK
    print("reproduced" if reproduced else "not reproduced")
    return Exit.OK if reproduced else Exit.FAILED
