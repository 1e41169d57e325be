"""Broken histories as pictures: a lane per process, calls as bars from invocation to return, time going right.

Time is drawn in ranks, not to scale: only the overlap of calls matters. As text, DOT and Mermaid.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from trystate.model.checker.linearizability import Broken, Call, Placed, shortened, shown

from .mermaid import escape_mermaid
from .sequence import at, inches
from .style import BODY, FONT, INK, MUTED, RULE, VERMILION_TINT, font, left, quote, title, wrap

CALLS_MAX = 12  # drawn; the calls before them are counted only
LABEL_MAX = 32  # characters of one call
STEP = 2  # columns between two events: a bar is never empty
ORDER_MAX = 8  # the number of last calls shown of the longest attempt
CHAR, LANE, PADDING = 6.2, 34.0, 10.0  # points, for Arial at 10 points
VERMILION = "#D55E00"
CULPRIT = "cannot be placed"


@dataclass(frozen=True, slots=True)
class Bar:
    """A call with the columns that it is drawn in; `end` is the right edge's column if it had not returned."""

    call: Call[Any, Any]
    label: str
    start: int
    end: int
    culprit: bool


@dataclass(frozen=True, slots=True)
class Lanes:
    """A history laid out: the bars of each process, and the number of earlier calls that are left out."""

    bars: dict[str, list[Bar]]
    width: int
    hidden: int


def lanes(broken: Broken[Any, Any], calls_max: int = CALLS_MAX) -> Lanes:
    """Lay a broken history out in columns, each bar at least as wide as its label.

    Of a longer history the last calls are kept: the calls that returned last, and the calls that had not returned.
    """
    drawn = sorted(broken.calls, key=lambda c: (c.returned is None, c.returned or 0.0, c.invoked))[-calls_max:]
    if broken.culprit not in drawn:
        drawn[0] = broken.culprit
    # An invocation comes before a return of the same moment: calls that touch count as concurrent.
    events = sorted((moment, moment > c.invoked, k) for k, c in enumerate(drawn) for moment in _moments(c))
    labels = [_label(c, broken.culprit) for c in drawn]
    starts: dict[int, int] = {}
    ends: dict[int, int] = {}
    column = 0
    for _, _, k in events:
        if k not in starts:
            starts[k] = column
        else:
            column = max(column, starts[k] + len(labels[k]) + 2 * STEP)
            ends[k] = column
        column += STEP
    width = max([column, *(starts[k] + len(labels[k]) + 3 * STEP for k in starts)])
    bars: dict[str, list[Bar]] = {}
    for k in sorted(starts, key=lambda k: (drawn[k].process, starts[k])):
        c = drawn[k]
        bars.setdefault(c.process, []).append(Bar(c, labels[k], starts[k], ends.get(k, width), c == broken.culprit))
    return Lanes(bars, width, len(broken.calls) - len(drawn))


def history_text(broken: Broken[Any, Any]) -> str:
    """The history for a terminal, the explanation, and the end of the longest order that could be found."""
    layout = lanes(broken)
    margin = max(map(len, layout.bars))
    lines = [f"{process:>{margin}}  {_lane_text(bars)}".rstrip() for process, bars in layout.bars.items()]
    culprit = next(bar for bars in layout.bars.values() for bar in bars if bar.culprit)
    under = " " * (margin + 2 + culprit.start) + "▲" * (culprit.end - culprit.start + 1) + f" {CULPRIT}"
    lines.insert(list(layout.bars).index(culprit.call.process) + 1, under)
    if layout.hidden:
        lines.append(f"({layout.hidden} earlier calls are not drawn)")
    return "\n".join([*lines, "", *wrap(broken.explanation, 110), "", *_order(broken.order)]) + "\n"


def history_dot(broken: Broken[Any, Any], title_text: str = "A history that is not linearizable") -> str:
    """The history for Graphviz: every node has a fixed place."""
    layout = lanes(broken)
    below = [font(line, colour=MUTED) for line in wrap(broken.explanation, 110)]
    if layout.hidden:
        below.append(font(f"{layout.hidden} earlier calls are not drawn", colour=MUTED, italic=True))
    lines = [
        f"digraph {quote(title_text)} {{",
        "  graph [layout=neato, splines=line, outputorder=edgesfirst, bgcolor=white, pad=0.25, "
        f'fontname="{FONT}", labelloc=t, label={title(title_text, *below)}];',
        f'  node [shape=box, fontname="{FONT}", fontsize=10, fontcolor="{INK}"];',
        f'  edge [arrowhead=none, style=dashed, penwidth=0.8, color="{RULE}"];',
    ]
    for row, (process, bars) in enumerate(layout.bars.items()):
        y = -row * LANE
        lines += [
            f'  "lane {row}" [{at(-len(process) * CHAR / 2 - 2 * PADDING, y)}, shape=plain, '
            f"label=<{font(process, size=11, bold=True)}>];",
            f'  "end {row}" [{at(layout.width * CHAR, y)}, shape=point, width=0.02, color="{RULE}"];',
            f'  "lane {row}" -> "end {row}";',
            *(_bar_dot(f"{row} {k}", bar, y) for k, bar in enumerate(bars)),
        ]
    panel = left([font(line) for line in _order(broken.order)])
    lines.append(
        f'  "order" [{at(layout.width * CHAR / 2, -(len(layout.bars) + 1) * LANE)}, shape=plain, label=<{panel}>];'
    )
    return "\n".join([*lines, "}"]) + "\n"


def history_mermaid(broken: Broken[Any, Any]) -> str:
    """The history as a `gantt` chart, a section per process; a call that cannot be placed is critical."""
    layout = lanes(broken)
    lines = ["gantt", f"    title {escape_mermaid(broken.explanation)}", "    dateFormat x", "    axisFormat %L"]
    for process, bars in layout.bars.items():
        lines.append(f"    section {escape_mermaid(process)}")
        for bar in bars:
            kind = "crit, " if bar.culprit else "active, " if bar.call.pending else ""
            lines.append(f"    {escape_mermaid(bar.label)} :{kind}{bar.start}, {bar.end}")
    return "\n".join(lines) + "\n"


def _moments(call: Call[Any, Any]) -> list[float]:
    return [call.invoked] if call.returned is None else [call.invoked, call.returned]


def _label(call: Call[Any, Any], culprit: Call[Any, Any]) -> str:
    text = shortened(" ".join(str(call).split()), LABEL_MAX)
    return f"✗ {text}" if call == culprit else text


def _lane_text(bars: Sequence[Bar]) -> str:
    text = ""
    for bar in bars:
        inside = f"├{bar.label:─^{bar.end - bar.start - 1}}"
        text = f"{text:{bar.start}}{inside}{'╌' if bar.call.pending else '┤'}"
    return text


def _bar_dot(name: str, bar: Bar, y: float) -> str:
    start, end = bar.start * CHAR, bar.end * CHAR
    fill, colour, pen = (VERMILION_TINT, VERMILION, 2) if bar.culprit else (BODY, INK, 1)
    style = '"filled,dashed"' if bar.call.pending else "filled"
    label = font(bar.label, bold=bar.culprit)
    size = f"width={inches(end - start)}, height={inches(LANE - PADDING)}, fixedsize=true"
    return (
        f'  "bar {name}" [{at((start + end) / 2, y)}, {size}, style={style}, fillcolor="{fill}", color="{colour}", '
        f"penwidth={pen}, label=<{label}>];"
    )


def _order(order: Sequence[Placed[Any, Any]]) -> list[str]:
    """The longest order that could be found, for a person to compare with."""
    last = order[-ORDER_MAX:]
    if not last:
        return ["No call before it has to come first."]
    head = "The longest order found" + (
        f" ends (after {len(order) - len(last)} calls)" if len(last) < len(order) else ""
    )
    return [f"{head}:", *(f"  {p.call.process}: {shown(p.call.operation, p.outcome)}" for p in last)]
