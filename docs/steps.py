"""Rewrite the tables of step names, torch and ours side by side; with --check report whether they are fresh.

    python docs/steps.py [--check]

docs/generate.py writes the pages too, but needs a report of `trystate verify` for the others. A maintainer's tool.
steps.toml has the functions of impl/ that do a step of ours. A renamed or moved function is an error here.
"""

from __future__ import annotations

import argparse
import sys
import tomllib
from collections.abc import Iterable
from pathlib import Path
from typing import Any

from articles import names
from pages import PART, settled

from trystate.language import System
from trystate.model.language.transitions import Kind, Rule
from trystate.model.rendezvous.detail import OursInDetail
from trystate.systems import Agents, Backward, Rendezvous

HERE = Path(__file__).parent

# A page, its system, and the editions in the column of torch and in ours.
PAGES: dict[str, tuple[type[System], str, str]] = {
    "rendezvous.md": (Rendezvous, "TORCH SEED", "TRYSTATE"),
    "agent.md": (Agents, "TORCH", "TRYSTATE"),
    "autograd-model.md": (Backward, "TORCH", "TRYSTATE SMART"),
}

# The class with all steps of an edition of ours, if it is not the edition's own class.
DETAILED: dict[tuple[type[System], str], type[System]] = {(Rendezvous, "TRYSTATE"): OursInDetail}

RUNTIME: dict[str, dict[str, str]] = tomllib.loads(Path(__file__).with_suffix(".toml").read_text(encoding="utf-8"))


Rules = dict[str, Rule]  # the rules of one step, by edition


def table(page: str) -> str:
    """The generated part of a page: a row for each step; the protocol's own first, then time, then faults."""
    system, torch, ours = PAGES[page]
    theirs, mine = _rules(system, torch.split()), _rules(system, ours.split())
    if unknown := RUNTIME[system.__name__].keys() - mine.keys():
        raise SystemExit(f"steps.toml names {sorted(unknown)}, which are not steps of ours in {system.__name__}")
    text = "| step | torch | ours | the runtime |\n| --- | --- | --- | --- |\n"
    for name in sorted(_merged([*theirs], [*mine]), key=lambda name: _rank({**theirs, **mine}[name])):
        left, right = theirs.get(name, {}), mine.get(name, {})
        same = {rule.body for rule in left.values()} == {rule.body for rule in right.values()}
        cells = (_cell(left, torch), "the same" if same else _cell(right, ours), _runtime(system, name))
        text += f"| {_named(name, {**left, **right})} | {' | '.join(cells)} |\n"
    return text


def _rules(system: type[System], editions: Iterable[str]) -> dict[str, Rules]:
    found: dict[str, Rules] = {}
    for edition in editions:
        cls = DETAILED.get((system, edition)) or system.for_edition(edition)
        for name, rule in cls.declarations().items():
            if isinstance(rule, Rule) and (not rule.editions or edition in [each.name for each in rule.editions]):
                found.setdefault(name, {})[edition] = rule
    return found


def _merged(names: list[str], others: list[str]) -> list[str]:
    """Both lists in one; a name that only `others` has comes after the name that it follows there."""
    for at, name in enumerate(others):
        if name not in names:
            names.insert(names.index(others[at - 1]) + 1 if at else 0, name)
    return names


def _rank(rules: Rules) -> int:
    rule = next(iter(rules.values()))
    return 2 if rule.fault else 1 if rule.kind is Kind.ENVIRONMENT else 0


def _named(name: str, rules: Rules) -> str:
    fault = next(iter(rules.values())).fault
    return f"`{name}`" + (f", fault `{fault}`" if fault else "")


def _cell(rules: Rules, editions: str) -> str:
    """The sentence of each different rule, with its module; and its editions, if these are not all of the column."""
    its: dict[Any, list[str]] = {}
    for edition, rule in rules.items():
        its.setdefault(rule.body, []).append(edition)
    cells = []
    for body, found in its.items():
        path = body.__module__.removeprefix("trystate.").replace(".", "/") + ".py"
        only = "" if found == editions.split() else f", {', '.join(found)}"
        cells.append(f"{body.__doc__.splitlines()[0]} ([{Path(path).name}](../{path}){only})")
    return " ".join(cells).replace("|", "\\|")


def _runtime(system: type[System], name: str) -> str:
    cells = []
    for place in RUNTIME[system.__name__].get(name, "").split():
        module, _, function = place.partition(".")
        path = f"impl/{module}.py"
        if function not in names(path):
            raise SystemExit(f"steps.toml: {name}: there is no {function} in {path}")
        cells.append(f"[{Path(module).name}.{function.rpartition('.')[2]}](../{path})")
    return ", ".join(cells)


def written(name: str, text: str) -> str:
    """The page of that name with its table rewritten."""
    return PART.sub(lambda part: f"{part[1]}\n{table(name)}\n" if part[2] == "steps" else part[0], text)


def main() -> int:
    places = [HERE / name for name in PAGES]
    return settled(
        argparse.ArgumentParser(description=__doc__),
        lambda _: [(path, written(path.name, path.read_text(encoding="utf-8"))) for path in places],
    )


if __name__ == "__main__":
    sys.exit(main())
