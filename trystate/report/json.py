"""`report.json`: the results of `verify` for programs.

trystate      version of this package
exit          the exit code; `summary` is the whole in one line
seconds       how long everything took
runs[]        number, label, system, edition, sizes {name: n}, faults {name: times}, max_faults (of all
              together, or null), engine, choice (why it), states, edges, depth, seconds, bytes_per_state, complete,
              stopped (which limit, if one),
              properties[]: name, form, doc, status (holds, violated, not decided), judgement (as declared,
                undeclared violation, declared finding not found, not decided), findings [number], reason,
                counterexample (of a violation with a run, else null): loop (the step after which it repeats
                for ever, or null), initial {cell: value}, steps[]: number, label, kind, doc,
                changes [{cell, old, new}]; files [path below the report directory]
gaps[]        system, edition, never_fired [transition], unreached [[transition, move]]
conformance[] name, compared, unit, disagreements [text], seconds; or name, skipped (why);
              or name, stopped (which limit)
files[]       everything that was written, relative to the report directory
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import trystate
from trystate.diagrams.runs import tell
from trystate.model.checker.expectations import Judgement
from trystate.model.checker.verdicts import Counterexample, Status, Verdict
from trystate.model.language import System

from .results import Checked, Conformed, Results

Files = Mapping[tuple[int, str], list[str]]  # (number of the run, property) -> paths


def results_json(results: Results, files: Files) -> dict[str, Any]:
    """The object that the module's docstring describes."""
    return {
        "trystate": trystate.__version__,
        "exit": int(results.exit),
        "summary": results.verdict(),
        "seconds": round(results.seconds, 3),
        "runs": [_run(n, c, files) for n, c in enumerate(results.checked, 1)],
        "gaps": [
            {
                "system": g.system,
                "edition": g.edition,
                "never_fired": list(g.never_fired),
                "unreached": list(map(list, g.unreached)),
            }
            for g in results.gaps
        ],
        "conformance": [_conformed(c) for c in results.conformed],
        "files": sorted(path for paths in files.values() for path in paths),
    }


def _run(number: int, c: Checked, files: Files) -> dict[str, Any]:
    system, seen = c.report.system, c.report.exploration
    return {
        "number": number,
        "label": c.label,
        "system": system.name,
        "edition": c.edition,
        "sizes": dict(system.sizes),
        "faults": dict(sorted(system.faults.items())),
        "max_faults": system.max_faults,
        "engine": seen.engine,
        "choice": c.report.choice,
        "states": seen.distinct,
        "edges": seen.edges,
        "depth": seen.depth,
        "seconds": round(seen.seconds, 3),
        "bytes_per_state": round(seen.bytes_per_state, 1),
        "complete": seen.complete,
        "stopped": seen.stopped,
        "properties": [_property(c, v, j, files.get((number, v.property.name), [])) for v, j in c.judged],
    }


def _property(c: Checked, verdict: Verdict, judgement: Judgement, files: list[str]) -> dict[str, Any]:
    run = counterexample(verdict)
    return {
        "name": verdict.property.name,
        "form": verdict.property.form.value,
        "doc": verdict.property.doc,
        "status": verdict.status.value,
        "judgement": judgement.value,
        "findings": c.explanations(verdict),
        "reason": verdict.reason,
        "counterexample": None if run is None else _steps(c.report.system, run, files),
    }


def counterexample(verdict: Verdict) -> Counterexample | None:
    """The run of a violation; the witness of a `sometimes` is none."""
    return verdict.run if verdict.status is Status.VIOLATED else None


def _steps(system: System, run: Counterexample, files: list[str]) -> dict[str, Any]:
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
        "files": files,
    }


def _conformed(c: Conformed) -> dict[str, Any]:
    if c.outcome is None:
        return {"name": c.name, "stopped": c.stopped} if c.stopped else {"name": c.name, "skipped": c.skipped}
    return {
        "name": c.name,
        "compared": c.outcome.compared,
        "unit": c.outcome.unit,
        "disagreements": list(c.disagreements),
        "seconds": round(c.outcome.seconds, 3),
    }
