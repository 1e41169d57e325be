"""The known messages in a log, or in a text that a person pastes, and the first error among them.

Theory of operation. Colours and a launcher's prefix of a line (the rank, the time, the place in the source) are
removed. A line matches at most one row of `model/messages`. Within a traceback only its last line counts, because the
others are source text; a last line without a row is an error of the script. The first error is the first in the order
of the lines: clocks of machines are not compared.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator
from dataclasses import dataclass

from trystate.model.messages import SCRIPT_ERROR, Cause, Kind, Message, Values, found_in, having

LOG_BYTES_MAX = 64 << 20
LINE_CHARACTERS_MAX = 20_000  # the rest of a line is ignored
SHOWN_CHARACTERS_MAX = 600
FRAGMENT_CHARACTERS_MIN = 8  # shortest part of a message that is searched for
RANKS_MAX = 10_000  # tracebacks that are followed at one time

COLOURS = re.compile(r"\x1b\[[0-?]*[ -/]*[@-~]|\x1b\][^\x07\x1b]{0,200}(?:\x07|\x1b\\)|\x1b[@-Z\\-_]")
TIME = r"\d{4}[-/]\d\d[-/]\d\d[T ]\d\d:\d\d:\d\d(?:[.,]\d+)?(?:Z|[+-]\d\d:?\d\d)?"
LEAD = re.compile(
    r"\[?(?P<rank>(?:rank|default|Rank |node)\s?\d+)\](?::\s?|\s)?"  # [rank0]:, [default0]:, [Rank 3]
    rf"|\[{TIME}\][:,]?\s?|{TIME}[:,]?\s?"  # 2026-11-27T10:00:00.123Z
    r"|\[?[IWEF]\d{4} \d\d:\d\d:\d\d[.\d]*(?: +\d+)? [^\]\s]{1,300}\]\s?"  # E1127 10:00:00.123 4711 torch/a.py:12]
    r"|\[[IWEF] [\w./]{1,200}:\d+\]\s?"  # [W socket.cpp:601]
    r"|(?P<task>\d{1,5}): "  # srun --label
    r"|(?:DEBUG|INFO|WARNING|ERROR|CRITICAL):(?:[\w.]{1,200}:)?\s?"
)
LEADS_MAX = 6
EXCEPTION = re.compile(r"[A-Za-z_][\w.]{0,200}(?::\s|$)")
TRACEBACK = "Traceback (most recent call last)"


@dataclass(slots=True)
class Found:
    """A row that a text matches; `causes` are the causes that the values of the message show, or else all."""

    message: Message
    text: str
    line: int
    causes: tuple[Cause, ...]
    decided: bool
    count: int = 1

    @property
    def kind(self) -> Kind:
        """The kind of the message, which a decided cause may change."""
        if self.decided and self.message.kind is not Kind.NOTE:
            return Kind.CONSEQUENCE if all(cause.follows for cause in self.causes) else Kind.ERROR
        return self.message.kind


def bare(line: str) -> tuple[str, str]:
    """A line without colours and without a launcher's prefix, and the rank in that prefix."""
    text, rank = COLOURS.sub("", line[:LINE_CHARACTERS_MAX]), ""
    for _ in range(LEADS_MAX):
        lead = LEAD.match(text)
        if lead is None:
            break
        rank = lead["rank"] or lead["task"] or rank
        text = text[lead.end() :]
    return text.rstrip(), rank


def messages(text: str) -> list[Found]:
    """The rows of a log, in the order of their first lines; repetitions are counted."""
    found: dict[object, Found] = {}
    for number, line, row in _rows(text.split("\n")):
        message, values = row
        shown = tuple(cause for cause in message.causes if cause.here is not None and cause.here(values))
        key = (message.name, shown) if message is not SCRIPT_ERROR else line.partition(":")[0]
        if key in found:
            found[key].count += 1
        else:
            found[key] = Found(message, line[:SHOWN_CHARACTERS_MAX], number, shown or message.causes, bool(shown))
    return [*found.values()]


def _rows(lines: Iterable[str]) -> Iterator[tuple[int, str, tuple[Message, Values]]]:
    inside: set[str] = set()  # the ranks that write a traceback
    for number, whole in enumerate(lines, 1):
        for part in whole.split("\r"):  # a progress bar
            line, rank = bare(part)
            if TRACEBACK in line:
                if len(inside) < RANKS_MAX:
                    inside.add(rank)
                continue
            if not line or line.startswith("frame #"):
                continue
            if rank in inside and line[0].isspace():
                continue
            row = found_in(line)
            if rank in inside:
                inside.discard(rank)
                row = row or ((SCRIPT_ERROR, {}) if EXCEPTION.match(line) else None)
            if row is not None:
                yield number, line.strip(), row


def pasted(text: str) -> list[Found]:
    """The rows of a text that a person pastes, like a log's; for a part of a message, the row with that part."""
    if found := messages(text):
        return found
    words = bare(text.strip())[0]
    row = having(words) if len(words) >= FRAGMENT_CHARACTERS_MIN and "\n" not in words else None
    return [] if row is None else [Found(row, words[:SHOWN_CHARACTERS_MAX], 1, row.causes, False)]


def first_error(found: Iterable[Found]) -> Found | None:
    """The first row that is an error, or else the first note; None: all rows are consequences."""
    ranked = sorted((f for f in found if f.kind is not Kind.CONSEQUENCE), key=lambda f: (f.kind is Kind.NOTE, f.line))
    return ranked[0] if ranked else None
