"""`trystate verify`: check a plan of systems, or what is asked for, and compare the models with the real torch.

Theory of operation. The command makes a list of tasks: a run to check, or a comparison to make. `processes.Processes`
does them, the longest first; each gives a value of `report.results`, and the report has them in the order of the plan.
A task writes the counterexamples of its run itself. With `--ray` workers of a cluster do them (`harness/cluster`): each
makes the list again from the options, and the files come with the results (`Away`). When the command is interrupted
(Ctrl-C, SIGTERM) the report has the tasks that are done, and names the others; the exit code is not 0.
"""

from __future__ import annotations

import argparse
import signal
import time
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, contextmanager
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import TYPE_CHECKING, Any

from trystate.diagrams import sequence_text
from trystate.diagrams.rendering import renderer_name
from trystate.model.checker.check import DEADLOCK_FREEDOM, ENGINES, check
from trystate.model.checker.expectations import Judgement, Run, adopt, covered_with, judge, judge_adopted
from trystate.model.checker.explicit.workers import Workers
from trystate.model.checker.kernel import Limits
from trystate.model.checker.verdicts import Status, Verdict
from trystate.model.errors import LimitReached, UnavailableError, UsageError
from trystate.model.language import System
from trystate.property_tests.adapters.versions import findings_line, prepare_for_torch, torch_problem
from trystate.property_tests.harness.checks import Check
from trystate.property_tests.harness.cluster import Cluster, WorkerLost, tasks_beside

from .. import plans, registry
from ..choosing import build, chosen
from ..machine import CPU, available_cores, machine_limits, refuse_both, search_workers
from ..processes import Processes
from ..progress import Reporter
from ..report.files import Places, draw, folder
from ..report.json import results_json, trace
from ..report.page import contents, write_page
from ..report.results import LOSS, Answer, Checked, Compared, Known, Results, coverage_gaps
from ..report.summary import print_results
from ..spill import Spill, spilling

if TYPE_CHECKING:
    from trystate.model.checker.explicit.ranks import Ranks

Judge = Callable[[Verdict, Run], Judgement]
CONFORMANCE = "conformance with torch"
COMPARISON_COST = 400_000  # states that are checked in the time of a comparison, roughly


@dataclass(frozen=True, slots=True)
class Task:
    """A run to check, or a comparison to make. `cost` is compared with those of other tasks."""

    name: str
    cost: int
    do: Callable[[], Checked | Compared]

    def __call__(self) -> Checked | Compared:
        return self.do()


class Terminated(BaseException):
    """SIGTERM has come."""


def verify(args: argparse.Namespace) -> int:
    """Carry out the command; returns the exit code."""
    if args.engine not in ("auto", *ENGINES):
        raise UsageError(registry.unknown("engine", args.engine, ("auto", *ENGINES)))
    started = time.perf_counter()
    asked = _asked(args)
    if asked and args.all:
        raise UsageError("--all is the whole plan: leave it out, or the system and the options that choose one")
    if args.expect and not asked:
        first = args.expect[0]
        raise UsageError(f"--expect {first} is of a system: name it, as in `trystate verify SYSTEM --expect {first}`")
    if args.spill is not None and len(args.systems) != 1:
        raise UsageError(f"--spill {args.spill} is of one search: name one system")
    refuse_both(args.spill, args.device)
    if args.ray is not None and (args.spill is not None or args.device != CPU):
        raise UsageError(f"--ray {args.ray}: workers keep no states in files, and use no device; leave out the other")
    places = Places(args.report, args.json, args.junit, args.html)
    reporter = Reporter()
    tasks = _tasks(args, reporter)
    share_out(args, len(tasks))
    places.prepare()
    if args.ray is None:
        done, interrupted = carry_out(tasks, Processes(tasks, args.jobs), reporter)
    else:
        cluster = Cluster(args.ray, tasks, partial(away, args), cores=args.cores or 1, jobs=args.jobs)
        done, interrupted = carry_out(tasks, cluster, reporter)
        done = {number: _landed(args.report, *sent) for number, sent in done.items()}
    found = [done[number] for number in sorted(done)]
    results = Results(
        checked=[one for one in found if isinstance(one, Checked)],
        compared=[one for one in found if isinstance(one, Compared)],
        interrupted=interrupted,
        left=[task.name for number, task in enumerate(tasks) if number not in done],
    )
    if args.all and not interrupted:
        results.gaps = coverage_gaps(results.checked)
    results.seconds = time.perf_counter() - started
    places.write(results)
    if args.html is not None:
        write_page(args.html, contents(results_json(results), _classes(args)), "--html")
    print_results(results, args.report, asked=asked, torch=_torch(results), problem=pictures_problem(results))
    return results.exit


def carry_out(tasks: Sequence[Task], workers: Processes | Cluster, reporter: Reporter) -> tuple[dict[int, Any], str]:
    """The results by the numbers of the tasks, and the signal or loss that ended the work, or ""."""
    done: dict[int, Any] = {}
    order = sorted(range(len(tasks)), key=lambda number: -tasks[number].cost)
    names, costs = [task.name for task in tasks], [task.cost for task in tasks]
    try:
        with _terminated(), workers as entered, reporter.counting(names, costs) as count:
            for number, result in entered.results(order):
                done[number] = result
                count(number)
    except KeyboardInterrupt:
        return done, "SIGINT"
    except Terminated:
        return done, "SIGTERM"
    except WorkerLost as lost:  # with hours of others' work done, perhaps
        reporter.done(f"trystate: {lost}")
        return done, LOSS
    return done, ""


@contextmanager
def _terminated() -> Iterator[None]:
    """SIGTERM raises `Terminated`, where signals can be handled: in the main thread."""

    def terminate(number: int, frame: object) -> None:
        raise Terminated

    try:
        before = signal.signal(signal.SIGTERM, terminate)
    except ValueError:
        yield
        return
    try:
        yield
    finally:
        signal.signal(signal.SIGTERM, before)


def _torch(results: Results) -> str:
    """Which findings the torch has that was compared, or "" if none was."""
    if torch_problem() is not None or not any(one.outcome for one in results.compared):
        return ""
    return findings_line(registry.findings().values())


def pictures_problem(results: Results) -> str:
    if not any(a.files for c in results.checked for a in c.answers):
        return ""
    try:
        renderer_name()
    except UnavailableError as error:
        return str(error)
    return ""


# ---- the tasks


def _asked(args: argparse.Namespace) -> bool:
    """Are systems asked for, and not a plan?"""
    return bool(args.systems or chosen(args))


def _tasks(args: argparse.Namespace, reporter: Reporter) -> list[Task]:
    return [*(asked_for(args, reporter) if _asked(args) else _planned(args, reporter))]


@dataclass(frozen=True, slots=True)
class Away:
    """A task on another machine, which gives the files of its counterexamples together with its result."""

    task: Task
    args: argparse.Namespace  # those of the task

    @property
    def name(self) -> str:
        return self.task.name

    def __call__(self) -> tuple[Checked | Compared, dict[str, bytes]]:
        with TemporaryDirectory() as folder:
            out = self.args.report = Path(folder)
            result = self.task()
            answers = result.answers if isinstance(result, Checked) else ()
            return result, {file: (out / file).read_bytes() for answer in answers for file in answer.files}


def away(args: argparse.Namespace) -> list[Away]:
    """The tasks, made on a worker of a cluster: those that its node takes at a time share its cores and memory."""
    args.jobs = tasks_beside(args.cores or 1)
    return [Away(task, args) for task in _tasks(args, Reporter())]


def _landed(out: Path, result: Checked | Compared, sent: dict[str, bytes]) -> Checked | Compared:
    """The result, whose files are written."""
    for file, content in sent.items():
        (out / file).parent.mkdir(parents=True, exist_ok=True)
        (out / file).write_bytes(content)
    return result


def _planned(args: argparse.Namespace, reporter: Reporter) -> Iterator[Task]:
    """The runs and comparisons of the whole plan, or of the small one."""
    runs = registry.plan() if args.all else plans.small(registry.plan())
    for number, run in enumerate(runs, 1):
        search = Search(number, run, run.build, judge, args, reporter, pictures=args.all)
        yield Task(run.label, plans.cost(run), search)
    if args.all:
        for one in refinement_checks():
            yield Task(one.name, COMPARISON_COST, partial(_compared, one, False, reporter))
    problem = torch_problem()
    if problem is not None:
        yield Task(CONFORMANCE, 0, partial(Compared, CONFORMANCE, skipped=problem))
        return
    for one in conformance_checks():
        yield Task(one.name, COMPARISON_COST, partial(_compared, one, not args.all, reporter))


def asked_for(args: argparse.Namespace, reporter: Reporter, ranks: Ranks | None = None) -> Iterator[Task]:
    """The searches of the systems that are named, which `ranks` share."""
    names = args.systems or [next(iter(registry.SYSTEMS))]
    for number, name in enumerate(names, 1):
        system = build(registry.system_class(name), args)
        run = next((run for run in registry.plan() if _describes(run, system)), None)
        judged: Judge = judge
        if run is None:
            run, judged = adopt(system, registry.plan()), partial(_adopted, _expected(args.expect))
        run = _expecting(run, system, args.expect)
        search = Search(number, run, partial(_given, system), judged, args, reporter, spill=args.spill, ranks=ranks)
        yield Task(system.label, 1, search)


def _classes(args: argparse.Namespace) -> dict[str, type[System]]:
    """The systems that were asked for, by the names that were given."""
    return {name: registry.system_class(name) for name in args.systems if ":" in name}


def _expecting(run: Run, system: System, expected: Sequence[str]) -> Run:
    """The run, with the violations that --expect declares.

    Raises:
        UsageError: the system has no such property.
    """
    known = [*(p.name for p in system.properties), DEADLOCK_FREEDOM.name]
    given = _expected(expected)
    for name in given:
        if name not in known:
            raise UsageError(f"--expect {name}: {registry.unknown('property', name, known)}")
    return run.expecting({name: (why or "declared with --expect",) for name, why in given.items()})


def _expected(texts: Iterable[str]) -> dict[str, str]:
    """What --expect has been given: property -> why."""
    return dict(text.partition("=")[::2] for text in texts)


def _adopted(given: Mapping[str, str], verdict: Verdict, run: Run) -> Judgement:
    """The judgement of a system outside of the plan: only what --expect has been given must be found."""
    return judge(verdict, run) if verdict.property.name in given else judge_adopted(verdict, run)


def _describes(run: Run, system: System) -> bool:
    """Is this system the run's very own?"""
    if (run.system, run.edition, set(run.faults)) != (system.family, system.edition, set(system.faults)):
        return False
    built = run.build()
    return (built.sizes, built.faults, built.max_faults) == (system.sizes, system.faults, system.max_faults)


def _given(system: System) -> System:
    return system


def share_out(args: argparse.Namespace, tasks: int) -> None:
    """How many processes there are, into the options: no memory is left aside for one without a task.

    On a device the searches take turns, and the device must be there.
    """
    args.jobs = max(1, min(args.jobs, tasks)) if args.device == CPU else 1
    if args.device != CPU:
        workers(args)


def cores(args: argparse.Namespace) -> int:
    """The cores of each search, from the options: the processes share the cores."""
    share: int = max(1, available_cores() // args.jobs)
    return args.cores or share


def workers(args: argparse.Namespace) -> tuple[Workers, Limits]:
    """The workers of a search and where it stops, from the options: the processes share the memory."""
    memory_bytes = args.max_memory << 20 if args.max_memory else None
    if memory_bytes is None and args.device == CPU:
        memory_bytes = machine_limits(args.jobs).memory_bytes
    shared, bounds = search_workers(args.device, cores(args), args.engine, memory_bytes)
    return shared, Limits(args.max_states, bounds.memory_bytes, args.max_seconds)


@dataclass(frozen=True, slots=True)
class Search:
    """A run to check, as a task. `pictures`: known violations are drawn too; the others always are."""

    number: int  # in the report
    run: Run
    build: Callable[[], System]
    judge: Judge
    args: argparse.Namespace
    reporter: Reporter
    pictures: bool = True
    spill: Path | None = None  # the directory for states that have no room in memory
    ranks: Ranks | None = None  # that share it, each of which does this task alike

    def __call__(self) -> Checked:
        args, system = self.args, self.build()
        shared, bounds = workers(args)
        with self._storage(bounds) as storage:
            report = check(
                system, engine=args.engine, symmetry=args.symmetry, limits=bounds, storage=storage,
                on_progress=self.reporter.search, ranks=self.ranks, workers=shared if self.ranks is None else None,
            )  # fmt: skip
        seen = report.exploration
        return Checked(
            number=self.number, label=system.label, system=system.name, edition=self._edition,
            sizes=dict(system.sizes), faults=dict(sorted(system.faults.items())), max_faults=system.max_faults,
            engine=seen.engine, choice=report.choice, states=seen.distinct, edges=seen.edges, depth=seen.depth,
            seconds=seen.seconds, bytes_per_state=seen.bytes_per_state, complete=seen.complete, stopped=seen.stopped,
            answers=tuple(self._answer(system, verdict) for verdict in report.verdicts), coverage=report.coverage,
            covered_with=covered_with(system),
        )  # fmt: skip

    def _storage(self, bounds: Limits) -> AbstractContextManager[Spill | None]:
        if self.ranks is None or self.spill is None:
            return spilling(self.spill, bounds)
        from ..rank_storage import opened

        return opened(self.spill, self.ranks, bounds)

    @property
    def _edition(self) -> str:
        return self.run.edition.name if self.run.edition is not None else ""

    def _answer(self, system: System, verdict: Verdict) -> Answer:
        prop, shown, judgement = verdict.property, verdict.run, self.judge(verdict, self.run)
        found = Answer(
            prop.name, prop.form.value, prop.doc, verdict.status, judgement,
            known=tuple(map(known, self.run.findings.get(prop.name, ()))), reason=verdict.reason,
            steps=len(shown.path.steps) if shown is not None else None,
        )  # fmt: skip
        if shown is None or verdict.status is not Status.VIOLATED:
            return found
        below, title = folder(self.number, system.name, self._edition), f"{prop.name}: {prop.doc}"
        pictures = self.pictures or not judgement.is_expected
        out = self.args.report
        files = draw(out, below, prop.name, title, system, shown, pictures=pictures) if out is not None else ()
        return found.shown(trace(system, shown), sequence_text(system, shown), files)


def known(label: str) -> Known:
    """A finding by its name; other words are those of an `--expect`."""
    finding = registry.findings().get(label)
    return Known(finding.number, finding.name) if finding is not None else Known(label)


def _compared(one: Check, sample: bool, reporter: Reporter) -> Compared:
    try:
        outcome = one.run(reporter.detail, sample=sample)
    except UnavailableError as error:
        return Compared(one.name, skipped=str(error))
    except (LimitReached, MemoryError) as error:
        return Compared(one.name, stopped=str(error) or "no more memory")
    return Compared(one.name, outcome)


def refinement_checks() -> tuple[Check, ...]:
    """The comparisons between the models themselves."""
    from trystate.property_tests.adapters.refinements import REFINEMENTS

    return REFINEMENTS


def conformance_checks() -> tuple[Check, ...]:
    """The comparisons with torch, of our own stores, our engine and our agent. Loads torch."""
    prepare_for_torch()
    from trystate.property_tests.adapters.our_agent import conformance as agent
    from trystate.property_tests.adapters.our_autograd import conformance as autograd
    from trystate.property_tests.adapters.our_rendezvous import deadlines as our_calls
    from trystate.property_tests.adapters.our_rendezvous import hosting as our_jobs
    from trystate.property_tests.adapters.our_rendezvous import operators as operators
    from trystate.property_tests.adapters.our_store import conformance as store_models
    from trystate.property_tests.adapters.seed_rendezvous import conformance as seed_rendezvous
    from trystate.property_tests.adapters.seed_store import conformance as seed_store
    from trystate.property_tests.adapters.simulator import conformance as engine
    from trystate.property_tests.adapters.stores import cases
    from trystate.property_tests.adapters.torch_agent import conformance as torch_agent
    from trystate.property_tests.adapters.torch_rendezvous import conformance as rendezvous

    return (
        *rendezvous.CHECKS,
        *seed_rendezvous.CHECKS,
        *seed_store.CHECKS,
        *cases.CHECKS,
        *store_models.CHECKS,
        *operators.CHECKS,
        *our_calls.CHECKS,
        *our_jobs.CHECKS,
        *engine.CHECKS,
        *agent.CHECKS,
        *torch_agent.CHECKS,
        *autograd.CHECKS,
    )
