"""State charts as DOT. A move that stays in its state is a compartment inside it, not a loop around it."""

from __future__ import annotations

import enum

from trystate.model.language import Kind, Machine

from .moves import Move, control_states, effect_parts, guard_parts, initial_states, moves, state_doc, system_title
from .style import BODY, FONT, HEAD, INK, KINDS, LOOKS, MUTED, clip, font, left, legend, quote, title, wrap

COMPARTMENT_WIDTH, EDGE_WIDTH = 40, 32  # characters a line
DETAIL_LINES_MAX = 2  # of guard, and of effect; longer ones are in the table of transitions
DOC_LINES_MAX = 3
SIDE_MOVES_MIN = 4  # so many side effects are listed by their keys alone
LABEL_LINES_MAX = 20  # a longer label keeps the names and keys only
JUNCTION_SOURCES_MIN = 3  # from so many states on, one shared arrow reads better than a label each
LISTED_SOURCES_MIN = 4  # from so many on, their names read better than lines from everywhere
BUSY_EDGES = 10

Arrow = tuple[tuple[enum.Enum, ...], enum.Enum, Kind]


def state_chart_dot(machine: Machine) -> str:
    """The machine's chart: self-moves inside the states, arrows labelled event, [guard] and / effect.

    `#n` is the transition's number in the system's table of transitions, which tells what is too long for the
    picture.
    """
    found, shown = moves(machine), control_states(machine)
    inner = {state: [m for m in found if m.source is m.dest is state] for state in shown}
    arrows = _arrows(machine, found)
    homes = _homes([*([m] for group in inner.values() for m in group), *arrows.values()])
    per = f", one per {machine.params[0].sort.name}" if machine.params else ""
    below = wrap(f"{system_title(machine.system)}{per}", 90) + wrap(machine.doc, 90)
    key = legend(m.transition.kind for m in found)
    heading = title(machine.name.replace("_", " "), *(font(line, colour=MUTED) for line in below), key)
    sep = 0.7 if len(arrows) >= BUSY_EDGES else 0.5
    lines = [
        f"digraph {quote(machine.system.name + '.' + machine.name)} {{",
        f"  graph [rankdir=TB, nodesep={sep}, ranksep={sep}, splines=spline, bgcolor=white, pad=0.25, "
        f'fontname="{FONT}", labelloc=t, label={heading}];',
        f'  node [shape=plain, fontname="{FONT}", fontsize=12, fontcolor="{INK}"];',
        f'  edge [fontname="{FONT}", fontsize=11, color="{INK}", arrowsize=0.8, penwidth=1.4];',
        '  "initial" [shape=circle, style=filled, fillcolor=black, width=0.15, fixedsize=true, label=""];',
    ]
    lines += [_state(state, inner[state], homes) for state in shown]
    lines += [f'  "initial" -> {_node(state)} [weight=10];' for state in initial_states(machine)]
    order = {state: k for k, state in enumerate(machine.states)}
    for number, ((sources, dest, kind), group) in enumerate(arrows.items(), 1):
        upward = order[dest] < min(order[s] for s in sources)
        lines += _arrow(number, sources, dest, kind, _label(group, homes), upward)
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
        if len(group) >= JUNCTION_SOURCES_MIN:
            arrows.setdefault((tuple(m.source for m in group), group[0].dest, kind), []).append(group[0])
        else:
            for m in group:
                arrows.setdefault(((m.source,), m.dest, kind), []).append(m)

    def position(arrow: Arrow) -> tuple[list[int], int, int]:
        sources, dest, kind = arrow
        return [order[s] for s in sources], order[dest], KINDS.index(kind)

    return {arrow: arrows[arrow] for arrow in sorted(arrows, key=position)}


def _homes(groups: list[list[Move]]) -> set[Move]:
    """For each transition the move where it is told in words: of its own member, with the least company."""
    best: dict[int, tuple[bool, int, Move]] = {}
    for group in groups:
        for m in group:
            rank = (m.whose.startswith("other"), len(group), m)
            if m.number not in best or rank[:2] < best[m.number][:2]:
                best[m.number] = rank
    return {m for _, _, m in best.values()}


def _state(state: enum.Enum, inner: list[Move], homes: set[Move]) -> str:
    doc = "".join(f"<br/>{font(line, colour=MUTED)}" for line in wrap(state_doc(state), COMPARTMENT_WIDTH))
    shade = f' bgcolor="{HEAD}"' if inner else ""
    rows = [f'<tr><td cellpadding="6"{shade}>{font(state.name, size=13, bold=True)}{doc}</td></tr>']
    for m in inner:
        text = left([_head(m, name_kind=True), *_detail(m, COMPARTMENT_WIDTH, homes)])
        rows.append(f'<tr><td align="left" sides="t" border="1" cellpadding="3">{text}</td></tr>')
    table = (
        f'<table border="1" style="rounded" cellborder="0" cellspacing="0" color="{INK}" '
        f'bgcolor="{BODY if inner else HEAD}">{"".join(rows)}</table>'
    )
    return f"  {_node(state)} [label=<{table}>];"


def _label(group: list[Move], homes: set[Move]) -> str:
    side = [m for m in group if not m.must]
    told = group if len(side) < SIDE_MOVES_MIN else [m for m in group if m.must]
    lines = [line for m in told for line in (_head(m), *_detail(m, EDGE_WIDTH, homes))]
    if len(lines) > LABEL_LINES_MAX:
        lines = [_head(m) for m in told]
    if told is not group:
        whose = {m.whose for m in side}
        note = f" ({whose.pop()})" if len(whose) == 1 and "" not in whose else ""
        numbers = " ".join(f"#{m.number}" for m in side)
        lines += [font(line, colour=MUTED) for line in wrap(f"a side effect{note} of {numbers}", EDGE_WIDTH)]
    table = '<table border="0" cellborder="0" cellspacing="0" cellpadding="4">'
    return f"{table}<tr><td>{left(lines)}</td></tr></table>"


def _arrow(
    number: int, sources: tuple[enum.Enum, ...], dest: enum.Enum, kind: Kind, label: str, upward: bool
) -> list[str]:
    """One labelled arrow; several sources meet in a junction first, so that the label stands once.

    An arrow to a state above all its sources is declared the other way round, so that its junction stands
    between them. Many sources are listed by name, once for all of their arrows: below them, or above where they lead.
    """
    look = LOOKS[kind]
    style = f'color="{look.colour}", style={look.line}'
    if len(sources) == 1:
        return [f"  {_node(sources[0])} -> {_node(dest)} [{style}, label=<{label}>];"]
    if len(sources) >= LISTED_SOURCES_MIN:
        names = wrap("any of " + ", ".join(source.name for source in sources), EDGE_WIDTH)
        listed = quote(" ".join(names))
        return [
            f"  {listed} [label=<{left(font(line, size=11, colour=MUTED) for line in names)}>];",
            *([] if upward else [f"  {_node(sources[-1])} -> {listed} [style=invis];"]),
            f"  {listed} -> {_node(dest)} [{style}, label=<{label}>];",
        ]
    junction = quote(f"junction {number}")
    lines = [
        f'  {junction} [shape=circle, style=filled, fillcolor="{look.colour}", color="{look.colour}", '
        f'width=0.09, fixedsize=true, label=""];'
    ]
    if upward:
        lines.append(f"  {_node(dest)} -> {junction} [{style}, dir=back, label=<{label}>];")
        return lines + [f"  {junction} -> {_node(source)} [{style}, dir=none];" for source in sources]
    lines += [f"  {_node(source)} -> {junction} [{style}, dir=none];" for source in sources]
    return [*lines, f"  {junction} -> {_node(dest)} [{style}, label=<{label}>];"]


def _head(m: Move, *, name_kind: bool = False) -> str:
    """Event, parameters and key; the kind in words where there is no line to show it."""
    t = m.transition
    notes = [f"#{m.number}", *([m.whose] if m.whose else [])]
    if name_kind and t.kind is not Kind.PROTOCOL:
        notes.append(t.kind.value)
    event = font(t.name, size=11, colour=LOOKS[t.kind].colour, bold=True)
    params = font(t.signature.removeprefix(t.name), size=11) if t.params else ""
    return f"{event}{params} {font(' · '.join(notes), size=9, colour=MUTED)}"


def _detail(m: Move, width: int, homes: set[Move]) -> list[str]:
    """The guard and the effect; where one of them is too long for a picture, once the step in words."""
    t = m.transition
    guard, effect = guard_parts(t, budget=False), effect_parts(t, budget=False)
    guard_lines = wrap(f"[{' ∧ '.join(guard)}]", width) if guard else []
    effect_lines = wrap(f"/ {'; '.join(effect)}", width) if effect else []
    if max(len(guard_lines), len(effect_lines)) <= DETAIL_LINES_MAX:
        return [font(line, colour=MUTED) for line in guard_lines] + [font(line) for line in effect_lines]
    words = clip(wrap(t.doc, width), DOC_LINES_MAX) if m in homes else []
    return [font(line, italic=True) for line in words]
