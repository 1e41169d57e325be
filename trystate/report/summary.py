"""The summary that `trystate verify` prints on stdout when it is done."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from pathlib import Path

from rich.box import SIMPLE_HEAD
from rich.console import Console
from rich.table import Table
from rich.text import Text

from trystate.diagrams.rendering import renderer_name
from trystate.model.checker.expectations import Judgement
from trystate.model.errors import UnavailableError

from ..exits import Exit
from .results import Checked, Compared, KnownDefect, Results, natural

PLAIN_WIDTH = 200  # columns without a terminal to measure: a log is read by scrolling
WIDE = 140  # columns in which a run fits on one line

_COLOURS = {Exit.OK: "green", Exit.INCOMPLETE: "yellow"}


def stdout_console() -> Console:
    """A console that breaks no lines if the output is not a terminal."""
    console = Console(highlight=False, markup=False)
    return console if console.is_terminal else Console(highlight=False, markup=False, width=PLAIN_WIDTH)


def print_results(results: Results, out: Path, *, asked: bool, torch: str, idle: bool = False) -> None:
    """The tables, everything unexpected, and the place of the report.

    Args:
        results: of the command.
        out: the report's folder.
        `asked`: the systems were named on the command line: each violation is printed at once.
        torch: the findings of the torch that was compared, as text, or "".
        idle: name the steps that never happen.
    """
    console = stdout_console()
    console.print(_runs(results.checked, console.width))
    if results.compared:
        console.print(_compared(results.compared))
    said = [Text(line) for line in known_lines(results)]
    said += [Text(line, style="red") for line in problem_lines(results)]
    said += [Text(text) for text in _counterexamples(results, out, asked)]
    said += [Text(line, style="yellow") for line in _never(results)] if idle else []
    said += [Text(torch)] if torch else []
    if any(a.files for c in results.checked for a in c.answers):
        try:
            renderer_name()
        except UnavailableError as error:
            said.append(Text(f"no pictures: {error}", style="yellow"))
    said += [Text(results.verdict(), style=_COLOURS.get(results.exit, "red")), Text(f"report: {out}")]
    for text in said:
        console.print(text, soft_wrap=True)


def known_lines(results: Results) -> list[str]:
    """One line for each known defect that was found, and which properties it violates."""
    found: dict[KnownDefect, dict[str, None]] = {}
    for checked in results.checked:
        for answer in checked.having(Judgement.KNOWN):
            for known in answer.known:
                found.setdefault(known, {})[f"{checked.system} {checked.edition}".strip()] = None
    return [
        f"violated in {', '.join(places)}, {known.remark}"
        for known, places in sorted(found.items(), key=lambda pair: natural(pair[0].number))
    ]


def problem_lines(results: Results) -> list[str]:
    """One line for everything that keeps the exit code from 0."""
    lines = [f"{c.label}: {a.name}: {a.verdict}" for c in results.checked for a in c.problems]
    lines += [f"coverage: {line}" for gap in results.gaps for line in gap.lines()]
    lines += [f"conformance: {c.name}: {c.nothing_because}" for c in results.compared if c.stopped]
    return lines + [f"conformance: {c.name}: {difference}" for c in results.compared for difference in c.disagreements]


def _never(results: Results) -> Iterator[str]:
    """The steps that no state enables, of each search that has visited all states."""
    for checked in results.checked:
        if checked.complete and checked.coverage.never_fired:
            yield f"{checked.label}: never happens: {', '.join(sorted(checked.coverage.never_fired))}"


def _counterexamples(results: Results, out: Path, asked: bool) -> Iterator[str]:
    """The new violations, and all violations of systems that the command line names, step by step."""
    for checked in results.checked:
        for answer in checked.answers:
            if answer.text and (answer.judgement is Judgement.NEW or (asked and answer.judgement is Judgement.KNOWN)):
                picture = next((f for f in answer.files if f.endswith(".svg")), answer.files[0] if answer.files else "")
                shown = f"picture: {out / picture}\n" if picture else ""
                verdict = "" if answer.judgement is Judgement.NEW else f"{answer.verdict}\n"  # printed above
                sentence = " ".join(filter(None, (answer.doc, answer.reason)))
                yield f"\n{answer.name}: {sentence}\n{verdict}\n{answer.text.rstrip()}\n{shown}"


def _runs(checked: Sequence[Checked], width: int) -> Table:
    narrow = width < WIDE
    heads = ("system", "sizes", "faults", "states") if narrow else (
        "system", "edition", "sizes", "faults", "engine", "states")  # fmt: skip
    table = Table(title="Runs", title_justify="left", box=SIMPLE_HEAD)
    for head in heads:
        table.add_column(head, justify="right" if head == "states" else "left", no_wrap=narrow or head != "faults")
    table.add_column("verdicts")
    for c in checked:
        sizes = [f"{name}={size}" for name, size in c.sizes.items()]
        states = f"{c.states:,}" + ("" if c.complete else "+")
        verdicts = Text(c.summary(), style="red" if c.problems else "")
        together = [] if c.max_faults is None else [f"any {c.max_faults} of"]
        if narrow:
            first, last = f"{c.system}\n{c.edition}", f"{states}\n{c.engine}"
            table.add_row(first, "\n".join(sizes), "\n".join([*together, *c.faults]), last, verdicts)
        else:
            faults = " ".join([*together, ", ".join(c.faults)])
            table.add_row(c.system, c.edition, ", ".join(sizes), faults, c.engine, states, verdicts)
    return table


def _compared(compared: Sequence[Compared]) -> Table:
    table = Table(title="Conformance", title_justify="left", box=SIMPLE_HEAD)
    for head in ("check", "compared", "result"):
        table.add_column(head)
    for c in compared:
        if c.outcome is None:
            what, _, why = c.nothing_because.partition(":")
            table.add_row(c.name, "nothing", Text(f"{what.upper()}:{why}", style="yellow"))
        else:
            differ = len(c.disagreements)
            result = Text(f"{differ} disagree", style="red") if differ else Text("all agree", style="green")
            table.add_row(c.name, c.outcome.amount, result)
    return table
