"""`trystate explain` for records of backward passes, which each worker writes.

Rule: the exit code is 0 only if every pass is over and agrees with the model.
"""

from __future__ import annotations

import argparse
import json
import sys
from collections.abc import Iterator, Sequence
from pathlib import Path

from trystate.impl.host.visible import visible
from trystate.model.autograd.vocabulary import Part
from trystate.model.errors import UsageError
from trystate.monitor.passes import OVER, Pass, Passes, read, shown_id

from ..exits import Exit
from ..outputs import writing
from ..report.results import plural

PASSES_SHOWN = 10
WRONG_SHOWN = 20
ROWS_MAX = 200  # rows of a picture


def explain_passes(args: argparse.Namespace, paths: Sequence[Path]) -> int:
    """Carry out the command; returns the exit code.

    Raises:
        UsageError: `args.files` has other records too, or an option is not for records of passes.
    """
    others = [str(path) for path in args.files if path not in paths]
    if others:
        raise UsageError(f"{', '.join(others)} is not a record of passes: explain records of stores separately")
    if args.rdzv_id is not None or args.nnodes is not None or args.edition is not None:
        raise UsageError("--rdzv-id, --nnodes and --edition are for a rendezvous, not for passes: leave them out")
    found = read(paths, ROWS_MAX if args.diagram is not None else 0)
    waits = list(found.waits())
    code = Exit.FAILED if found.wrong else Exit.INCOMPLETE if waits or not found.passes else Exit.OK
    if args.diagram is not None:
        _draw(found, args.diagram)
    text = map(visible, _text(found, waits, args.steps, code))
    print(json.dumps(_data(found, waits, code), indent=2) if args.json else "\n".join(text))
    return code


def _text(found: Passes, waits: list[str], every: bool, code: Exit) -> Iterator[str]:
    passes = list(found.passes.values())
    lines = sum(n for name, n in found.counts.items() if not name.startswith("wrong: "))
    yield f"record of backward passes: {plural(len(found.workers), 'worker')}, {plural(lines, 'line')}"
    wrong = {each.number for each in found.wrong}
    chosen = passes if every else [one for one in passes if one.number in wrong or one.state is not Part.DONE]
    chosen = chosen or passes
    for one in chosen if every else chosen[:PASSES_SHOWN]:
        yield f"  {one}"
    if not every and len(passes) > len(chosen[:PASSES_SHOWN]):
        yield f"  {len(passes) - len(chosen[:PASSES_SHOWN])} more (--steps lists them)"
    for each in found.wrong[:WRONG_SHOWN]:
        yield f"WRONG ({each.check}) {each}"
    if len(found.wrong) > WRONG_SHOWN:
        yield f"... {len(found.wrong) - WRONG_SHOWN} more"
    yield from waits
    yield ""
    over = sum(one.state in OVER for one in passes)
    if code is Exit.FAILED:
        yield f"verdict: {plural(len(found.wrong), 'event')} that the model forbids"
    elif code is Exit.INCOMPLETE:
        yield f"verdict: not decided: {over} of {len(passes)} passes are over"
    else:
        agree = "pass agrees" if len(passes) == 1 else "passes agree"
        yield f"verdict: {len(passes)} {agree} with the model"


def _data(found: Passes, waits: list[str], code: Exit) -> dict[str, object]:
    return {
        "format": 1, "by": "autograd", "workers": sorted(found.workers), "counts": dict(found.counts),
        "passes": [
            {"pass": shown_id(one.number), "context": shown_id(one.context), "state": one.state.name,
             "workers": {str(worker): share.state.name for worker, share in sorted(one.shares.items())},
             "messages": one.messages}
            for one in found.passes.values()
        ],
        "wrong": [{part: getattr(each, part) for part in each.__slots__} for each in found.wrong],
        "waits": waits, "exit_code": int(code),
    }  # fmt: skip


def _draw(found: Passes, path: Path) -> None:
    """The pass that is wrong, or is not over, or the longest."""
    from trystate.diagrams import Arrow, Note, exchange_dot, render

    if not found.passes:
        raise UsageError("the records have no pass to draw: leave out --diagram")
    wrong = {each.number for each in found.wrong}

    def weight(one: Pass) -> tuple[bool, bool, int]:
        return one.number in wrong, one.state not in OVER, one.messages

    one = max(found.passes.values(), key=weight)
    rows = [
        Note(row.worker, row.lines) if row.to is None else Arrow(row.worker, row.to, row.lines[0], row.answer)
        for row in one.rows
    ]
    names = [f"worker {number}" for number in range(max(found.workers) + 1)]
    with writing(path, "--diagram"):
        render(exchange_dot(f"The backward pass {shown_id(one.number)}", str(one), names, rows), path)
    print(f"the pass is in {path}", file=sys.stderr)
