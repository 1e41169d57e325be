"""State charts laid out by Graphviz: where the boxes are, and how the arrows go. A page draws and lights them."""

from __future__ import annotations

import enum
import math
from functools import cache
from typing import Any

from trystate.diagrams.moves import control_states, moves
from trystate.diagrams.rendering import plain
from trystate.model.errors import UnavailableError
from trystate.model.language import Machine

CHARACTER, PADDING, HEIGHT = 7.6, 22.0, 30.0  # CSS pixels: a letter's width, a text's padding, a box's height
POINTS = 72.0  # an inch; a point of the layout is a pixel of the page


def chart(machine: Machine) -> dict[str, Any] | None:
    """The layout of a machine's chart as `types.ts` has it; None where no Graphviz is installed."""
    shown: list[enum.Enum] = control_states(machine)
    pairs = dict.fromkeys((m.source.name, m.dest.name) for m in moves(machine) if m.source is not m.dest)
    return _laid_out(tuple(state.name for state in shown), tuple(pairs))


@cache
def _laid_out(states: tuple[str, ...], pairs: tuple[tuple[str, str], ...]) -> dict[str, Any] | None:
    lines = ["digraph {", "graph [rankdir=TB, nodesep=0.3, ranksep=0.4];", "edge [arrowhead=none];"]
    for name in states:
        width = (PADDING + CHARACTER * len(name)) / POINTS
        lines.append(
            f'"{name}" [shape=box, fixedsize=true, label="", width={width:.3f}, height={HEIGHT / POINTS:.3f}];'
        )
    lines += [f'"{a}" -> "{b}";' for a, b in pairs]
    try:
        return _read(plain("\n".join([*lines, "}"])))
    except UnavailableError:
        return None


def _read(text: str) -> dict[str, Any]:
    """Graphviz's plain form: inches from the lower left corner."""
    found: dict[str, Any] = {"width": 0, "height": 0, "boxes": [], "edges": []}
    for line in text.replace("\\\n", "").splitlines():
        kind, *words = line.split(" ")
        if kind == "graph":
            found["width"], found["height"] = (math.ceil(float(w) * POINTS) for w in words[1:3])
        elif kind == "node":
            x, y, width, height = (round(float(w) * POINTS) for w in words[1:5])
            found["boxes"].append([_name(words[0]), x, found["height"] - y, width, height])
        elif kind == "edge":
            count = int(words[2])
            numbers = [float(w) * POINTS for w in words[3 : 3 + 2 * count]]
            points = [(x, found["height"] - y) for x, y in zip(numbers[::2], numbers[1::2], strict=True)]
            found["edges"].append(_edge(_name(words[0]), _name(words[1]), points))
    return found


def _name(word: str) -> str:
    return word.strip('"')


def _edge(source: str, dest: str, points: list[tuple[float, float]]) -> dict[str, Any]:
    first, *others = (f"{x:.0f} {y:.0f}" for x, y in points)
    (x0, y0), (x1, y1) = points[-2:]
    angle = round(math.degrees(math.atan2(y1 - y0, x1 - x0)))
    return {"from": source, "to": dest, "path": f"M{first}C{','.join(others)}", "head": [round(x1), round(y1), angle]}
