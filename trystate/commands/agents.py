"""`trystate explain` of the files that TRYSTATE_RECORD names: the agents of each run, and the findings they show."""

from __future__ import annotations

import argparse
import json
from collections.abc import Iterator
from pathlib import Path

from trystate.impl.host.visible import visible
from trystate.model.errors import UsageError
from trystate.monitor.agents import Agents, ShownFinding

from ..exits import Exit
from ..report.results import plural

AGENTS_SHOWN = 20


def explain_agents(args: argparse.Namespace, files: list[Path]) -> int:
    """Carry out the command; returns the exit code. Raises UsageError if `args.files` has files of another kind too."""
    others = [path for path in args.files if path not in files]
    if others:
        raise UsageError(f"{others[0]} has no events of agents, but {files[0]} has: explain them separately")
    if args.diagram is not None:
        raise UsageError("--diagram draws a rendezvous or a pass, which events of agents do not have: leave it out")
    found = Agents()
    found.read(files)
    wrong = {name: list(run.wrong()) for name, run in found.runs.items()}
    open_ = found.let_go or found.flaws or any(run.twice or run.unexplained() for run in found.runs.values())
    code = Exit.FAILED if any(wrong.values()) else Exit.INCOMPLETE if open_ else Exit.OK
    text = map(visible, _text(found, wrong))
    print(json.dumps(_data(found, wrong, code), indent=2) if args.json else "\n".join(text))
    return code


def _text(found: Agents, wrong: dict[str, list[ShownFinding]]) -> Iterator[str]:
    yield f"events of agents: {plural(found.lines, 'line')}, {plural(len(found.runs), 'run')}"
    for place in found.flaws[:5]:
        yield f"NOT READ: {place}"
    for name, run in found.runs.items():
        yield ""
        yield f"run {name!r}: {plural(len(run.agents), 'agent')}"
        yield from (f"    {agent}" for agent in list(run.agents.values())[:AGENTS_SHOWN])
        if len(run.agents) > AGENTS_SHOWN:
            yield f"    ... {len(run.agents) - AGENTS_SHOWN} more: --json has all"
        for one in wrong[name]:
            yield f"  {one.finding.number} {one.finding.name}: {one.finding.title}"
            yield f"    {one.text}"
            yield f"    what to do: {one.finding.workaround}"
            yield f"    remedy in the runtime: {one.finding.remedy}"
        for agent in run.unexplained()[:AGENTS_SHOWN]:
            yield f"  {agent.name} ended with an error that no finding explains: {agent.why}"
        if run.twice:
            yield f"  not decided: {run.twice}"
    names = dict.fromkeys(f"{one.finding.number} {one.finding.name}" for each in wrong.values() for one in each)
    known = f"known defects: {', '.join(names)}" if names else "no event of the agents shows a known defect"
    failed = sum(len(run.unexplained()) for run in found.runs.values())
    twice = sum(bool(run.twice) for run in found.runs.values())
    why = [f"{plural(failed, 'agent')} ended with an error that no finding explains"] if failed else []
    why += [f"{plural(twice, 'run')} with two agents of one rank"] if twice else []
    why += [f"{plural(len(found.flaws), 'line')} that cannot be read"] if found.flaws else []
    why += [f"{plural(found.let_go, 'line')} of agents beyond the limit"] if found.let_go else []
    yield ""
    yield f"verdict: {known}{'; not decided: ' if why else ''}{'; '.join(why)}"


def _data(found: Agents, wrong: dict[str, list[ShownFinding]], code: Exit) -> dict[str, object]:
    return {
        "format": 1, "lines": found.lines, "flaws": found.flaws, "let_go": found.let_go, "exit_code": int(code),
        "runs": {
            name: {
                "agents": [
                    {
                        "name": a.name, "round": a.round, "rank": a.rank, "world": a.world, "starts": a.starts,
                        "restarts": a.restarts, "failed_workers": a.failed, "ended": a.ended,
                    }
                    for a in run.agents.values()
                ],
                "twice": run.twice, "unexplained": [agent.name for agent in run.unexplained()],
                "findings": [
                    {"number": w.finding.number, "name": w.finding.name, "text": w.text} for w in wrong[name]
                ],
            }
            for name, run in found.runs.items()
        },
    }  # fmt: skip
