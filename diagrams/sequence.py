"""Runs as sequence diagrams in DOT: a lifeline per member and one for the shared state; time goes down.

Every node has a fixed place (`layout=neato` with pinned positions): Graphviz has no notion of lifelines.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass

from trystate.model.checker.story import REPEATS, RESTS, Change, Flight, Step, Story, tell
from trystate.model.checker.verdicts import Counterexample
from trystate.model.language import Kind, System
from trystate.model.language.properties import Property

from .style import FONT, HEAD, INK, LOOKS, MUTED, PAPER, clip, font, left, legend, points, quote, title, wrap

LINE_WIDTHS = range(36, 16, -2)  # characters of a line before it wraps: the most with which the picture is not too wide
WIDTH_MAX = 714.0  # points, with the margins 1,000 pixels
TITLE_WIDTH = 90  # characters
CHANGES_MAX = 8  # lines in one box; the plain text has all of them
LINE, PADDING, GAP = 13.0, 14.0, 12.0  # points, for Arial at 10 points
COLUMN_MIN, COLUMN_GAP = 96.0, 26.0  # points
POINTS_PER_INCH = 72.0
MESSAGES = "a thick arrow: from the step that sends it to the step that takes it; × lost; … on its way"


@dataclass(frozen=True, slots=True)
class Box:
    """The text of a step at one lifeline. Lengths are in points."""

    column: int
    lines: tuple[str, ...]
    text_width: float
    acts: bool

    @property
    def height(self) -> float:
        return LINE * len(self.lines) + PADDING

    @property
    def width(self) -> float:
        return self.text_width + PADDING


def sequence_dot(
    system: System, run: Counterexample, title_text: str = "", notes: Sequence[str] = (), ends: Property | None = None
) -> str:
    """The run as a sequence diagram; a frame surrounds the steps that a lasso repeats.

    notes: words for the box of each step, or none at all.
    ends: the property that is true where the run ends, shown in a box below.
    """
    return story_dot(tell(system, run, notes=notes), title_text, ends)


def story_dot(story: Story, title_text: str = "", ends: Property | None = None) -> str:
    """A run that is already a story, such as a recorded one, as a sequence diagram."""
    system = story.system
    for width in LINE_WIDTHS:
        rows = [_boxes(story, step, width) for step in story.steps]
        xs, across = _columns(story, rows)
        if across <= WIDTH_MAX:
            break
    ys = _heights(story, rows)
    below = [font(line, colour=MUTED) for line in wrap(system.label, TITLE_WIDTH)]
    below.append(legend(step.kind for step in story.steps))
    below += [font(f"{story.counts}; {MESSAGES}", colour=MUTED)] if story.messages else []
    label = title(title_text or "A run", *below)
    lines = [
        f"digraph {quote(title_text or system.name)} {{",
        "  graph [layout=neato, splines=line, outputorder=edgesfirst, bgcolor=white, pad=0.25, "
        f'fontname="{FONT}", labelloc=t, label={label}];',
        f'  node [shape=plain, fontname="{FONT}", fontsize=11, fontcolor="{INK}"];',
        f'  edge [fontname="{FONT}", arrowsize=0.8, penwidth=1.4];',
        *_frame(story, rows, xs, ys),
        *_lifelines(story, xs, ys[-1] - LINE),
    ]
    for step, boxes, y in zip(story.steps, rows, ys, strict=False):
        lines += _row(step, boxes, xs, y)
    for k, flight in enumerate(story.messages):
        lines += _message(story, k, flight, rows, xs, ys)
    if ends is not None:
        words = [font(f"{ends.name} is true", size=11, bold=True), *map(font, wrap(ends.doc, TITLE_WIDTH))]
        lines.append(f'  "ends" [{at(sum(xs) / len(xs), ys[-1])}, label=<{panel(words, INK)}>];')
    if story.rests:
        rests = panel([font(RESTS, italic=True)], MUTED)
        lines.append(f'  "rests" [{at(sum(xs) / len(xs), ys[-1])}, label=<{rests}>];')
    return "\n".join([*lines, "}"]) + "\n"


def _column(story: Story, member: int | None) -> int:
    return len(story.members) if member is None else member


def _boxes(story: Story, step: Step, width: int) -> list[Box]:
    """The box of the step itself, first, and one for each other lifeline that it changes."""
    colour = LOOKS[step.kind].colour
    places = dict(step.places())
    own = _changes(places.pop(step.actor, []), width)
    kind = "" if step.kind is Kind.PROTOCOL else step.kind.value
    named = _name_lines(step.label, width)
    note = wrap(step.note, width)
    lines = [font(line, size=11, colour=colour, bold=True) for line in named]
    widths = [points(line, 11, bold=True) for line in named]
    number = font(f"{step.number}\N{NO-BREAK SPACE}", colour=MUTED)
    lines[0] = f"{number} {lines[0]}"
    widths[0] += points(f"{step.number}  ", 11)
    # A space at the begin of an element of SVG is not shown, unless it is one that does not break.
    if kind and len(named[-1]) + len(kind) <= width:
        lines[-1] += font(f"\N{NO-BREAK SPACE}{kind}", size=9, colour=MUTED)
        widths[-1] += points(f" {kind}", 9)
    elif kind:
        lines.append(font(kind, size=9, colour=MUTED))
    widths += [*map(points, (*note, *own))]
    said = [font(line, italic=True) for line in note]
    boxes = [Box(_column(story, step.actor), (*lines, *said, *map(font, own)), max(widths), acts=True)]
    for member, changes in places.items():
        text = _changes(changes, width)
        boxes.append(Box(_column(story, member), tuple(map(font, text)), max(map(points, text)), acts=False))
    return boxes


def _name_lines(label: str, width: int) -> list[str]:
    """A step's name in lines; a line ends after an underscore."""
    lines = [""]
    for part in re.split("(?<=_)", label):
        if lines[-1] and len(lines[-1]) + len(part) > width:
            lines.append("")
        lines[-1] += part
    return lines


def _changes(changes: list[Change], width: int) -> list[str]:
    return clip([line for change in changes for line in wrap(str(change), width)], CHANGES_MAX)


def _columns(story: Story, rows: list[list[Box]]) -> tuple[list[float], float]:
    """The x of each lifeline, far enough apart that boxes do not touch, and the width of all lifelines."""
    names = story.heads
    widths = [max(COLUMN_MIN, 8 * len(name)) for name in names]
    for box in (b for boxes in rows for b in boxes):
        widths[box.column] = max(widths[box.column], box.width)
    xs, edge = [], 0.0
    for width in widths:
        xs.append(edge + width / 2)
        edge += width + COLUMN_GAP
    return xs, edge


def _heights(story: Story, rows: list[list[Box]]) -> list[float]:
    """The y of each row, downwards from the heads of the lifelines at 0; the last one is where they end."""
    ys, edge = [], -26.0
    for k, boxes in enumerate(rows):
        if k == story.loop:
            edge -= LINE + GAP
        height = max(box.height for box in boxes)
        ys.append(edge - height / 2 - GAP / 2)
        edge -= height + GAP
    return [*ys, edge - 2 * LINE]


def _frame(story: Story, rows: list[list[Box]], xs: list[float], ys: list[float]) -> list[str]:
    """The rectangle around the steps of a loop."""
    if story.loop is None or story.rests:
        return []
    first, last = rows[story.loop], rows[-1]
    top = ys[story.loop] + max(b.height for b in first) / 2 + LINE + GAP / 2
    bottom = ys[-2] - max(b.height for b in last) / 2 - GAP / 2
    begin = min(xs[b.column] - b.width / 2 for boxes in rows for b in boxes)
    end = max(xs[b.column] + b.width / 2 for boxes in rows for b in boxes)
    begin, end = min(begin, xs[0] - COLUMN_MIN / 2) - GAP, max(end, xs[-1] + COLUMN_MIN / 2) + GAP
    size = f"width={inches(end - begin)}, height={inches(top - bottom)}, fixedsize=true"
    label = font(f"↻ {REPEATS}", size=11, bold=True)
    corner = f'<table border="0" cellborder="0" bgcolor="{PAPER}"><tr><td>{label}</td></tr></table>'
    return [
        f'  "loop" [shape=box, style=dashed, color="{MUTED}", penwidth=1.5, {size}, label="", '
        f"{at((begin + end) / 2, (top + bottom) / 2)}];",
        f'  "loop label" [{at(begin + COLUMN_MIN, top)}, label=<{corner}>];',
    ]


def _lifelines(story: Story, xs: list[float], bottom: float) -> list[str]:
    names = zip(story.heads, xs, strict=True)
    return [line for k, (name, x) in enumerate(names) for line in lifeline(k, name, x, bottom)]


def lifeline(k: int, name: str, x: float, bottom: float) -> list[str]:
    """The head of the k-th lifeline, and the line down to `bottom`."""
    head = (
        f'<table border="1" style="rounded" cellborder="0" cellpadding="5" bgcolor="{HEAD}" '
        f'color="{INK}"><tr><td>{font(name, size=11, bold=True)}</td></tr></table>'
    )
    return [
        f'  "head {k}" [{at(x, 0)}, label=<{head}>];',
        f'  "end {k}" [{at(x, bottom)}, shape=point, width=0.02, color="{MUTED}"];',
        f'  "head {k}" -> "end {k}" [arrowhead=none, style=dashed, penwidth=0.8, color="{MUTED}"];',
    ]


def _row(step: Step, boxes: list[Box], xs: list[float], y: float) -> list[str]:
    look = LOOKS[step.kind]
    lines = []
    for box in boxes:
        border = look.colour if box.acts else MUTED
        text = panel(list(box.lines), border, look.line if box.acts else "solid")
        lines.append(f'  "{step.number} {box.column}" [{at(xs[box.column], y)}, label=<{text}>];')
    actor, *others = boxes
    for box in others:
        ends = f'"{step.number} {actor.column}" -> "{step.number} {box.column}"'
        lines.append(f'  {ends} [color="{look.colour}", style={look.line}];')
    return lines


def _message(
    story: Story, k: int, flight: Flight, rows: list[list[Box]], xs: list[float], ys: list[float]
) -> list[str]:
    """The arrow of a message, from side to side of its boxes.

    A lost message ends between the lifelines, next to the step that loses it; a message on its way, next to its sender.
    """
    source, dest = _column(story, story.steps[flight.sent - 1].actor), _column(story, flight.dest)
    if flight.taken and flight.ended is not None:
        dest = _column(story, story.steps[flight.ended - 1].actor)
    out, into = ("e", "w") if source < dest else ("w", "e")
    look = f'[color="{INK}", penwidth=2.4, tailport={out}'
    if flight.taken and flight.ended is not None:
        return [f'  "{flight.sent} {source}" -> "{flight.ended} {dest}" {look}, headport={into}];']
    x, y, mark = (xs[source] + xs[dest]) / 2, ys[(flight.ended or 1) - 1], "×"
    if flight.ended is None:
        beside = sum((f.sent, f.ended, f.dest) == (flight.sent, None, flight.dest) for f in story.messages[:k])
        x = xs[source] + (1 if source < dest else -1) * (rows[flight.sent - 1][0].width / 2 + 1.5 * GAP)
        y, mark = ys[flight.sent - 1] - GAP * (1 + beside), "…"
    end = font(mark, size=14, bold=True)
    return [
        f'  "message {k}" [{at(x, y)}, label=<{end}>];',
        f'  "{flight.sent} {source}" -> "message {k}" {look}, arrowhead=none];',
    ]


def panel(lines: list[str], border: str, line: str = "solid") -> str:
    """Lines of text in a box."""
    style = "" if line == "solid" else f' style="{line}"'
    return (
        f'<table border="1"{style} cellborder="0" cellspacing="0" cellpadding="3" bgcolor="{PAPER}" '
        f'color="{border}"><tr><td>{left(lines, 0)}</td></tr></table>'
    )


def at(x: float, y: float) -> str:
    """The attribute that puts a node there."""
    return f'pos="{inches(x)},{inches(y)}!"'


def inches(points: float) -> str:
    return f"{points / POINTS_PER_INCH:.3f}"
