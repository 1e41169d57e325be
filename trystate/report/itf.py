"""A counterexample in Apalache's Informal Trace Format (its ADR 15), which other tools can read.

A field is a variable; one per member of an index is a map from the member, one per pair a map from a tuple.
"""

from __future__ import annotations

from typing import Any

from trystate.model.checker.kernel import Kernel
from trystate.model.checker.verdicts import Counterexample
from trystate.model.language import Sort, State, System

EXACT_MAX = 1 << 53  # beyond, a reader of JSON may round a number
FORMAT = "https://apalache-mc.org/docs/adr/015adr-trace.html"


def itf_trace(system: System, run: Counterexample, description: str) -> dict[str, Any]:
    """The run as a JSON object.

    An ITF loop goes from the last state back to the one at `loop`; our runs repeat that one: it is left out.
    """
    instances = Kernel(system).instances
    states = run.path.states
    closes = run.loop is not None and run.loop < len(run.path.steps)
    shown = states[:-1] if closes else states
    labels = ["initially", *(instances[number].label for number in run.path.steps)]
    trace: dict[str, Any] = {
        "#meta": {
            "format": "ITF",
            "format-description": FORMAT,
            "source": system.label,
            "description": description,
        },
        "params": [],
        "vars": list(system.slots),
        "states": [
            {"#meta": {"index": k, "action": labels[k]}, **_variables(system, state)} for k, state in enumerate(shown)
        ],
    }
    if run.loop is not None:
        trace["loop"] = run.loop
    return trace


def _variables(system: System, state: State) -> dict[str, Any]:
    found: dict[str, Any] = {}
    for cell, value in zip(system.cells, state, strict=True):
        shown = _value(cell.sort, value)
        if not cell.indices:
            found[cell.slot.name] = shown
            continue
        key = cell.indices[0] if len(cell.indices) == 1 else {"#tup": list(cell.indices)}
        found.setdefault(cell.slot.name, {"#map": []})["#map"].append([key, shown])
    return found


def _value(sort: Sort, value: int) -> bool | int | str | dict[str, str]:
    if sort.kind == "bool":
        return bool(value)
    if abs(value) >= EXACT_MAX:
        return {"#bigint": str(value)}
    return sort.labels[value] if sort.labels else value
