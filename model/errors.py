"""The package's one tree of exceptions. Blame is in the name, the remedy in the text."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any, ClassVar


class TrystateError(Exception):
    """Root of every exception that this package raises on purpose.

    A class of errors that operators meet has their section of docs/troubleshooting.md as `symptom`; a note names it.
    """

    symptom: ClassVar[str] = ""

    def __init__(self, *args: Any) -> None:
        super().__init__(*args)
        if self.symptom:
            self.add_note(f"docs/troubleshooting.md#{self.symptom} has the causes and remedies")


class DeclarationError(TrystateError):
    """A declaration is wrong: the text begins with the file and line that wrote it.

    Raised while a system is built, or by an engine that explored a step which the declaration
    did not allow for (an effect out of a field's range, a step to a state that was not claimed).
    """


class UsageError(TrystateError):
    """An argument is wrong: the text names the value, what is allowed, and the remedy."""


class UnavailableError(TrystateError):
    """An optional package or program is missing: the text names it and how to get it."""


class LimitReached(TrystateError):
    """A search stopped at a limit of states, memory or time before it was complete."""


def unknown(what: str, name: str, known: Iterable[str], *, show: Iterable[str] | None = None) -> str:
    """`no system 'rendez': did you mean rendezvous?`; if no name is near, those of `show`, or else all."""
    import difflib  # only where an error is told

    names = {each.lower(): each for each in known}
    close = [names[each] for each in difflib.get_close_matches(name.lower(), names, n=3)]
    if close:
        return f"no {what} {name!r}: did you mean {' or '.join(close)}?"
    return f"no {what} {name!r}: known are {', '.join(names.values() if show is None else show) or 'none'}"
