"""Messages between workers, in the order of time: a lifeline for each worker, an arrow for each message.

It does not depend on the workers: the records of their passes have the rows.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

from .sequence import GAP, LINE, PADDING, at, lifeline, panel
from .style import FONT, INK, LOOKS, MUTED, font, quote, title

COLUMN = 300.0  # points between two lifelines
ARROW = 22.0  # points that a message takes
CHAR = 5.6  # points, for Arial at 10 points
REQUEST, ANSWER = (*LOOKS.values(),)[:2]


class Note(NamedTuple):
    """Something that a worker does by itself; the first line names it."""

    worker: int
    lines: tuple[str, ...]


class Arrow(NamedTuple):
    """A message between two workers; `answer`: whether it answers an earlier one."""

    source: int
    to: int
    text: str
    answer: bool = False


def exchange_dot(heading: str, below: str, names: Sequence[str], rows: Sequence[Note | Arrow]) -> str:
    """The rows from above to below."""
    y, drawn = -34.0, list[str]()
    for number, row in enumerate(rows):
        height = ARROW if isinstance(row, Arrow) else LINE * len(row.lines) + PADDING
        drawn += _arrow(number, row, y - height / 2) if isinstance(row, Arrow) else [_note(number, row, y - height / 2)]
        y -= height + GAP
    lines = [
        f"digraph {quote(heading)} {{",
        "  graph [layout=neato, splines=line, outputorder=edgesfirst, bgcolor=white, pad=0.25, "
        f'fontname="{FONT}", labelloc=t, label={title(heading, font(below, colour=MUTED))}];',
        f'  node [shape=plain, fontname="{FONT}", fontsize=11, fontcolor="{INK}"];',
        f'  edge [fontname="{FONT}", arrowsize=0.8, penwidth=1.6];',
    ]
    for k, name in enumerate(names):
        lines += lifeline(k, name, k * COLUMN, y)
    return "\n".join([*lines, *drawn, "}"]) + "\n"


def _note(number: int, note: Note, y: float) -> str:
    first, *others = note.lines
    text = panel([font(first, bold=True), *map(font, others)], INK)
    return f'  "{number}" [{at(note.worker * COLUMN, y)}, label=<{text}>];'


def _arrow(number: int, arrow: Arrow, y: float) -> list[str]:
    look = ANSWER if arrow.answer else REQUEST
    begin, end = arrow.source * COLUMN, arrow.to * COLUMN
    width = CHAR * len(arrow.text) + PADDING
    label = (
        f'<table border="0" cellborder="0" cellpadding="1" bgcolor="white"><tr><td width="{width:.0f}">'
        f"{font(arrow.text, colour=look.colour, bold=not arrow.answer)}</td></tr></table>"
    )
    return [
        f'  "{number} from" [{at(begin, y)}, shape=point, width=0.02, color="{look.colour}"];',
        f'  "{number} to" [{at(end, y)}, shape=point, width=0.02, color="{look.colour}"];',
        f'  "{number} from" -> "{number} to" [color="{look.colour}", style={look.line}];',
        f'  "{number}" [{at((begin + end) / 2, y)}, label=<{label}>];',
    ]
