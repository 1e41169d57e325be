"""`trystate export`: a system as a model of another checker, or one of its runs as a trace that other tools read."""

from __future__ import annotations

import argparse
import json
import sys
from collections.abc import Callable, Collection

from trystate.model.checker.export.promela import promela
from trystate.model.errors import UsageError
from trystate.model.language import Form, System

from .. import registry
from ..choosing import build
from ..deciding import decide
from ..exits import Exit
from ..progress import Reporter
from ..report.itf import itf_trace

Writer = Callable[[System, Collection[str] | None], str]
WRITERS: dict[str, Writer] = {"promela": promela}


def export(args: argparse.Namespace) -> int:
    """Carry out the command; returns the exit code."""
    system = build(registry.system_class(args.system), args)
    text = _trace(system, args.property) if args.to == "itf" else WRITERS[args.to](system, args.property or None)
    if args.out is None:
        print(text, end="")
        return Exit.OK
    try:
        args.out.parent.mkdir(parents=True, exist_ok=True)
        args.out.write_text(text, encoding="utf-8")
    except OSError as error:
        raise UsageError(f"cannot write {args.out}: {error}; choose another place with --out") from error
    left = [p.name for p in system.properties if p.form is Form.LEADS_TO]
    if args.to != "itf" and not args.property and left:
        print(f"not exported, as they are of liveness: {', '.join(left)}", file=sys.stderr)
    return Exit.OK


def _trace(system: System, properties: list[str]) -> str:
    """The run that shows a property's verdict: a counterexample, or the witness of a `sometimes`.

    Raises:
        UsageError: not exactly one property is named, or no run shows its verdict.
    """
    if len(properties) != 1:
        raise UsageError("--to itf writes the run of one property: name it with --property, once")
    verdict = decide(system, properties[0], Reporter().search)
    if verdict.run is None:
        why = f": {verdict.reason}" if verdict.reason else ", which no run of finite length shows"
        raise UsageError(f"{properties[0]} has no run to write: it is {verdict.status.value}{why}")
    trace = itf_trace(system, verdict.run, f"{verdict.property.name}: {verdict.property.doc}")
    return json.dumps(trace, indent=1, ensure_ascii=False) + "\n"
