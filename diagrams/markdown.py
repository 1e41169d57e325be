"""The written half of the pictures: tables of transitions and decisions, and a page for each chart."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Sequence
from html import escape

from trystate.model.checker.story import sequence_text
from trystate.model.checker.verdicts import Counterexample
from trystate.model.language import DecisionTable, Machine, System, Transition
from trystate.model.language.properties import Property
from trystate.model.language.text import definitions

from .mermaid import sequence_mermaid, state_chart_mermaid
from .moves import control_states, effect_parts, guard_parts, moves, state_doc, system_title
from .style import slug

EFFECT_MAX = 160  # characters; a longer value is left to the source
NAME_MAX = 240  # characters

_MARKS = {True: "T", False: "F", None: "·"}


def prose(text: str) -> str:
    """Text for a table cell: markup is shown as written, except for `code`."""
    parts = re.split(r"(`[^`]+`)", " ".join(text.split()))
    shown = (p if k % 2 else re.sub(r"([*_\[\]])", r"\\\1", escape(p, quote=False)) for k, p in enumerate(parts))
    return "".join(shown).replace("|", r"\|")


def code(text: str) -> str:
    """Formal text for a table cell, in one code span."""
    return f"`{' '.join(text.split()).replace('`', chr(39)).replace('|', chr(92) + '|')}`"


def chart_name(machine: Machine) -> str:
    """The name of a chart's files, without their ending."""
    return f"{system_name(machine.system)}-{slug(machine.name)}"


def system_name(system: System) -> str:
    """The name of a system's page, without its ending."""
    return slug(system.name) + (f"-{slug(system.edition.name)}" if system.edition is not None else "")


def table_of(heads: Sequence[str], rows: Iterable[Sequence[str]]) -> str:
    lines = [heads, ["---"] * len(heads), *rows]
    return "".join(f"| {' | '.join(cells)} |\n" for cells in lines)


def transitions_markdown(system: System) -> str:
    """The table that the `#n` in a chart points to: every transition with its whole guard and effect."""
    heads = ["#", "transition", "kind", "when", "then", "moves", "what it is", "source"]
    return table_of(heads, (_transition(system, n, t) for n, t in enumerate(system.transitions, 1)))


def _transition(system: System, number: int, t: Transition) -> list[str]:
    return [
        f'<a id="t{number}"></a>{number}',
        code(t.signature),
        t.kind.value,
        "<br>∧ ".join(code(part) for part in guard_parts(t)) or "always",
        "<br>".join(code(_short(part)) for part in effect_parts(t)) or "nothing",
        "<br>".join(_claims(system, number)) or "none",
        prose(t.doc),
        prose(t.cite),
    ]


def _short(effect: str) -> str:
    return effect if len(effect) <= EFFECT_MAX else effect.split(" := ")[0] + " := …"


def _claims(system: System, number: int) -> Iterator[str]:
    for machine in system.machines.values():
        for m in moves(machine):
            if m.number == number:
                whose = f" ({m.whose})" if m.whose else ""
                yield prose(f"{machine.name}: {m.source.name} → {m.dest.name}{whose}")


def names_markdown(system: System) -> str:
    """The meaning of each named condition that is short enough; empty without named conditions."""
    found: dict[str, str] = {}
    for expr in (
        *(t.guard for t in system.transitions),
        *(w.value for t in system.transitions for w in t.writes),
    ):
        for name, body in definitions(expr):
            found.setdefault(name, body)
    rows = [[code(name), code(body)] for name, body in sorted(found.items()) if len(body) <= NAME_MAX]
    return table_of(["name", "stands for"], rows) if rows else ""


def state_chart_markdown(machine: Machine) -> str:
    """A page for one machine: the picture, the same in Mermaid, and the meaning of its states."""
    name = chart_name(machine)
    page = f"{system_name(machine.system)}.md"
    states = table_of(["state", "meaning"], ([code(s.name), prose(state_doc(s))] for s in control_states(machine)))
    return (
        f"# {prose(system_title(machine.system))}: {prose(machine.name)}\n\n{prose(machine.doc)}\n\n"
        f"![state chart]({name}.svg)\n\n`#n` is the number of a transition in [the table]({page}).\n\n"
        f"## States\n\n{states}\n## In Mermaid\n\n```mermaid\n{state_chart_mermaid(machine)}```\n"
    )


def system_markdown(system: System) -> str:
    """A page for one system: its charts, and the table of its transitions."""
    charts = "".join(f"- [{prose(m.name)}]({chart_name(m)}.md): {prose(m.doc)}\n" for m in system.machines.values())
    names = names_markdown(system)
    return (
        f"# {prose(system_title(system))}\n\nDrawn for {code(system.label)}.\n\n"
        + (f"## Charts\n\n{charts}\n" if charts else "")
        + f"## Transitions\n\n{transitions_markdown(system)}"
        + (f"\n## Names\n\n{names}" if names else "")
    )


def decision_table_page(title: str, table: DecisionTable) -> str:
    """A page for one decision table: the picture, its rows, its atoms and the result of the audit."""
    audit = table.audit
    pairs = ", ".join(f"{a + 1} before {b + 1}" for a, b in audit.order_dependent)
    atoms = table_of(["atom", "meaning"], ([prose(a.label), prose(a.doc or a.name)] for a in table.atoms))
    about = "\n\n".join(prose(text) for text in (table.doc, table.cite) if text)
    return (
        f"# {prose(title)}\n\n{about}\n\n![decision table]({slug(title)}.svg)\n\n"
        f"The first matching row wins.\n\n{decision_table_markdown(table)}\n## Atoms\n\n{atoms}\n"
        f"## Audit\n\n{audit.valuations} possible valuations, each decided by a row, and no row is dead. "
        f"Rows whose order matters: {pairs or 'none'}.\n"
    ).replace("\n\n\n\n", "\n\n")


def run_markdown(
    name: str,
    title: str,
    system: System,
    run: Counterexample,
    notes: Sequence[str] = (),
    ends: Property | None = None,
) -> str:
    """A page for one run: the sequence diagram, the property that is true at its end, Mermaid and plain text."""
    numbered = any(note.startswith("source ") for note in notes)
    legend = " *Source 3* is what the section calls step 3; one step of the model may be several." if numbered else ""
    witness = f" It ends where {code(ends.name)} is true: {prose(ends.doc)}" if ends is not None else ""
    return (
        f"# {prose(title)}\n\nIn {code(system.label)}.{witness}{legend}\n\n![sequence diagram]({slug(name)}.svg)\n\n"
        f"## As text\n\n```text\n{sequence_text(system, run, notes)}```\n\n"
        f"## In Mermaid\n\n```mermaid\n{sequence_mermaid(system, run, notes)}```\n"
    )


def decision_table_markdown(table: DecisionTable) -> str:
    """The rows of the table; the first that matches wins."""
    heads = ["#", *(prose(a.label) for a in table.atoms), "outcome", "source"]
    rows = (
        [str(k), *(_MARKS[r.when.get(a.name)] for a in table.atoms), code(r.then.name), prose(r.cite)]
        for k, r in enumerate(table.rows, 1)
    )
    return table_of(heads, rows)
