"""`trystate replay`: shows a known defect twice: in the model's shortest counterexample, and on the real torch."""

from __future__ import annotations

import argparse
import sys
from collections.abc import Mapping
from importlib.metadata import version

from rich.table import Table

from trystate.diagrams import sequence_text
from trystate.model import releases
from trystate.model.checker.expectations import Finding
from trystate.model.checker.verdicts import Status
from trystate.model.errors import UsageError
from trystate.property_tests import replays
from trystate.property_tests.adapters.nvrx import shipped
from trystate.property_tests.adapters.replays import Scenario, ScheduleError
from trystate.property_tests.adapters.versions import compared_as, prepare_for_torch, torch_problem
from trystate.search.machine import decide
from trystate.search.plans import showcase

from .. import registry
from ..exits import Exit
from ..progress import Reporter
from ..report.summary import stdout_console


def replay_options(p: argparse.ArgumentParser) -> None:
    p.add_argument("name", nargs="?", metavar="NAME", help="a finding's name or number")
    p.add_argument("--list", action="store_true", help="list the findings")
    p.add_argument("--report", action="store_true", help="print the report for the maintainers, with the script")


def replay(args: argparse.Namespace) -> int:
    """Carry out the command; returns the exit code."""
    if args.list:
        _list()
        return Exit.OK
    if args.name is None:
        raise UsageError("no finding is named: give a finding's name or number; trystate replay --list shows them")
    finding = registry.finding_named(args.name)
    if args.report:
        return _report(finding)
    print(f"{finding.number} {finding.name}: {finding.title}")
    if finding.workaround:
        print(f"Workaround on {finding.of}: {finding.workaround}")
    if finding.remedy:
        print(f"Remedy: {finding.remedy}")
    _show_in_model(finding)
    return _replay_on_torch(finding)


def _list() -> None:
    table = Table(box=None)
    for head in ("number", "name", "torch", "title"):
        table.add_column(head)
    for finding in registry.findings().values():
        table.add_row(finding.number, finding.name, releases.span(finding), finding.title)
    stdout_console().print(table)


def _report(finding: Finding) -> int:
    if not replays.script(finding).is_file():
        raise UsageError(f"{finding.number} has no report: it is about torch 1 and has no script")
    print(replays.report(finding), end="")
    return Exit.OK


def _show_in_model(finding: Finding) -> None:
    shown = showcase(finding, registry.plan())
    if shown is None:
        print("\nNo run of the plan shows it in the model.")
        return
    run, name = shown
    system = run.build()
    reporter = Reporter()
    with reporter.doing(f"checking {name} in {system.label}"):
        verdict = decide(system, name, reporter.search)
    print(f"\nIn the model, {name}: {verdict.property.doc}")
    if verdict.status is not Status.VIOLATED or verdict.run is None:
        print(f"{verdict.status.value} in {system.label} {verdict.reason}".rstrip())
        return
    print(f"violated, shortest counterexample:\n\n{sequence_text(system, verdict.run)}", flush=True)


def _replay_on_torch(finding: Finding) -> int:
    problem = torch_problem() or (shipped.problem() if finding.of != "torch" else None)
    if problem is not None:
        print(f"not replayed: {problem}", file=sys.stderr)
        return Exit.INCOMPLETE
    installed = version("torch")
    is_of_torch = finding.of == "torch"
    absence = releases.absence(installed, finding) if is_of_torch else shipped.absence(finding)
    if absence:
        print(f"\n{absence}", flush=True)
        if is_of_torch and not releases.is_over(installed, finding):
            return Exit.OK  # this torch lacks what the finding is about: there is nothing to run
    prepare_for_torch()
    try:
        if (path := replays.script(finding)).is_file():
            print(f"On {compared_as()}{'' if is_of_torch else f', {shipped.barrier_file()}'}:\n", flush=True)
            reproduced = replays.replay(path, lambda line: print(f"  {line}", flush=True))
        elif finding.name in (programs := _of_torch_1()):
            print("On the program of torch 1.9, written from its description:\n", flush=True)
            seen = programs[finding.name].run(lambda step: print(f"  {step}", flush=True))
            print("", *(f"  {fact}" for fact in seen.facts), seen.verdict, sep="\n")
            reproduced, absence = seen.reproduced, ""
        else:
            print(f"not replayed: there is no replay of {finding.number} on torch {installed}", file=sys.stderr)
            return Exit.INCOMPLETE
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


def _of_torch_1() -> Mapping[str, Scenario]:
    """The scenarios on the program of torch 1.9, by the name of their finding."""
    from trystate.property_tests.adapters.seed_store.scenarios import SCENARIOS

    return SCENARIOS
