"""`report.md`: the results of `verify` for readers, with links to the counterexamples."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from pathlib import PurePosixPath

from trystate.diagrams.markdown import prose

from .json import Files
from .results import Checked, Conformed, Results
from .summary import problem_lines


def results_markdown(results: Results, files: Files) -> str:
    """The whole page."""
    parts = [f"# trystate verify\n\n{prose(results.verdict())}.\n"]
    problems = problem_lines(results)
    if problems:
        parts.append("## Not as declared\n\n" + "".join(f"- {prose(line)}\n" for line in problems))
    parts.append("## Runs\n\n" + _table(("#", "system", "engine", "states", "verdicts"), _runs(results.checked)))
    shown = [_counterexamples(n, c, files) for n, c in enumerate(results.checked, 1)]
    if any(shown):
        parts.append("## Counterexamples\n\n" + "\n".join(text for text in shown if text))
    if results.conformed:
        parts.append(
            "## Conformance\n\n" + _table(("check", "compared", "disagreements"), map(_conformed, results.conformed))
        )
    return "\n".join(parts)


def _table(heads: Sequence[str], rows: Iterable[Sequence[str]]) -> str:
    lines = [heads, ["---"] * len(heads), *rows]
    return "".join(f"| {' | '.join(cells)} |\n" for cells in lines)


def _runs(checked: list[Checked]) -> Iterator[list[str]]:
    for number, c in enumerate(checked, 1):
        seen = c.report.exploration
        yield [str(number), prose(c.label), seen.engine, f"{seen.distinct:,}", prose(c.summary())]


def _counterexamples(number: int, c: Checked, files: Files) -> str:
    lines = []
    for verdict, judgement in c.judged:
        paths = files.get((number, verdict.property.name), [])
        if paths:
            why = ", ".join(c.explanations(verdict)) or judgement.value
            links = ", ".join(f"[{''.join(PurePosixPath(p).suffixes)}]({p})" for p in paths)
            lines.append(f"- `{verdict.property.name}` ({why}): {prose(verdict.property.doc)} {links}\n")
    return f"### {number}. {prose(c.label)}\n\n{''.join(lines)}" if lines else ""


def _conformed(c: Conformed) -> list[str]:
    if c.outcome is None:
        return [prose(c.name), "nothing", prose(c.nothing_because)]
    found = "; ".join(c.disagreements) or "none"
    return [prose(c.name), f"{c.outcome.compared:,} {c.outcome.unit}", prose(found)]
