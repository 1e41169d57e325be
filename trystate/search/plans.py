"""The small plan of `trystate verify`: from the whole plan, the cheapest runs that show what is known.

Rule: nothing is chosen by hand. The costs are the numbers of states that the whole plan found (states.json, written by
docs/generate.py): the choice is the same on every machine.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Sequence
from functools import cache
from pathlib import Path

from trystate.model.checker.expectations import Finding, Run

STATES = Path(__file__).parents[1] / "states.json"
BUILDING = 67_000  # states that are checked in the time that the fixed cost of a run takes, roughly


@cache
def states() -> dict[str, int]:
    """The distinct states of each run of the whole plan, by its label."""
    found: dict[str, int] = json.loads(STATES.read_text(encoding="utf-8"))
    return found


def cost(run: Run) -> int:
    """How long a run takes, in states; one that is not known is taken for a small one."""
    return BUILDING + states().get(run.label, 0)


def small(runs: Iterable[Run]) -> tuple[Run, ...]:
    """For each system the cheapest runs that together show each finding and each edition.

    An edition with findings is shown by any of its runs; one without shows that each of its faults alone leads to none.
    """
    groups: dict[type, list[Run]] = {}
    for run in runs:
        groups.setdefault(run.system, []).append(run)
    chosen = [run for group in groups.values() for run in _cover(group)]
    return tuple(run for group in groups.values() for run in group if any(run is one for one in chosen))


def showcase(finding: Finding, runs: Iterable[Run]) -> tuple[Run, str] | None:
    """The first planned run and property that show a finding; a property that it explains alone goes first."""
    labels = {finding.name, finding.number}
    found = [(run, p, why) for run in runs for p, why in run.findings.items() if labels & set(why)]
    run, name, _ = min(found, key=lambda one: len(one[2]) > 1, default=(None, "", ()))
    return (run, name) if run is not None else None


def _cover(runs: Sequence[Run]) -> list[Run]:
    """Greedily, the run that shows the most for its cost, until nothing is left to show (Chvatal 1979)."""
    violated = {run.edition for run in runs if run.findings}
    shows = {id(run): _findings(run) | ({run.edition} if run.edition in violated else _faults(run)) for run in runs}
    left = set().union(*shows.values())
    chosen: list[Run] = []
    while left:
        best = min(runs, key=lambda run: cost(run) / max(len(left & shows[id(run)]), 1e-9))
        chosen.append(best)
        left -= shows[id(best)]
    for run in sorted(chosen, key=cost, reverse=True):  # a later choice may show as well what an earlier one shows
        others = [shows[id(one)] for one in chosen if one is not run]
        if others and shows[id(run)] <= set().union(*others):
            chosen.remove(run)
    return chosen


def _findings(run: Run) -> set[object]:
    return {name for names in run.findings.values() for name in names}


def _faults(run: Run) -> set[object]:
    """The edition with each fault of a run; the system's own steps are shown by every run."""
    return {(run.edition, fault) for fault in (*run.faults, "")}
