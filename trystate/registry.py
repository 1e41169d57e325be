"""The names that the command line knows: systems, their machines, decision tables, and the findings.

Rule: names and values come from the declarations; nothing is repeated here but the two names of the systems.
"""

from __future__ import annotations

import difflib
import importlib
import os
import sys
from collections.abc import Iterable, Iterator, Mapping

from trystate.model.checker.expectations import Finding, Run
from trystate.model.errors import UsageError
from trystate.model.language import DecisionTable, System
from trystate.model.language.fields import Constant, Index
from trystate.model.language.machines import View
from trystate.model.language.transitions import Rule
from trystate.model.rendezvous import OPERATORS, Edition, Rendezvous
from trystate.model.rendezvous.holder import Holders

SYSTEMS: Mapping[str, type[System]] = {"rendezvous": Rendezvous, "state-holders": Holders}
TABLES: Mapping[str, Mapping[str, DecisionTable]] = {e.name: OPERATORS[e] for e in OPERATORS}
DEFAULT_EDITION = Edition.TORCH.name  # what the torch that is installed speaks


def plan() -> tuple[Run, ...]:
    """The runs that `trystate verify` checks."""
    from trystate.model.rendezvous.findings import PLAN

    return tuple(PLAN)


def findings() -> Mapping[str, Finding]:
    """Every known defect, by its name."""
    from trystate.model.rendezvous.findings import FINDINGS

    return {finding.name: finding for finding in FINDINGS.values()}


def finding_named(name: str) -> Finding:
    """The finding with this name or number.

    Raises:
        UsageError: there is none.
    """
    known = findings()
    labels = {label.lower(): f for f in known.values() for label in (f.number, f.name)}
    if name.lower() not in labels:
        raise UsageError(unknown("finding", name, labels, show=known))
    return labels[name.lower()]


def finding_number(label: str) -> str:
    """How a finding is called in a table: its number, if it is known by its name."""
    found = findings().get(label)
    return found.number if found is not None else label


def unknown(what: str, name: str, known: Iterable[str], *, show: Iterable[str] | None = None) -> str:
    """`no system 'rendez': did you mean rendezvous? Known: ...`, in one line."""
    names = list(known)
    close = difflib.get_close_matches(name.lower(), {n.lower(): n for n in names}, n=1)
    guess = f": did you mean {next(n for n in names if n.lower() == close[0])}?" if close else "."
    return f"no {what} {name!r}{guess} Known: {', '.join(names if show is None else show) or 'none'}"


def system_class(name: str) -> type[System]:
    """The system with this name, the one that a machine belongs to, or a class given as `module:Class`.

    Raises:
        UsageError: there is none.
    """
    if ":" in name:
        return _imported(name)
    owners = {machine: cls for cls in reversed([*SYSTEMS.values()]) for machine in machine_names(cls)}
    by_name = {**owners, **SYSTEMS}
    if name not in by_name:
        raise UsageError(f"{unknown('system', name, by_name, show=SYSTEMS)}, module:Class, or one of their machines")
    return by_name[name]


def _imported(name: str) -> type[System]:
    module, _, attribute = name.partition(":")
    if os.getcwd() not in sys.path:
        sys.path.insert(0, os.getcwd())
    try:
        found: object = getattr(importlib.import_module(module), attribute)
    except (ImportError, AttributeError, ValueError) as error:
        raise UsageError(f"no system {name!r}: {error}; give module:Class as Python would import it") from error
    if not (isinstance(found, type) and issubclass(found, System)):
        raise UsageError(f"{name} is not a system: give a class that derives from trystate.System")
    return found


def _declared(cls: type[System]) -> Iterator[tuple[str, object]]:
    """What a class and its bases declare, each name once, as it is overridden."""
    for name in dir(cls):
        yield name, getattr(cls, name)


def machine_names(cls: type[System]) -> list[str]:
    return [name for name, value in _declared(cls) if isinstance(value, View)]


def fault_bounds(cls: type[System]) -> dict[str, int]:
    """The faults that can be switched on, and how often each may then happen."""
    rules = [value for _, value in _declared(cls) if isinstance(value, Rule) and value.fault]
    return {rule.fault: rule.bound for rule in sorted(rules, key=lambda rule: rule.fault)}


def size_names(cls: type[System]) -> list[str]:
    return [name for name, value in _declared(cls) if isinstance(value, Index | Constant)]


def edition_names(cls: type[System]) -> list[str]:
    return [edition.name for edition in cls.Edition] if cls.Edition is not None else []


def table_named(name: str, edition: str) -> DecisionTable | None:
    """A decision table of an edition; None where no edition has one of this name.

    Raises:
        UsageError: no such edition.
    """
    for known, tables in TABLES.items():
        if known == edition.upper():
            return tables.get(name)
    raise UsageError(unknown("edition", edition, TABLES))


def titled_tables() -> dict[str, DecisionTable]:
    """Every table under a title of its own: one that all editions share is there once."""
    titled: dict[str, DecisionTable] = {}
    for edition, tables in TABLES.items():
        for name, table in tables.items():
            shared = all(other.get(name) is table for other in TABLES.values())
            titled[name if shared else f"{name}, {edition} edition"] = table
    return titled
