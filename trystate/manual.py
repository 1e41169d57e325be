"""The text of `--help` for each command, besides its options: manual.md has it, with a heading for each command.

Below a heading are the description, the examples, and the exit codes with another meaning than usual.
"""

from __future__ import annotations

import argparse
import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from .exits import Exit, exits_help


@dataclass(frozen=True, slots=True)
class Page:
    """A command's help: one line for the list of commands, what it does, and command lines to copy.

    `exits` has the exit codes with another meaning than in most commands.
    """

    summary: str
    description: str
    examples: str
    exits: Mapping[Exit, str] = field(default_factory=dict)

    @property
    def epilog(self) -> str:
        return f"{exits_help(self.exits)}\nexamples:\n{self.examples}"


def _listed(text: str) -> dict[str, str]:
    """The texts of a list, by the word before each."""
    return dict(line.removeprefix("- ").split(": ", 1) for line in text.splitlines() if line)


def _page(heading: str, text: str) -> Page:
    description, examples, *exits = re.split(r"^## .*\n\n", text, flags=re.M)
    return Page(
        heading.partition(": ")[2],
        f"{description.strip()}\n",
        f"  {examples.strip()}\n",
        {Exit[name]: meaning for part in exits for name, meaning in _listed(part).items()},
    )


_, _TOP, *_PAGES, _LIMITS = re.split(r"^# ", Path(__file__).with_suffix(".md").read_text(encoding="utf-8"), flags=re.M)
TOP = _page(*_TOP.split("\n", 1))
PAGES = {text.partition(":")[0]: _page(*text.split("\n", 1)) for text in _PAGES}
LIMITS = _listed(_LIMITS.split("\n", 1)[1])
"""Of a store's server: the field of `Limits`, and its help; impl/store/limits.py has the reasons."""


def add_page(commands: argparse._SubParsersAction[Any], word: str, name: str) -> argparse.ArgumentParser:
    """The parser of the command that `word` chooses, with its page."""
    page = PAGES[name]
    parser: argparse.ArgumentParser = commands.add_parser(
        word,
        help=page.summary,
        formatter_class=argparse.RawDescriptionHelpFormatter,
        allow_abbrev=False,
        description=page.description,
        epilog=page.epilog,
    )
    return parser
