"""Subjects of the conformance suites: objects that take steps and show their state.

A subject is the thing under test behind an adapter: torch's own classes, our runtime, or yours. Its methods are plain
functions. A method that is `async` or a generator has done nothing when it returns, so it is refused.
"""

from __future__ import annotations

import difflib
import enum
import operator
from collections.abc import Mapping
from inspect import isasyncgen, isawaitable, iscoroutine, isgenerator
from typing import Any, Protocol

from trystate.model import TrystateError
from trystate.model.errors import UsageError
from trystate.model.language import Sort, State, System
from trystate.model.language.sorts import enum_sort, ordinal


class Refused(TrystateError):
    """The subject does not take this step now, and has not changed."""


class Disagreement(TrystateError):
    """The subject differs from the model. The text has the difference and the steps before it."""


class Subject(Protocol):
    """An adapter between a model's steps and the thing under test."""

    def reset(self) -> None:
        """Go back to the model's initial state."""

    def perform(self, step: str, indices: tuple[Any, ...]) -> None:
        """Take one step of the model.

        `indices` are the numbers of the members of its `each`, and then the values that it chooses.

        Raises:
            Refused: the subject does not take this step now; it must not have changed.
        """

    def observe(self) -> Mapping[str, int | enum.Enum | None]:
        """The visible state: the name of a cell (`member[0]`) -> its value.

        A value is a number, a bool, an enum's member, or None where a field has no member of an index.

        Cells that are left out are not compared.
        """

    def can_refuse(self, step: str) -> bool:
        """Whether a disabled `step` can be tried.

        False for steps of the environment, and for steps whose trial would change the subject.
        """


def difference(system: System, state: State, seen: Mapping[str, Any], whose: str = "subject") -> str:
    """The differences between an observation and a state of the model, as text; empty if they agree.

    `whose` is what shows the values: the subject, or an event of a log.

    Raises:
        UsageError: the observation has a cell that the system does not have, or a value outside its cell's range.
    """
    if not isinstance(seen, Mapping):
        raise UsageError(f"observe() returned {seen!r}: return a mapping, name of a cell -> value")
    positions, shows = system.positions, "observe()" if whose == "subject" else f"the {whose}"
    out = []
    for name in sorted(name for name, value in seen.items() if not _is_same(positions.get(name), state, value)):
        if name not in positions:
            close = difflib.get_close_matches(name, positions, 1)
            known = f"did you mean {close[0]!r}?" if close else f"it has {', '.join(positions)}"
            raise UsageError(f"{shows} has the cell {name!r}, which {system.name} does not have: {known}")
        sort, expected = system.cells[positions[name]].sort, state[positions[name]]
        value = _value(f"{shows} has {name}", sort, seen[name])
        if value != expected:
            outside = "" if sort.low <= value <= sort.high else f", which is not in {sort.low}..{sort.high}"
            shown = str(value) if outside else sort.show(value)
            out.append(f"{name}: model {sort.show(expected)}, {whose} {shown}{outside}")
    return "; ".join(out)


def _is_same(position: int | None, state: State, value: object) -> bool:
    """Whether the value is a plain number, as nearly always, and equals the cell's."""
    return position is not None and type(value) in (int, bool) and state[position] == value


def _value(where: str, sort: Sort, value: object) -> int:
    """The number that a state has for a value that a subject shows."""
    if sort.kind == "enum":
        if isinstance(value, str) and value in sort.labels:
            return sort.labels.index(value)
        if isinstance(value, enum.Enum):
            if enum_sort(type(value)) is sort:
                return ordinal(value)
        elif isinstance(value, int) and not isinstance(value, bool) and sort.low <= value <= sort.high:
            return value
        wanted = (
            f"a member of {sort.name.rpartition('.')[2]} ({', '.join(sort.labels)}), its name, or its number from 0"
        )
    elif sort.kind == "index" and sort.low < 0 and value is None:
        return -1
    else:
        wanted = "True or False" if sort.kind == "bool" else f"a whole number from {sort.low} to {sort.high}"
        try:
            number = operator.index(value)  # type: ignore[arg-type]
        except TypeError:
            number = None
        if number is not None and (sort.kind != "bool" or number in (0, 1)):
            return number
    raise UsageError(f"{where}: {value!r}, not a value of it: give {wanted}, or leave the cell out")


def called(subject: object, method: str, *given: object) -> Any:
    """Call a subject's method, which must run to its end, and return the result.

    Raises:
        UsageError: it is a coroutine or a generator, which has not run.
    """
    result = getattr(subject, method)(*given)
    if result is None or type(result) in (bool, dict):
        return result
    check_plain(f"{type(subject).__name__}.{method}", result)
    return result


def check_plain(name: str, result: object) -> None:
    """Check that the result is not a coroutine or a generator, which a call does not run.

    Raises:
        UsageError: it is a coroutine or a generator.
    """
    if isgenerator(result):
        raise UsageError(f"{name} is a generator, which does nothing when it is called: leave `yield` out")
    if isawaitable(result) or isasyncgen(result):
        if iscoroutine(result):
            result.close()  # otherwise Python warns that it was never awaited
        raise UsageError(
            f"{name} is async, and is not awaited here: let it run to its end before it returns, as with "
            "asyncio.Runner().run(...)"
        )
