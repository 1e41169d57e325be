"""`trystate explain --message`: what a message of a job on torch means, its causes, and what to do.

Rule: it does not need torch; the exit code is 0 only for a text that has a known message.
"""

from __future__ import annotations

import argparse
import json
import os
import sys
import textwrap
from collections.abc import Iterator
from typing import Any

from trystate.impl.host.visible import visible
from trystate.model.errors import UsageError
from trystate.model.messages import Cause, Kind
from trystate.monitor.logs import LOG_BYTES_MAX, Found, first_error, pasted

from .. import registry
from ..exits import Exit
from ..report.results import plural

WIDTH = 110
SHOWN_MAX = 40  # rows of one log
STANDARD_INPUT = "-"
UNKNOWN = (
    "no known message is in this text. Paste the last line of the traceback, or give the whole log as a file. "
    "docs/messages.md has all messages, and docs/troubleshooting.md begins with what you see. If it is the script's "
    "own exception, or one of NCCL or CUDA, trystate has no explanation of it"
)


def message(args: argparse.Namespace) -> int:
    """Carry out the command; returns the exit code.

    Raises:
        UsageError: a file of records is given as well, or the text is too long or cannot be read.
    """
    if args.files or args.html is not None or args.diagram is not None:
        raise UsageError("--message explains only a text: leave out the FILE of a record, --html and --diagram")
    text, place = _given(args.message)
    if not text.strip():
        raise UsageError(f"{place} is empty: give the text of a message, the path of a log, or - for standard input")
    found = pasted(text)
    if args.json:
        print(json.dumps(_data(place, found), indent=2))
    elif found:
        print("\n".join(_text(place, found)))
    if found:
        return Exit.OK
    print(f"trystate: {UNKNOWN}", file=sys.stderr)
    return Exit.INCOMPLETE


def _given(said: str) -> tuple[str, str]:
    """The text and its origin."""
    if said == STANDARD_INPUT:
        return _decoded(sys.stdin.buffer.read(LOG_BYTES_MAX + 1), "standard input"), "standard input"
    if said.strip() and os.path.exists(said):
        try:
            with open(said, "rb") as stream:
                return _decoded(stream.read(LOG_BYTES_MAX + 1), said), said
        except OSError as error:
            raise UsageError(f"{said} cannot be read: {error.strerror or error}; give the path of a log") from None
    return _decoded(os.fsencode(said), "the text"), "the text"


def _decoded(data: bytes, place: str) -> str:
    if len(data) > LOG_BYTES_MAX:
        raise UsageError(
            f"{place} is larger than the limit of {LOG_BYTES_MAX >> 20} MiB for a log: give the part around the first "
            "error, such as grep -n -m 1 -B 20 -A 2000 -i error LOG prints it"
        )
    return data.decode("utf-8", "replace")


def _text(place: str, found: list[Found]) -> Iterator[str]:
    first = first_error(found)
    several = len(found) > 1
    if several:
        yield f"{visible(place)}: {plural(len(found), 'known message')}"
        yield ""
    if first is not None:
        yield f"the first error, in line {first.line}: {first.message.name}" if several else first.message.name
        yield from _explained(first)
    elif several:
        yield "each of them is a consequence: the first error is in the log of another rank or node"
        yield from _explained(found[0])
    else:
        yield found[0].message.name
        yield from _explained(found[0])
    rest = [one for one in found if one is not (first or found[0])]
    for kind, title in (
        (Kind.CONSEQUENCE, "what follows from it" if first is not None else "other consequences"),
        (Kind.ERROR, "errors that come later, and may follow from it"),
        (Kind.NOTE, "notes, which need not be errors"),
    ):
        mine = [one for one in rest if one.kind is kind]
        if mine:
            yield ""
            yield title
        for one in mine[:SHOWN_MAX]:
            times = f", {one.count} times" if one.count > 1 else ""
            yield f"    line {one.line}{times}: {one.message.name}: {visible(one.text)[:WIDTH]}"
            yield from _wrapped(one.message.meaning, 8)
    yield ""
    yield "docs/messages.md has each message with all its causes"


def _explained(one: Found) -> Iterator[str]:
    yield from _wrapped(visible(one.text), 4)
    yield ""
    yield from _wrapped(one.message.meaning, 4)
    if one.kind is Kind.CONSEQUENCE:
        yield from _wrapped("It follows from an earlier error: look for that error.", 4)
    label = "if" if not one.decided else "here" if len(one.causes) == 1 else "possible here"
    for cause in one.causes:
        yield ""
        yield from _wrapped(f"{label}: {cause.sign}", 4)
        yield from (line for part in _why(cause) for line in _wrapped(part, 8))
    yield ""
    yield from _wrapped(f"to record next: {one.message.next}", 4)
    yield from _wrapped(f"where trystate cannot help: {one.message.beyond}", 4)


def _why(cause: Cause) -> Iterator[str]:
    """The cause and its remedy, then each finding with its condition and workaround."""
    if cause.why:
        yield cause.why
    if cause.remedy:
        yield f"what to do: {cause.remedy}"
    for number in cause.findings:
        finding = registry.finding_named(number)
        yield f"{finding.number} {finding.name}: {finding.title}"
        yield f"    it happens with: {finding.exposed}"
        yield f"    what to do: {finding.workaround}"


def _wrapped(text: str, indent: int) -> list[str]:
    more = indent + len(text) - len(text.lstrip())
    return textwrap.wrap(text.strip(), WIDTH, initial_indent=" " * more, subsequent_indent=" " * more)


def _data(place: str, found: list[Found]) -> dict[str, Any]:
    first = first_error(found)
    return {
        "format": 1, "of": place, "first": None if first is None else first.message.name,
        "messages": [
            {
                "name": one.message.name, "kind": one.kind.name, "line": one.line, "count": one.count, "text": one.text,
                "meaning": one.message.meaning, "decided": one.decided, "next": one.message.next,
                "beyond": one.message.beyond,
                "causes": [
                    {"sign": c.sign, "why": c.why, "remedy": c.remedy, "findings": list(c.findings)} for c in one.causes
                ],
            }
            for one in found
        ],
    }  # fmt: skip
