"""`trystate table`: a decision table, or the transitions of a system; Markdown if the output is not a terminal."""

from __future__ import annotations

import argparse

from rich.box import SIMPLE_HEAD
from rich.console import Console
from rich.table import Table
from rich.text import Text

from trystate.diagrams import decision_table_markdown, transitions_markdown
from trystate.diagrams.moves import guard_parts
from trystate.model.language import DecisionTable, System

from .. import registry
from ..choosing import SYSTEM_HELP, edition
from ..exits import Exit

_MARKS = {
    True: Text("T", style="bold cyan"),
    False: Text("F", style="bold yellow"),
    None: Text("·", style="dim"),
}


def table_options(p: argparse.ArgumentParser) -> None:
    p.add_argument("name", metavar="NAME", help=f"{', '.join(registry.table_names())}, or a system: {SYSTEM_HELP}")
    p.add_argument(
        "--edition",
        metavar="E",
        help=f"variant of the protocol: {', '.join(registry.TABLES)} (default: {registry.DEFAULT_EDITION})",
    )


def table(args: argparse.Namespace) -> int:
    """Carry out the command; returns the exit code."""
    found = registry.table_named(args.name, args.edition)
    console = Console(highlight=False, markup=False)
    if found is not None:
        text, drawn = decision_table_markdown(found), _decisions(found)
    else:
        cls = registry.system_named(args.name, "table", registry.table_names())
        system = cls(edition=edition(cls, args.edition), faults=registry.fault_bounds(cls))
        text, drawn = transitions_markdown(system), _transitions(system)
    if console.is_terminal:
        console.print(drawn)
    else:
        print(text, end="")
    return Exit.OK


def _decisions(found: DecisionTable) -> Table:
    """The table in the classic form, which is narrow: a line per condition and outcome, a column per rule."""
    drawn = Table(title=found.name, title_justify="left", box=SIMPLE_HEAD, padding=(0, 0, 0, 1))
    drawn.caption = "the first column that matches decides · T true · F false · “·” does not matter"
    drawn.add_column("condition", overflow="fold")
    for number in range(1, len(found.rows) + 1):
        drawn.add_column(str(number), justify="right", no_wrap=True)
    for atom in found.atoms:
        drawn.add_row(atom.label, *(_MARKS[row.when.get(atom.name)] for row in found.rows))
    drawn.add_section()
    for outcome in found.outcomes():
        drawn.add_row(outcome.name, *("X" if row.then is outcome else "" for row in found.rows))
    return drawn


def _transitions(system: System) -> Table:
    """The columns that a reader needs first; the effects, which can be long, are in the Markdown."""
    drawn = Table(title=system.label, title_justify="left", box=SIMPLE_HEAD)
    for head in ("#", "transition", "kind", "when", "what it is"):
        drawn.add_column(head)
    for number, t in enumerate(system.transitions, 1):
        when = "\n∧ ".join(guard_parts(t)) or "always"
        drawn.add_row(str(number), t.signature, t.kind.value, when, t.doc)
    return drawn
