"""Rewrite docs/messages.md from model/messages.toml; with --check report whether it is fresh.

    python docs/messages.py [--check]

A maintainer's tool.
"""

from __future__ import annotations

import argparse
import re
import sys
from pathlib import Path

from pages import filled, settled

from trystate import registry
from trystate.model.messages import FIELD, MESSAGES, SCRIPT_ERROR, Cause, Kind, Message

PAGE = Path(__file__).parent / "messages.md"
ORDER = {Kind.ERROR: "an error", Kind.CONSEQUENCE: "a consequence", Kind.NOTE: "a note"}


def messages() -> str:
    """The index of the messages, and a section for each."""
    rows = [*MESSAGES.values(), SCRIPT_ERROR]
    index = "".join(f"| {_title(one)} | {ORDER[one.kind]} | [{one.name}](#{one.name}) |\n" for one in rows)
    return "| message | it is | name |\n| --- | --- | --- |\n" + index + "".join(map(_section, rows))


def _title(message: Message) -> str:
    texts = (*message.texts, *message.foreign)
    return _code(texts[0]) if texts else "any other exception at the end of a traceback"


def _section(message: Message) -> str:
    texts = [_code(text) for text in (*message.texts, *message.foreign)]
    text = f"\n## {message.name}\n\n" + "".join(f"- {each}\n" for each in texts) + "\n" * bool(texts)
    text += f"{message.meaning}\n\n| sign | cause | what to do |\n| --- | --- | --- |\n"
    for cause in message.causes:
        text += f"| {_cell(cause.sign)} | {_why(cause)} | {_remedy(cause)} |\n"
    return text + f"\n*To record next:* {message.next}\n\n*Where trystate cannot help:* {message.beyond}\n"


def _why(cause: Cause) -> str:
    found = [registry.finding_named(number) for number in cause.findings]
    links = [f"[{f.number}](findings.md#{f.number.lower()}-{f.name}): {f.title}" for f in found]
    return _cell(" ".join([cause.why, *links] if cause.why else links))


def _remedy(cause: Cause) -> str:
    found = [
        (registry.finding_named(number), len(cause.findings) > 1 or bool(cause.remedy)) for number in cause.findings
    ]
    ways = [f"{f.number}: {f.workaround}" if several else f.workaround for f, several in found]
    return _cell(" ".join([cause.remedy, *ways] if cause.remedy else ways))


def _code(text: str) -> str:
    return f"`{FIELD.sub('…', text)}`"


def _cell(text: str) -> str:
    """A text as a cell of a table: a bar, also of code, or HTML markup would end the cell."""
    return re.sub(r"(`[^`]*`)|([|<>])", lambda m: m[1].replace("|", r"\|") if m[1] else f"\\{m[2]}", text)


def main() -> int:
    return settled(argparse.ArgumentParser(description=__doc__), lambda _: [filled(PAGE, {"messages": messages})])


if __name__ == "__main__":
    sys.exit(main())
