"""The package's one tree of exceptions. The name of a class has the blame, the text the remedy."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any, ClassVar


class TrystateError(Exception):
    """Root of every exception that this package raises on purpose.

    If operators meet errors of a class, its `symptom` is a section of docs/troubleshooting.md, and a note names it.
    """

    symptom: ClassVar[str] = ""

    def __init__(self, *args: Any) -> None:
        super().__init__(*args)
        if self.symptom:
            self.add_note(f"docs/troubleshooting.md#{self.symptom} has the causes and remedies")


class DeclarationError(TrystateError):
    """A declaration is wrong: the text begins with the file and line of the declaration.

    It is raised while a system is built, or by an engine that has found a step that the declaration
    does not allow: its effect is out of a field's range, or it moves to a state that was not
    claimed.
    """


class UsageError(TrystateError):
    """An argument is wrong: the text names the value, the allowed values, and the remedy."""


class UnavailableError(TrystateError):
    """An optional package or program is missing: the text names it and how to get it."""


class LimitReached(TrystateError):
    """A search stopped at a limit of states, memory or time before it was complete."""


def unknown(what: str, name: str, known: Iterable[str], *, show: Iterable[str] | None = None) -> str:
    """`no system 'rendez': did you mean rendezvous?`; if no name is near, the text lists `show`, or else `known`."""
    import difflib  # needed only for an error

    names = {each.lower(): each for each in known}
    close = [names[each] for each in difflib.get_close_matches(name.lower(), names, n=3)]
    if close:
        return f"no {what} {name!r}: did you mean {' or '.join(close)}?"
    return f"no {what} {name!r}: known are {', '.join(names.values() if show is None else show) or 'none'}"
