"""`report.json`: the results of `verify` for programs.

trystate      version of this package
exit          the exit code; `summary` is the whole in one line
seconds       how long everything took
interrupted   the signal, or "a loss" of workers, that ended it early, or ""; left[] names what was not done
runs[]        number, label, system, edition, sizes {name: n}, faults {name: times}, max_faults (of all
              together, or null), engine, choice (why it), states, edges, depth, seconds, bytes_per_state, complete,
              stopped (which limit, if one),
              properties[]: name, form, doc, status (holds, violated, not decided), judgement (holds; violated;
                violated, known; not reachable at this size; known violation not found; not decided), findings [number],
                reason, counterexample (of a violation with a run, else null): loop (the step after which it repeats
                for ever, or null), initial {cell: value}, steps[]: number, label, kind, doc,
                changes [{cell, old, new}]; files [path below the report directory]
gaps[]        system, edition, never_fired [transition], unreached [[transition, move]]
conformance[] name, compared, of (how many there are, if a sample was compared), unit, disagreements [text],
              seconds; or name, skipped (why);
              or name, stopped (which limit)
files[]       everything that was written, relative to the report directory
"""

from __future__ import annotations

from dataclasses import asdict, fields
from typing import Any

import trystate
from trystate.model.checker.story import tell
from trystate.model.checker.verdicts import Counterexample
from trystate.model.language import System

from .results import Checked, Compared, PropertyResult, Results


def results_json(results: Results) -> dict[str, Any]:
    """The object that the module's docstring describes."""
    return {
        "trystate": trystate.__version__,
        "exit": int(results.exit),
        "summary": results.verdict(),
        "seconds": round(results.seconds, 3),
        "interrupted": results.interrupted,
        "left": list(results.left),
        "runs": [_run(c) for c in results.checked],
        "gaps": list(map(asdict, results.gaps)),
        "conformance": [_compared(c) for c in results.compared],
        "files": sorted(path for c in results.checked for a in c.answers for path in a.files),
    }


def _run(c: Checked) -> dict[str, Any]:
    own = (field.name for field in fields(c) if field.name not in ("answers", "coverage", "covered_with"))
    return {name: getattr(c, name) for name in own} | {
        "seconds": round(c.seconds, 3),
        "bytes_per_state": round(c.bytes_per_state, 1),
        "properties": [_property(a) for a in c.answers],
    }


def _property(answer: PropertyResult) -> dict[str, Any]:
    return {
        "name": answer.name,
        "form": answer.form,
        "doc": answer.doc,
        "status": answer.status.value,
        "judgement": answer.judgement.value,
        "findings": [known.number for known in answer.known],
        "reason": answer.reason,
        "counterexample": None if answer.trace is None else {**answer.trace, "files": list(answer.files)},
    }


def trace(system: System, run: Counterexample) -> dict[str, Any]:
    """A counterexample as the report has it, but for its files."""
    story = tell(system, run, budget=True)
    return {
        "loop": run.loop,
        "initial": system.decode(story.initial),
        "steps": [
            {
                "number": step.number,
                "label": step.label,
                "kind": step.kind.value,
                "doc": step.doc,
                "changes": [{"cell": x.cell, "old": x.old, "new": x.new} for x in step.changes],
            }
            for step in story.steps
        ],
    }


def _compared(c: Compared) -> dict[str, Any]:
    if c.outcome is None:
        return {"name": c.name, "stopped": c.stopped} if c.stopped else {"name": c.name, "skipped": c.skipped}
    return {
        "name": c.name,
        "compared": c.outcome.compared,
        "of": c.outcome.of if c.outcome.of != c.outcome.compared else None,
        "unit": c.outcome.unit,
        "disagreements": list(c.disagreements),
        "seconds": round(c.outcome.seconds, 3),
    }
