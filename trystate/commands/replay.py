"""`trystate replay`: a known defect twice: the model's shortest counterexample, and the real torch."""

from __future__ import annotations

import argparse
import sys
from collections.abc import Mapping
from importlib.metadata import version
from typing import TYPE_CHECKING

from rich.table import Table

from trystate.diagrams import sequence_text
from trystate.model import releases
from trystate.model.checker.expectations import Finding
from trystate.model.checker.verdicts import Status
from trystate.model.errors import UsageError
from trystate.property_tests.adapters.versions import compared_as, prepare_for_torch, torch_problem

from .. import registry
from trystate.search.machine import decide
from trystate.search.plans import showcase
from ..exits import Exit
from ..progress import Reporter
from ..report.summary import stdout_console

if TYPE_CHECKING:  # with torch, which is imported only where it is run
    from trystate.property_tests.adapters.replays import Scenario


def replay_options(p: argparse.ArgumentParser) -> None:
    p.add_argument("name", nargs="?", metavar="NAME", help="a finding's name or number")
    p.add_argument("--list", action="store_true", help="list the findings")


def replay(args: argparse.Namespace) -> int:
    """Carry out the command; returns the exit code."""
    if args.list:
        _list()
        return Exit.OK
    if args.name is None:
        raise UsageError("replay what? Give a finding's name or number; trystate replay --list shows them")
    finding = registry.finding_named(args.name)
    print(f"{finding.number} {finding.name}: {finding.title}")
    if finding.workaround:
        print(f"Workaround on torch: {finding.workaround}")
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


def scenarios() -> Mapping[str, Scenario]:
    """The scenarios that run on the installed torch, by the name of their finding."""
    from trystate.property_tests.adapters.torch_agent.scenarios import SCENARIOS as AGENT
    from trystate.property_tests.adapters.torch_autograd.scenarios import SCENARIOS as AUTOGRAD
    from trystate.property_tests.adapters.torch_groups.scenarios import SCENARIOS as GROUPS
    from trystate.property_tests.adapters.torch_rendezvous.scenarios import SCENARIOS as RENDEZVOUS
    from trystate.property_tests.adapters.torch_store.scenarios import SCENARIOS as STORE

    return {**RENDEZVOUS, **AGENT, **STORE, **AUTOGRAD, **GROUPS}


def _replay_on_torch(finding: Finding) -> int:
    problem = torch_problem()
    if problem is not None:
        print(f"not replayed: {problem}", file=sys.stderr)
        return Exit.INCOMPLETE
    installed = version("torch")
    absence = releases.absence(installed, finding)
    if absence:
        print(f"\n{absence}", flush=True)
        if not releases.is_over(installed, finding):
            return Exit.OK  # this torch lacks what the finding is about, so that there is nothing to run
    prepare_for_torch()
    from trystate.property_tests.adapters.replays import ScheduleError
    from trystate.property_tests.adapters.seed_store.scenarios import SCENARIOS as SEED

    scenario = scenarios().get(finding.name)
    where = compared_as()
    if scenario is None and finding.name in SEED:
        scenario, where, absence = SEED[finding.name], "the program of torch 1.9, written from its description", ""
    if scenario is None:
        print(f"not replayed: there is no replay of {finding.number} on torch {installed}", file=sys.stderr)
        return Exit.INCOMPLETE
    print(f"On {where}:\n", flush=True)
    try:
        seen = scenario.run(lambda step: print(f"  {step}", flush=True))
    except ScheduleError as error:
        print(f"not replayed: the schedule could not be brought about: {error}", file=sys.stderr)
        return Exit.INCOMPLETE
    print("", *(f"  {fact}" for fact in seen.facts), seen.verdict, sep="\n")
    if absence:
        print("reproduced all the same" if seen.reproduced else "not reproduced, as this release should not")
        return Exit.FAILED if seen.reproduced else Exit.OK
    print("reproduced" if seen.reproduced else "not reproduced")
    return Exit.OK if seen.reproduced else Exit.FAILED
