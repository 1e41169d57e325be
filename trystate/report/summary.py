"""What `trystate verify` prints on stdout when it is done."""

from __future__ import annotations

from pathlib import Path

from rich.box import SIMPLE_HEAD
from rich.console import Console
from rich.table import Table
from rich.text import Text

from trystate.model.checker.expectations import Judgement
from trystate.model.checker.verdicts import Status, Verdict

from ..exits import Exit
from .results import Checked, Conformed, Results, plural

PLAIN_WIDTH = 200  # columns where there is no terminal to measure: a log is read by scrolling
WIDE = 140  # columns in which a run fits on one line

_COLOURS = {Exit.OK: "green", Exit.INCOMPLETE: "yellow"}


def stdout_console() -> Console:
    """A console that never breaks lines for a terminal that is not there."""
    console = Console(highlight=False, markup=False)
    return console if console.is_terminal else Console(highlight=False, markup=False, width=PLAIN_WIDTH)


def print_results(results: Results, out: Path, problem: str) -> None:
    """The table of runs, that of conformance, everything that is not as declared, and where the report is."""
    console = stdout_console()
    console.print(_runs(results.checked, console.width))
    if results.conformed:
        console.print(_conformance(results.conformed))
    for line in problem_lines(results):
        console.print(Text(line, style="red"), soft_wrap=True)
    if problem:
        console.print(Text(f"no pictures: {problem}", style="yellow"), soft_wrap=True)
    console.print(Text(results.verdict(), style=_COLOURS.get(results.exit, "red")), soft_wrap=True)
    console.print(Text(f"report: {out}"), soft_wrap=True)


def problem_lines(results: Results) -> list[str]:
    """One line for everything that keeps the exit code from 0."""
    lines = [f"{c.label}: {explain(c, v, j)}" for c in results.checked for v, j in c.problems]
    lines += [f"coverage: {line}" for gap in results.gaps for line in gap.lines()]
    return lines + [f"conformance: {c.name}: {difference}" for c in results.conformed for difference in c.disagreements]


def explain(checked: Checked, verdict: Verdict, judgement: Judgement) -> str:
    """Why a verdict is as it is, in one line."""
    name, doc = verdict.property.name, verdict.property.doc
    if judgement is Judgement.NOT_DECIDED:
        return f"{judgement.value}: {name}: {verdict.reason}"
    if judgement is Judgement.MISSING:
        declared = " ".join(checked.explanations(verdict)) or "idle"
        return f"{judgement.value}: {name} ({declared}) is declared, but holds"
    if verdict.run is None:
        return f"{judgement.value}: {name}: never reached: {doc}"
    steps = plural(len(verdict.run.path.steps), "step")
    how = "its counterexample" if verdict.status is Status.VIOLATED else "its witness"
    return f"{judgement.value}: {name}: {doc} ({how} has {steps})"


def _runs(checked: list[Checked], width: int) -> Table:
    narrow = width < WIDE
    heads = ("system", "sizes", "faults", "states") if narrow else (
        "system", "edition", "sizes", "faults", "engine", "states")  # fmt: skip
    table = Table(title="Runs", title_justify="left", box=SIMPLE_HEAD)
    for head in heads:
        table.add_column(head, justify="right" if head == "states" else "left", no_wrap=narrow or head != "faults")
    table.add_column("verdicts")
    for c in checked:
        system, seen = c.report.system, c.report.exploration
        sizes = [f"{name}={size}" for name, size in system.sizes.items()]
        states = f"{seen.distinct:,}" + ("" if seen.complete else "+")
        verdicts = Text(c.summary(), style="red" if c.problems else "")
        together = [] if system.max_faults is None else [f"any {system.max_faults} of"]
        if narrow:
            first, last = f"{system.name}\n{c.edition}", f"{states}\n{seen.engine}"
            table.add_row(first, "\n".join(sizes), "\n".join([*together, *sorted(system.faults)]), last, verdicts)
        else:
            faults = " ".join([*together, ", ".join(sorted(system.faults))])
            table.add_row(system.name, c.edition, ", ".join(sizes), faults, seen.engine, states, verdicts)
    return table


def _conformance(conformed: list[Conformed]) -> Table:
    table = Table(title="Conformance", title_justify="left", box=SIMPLE_HEAD)
    for head in ("check", "compared", "result"):
        table.add_column(head)
    for c in conformed:
        if c.outcome is None:
            what, _, why = c.nothing_because.partition(":")
            table.add_row(c.name, "nothing", Text(f"{what.upper()}:{why}", style="yellow"))
        else:
            differ = len(c.disagreements)
            result = Text(f"{differ} disagree", style="red") if differ else Text("all agree", style="green")
            table.add_row(c.name, f"{c.outcome.compared:,} {c.outcome.unit}", result)
    return table
