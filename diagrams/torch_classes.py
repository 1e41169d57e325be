"""The structures that are drawn, of the runtime and of torch's own classes under its names: structures.toml has them.

Rule: torch is not read here: a picture does not need it. A test reads the source and the headers of torch 2.13 and
finds each class, base, attribute and type of structures.toml, and no other attribute of a Python class.
"""

from __future__ import annotations

import tomllib
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from trystate.model.rendezvous import OPERATORS, Edition
from trystate.model.rendezvous.holder import WRITES
from trystate.model.rendezvous.vocabulary import Action

from .structure import Shape, Structure

RENDEZVOUS = "elastic/rendezvous/dynamic_rendezvous.py"


def _layers(title: str) -> Structure:
    """The operators with the actions that their tables decide on, and the function for each action that has one."""
    tables = OPERATORS[Edition.TORCH]
    decided = {name: [a for a in table.outcomes() if isinstance(a, Action)] for name, table in tables.items()}
    operators = {name: f"_Rendezvous{name.title().replace('-', '')}Op" for name in tables}
    actions = [action for action in Action if any(action in its for its in decided.values())]
    functions = {action: f"_{action.name.lower()}" for action in actions if action in WRITES}
    return Structure(
        "torch-layers",
        title,
        torch=(
            *(Shape(operators[name], RENDEZVOUS, table.doc) for name, table in tables.items()),
            Shape("_Action", RENDEZVOUS, "A decision of an operator.", attributes={a.name: "" for a in actions}),
            Shape(
                "_DistributedRendezvousOpExecutor", RENDEZVOUS, "The functions that change the state.",
                attributes=dict.fromkeys(functions.values(), ""),
            ),
        ),
        flows=(
            *((operators[name], f"_Action.{a.name}") for name, its in decided.items() for a in its),
            *((f"_Action.{a.name}", f"_DistributedRendezvousOpExecutor.{name}") for a, name in functions.items()),
        ),
    )  # fmt: skip


def _values(row: Mapping[str, Any]) -> dict[str, Any]:
    """A row with tuples in place of its lists."""
    return {key: tuple(map(_tuple, value)) if isinstance(value, list) else value for key, value in row.items()}


def _tuple(value: Any) -> Any:
    return tuple(value) if isinstance(value, list) else value


_KEPT = tomllib.loads(Path(__file__).with_name("structures.toml").read_text(encoding="utf-8"))
_SHAPES = {name: Shape(name, **_values(row)) for name, row in _KEPT["shapes"].items()}


def _structure(name: str, row: Mapping[str, Any]) -> Structure:
    made = {"torch": tuple(_SHAPES[each] for each in row.get("torch", ())), "files": _values(row.get("files", {}))}
    return Structure(name, **{**_values(row), **made})


STRUCTURES: tuple[Structure, ...] = tuple(
    _layers(**row) if name == "torch-layers" else _structure(name, row) for name, row in _KEPT["structures"].items()
)
