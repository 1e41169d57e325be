"""The options of the commands that search, the search as a task, and the execution of tasks."""

from __future__ import annotations

import argparse
import signal
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Protocol

from trystate.diagrams import sequence_text
from trystate.model.checker.expectations import Judgement, Run, covered_with
from trystate.model.checker.kernel import Limits
from trystate.model.checker.verdicts import Status, Verdict
from trystate.model.language import System
from trystate.search import plans
from trystate.search.cluster import Cluster, WorkerLost
from trystate.search.machine import CPU, SearchOptions, available_cores, searched
from trystate.search.processes import Processes, ProcessLost
from trystate.search.signals import handled

from .. import registry
from ..choosing import positive, whole
from ..exits import REPORT_DIRECTORY
from ..progress import Reporter
from ..report.files import draw, folder
from ..report.json import trace
from ..report.results import LOSS, Checked, Compared, KnownDefect, PropertyResult, Results

if TYPE_CHECKING:
    from trystate.model.checker.explicit.ranks import Ranks

Judge = Callable[[Verdict, Run], Judgement]


def add_expectations(p: argparse.ArgumentParser) -> None:
    p.add_argument(
        "--expect",
        action="append",
        default=[],
        metavar="PROPERTY[=WHY]",
        help="this property of the system is known to be violated; may be repeated",
    )


def add_places(p: argparse.ArgumentParser) -> argparse._ArgumentGroup:
    group = p.add_argument_group("what to write")
    group.add_argument(
        "--out",
        type=Path,
        dest="report",
        default=REPORT_DIRECTORY,
        metavar="DIR",
        help="report.json, report.md and the counterexamples (default: %(default)s)",
    )
    group.add_argument("--json", type=Path, metavar="FILE", help="write report.json to this file as well")
    group.add_argument(
        "--junit", type=Path, metavar="FILE", help="write JUnit XML, a test case for each run and property"
    )
    return group


def add_search_options(group: argparse._ArgumentGroup) -> None:
    group.add_argument(
        "--jobs",
        type=whole,
        default=available_cores(),
        metavar="N",
        help="number of searches at a time, each in its own process (default: one for each core, %(default)s)",
    )
    group.add_argument(
        "--cores",
        type=whole,
        metavar="N",
        help="number of cores that a large search with the engine explicit uses (default: the machine's cores, shared "
        "by the searches that run at a time)",
    )
    group.add_argument(
        "--device",
        default=CPU,
        metavar="NAME",
        help="where the engine explicit searches large levels: cpu (with numpy), cuda or cuda:N (a GPU, with torch; "
        "the searches take turns), torch-cpu (the code of cuda on the processor, for tests) (default: %(default)s)",
    )
    group.add_argument(
        "--engine",
        default="auto",
        metavar="NAME",
        help="auto (explicit while it fits, else symbolic), interpret (the slow reference), explicit "
        "(breadth-first, with numpy) or symbolic (decision diagrams) (default: %(default)s)",
    )
    add_symmetry(group)
    add_limits(
        group, "three quarters of what this process can still get, or of what is free on the device; the searches of "
        "several --jobs share that",
    )  # fmt: skip


def add_symmetry(group: argparse._ArgumentGroup) -> None:
    group.add_argument(
        "--symmetry",
        nargs="*",
        metavar="INDEX",
        help="of states that differ only by a permutation of the nodes, visit one; or by permutations of the "
        "members of these indices; only with the engine explicit, and no `leads to` is then decided (default: off)",
    )


def symmetry_of(args: argparse.Namespace) -> bool | tuple[str, ...]:
    """The option --symmetry: the names of indices, or True without a name."""
    return args.symmetry is not None and (tuple(args.symmetry) or True)


def add_limits(group: argparse._ArgumentGroup, memory: str) -> None:
    limits = Limits()
    group.add_argument(
        "--max-states",
        type=whole,
        default=limits.states,
        metavar="N",
        help=f"stop a search at N distinct states; not with symbolic, which stores none (default: {limits.states:,})",
    )
    group.add_argument(
        "--max-seconds",
        type=positive,
        default=limits.seconds,
        metavar="S",
        help=f"stop a search after S seconds (default: {limits.seconds:,.0f})",
    )
    group.add_argument(
        "--max-memory",
        type=lambda text: whole(text) << 20,
        metavar="MIB",
        help=f"stop a search at MIB mebibytes (default: {memory})",
    )


def processes(args: argparse.Namespace, tasks: int) -> int:
    """The number of tasks at a time: a process without a task gets no share of the memory.

    On a device the searches take turns.
    """
    return max(1, min(args.jobs, tasks)) if args.device == CPU else 1


def search_options(args: argparse.Namespace, tasks: int) -> SearchOptions:
    """How to search, from the options.

    Raises:
        UsageError: the options do not fit together, or the machine has no such device.
    """
    found = SearchOptions(
        args.engine, symmetry_of(args), states=args.max_states, seconds=args.max_seconds, memory_bytes=args.max_memory,
        searches=processes(args, tasks), cores=args.cores, device=args.device, spill=args.spill,
    )  # fmt: skip
    if args.device != CPU:
        found.workers()  # fails here if the device is missing
    return found


class Task(Protocol):
    """A run to check, or a comparison to make. `cost` is compared with the costs of other tasks."""

    @property
    def name(self) -> str: ...

    @property
    def cost(self) -> int: ...

    def __call__(self) -> Checked | Compared: ...


@dataclass(frozen=True, slots=True)
class Search:
    """A run to check, as a task. `pictures`: known violations are drawn too; the others always are."""

    number: int  # the run's number in the report
    name: str
    run: Run
    judge: Judge
    options: SearchOptions
    reporter: Reporter
    out: Path | None = None  # the directory for counterexamples
    system: System | None = None  # the system of the run
    pictures: bool = True
    ranks: Ranks | None = None  # the ranks that share the search: each does this same task

    @property
    def cost(self) -> int:
        return plans.cost(self.run)

    def __call__(self) -> Checked:
        system = self.system or self.run.build()
        report = searched(system, self.options, on_progress=self.reporter.search, ranks=self.ranks)
        seen = report.exploration
        return Checked(
            number=self.number, label=system.label, system=system.name, edition=self._edition,
            sizes=dict(system.sizes), faults=dict(sorted(system.faults.items())), max_faults=system.max_faults,
            engine=seen.engine, choice=report.choice, states=seen.distinct, edges=seen.edges, depth=seen.depth,
            seconds=seen.seconds, bytes_per_state=seen.bytes_per_state, complete=seen.complete, stopped=seen.stopped,
            answers=tuple(self._answer(system, verdict) for verdict in report.verdicts), coverage=report.coverage,
            covered_with=covered_with(system),
        )  # fmt: skip

    @property
    def _edition(self) -> str:
        return self.run.edition.name if self.run.edition is not None else ""

    def _answer(self, system: System, verdict: Verdict) -> PropertyResult:
        prop, shown, judgement = verdict.property, verdict.run, self.judge(verdict, self.run)
        found = PropertyResult(
            prop.name, prop.form.value, prop.doc, verdict.status, judgement,
            known=tuple(map(known, self.run.findings.get(prop.name, ()))), reason=verdict.reason,
            steps=len(shown.path.steps) if shown is not None else None,
        )  # fmt: skip
        if shown is None or verdict.status is not Status.VIOLATED:
            return found
        below, title = folder(self.number, system.name, self._edition), f"{prop.name}: {prop.doc}"
        pictures = self.pictures or not judgement.is_expected
        out = self.out
        files = draw(out, below, prop.name, title, system, shown, pictures=pictures) if out is not None else ()
        return found.shown(trace(system, shown), sequence_text(system, shown), files)


def known(label: str) -> KnownDefect:
    """The finding with this name; any other label comes from an `--expect`."""
    finding = registry.findings().get(label)
    return KnownDefect(finding.number, finding.name) if finding is not None else KnownDefect(label)


class Terminated(BaseException):
    """The process has received SIGTERM."""


def carry_out(
    tasks: Sequence[Task], workers: Processes | Cluster, reporter: Reporter, started: float,
    landed: Callable[..., Checked | Compared] | None = None,
) -> Results:  # fmt: skip
    """The results, in the order of the tasks; `landed` unpacks what another machine has sent."""
    done: dict[int, Checked | Compared] = {}
    ended = ""
    order = sorted(range(len(tasks)), key=lambda number: -tasks[number].cost)
    names, costs = [task.name for task in tasks], [task.cost for task in tasks]
    try:
        with handled({signal.SIGTERM: _terminate}), workers as entered, reporter.counting(names, costs) as count:
            for number, result in entered.results(order):
                done[number] = result if landed is None else landed(*result)
                count(number)
    except KeyboardInterrupt:
        ended = "SIGINT"
    except Terminated:
        ended = "SIGTERM"
    except (WorkerLost, ProcessLost) as lost:  # with hours of others' work done, perhaps
        reporter.done(f"trystate: {lost}")
        ended = LOSS
    found = [done[number] for number in sorted(done)]
    return Results(
        checked=[one for one in found if isinstance(one, Checked)],
        compared=[one for one in found if isinstance(one, Compared)],
        seconds=time.perf_counter() - started,
        interrupted=ended,
        left=[task.name for number, task in enumerate(tasks) if number not in done],
    )


def _terminate(number: int, frame: object) -> None:
    raise Terminated
