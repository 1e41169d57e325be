"""State charts as DOT. The moves are in the box of the state that they leave; an arrow begins at its own line there.

A label next to an arrow takes the width of all arrows that pass it: a chart of twenty arrows was three times as wide
as a page. A line in a box takes height. A move that stays in its state has a line and no arrow.
"""

from __future__ import annotations

import enum

from trystate.model.language import Kind, Machine

from .moves import Move, control_states, effect_parts, guard_parts, initial_states, moves, state_doc, system_title
from .style import BODY, FONT, HEAD, INK, KINDS, LOOKS, MUTED, PAPER, clip, font, left, legend, quote, title, wrap

BOX_WIDTH, TITLE_WIDTH = 32, 60  # characters a line
DETAIL_LINES_MAX = 2  # lines of a guard, and of an effect; longer ones are in the table of transitions
DOC_LINES_MAX = 3
SIDE_MOVES_MIN = 4  # with this number or more, side effects are listed by their keys alone
LABEL_LINES_MAX = 20  # a longer label keeps the names and keys only
LISTED_SOURCES_MIN = 4  # a move from this number of states is shown once, in a box that lists them
SEVERAL = "from several states"

Arrow = tuple[tuple[enum.Enum, ...], enum.Enum, Kind]


def state_chart_dot(machine: Machine) -> str:
    """The machine's chart: in each state its moves as event, [guard], / effect and → the state where they lead.

    `#n` is the transition's number in the system's table of transitions, which has the texts that are too long here.
    """
    found, shown = moves(machine), control_states(machine)
    inner = {state: [m for m in found if m.source is m.dest is state] for state in shown}
    arrows = _arrows(machine, found)
    homes = _homes([*([m] for group in inner.values() for m in group), *arrows.values()])
    per = f", one per {machine.params[0].sort.name}" if machine.params else ""
    below = wrap(f"{system_title(machine.system)}{per}", TITLE_WIDTH) + wrap(machine.doc, TITLE_WIDTH)
    key = legend(m.transition.kind for m in found)
    heading = title(machine.name.replace("_", " "), *(font(line, colour=MUTED) for line in below), key)
    lines = [
        f"digraph {quote(machine.system.name + '.' + machine.name)} {{",
        "  graph [rankdir=TB, nodesep=0.2, ranksep=0.5, splines=spline, bgcolor=white, pad=0.25, "
        f'fontname="{FONT}", labelloc=t, label={heading}];',
        f'  node [shape=plain, fontname="{FONT}", fontsize=12, fontcolor="{INK}"];',
        f'  edge [color="{INK}", arrowsize=0.8, penwidth=1.4];',
        '  "initial" [shape=circle, style=filled, fillcolor=black, width=0.15, fixedsize=true, label=""];',
    ]
    listed = [(arrow, group) for arrow, group in arrows.items() if len(arrow[0]) > 1]
    for state in shown:
        leaving = [(arrow, group) for arrow, group in arrows.items() if arrow[0] == (state,)]
        doc = "".join(f"<br/>{font(line, colour=MUTED)}" for line in wrap(state_doc(state), BOX_WIDTH))
        head = f"{font(state.name, size=13, bold=True)}{doc}"
        stays = [_line([_head(m, name_kind=True), *_detail(m, homes)]) for m in inner[state]]
        lines += _box(_node(state), head, HEAD, stays, leaving, homes)
    if listed:
        lines += _box(quote(SEVERAL), font(SEVERAL, size=11, colour=MUTED), PAPER, [], listed, homes)
        lines.append(f'  "initial" -> {quote(SEVERAL)} [style=invis];')
    lines += [f'  "initial" -> {_node(state)} [weight=10];' for state in initial_states(machine)]
    return "\n".join([*lines, "}"]) + "\n"


def _node(state: enum.Enum) -> str:
    return quote(f"state {state.name}")


def _arrows(machine: Machine, found: list[Move]) -> dict[Arrow, list[Move]]:
    """Moves between states, grouped by where they start and end and by kind."""
    order = {state: k for k, state in enumerate(machine.states)}
    alike: dict[tuple[int, enum.Enum, str], list[Move]] = {}
    for m in found:
        if m.source is not m.dest:
            alike.setdefault((m.number, m.dest, m.whose), []).append(m)
    arrows: dict[Arrow, list[Move]] = {}
    for group in alike.values():
        kind = group[0].transition.kind
        if len(group) >= LISTED_SOURCES_MIN:
            arrows.setdefault((tuple(m.source for m in group), group[0].dest, kind), []).append(group[0])
        else:
            for m in group:
                arrows.setdefault(((m.source,), m.dest, kind), []).append(m)

    def position(arrow: Arrow) -> tuple[list[int], int, int]:
        sources, dest, kind = arrow
        return [order[s] for s in sources], order[dest], KINDS.index(kind)

    return {arrow: arrows[arrow] for arrow in sorted(arrows, key=position)}


def _homes(groups: list[list[Move]]) -> set[Move]:
    """For each transition the move that shows its text: a move of the member itself, in the smallest group."""
    best: dict[int, tuple[bool, int, Move]] = {}
    for group in groups:
        for m in group:
            rank = (m.whose.startswith("other"), len(group), m)
            if m.number not in best or rank[:2] < best[m.number][:2]:
                best[m.number] = rank
    return {m for _, _, m in best.values()}


def _box(
    node: str, head: str, shade: str, stays: list[str], leaving: list[tuple[Arrow, list[Move]]], homes: set[Move]
) -> list[str]:
    """A box with a line for each move that stays and for each arrow, and the arrows, which begin at their lines."""
    rows, drawn = list(stays), list[str]()
    for port, ((sources, dest, kind), group) in enumerate(leaving):
        look = LOOKS[kind]
        text = _label(group, homes)
        if len(sources) > 1:
            names = wrap("from " + ", ".join(source.name for source in sources), BOX_WIDTH)
            text = [*(font(line, colour=MUTED) for line in names), *text]
        rows.append(_line([*text, font(f"→ {dest.name}", colour=look.colour, bold=True)], f' port="{port}"'))
        drawn.append(f'  {node}:"{port}":_ -> {_node(dest)} [color="{look.colour}", style={look.line}];')
    shade = shade if rows else HEAD
    table = (
        f'<table border="1" style="rounded" cellborder="0" cellspacing="0" color="{INK}" '
        f'bgcolor="{BODY if rows else HEAD}"><tr><td cellpadding="6" bgcolor="{shade}">{head}</td></tr>'
        f"{''.join(rows)}</table>"
    )
    return [f"  {node} [label=<{table}>];", *drawn]


def _line(text: list[str], port: str = "") -> str:
    return f'<tr><td align="left" sides="t" border="1" cellpadding="3"{port}>{left(text)}</td></tr>'


def _label(group: list[Move], homes: set[Move]) -> list[str]:
    side = [m for m in group if not m.must]
    told = group if len(side) < SIDE_MOVES_MIN else [m for m in group if m.must]
    lines = [line for m in told for line in (_head(m), *_detail(m, homes))]
    if len(lines) > LABEL_LINES_MAX:
        lines = [_head(m) for m in told]
    if told is not group:
        whose = {m.whose for m in side}
        note = f" ({whose.pop()})" if len(whose) == 1 and "" not in whose else ""
        numbers = " ".join(f"#{m.number}" for m in side)
        lines += [font(line, colour=MUTED) for line in wrap(f"a side effect{note} of {numbers}", BOX_WIDTH)]
    return lines


def _head(m: Move, *, name_kind: bool = False) -> str:
    """Event, parameters and key; the kind in words where no line shows it."""
    t = m.transition
    notes = [f"#{m.number}", *([m.whose] if m.whose else [])]
    if name_kind and t.kind is not Kind.PROTOCOL:
        notes.append(t.kind.value)
    event = font(t.name, size=11, colour=LOOKS[t.kind].colour, bold=True)
    params = font(t.signature.removeprefix(t.name), size=11) if t.params else ""
    return f"{event}{params} {font(' · '.join(notes), size=9, colour=MUTED)}"


def _detail(m: Move, homes: set[Move]) -> list[str]:
    """The guard and the effect; if one of them is too long for a picture, the step in words, once."""
    t = m.transition
    guard, effect = guard_parts(t, budget=False), effect_parts(t, budget=False)
    guard_lines = wrap(f"[{' ∧ '.join(guard)}]", BOX_WIDTH) if guard else []
    effect_lines = wrap(f"/ {'; '.join(effect)}", BOX_WIDTH) if effect else []
    if max(len(guard_lines), len(effect_lines)) <= DETAIL_LINES_MAX:
        return [font(line, colour=MUTED) for line in guard_lines] + [font(line) for line in effect_lines]
    words = clip(wrap(t.doc, BOX_WIDTH), DOC_LINES_MAX) if m in homes else []
    return [font(line, italic=True) for line in words]
