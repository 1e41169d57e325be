"""`trystate explain` for a rendezvous: what happened, which property was violated, and which node waits for which.

Rule: the exit code is 0 only if every line was explained and nothing was violated.
"""

from __future__ import annotations

import argparse
import json
import sys
from collections import defaultdict
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

from trystate.impl.host.visible import visible
from trystate.model.errors import UsageError
from trystate.model.rendezvous.vocabulary import Edition
from trystate.monitor import record
from trystate.monitor.histories import Histories
from trystate.monitor.keys import MalformedLine
from trystate.monitor.record import Flaw, Line
from trystate.monitor.rendezvous import telling
from trystate.monitor.rendezvous.barrier import Barrier
from trystate.monitor.rendezvous.follower import Follower
from trystate.monitor.rendezvous.heartbeats import RunHeartbeats, heard
from trystate.monitor.rendezvous.known import Options
from trystate.monitor.rendezvous.runs import Runs
from trystate.monitor.rendezvous.shared_state import Protocol

from ..exits import Exit
from ..outputs import writing
from ..progress import Reporter
from ..report import history
from ..report.page import write_page
from ..report.results import plural
from ..report.walked import Watched, walked

FLAWS_SHOWN = 5
PROGRESS_LINES = 2_000
_UNKNOWN = (None, None)


def explain_rendezvous(args: argparse.Namespace) -> int:
    """Carry out the command; returns the exit code."""
    reporter = Reporter()
    with reporter.doing(f"reading the heartbeats of {', '.join(map(str, args.files))}"):
        given = _options(args)
        of_keys = {} if given.interval and given.attempts else heard(record.lines(args.files), given)
        default = RunHeartbeats().options(given)
    runs = Runs(lambda protocol: default if protocol is Protocol.TORCH else Options(), of_keys, args.nnodes or _UNKNOWN)
    histories = Histories()
    watched: dict[str, Watched] = defaultdict(Watched)
    with reporter.doing(f"explaining {', '.join(map(str, args.files))}"):
        for line in record.lines(args.files):
            runs.feed(line)
            _judge(runs, histories, line)
            if args.html is not None:
                for key, follower in runs.followers.items():
                    watched[key].look(follower)
            if runs.lines % PROGRESS_LINES == 0:
                reporter.detail(f"{runs.lines:,} lines")
        runs.finish()
        histories.finish()
    chosen = _chosen(runs, args.rdzv_id)
    followers = [one for one in chosen if isinstance(one, Follower)]
    if args.diagram is not None:
        _draw(followers, args.diagram)
    if args.html is not None:
        _show(runs, followers, watched, args.html)
    code = verdict(runs, chosen, histories)
    if args.json:
        print(json.dumps(_data(runs, chosen, code) | {"store": history.as_data(histories)}, indent=2))
    else:
        print("\n".join(map(visible, _text(runs, chosen, args, code, histories))))
    return code


def _judge(runs: Runs, histories: Histories, line: Line | Flaw) -> None:
    """Feed a line to `runs` and `histories`; a line that is not an operation counts as a flaw."""
    if isinstance(line, Flaw):
        if not line.cut:
            histories.damaged(line.place)
    else:
        try:
            histories.feed(line.place, line.fields)
        except MalformedLine as error:
            runs.feed(Flaw(line.file, line.number, str(error).removeprefix(f"{line.place}: ")))


def _options(args: argparse.Namespace) -> Options:
    """The options of torch's rendezvous that were given; the record shows the others. Our states carry their own."""
    low, high = args.nnodes or (None, None)
    edition = Edition[args.edition] if args.edition else None
    return Options(low, high, args.keep_alive_interval or 0, args.keep_alive_max_attempt or 0, edition)


def _chosen(runs: Runs, run: str | None) -> list[Follower | Barrier]:
    begun = any(f.begun for f in runs.all)  # an observer reads keys that do not exist
    # A key that was deleted is of a rendezvous without a state, and perhaps with problems.
    found = [f for f in runs.all if (f.begun or f.problems or not begun if run is None else f.run == run)]
    if not found and run is not None:
        known = ", ".join(sorted({f.run for f in runs.all})) or "none"
        raise UsageError(f"the record has no rendezvous with --rdzv-id={run}; it has {known}")
    return found


def verdict(runs: Runs, chosen: list[Follower | Barrier], histories: Histories) -> Exit:
    """1 if something was violated or not explained; 3 if nothing was violated but not all could be decided."""
    if histories.wrong or any(problem.harm for f in chosen for problem in f.problems):
        return Exit.FAILED
    nothing = not chosen and not histories.counts
    undecided = runs.lost or runs.let_go or runs.flawed or nothing or any(f.undecided or not f.begun for f in chosen)
    undecided = undecided or bool(histories.undecided)
    return Exit.INCOMPLETE if undecided else Exit.OK


def _text(
    runs: Runs, chosen: list[Follower | Barrier], args: argparse.Namespace, code: Exit, histories: Histories
) -> Iterator[str]:
    ends = "" if runs.ended else ", cut off" if runs.cut else ", still being written, or its server was killed"
    yield f"record of {runs.by}: {plural(runs.lines, 'line')}, {runs.last - runs.first:.1f} s{ends}"
    if len(runs.recorders) > 1:
        yield f"records of {len(runs.recorders)} servers, read as those of one job: {', '.join(runs.recorders)}"
    for flaw in runs.flaws[:FLAWS_SHOWN]:
        yield f"NOT READ: {flaw.place}: {flaw.why}"
    if runs.flawed > FLAWS_SHOWN:
        yield f"... {runs.flawed - FLAWS_SHOWN} more such lines"
    for follower in chosen:
        yield ""
        if isinstance(follower, Barrier):
            yield from telling.text_of_barrier(follower, steps=args.steps)
        else:
            yield from telling.text(follower, steps=args.steps, passing=args.steps)
    if histories.counts:
        yield ""
        yield from history.text(histories)
    yield ""
    yield from _conclusion(runs, chosen, code, histories)


def _conclusion(runs: Runs, chosen: list[Follower | Barrier], code: Exit, histories: Histories) -> Iterator[str]:
    harm = [problem for f in chosen for problem in f.problems if problem.harm]
    names = dict.fromkeys(
        f"{p.finding.number} {p.finding.name}{'' if p.cause is None else f' (a consequence of {p.cause.number})'}"
        for p in harm
        if p.finding is not None
    )
    unexplained = sum(p.kind == "unexplained" for p in harm)
    unread = [f"{plural(runs.flawed, 'line')} that cannot be read"] if runs.flawed else []
    if code is Exit.OK:
        yield "verdict: every line is explained, and no property was violated"
    elif code is Exit.FAILED:
        parts = [f"known defects: {', '.join(names)}"] if names else []
        unknown = sum(p.kind != "unexplained" and p.finding is None and not p.after for p in harm)
        parts += [f"{plural(unknown, 'violation')} that no finding explains"] if unknown else []
        parts += [f"{plural(unexplained, 'line')} that no step explains"] if unexplained else []
        wrong = history.wrongs(histories)
        parts += [f"{plural(wrong, 'answer')} of the store that a store does not give"] if wrong else []
        yield f"verdict: {'; '.join([*parts, *unread])}"
    else:
        why = list(unread)
        why += [text for f in chosen for text in f.undecided]
        why += [f"{plural(runs.lost, 'line')} could not be kept by the recorder"] if runs.lost else []
        why += [f"{runs.let_go} lines are of rendezvous beyond the first {len(runs.all)}"] if runs.let_go else []
        begun = any(f.begun for f in chosen) or (not chosen and histories.counts)
        why += [] if begun else ["it has no state of a rendezvous"]
        why += list(histories.undecided)
        yield f"verdict: not decided: {'; '.join(why) or 'a rendezvous has not begun'}"


def _data(runs: Runs, chosen: list[Follower | Barrier], code: Exit) -> dict[str, Any]:
    return {
        "format": 1, "by": runs.by, "lines": runs.lines, "ended": runs.ended, "lost": runs.lost,
        "recorders": runs.recorders,
        "flaws": [{"place": flaw.place, "why": flaw.why} for flaw in runs.flaws], "flawed": runs.flawed,
        "exit_code": int(code), "rendezvous": [*map(telling.as_data, chosen)],
    }  # fmt: skip


def _show(runs: Runs, chosen: list[Follower], watched: Mapping[str, Watched], path: Path) -> None:
    if not chosen:
        raise UsageError("the record has no rendezvous to show: leave out --html")
    follower = max(chosen, key=lambda follower: follower.lines)
    key = next(key for key, one in runs.followers.items() if one is follower)
    write_page(path, walked(follower, watched[key]), "--html")
    print(f"the page is {path}", file=sys.stderr)


def _draw(chosen: list[Follower], path: Path) -> None:
    from trystate.diagrams.rendering import render

    from ..report.recorded import picture

    if not chosen:
        raise UsageError("the record has no rendezvous to draw: leave out --diagram")
    dot = picture(max(chosen, key=lambda follower: follower.lines))
    with writing(path, "--diagram"):
        render(dot, path)
    print(f"the sequence is in {path}", file=sys.stderr)
