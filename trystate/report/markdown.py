"""`report.md`: the results of `verify` for readers, with links to the counterexamples."""

from __future__ import annotations

from pathlib import PurePosixPath

from trystate.diagrams.markdown import prose, table_of

from .results import Checked, Compared, Results
from .summary import problem_lines


def results_markdown(results: Results) -> str:
    """The whole page."""
    parts = [f"# trystate verify\n\n{prose(results.verdict())}.\n"]
    problems = problem_lines(results)
    if problems:
        parts.append("## Not as expected\n\n" + "".join(f"- {prose(line)}\n" for line in problems))
    if results.left:
        parts.append("## Not done\n\n" + "".join(f"- {prose(name)}\n" for name in results.left))
    rows = ([str(c.number), prose(c.label), c.engine, f"{c.states:,}", prose(c.summary())] for c in results.checked)
    parts.append("## Runs\n\n" + table_of(("#", "system", "engine", "states", "verdicts"), rows))
    shown = [_counterexamples(c) for c in results.checked]
    if any(shown):
        parts.append("## Counterexamples\n\n" + "\n".join(text for text in shown if text))
    if results.compared:
        compared = map(_compared, results.compared)
        parts.append("## Conformance\n\n" + table_of(("check", "compared", "disagreements"), compared))
    return "\n".join(parts)


def _counterexamples(c: Checked) -> str:
    lines = []
    for answer in c.answers:
        if answer.files:
            why = ", ".join(map(str, answer.known)) or answer.judgement.value
            links = ", ".join(f"[{''.join(PurePosixPath(p).suffixes)}]({p})" for p in answer.files)
            lines.append(f"- `{answer.name}` ({why}): {prose(answer.doc)} {links}\n")
    return f"### {c.number}. {prose(c.label)}\n\n{''.join(lines)}" if lines else ""


def _compared(c: Compared) -> list[str]:
    if c.outcome is None:
        return [prose(c.name), "nothing", prose(c.nothing_because)]
    found = "; ".join(c.disagreements) or "none"
    return [prose(c.name), c.outcome.amount, prose(found)]
