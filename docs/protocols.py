"""The table of docs/protocols.md: what each rendezvous guarantees, from protocols.toml and a report of `verify --all`.

Rule: a cell is a verdict of the report or a proof of trystate/proofs.json; protocols.toml has only names and reasons.
A cell of several properties shows the worst of their verdicts.
"""

from __future__ import annotations

import tomllib
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

from pages import finding_link, row

from trystate import registry
from trystate.model.checker.verdicts import Status
from trystate.model.language import Form, System

NODES = (2, 4, 8, 16)  # nodes of the rounds of `requests`
COLUMNS_MAX = 5  # a table has no more; the next one has the other protocols
Row = Mapping[str, Any]


def declared() -> tuple[dict[str, str], dict[str, Row]]:
    """The rows and the protocols."""
    found = tomllib.loads(Path(__file__).with_suffix(".toml").read_text(encoding="utf-8"))
    return found.pop("rows"), found


def system_of(protocol: Row) -> tuple[type[System], str]:
    """The system of a protocol, and its edition."""
    name, edition = protocol["system"].split()
    return registry.SYSTEMS[name], edition


def asked_of(protocol: Row, names: list[str]) -> tuple[type[System], str, list[str]]:
    """The system and the edition of a cell, and its properties; a cell may name another system first."""
    return (*system_of({"system": names[0]}), names[1:]) if " " in names[0] else (*system_of(protocol), names)


def table(plan: list[Any], proofs: Mapping[str, list[str]]) -> str:
    """The tables; `plan`: the runs of docs/generate.py with their results."""
    rows, protocols = declared()
    columns, text = [*protocols.values()], []
    for shown in (columns[k : k + COLUMNS_MAX] for k in range(0, len(columns), COLUMNS_MAX)):
        lines = [row("", *(one["title"] for one in shown)), row(*["---"] * (len(shown) + 1))]
        lines += [row(title, *(_cell(one, key, plan, proofs) for one in shown)) for key, title in rows.items()]
        lines += [row(f"Requests of a first round with {', '.join(map(str, NODES))} nodes", *map(_requests, shown))]
        text.append("".join(lines))
    return "\n".join(text)


def _requests(protocol: Row) -> str:
    asked = protocol["requests"]
    return f"*not counted*: {asked}" if isinstance(asked, str) else ", ".join(map(str, asked))


def _cell(protocol: Row, key: str, plan: list[Any], proofs: Mapping[str, list[str]]) -> str:
    names = protocol[key]
    if isinstance(names, str):
        return f"*not part of it*: {names}"
    system, edition, names = asked_of(protocol, names)
    mine = (c for c in plan if c.run.system is system and c.run.edition.name == edition)
    asked = [c for c in mine if any(name in c.claims for name in names)]
    if broken := [*_violations(names, asked)]:
        return "**violated**: " + "; ".join(broken)
    if {*names} <= {*proofs.get(f"{system.__name__} {edition}", ())}:
        return "holds for any size"
    active = [c for c in asked if any(name in c.claims and not c.is_idle(name) for name in names)]
    sizes = sorted({next(iter(c.found["sizes"].values())) for c in active})
    states = max(c.found["states"] for c in active)
    return f"holds at the sizes searched: {', '.join(map(str, sizes))} nodes, up to {states:,} states"


def _violations(names: list[str], asked: list[Any]) -> Iterator[str]:
    """The states that were reached, and each finding that violates a property, with its shortest run."""
    shortest: dict[str, int] = {}
    for name in names:
        having = [c for c in asked if name in c.claims]
        if having and having[0].claims[name]["form"] == Form.SOMETIMES.value:
            if any(c.claims[name]["status"] == Status.HOLDS.value for c in having):
                yield f"`{name}` is reached"
            continue
        broken = [c for c in having if c.claims[name]["status"] == Status.VIOLATED.value]
        for finding in dict.fromkeys(each for c in broken for each in c.run.findings[name]):
            shown = [c for c in broken if finding in c.run.findings[name]]
            alone = [c for c in shown if c.run.findings[name] == (finding,)]
            steps = min(len(c.claims[name]["counterexample"]["steps"]) for c in alone or shown)
            shortest[finding] = min(steps, shortest.get(finding, steps))
    for finding, steps in sorted(shortest.items(), key=lambda pair: pair[1]):
        yield f"{finding_link(finding)} in {steps} steps"
