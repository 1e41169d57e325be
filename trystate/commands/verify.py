"""`trystate verify`: check a plan of systems, or the named systems, and compare the models with the real torch.

Theory of operation. The command makes a list of tasks: a run to check, or a comparison to make. `processes.Processes`
does them, the longest first; each gives a value of `report.results`, and the report has them in the order of the plan.
A task writes the counterexamples of its run itself. With `--ray` workers of a cluster do them (`search/cluster`): each
makes the list again from the options, and the files come with the results (`Away`). When the command is interrupted
(Ctrl-C, SIGTERM) the report has the tasks that are done, and names the others; the exit code is not 0.
"""

from __future__ import annotations

import argparse
import time
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial
from importlib import import_module
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import TYPE_CHECKING

from trystate.model.checker.check import ENGINES, decided
from trystate.model.checker.expectations import Judgement, Run, adopt, judge, judge_adopted
from trystate.model.checker.verdicts import Verdict
from trystate.model.errors import LimitReached, UnavailableError, UsageError, unknown
from trystate.model.language import System
from trystate.property_tests.adapters.versions import findings_line, prepare_for_torch, torch_problem
from trystate.property_tests.harness.checks import Check, Outcome
from trystate.search import plans
from trystate.search.cluster import Cluster, tasks_beside
from trystate.search.machine import CPU, SearchOptions
from trystate.search.processes import Processes

from .. import registry
from ..choosing import SYSTEM_HELP, add_system_options, build, chosen
from ..progress import Reporter
from ..report.files import Places
from ..report.json import results_json
from ..report.page import contents, write_page
from ..report.results import Checked, Compared, Results, coverage_gaps
from ..report.summary import print_results
from .searching import (
    Judge,
    Search,
    Task,
    add_expectations,
    add_places,
    add_search_options,
    carry_out,
    processes,
    search_options,
)  # fmt: skip

if TYPE_CHECKING:
    from trystate.model.checker.explicit.ranks import Ranks

How = Callable[[int], SearchOptions]  # how to search, by the number of tasks
CONFORMANCE = "conformance with torch"
COMPARED = (
    "torch_rendezvous.conformance", "stores.cases", "our_store.conformance", "our_rendezvous.operators",
    "our_rendezvous.deadlines", "our_rendezvous.hosting", "simulator.conformance", "our_agent.conformance",
    "torch_agent.conformance", "our_autograd.conformance", "nvrx.conformance", "torchft.conformance", "successive",
)  # fmt: skip
COMPARISON_COST = 400_000  # states that are checked in the time of a comparison, roughly


def verify_options(p: argparse.ArgumentParser) -> None:
    p.add_argument("systems", nargs="*", metavar="SYSTEM", help=f"{SYSTEM_HELP} (default: the small plan)")
    p.add_argument("--all", action="store_true", help="the whole plan: every system, edition, size and fault")
    add_expectations(p)
    add_system_options(p)
    group = p.add_argument_group("how to search")
    add_search_options(group)
    group.add_argument(
        "--ray",
        metavar="ADDRESS",
        help="run searches and comparisons on a Ray cluster: local (on this machine, with --jobs), auto (a cluster "
        "that runs here, or RAY_ADDRESS), HOST:PORT of its head, or ray://HOST:PORT (default: in processes)",
    )
    group.add_argument(
        "--spill",
        type=Path,
        metavar="DIR",
        help="for one system: keep the search, and states that do not fit in --max-memory, in this directory; the same "
        "command resumes a search that was stopped (default: in memory only)",
    )
    group = add_places(p)
    group.add_argument("--html", type=Path, metavar="FILE", help="write the results as one page: see docs/page.md")


def verify(args: argparse.Namespace) -> int:
    """Carry out the command; returns the exit code."""
    if args.engine not in ("auto", *ENGINES):
        raise UsageError(unknown("engine", args.engine, ("auto", *ENGINES)))
    started = time.perf_counter()
    asked = _asked(args)
    if asked and args.all:
        raise UsageError("--all checks the whole plan: leave it out, or leave out the system and its options")
    if args.expect and not asked:
        first = args.expect[0]
        raise UsageError(f"--expect {first} needs a system: name it, as in `trystate verify SYSTEM --expect {first}`")
    if args.spill is not None and len(args.systems) != 1:
        raise UsageError(f"--spill {args.spill} needs one search: name one system")
    if args.ray is not None and (args.spill is not None or args.device != CPU):
        raise UsageError(f"--ray {args.ray}: workers use no files and no device: leave out --spill and --device")
    places = Places(args.report, args.json, args.junit, args.html)
    reporter = Reporter()
    tasks = _tasks(args, partial(search_options, args), args.report, reporter)
    jobs = processes(args, len(tasks))
    places.prepare()
    if args.ray is None:
        results = carry_out(tasks, Processes(tasks, jobs), reporter, started)
    else:
        cluster = Cluster(args.ray, tasks, partial(away, args), cores=args.cores or 1, jobs=jobs)
        results = carry_out(tasks, cluster, reporter, started, partial(_landed, args.report))
    if args.all and not results.interrupted:
        results.gaps = coverage_gaps(results.checked)
    print_results(results, args.report, asked=asked, torch=_torch(results), idle=bool(_classes(args)))
    places.write(results)
    if args.html is not None:
        write_page(args.html, contents(results_json(results), _classes(args)), "--html")
    return results.exit


def _torch(results: Results) -> str:
    """The findings of the torch that was compared, in words; "" if no torch was."""
    if torch_problem() is not None or not any(one.outcome for one in results.compared):
        return ""
    return findings_line(registry.findings().values())


# ---- the tasks


def _asked(args: argparse.Namespace) -> bool:
    """Whether systems are named or chosen by options; otherwise a plan is checked."""
    return bool(args.systems or chosen(args))


def _tasks(args: argparse.Namespace, how: How, out: Path, reporter: Reporter) -> list[Task]:
    if _asked(args):
        names = args.systems or [next(iter(registry.SYSTEMS))]
        return [*asked_for(names, args, how(len(names)), out, reporter)]
    return _planned(args.all, how, out, reporter)


@dataclass(frozen=True, slots=True)
class Away:
    """A task on another machine, which gives the files of its counterexamples together with its result."""

    task: Task

    @property
    def name(self) -> str:
        return self.task.name

    def __call__(self) -> tuple[Checked | Compared, dict[str, bytes]]:
        if not isinstance(self.task, Search):
            return self.task(), {}
        with TemporaryDirectory() as folder:
            out = Path(folder)
            result = replace(self.task, out=out)()
            return result, {file: (out / file).read_bytes() for answer in result.answers for file in answer.files}


def away(args: argparse.Namespace) -> list[Away]:
    """The tasks, made on a worker of a cluster: the tasks that its node runs at a time share its cores and memory."""

    def how(tasks: int) -> SearchOptions:
        return replace(search_options(args, tasks), searches=tasks_beside(args.cores or 1))

    return [Away(task) for task in _tasks(args, how, args.report, Reporter())]


def _landed(out: Path, result: Checked | Compared, sent: dict[str, bytes]) -> Checked | Compared:
    """The result, whose files are written."""
    for file, content in sent.items():
        (out / file).parent.mkdir(parents=True, exist_ok=True)
        (out / file).write_bytes(content)
    return result


def _planned(whole: bool, how: How, out: Path, reporter: Reporter) -> list[Task]:
    """The runs and comparisons of the whole plan, or of the small one."""
    runs = registry.plan() if whole else plans.small(registry.plan())
    compared = [Comparison(one, False, reporter) for one in (refinement_checks() if whole else ())]
    problem = torch_problem()
    if problem is not None:
        compared.append(Comparison(Check(CONFORMANCE, partial(_skip, problem)), False, reporter, cost=0))
    else:
        compared += [Comparison(one, not whole, reporter) for one in conformance_checks()]
    options = how(len(runs) + len(compared))
    searches = [
        Search(number, run.label, run, judge, options, reporter, out, pictures=whole)
        for number, run in enumerate(runs, 1)
    ]
    return [*searches, *compared]


def asked_for(
    names: Sequence[str], args: argparse.Namespace, options: SearchOptions, out: Path | None, reporter: Reporter,
    ranks: Ranks | None = None,
) -> Iterator[Search]:  # fmt: skip
    """The searches of the named systems; if `ranks` are given, they share each search."""
    for number, name in enumerate(names, 1):
        system = build(registry.system_class(name), args)
        run = next((run for run in registry.plan() if _describes(run, system)), None)
        judged: Judge = judge
        if run is None:
            run, judged = adopt(system, registry.plan()), partial(_adopted, _expected(args.expect))
        run = _expecting(run, system, args.expect)
        yield Search(number, system.label, run, judged, options, reporter, out, system, ranks=ranks)


def _classes(args: argparse.Namespace) -> dict[int, tuple[type[System], str]]:
    """The classes that the command line names as module:Class, with these names, by the numbers of their runs."""
    return {k: (registry.system_class(name), name) for k, name in enumerate(args.systems, 1) if ":" in name}


def _expecting(run: Run, system: System, expected: Sequence[str]) -> Run:
    """The run, with the violations that --expect declares.

    Raises:
        UsageError: the system has no such property.
    """
    known = [p.name for p in decided(system)]
    given = _expected(expected)
    for name in given:
        if name not in known:
            raise UsageError(f"--expect {name}: {unknown('property', name, known)}")
    return run.expecting({name: (why or "declared with --expect",) for name, why in given.items()})


def _expected(texts: Iterable[str]) -> dict[str, str]:
    """The properties given with --expect -> their reasons."""
    return dict(text.partition("=")[::2] for text in texts)


def _adopted(given: Mapping[str, str], verdict: Verdict, run: Run) -> Judgement:
    """The judgement of a system outside the plan: only violations given with --expect must be found."""
    return judge(verdict, run) if verdict.property.name in given else judge_adopted(verdict, run)


def _describes(run: Run, system: System) -> bool:
    """Whether this is the run's own system."""
    if (run.system, run.edition, set(run.faults)) != (system.family, system.edition, set(system.faults)):
        return False
    built = run.build()
    return (built.sizes, built.faults, built.max_faults) == (system.sizes, system.faults, system.max_faults)


@dataclass(frozen=True, slots=True)
class Comparison:
    """A comparison to make, as a task."""

    check: Check
    sample: bool
    reporter: Reporter
    cost: int = COMPARISON_COST

    @property
    def name(self) -> str:
        return self.check.name

    def __call__(self) -> Compared:
        try:
            outcome = self.check.run(self.reporter.detail, sample=self.sample)
        except UnavailableError as error:
            return Compared(self.name, skipped=str(error))
        except (LimitReached, MemoryError) as error:
            return Compared(self.name, stopped=str(error) or "no more memory")
        return Compared(self.name, outcome)


def _skip(problem: str, report: object) -> Outcome:
    raise UnavailableError(problem)


def refinement_checks() -> tuple[Check, ...]:
    """The comparisons between the models themselves."""
    from trystate.property_tests.adapters.refinements import REFINEMENTS

    return REFINEMENTS


def conformance_checks() -> tuple[Check, ...]:
    """The comparisons with torch, of our own stores, our engine and our agent. Loads torch."""
    prepare_for_torch()
    compared = (import_module(f"trystate.property_tests.adapters.{name}") for name in COMPARED)
    return tuple(check for each in compared for check in each.CHECKS)
