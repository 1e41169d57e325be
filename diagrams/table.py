"""Decision tables as DOT: one row per rule, one column per atom, T and F where an atom matters."""

from __future__ import annotations

import enum

from trystate.model.language import DecisionTable

from .style import (
    BLUE,
    FONT,
    HEAD,
    INK,
    MUTED,
    PAPER,
    RULE,
    SAND,
    TINTS,
    VERMILION_TINT,
    font,
    quote,
    title,
    wrap,
)

CAPTION = "first matching row wins · T true · F false · “·” does not matter"
HEADER_WIDTH = 10  # characters a line
ALARM = ("ERROR", "FAIL", "RAISE", "REFUSE", "REJECT")

_CELLS = {True: ("T", BLUE, PAPER), False: ("F", SAND, INK), None: ("·", PAPER, MUTED)}


def decision_table_dot(table: DecisionTable, title_text: str = "") -> str:
    """The table as a picture; outcomes whose names begin alike share a colour."""
    heading = title_text or table.name
    tints = outcome_tints(table)
    heads = "".join(_head("<br/>".join(font(x, size=11) for x in wrap(a.label, HEADER_WIDTH))) for a in table.atoms)
    number, outcome = _head(font("#", size=11, bold=True)), _head(font("outcome", size=11, bold=True), "left")
    rows = [f"<tr>{number}{heads}{outcome}</tr>"]
    for k, r in enumerate(table.rows, 1):
        cells = "".join(_cell(r.when.get(a.name)) for a in table.atoms)
        name = f'<td align="left" bgcolor="{tints[r.then]}">{font(r.then.name, size=11, bold=True)}</td>'
        rows.append(f"<tr><td>{font(str(k), size=11)}</td>{cells}{name}</tr>")
    body = "\n    ".join(rows)
    doc = [font(line, colour=MUTED) for line in wrap(table.doc, 110)]
    return "\n".join([
        f"digraph {quote(heading)} {{",
        f'  graph [fontname="{FONT}", bgcolor=white, pad=0.2, labelloc=t, '
        f"label={title(heading, *doc, font(CAPTION, colour=MUTED))}];",
        f'  node [shape=plain, fontname="{FONT}", fontsize=11, fontcolor="{INK}"];',
        '  "table" [label=<<table border="0" cellborder="1" cellspacing="0" cellpadding="4" '
        f'color="{RULE}">\n    {body}\n  </table>>];',
        "}",
    ]) + "\n"  # fmt: skip


def outcome_tints(table: DecisionTable) -> dict[enum.Enum, str]:
    """A background per outcome: by the first word of its name, with vermilion kept for errors."""
    tints: dict[str, str] = dict.fromkeys(ALARM, VERMILION_TINT)
    colours: dict[enum.Enum, str] = {}
    for outcome in table.outcomes():
        word = outcome.name.split("_")[0].upper()
        colours[outcome] = tints.setdefault(word, TINTS[(len(tints) - len(ALARM)) % len(TINTS)])
    return colours


def _head(text: str, align: str = "center") -> str:
    return f'<td align="{align}" bgcolor="{HEAD}">{text}</td>'


def _cell(value: bool | None) -> str:
    text, background, colour = _CELLS[value]
    return f'<td bgcolor="{background}">{font(text, size=11, colour=colour, bold=value is not None)}</td>'
