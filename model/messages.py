"""The messages that people paste from a job on torch: what each means, and which finding or mistake causes it.

Theory of operation. A row has the texts of a message, with `{name}` where a value is; `{name:d}` is a whole number. A
text matches a line that has its fixed parts in this order, in upper or lower case. The rows are ordered from the
particular to the general, and a line belongs to the first row that it matches. Each cause of a row has a sign. Where
the values of the message decide (such as `worker_count=4, world_size=2`), `here` tests them. A cause that is a finding
has no texts here: the finding has its title, condition and workaround.

Rule: the rows are data, in messages.toml. `docs/messages.py` writes docs/messages.md from them, `trystate explain
--message` answers from them, and the page of `trystate page` searches them.
"""

from __future__ import annotations

import enum
import pkgutil
import re
import tomllib
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import cached_property
from typing import Any

Values = Mapping[str, str]

FIELD = re.compile(r"\{(\w+)(:d)?\}")
SPACES = re.compile(r"\s+")


class Text(str):
    """A text of a message, with `{name}` where a value is."""

    @cached_property
    def parts(self) -> tuple[str, ...]:
        """The fixed parts, in their order."""
        return tuple(part for part in FIELD.split(self)[::3] if part)

    @cached_property
    def pattern(self) -> re.Pattern[str]:
        """An expression with a group for each value."""
        pieces = FIELD.split(self)
        values = [
            rf"(?P<{name}>-?\d+)" if number else rf"(?P<{name}>.{{0,2000}}?)"
            for name, number in zip(pieces[1::3], pieces[2::3], strict=True)
        ]
        if values and not pieces[-1]:
            values[-1] = values[-1].replace("?)", ")")  # a value at the end takes the rest of the line
        fixed = [re.escape(piece) for piece in pieces[::3]]
        return re.compile("".join(map("".join, zip(fixed, [*values, ""], strict=True))), re.I)

    def found_in(self, line: str) -> Values | None:
        """The values in a line; None if the text does not match it."""
        lowered = line.lower()
        if not all(part.lower() in lowered for part in self.parts):
            return None
        match = self.pattern.search(line)
        return None if match is None else match.groupdict()


class Kind(enum.Enum):
    """How a message relates to the other messages of a log."""

    ERROR = "an error"
    CONSEQUENCE = "a consequence of an error that was before it"
    NOTE = "a note, which need not be an error"


@dataclass(frozen=True, slots=True)
class Cause:
    """A cause of a message: the findings with these numbers, or a mistake that `why` describes.

    sign: how to distinguish it from the other causes of the row.
    here: whether the values of a message show this cause; None if they cannot.
    follows: this cause means that another error preceded the message.
    """

    sign: str
    why: str = ""
    remedy: str = ""
    findings: tuple[str, ...] = ()
    here: Callable[[Values], bool] | None = None
    follows: bool = False


@dataclass(frozen=True, slots=True)
class Message:
    """A row.

    name: a short label.
    texts: torch's texts; the first one is shown.
    foreign: texts of a build with CUDA, of an older torch, of a library or of the system.
    meaning: one or two sentences.
    next: what to record if the signs do not identify a cause.
    beyond: where trystate cannot help, and which tool can.
    kind: how it relates to the other messages of a log, if no cause decides.
    """

    name: str
    meaning: str
    causes: tuple[Cause, ...]
    next: str
    beyond: str
    texts: tuple[str, ...] = ()
    foreign: tuple[str, ...] = ()
    kind: Kind = Kind.ERROR

    @property
    def shown(self) -> str:
        """The text for a heading."""
        return (*self.texts, *self.foreign)[0]

    def found_in(self, line: str) -> Values | None:
        """The values of the first text that matches a line; None if no text does."""
        return next((values for text in TEXTS[self.name] if (values := text.found_in(line)) is not None), None)


ARRIVALS: Mapping[str, Callable[[int, int], bool]] = {  # takes the counted ranks and the size of the world
    "counted again": lambda n, world: n > world > 0 and n % world == 0,
    "too many": lambda n, world: n > world > 0 and n % world != 0,
    "all": lambda n, world: n == world > 0,
    "some missing": lambda n, world: 0 < n < world,
    "below": lambda n, world: n < world,
    "not below": lambda n, world: n >= world,
}


def _test(here: Mapping[str, Any]) -> Callable[[Values], bool]:
    """The test of a cause on the values: how many ranks have arrived, or what one value is or matches."""

    def holds(values: Values) -> bool:
        if "arrived" in here:
            return ARRIVALS[here["arrived"]](int(values.get("arrived") or 0), int(values.get("world") or 0))
        found = values.get(here["value"])
        if "matches" in here:
            return re.search(here["matches"], found or "") is not None
        number = int(found or 0)
        return number in here["is"] if "is" in here else number > int(here["above"])

    return holds


def _cause(row: Mapping[str, Any]) -> Cause:
    row = _SHARED[row["same"]] if "same" in row else row
    made = {"findings": tuple(row.get("findings", ())), "here": _test(row["here"]) if "here" in row else None}
    return Cause(**{**row, **made})


def _message(name: str, row: Mapping[str, Any]) -> Message:
    made = {key: _ADVICE.get(row[key], row[key]) for key in ("next", "beyond")}
    several = {key: tuple(row.get(key, ())) for key in ("texts", "foreign")}
    kind = Kind[row.get("kind", Kind.ERROR.name)]
    return Message(name, **{**row, **made, **several, "causes": tuple(map(_cause, row["causes"])), "kind": kind})


_ROWS = tomllib.loads((pkgutil.get_data(__name__, "messages.toml") or b"").decode())
_ADVICE, _SHARED = _ROWS.pop("texts"), _ROWS.pop("causes")
*_MESSAGES, SCRIPT_ERROR = (_message(name, row) for name, row in _ROWS.items())
"""The rows in their order. The last one is for an exception at the end of a traceback that no other row matches."""

MESSAGES: Mapping[str, Message] = {message.name: message for message in _MESSAGES}
TEXTS: Mapping[str, tuple[Text, ...]] = {
    message.name: tuple(map(Text, (*message.texts, *message.foreign))) for message in _MESSAGES
}


def found_in(line: str) -> tuple[Message, Values] | None:
    """The row of a line, and the values in the line; None if no row matches it.

    line: a line without colours, and without the rank and time in front of it.
    """
    told = SPACES.sub(" ", line)
    return next(((row, values) for row in _MESSAGES if (values := row.found_in(told)) is not None), None)


def having(words: str) -> Message | None:
    """The first row with these words in a fixed part of one of its texts. It finds a part of a message."""
    told = SPACES.sub(" ", words).strip().lower()
    parts = ((row, part) for row in _MESSAGES for text in TEXTS[row.name] for part in text.parts)
    return next((row for row, part in parts if told in part.lower()), None)
