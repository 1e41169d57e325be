"""Subjects of the conformance suites: objects that take steps and show their state.

A subject is the thing under test behind an adapter: torch's own classes, our runtime, or yours. An `async` method is
awaited before the next call, all in one event loop; tasks that it started run only while a method is awaited. A
generator has done nothing when it returns, so it is refused.
"""

from __future__ import annotations

import difflib
import enum
import operator
from collections.abc import Awaitable, Callable, Mapping
from inspect import isasyncgen, isawaitable, isgenerator, signature
from typing import TYPE_CHECKING, Any, Protocol

from trystate.model import TrystateError
from trystate.model.errors import UsageError
from trystate.model.language import Sort, State, System
from trystate.model.language.sorts import enum_sort, ordinal

if TYPE_CHECKING:
    import asyncio


class Refused(TrystateError):
    """The subject does not take this step now, and has not changed."""


class Disagreement(TrystateError):
    """The subject differs from the model. The text has the difference and the steps before it."""


class Subject(Protocol):
    """An adapter between a model's steps and the thing under test. Each method may be `async`."""

    @property
    def reset(self) -> Callable[..., Awaitable[None] | None]:
        """Go back to the model's initial state: `def reset(self)`.

        If the system has several initial states, `def reset(self, cells)` gets one of them: the name of a cell -> its
        value, which is a number, True or False, the name of an enum's member, or None for no member of an index.
        """

    def perform(self, step: str, indices: tuple[Any, ...]) -> Awaitable[None] | None:
        """Take one step of the model.

        `indices` are the numbers of the members of its `each`, and then the values that it chooses.

        Raises:
            Refused: the subject does not take this step now; it must not have changed.
        """

    def observe(self) -> Awaitable[Mapping[str, Any]] | Mapping[str, int | str | enum.Enum | None]:
        """The visible state: the name of a cell (`member[0]`) -> its value.

        A value is a number, a bool, an enum's member, or None where a field has no member of an index.

        Cells that are left out are not compared.
        """

    def can_refuse(self, step: str) -> Awaitable[bool] | bool:
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


def cells_of(system: System, state: State) -> dict[str, Any]:
    """A state as an adapter shows it: the name of a cell -> a number, a bool, the name of an enum's member, or None."""
    return {cell.name: _python(cell.sort, value) for cell, value in zip(system.cells, state, strict=True)}


def _python(sort: Sort, value: int) -> Any:
    if sort.kind == "index" and value < 0:
        return None
    return sort.labels[value] if sort.labels else bool(value) if sort.kind == "bool" else value


def check_reset(system: System, subject: Any) -> None:
    """Check that the subject can be reset to each of several initial states.

    Raises:
        UsageError: its `reset` does not take the cells.
    """
    try:
        signature(subject.reset).bind({})
    except TypeError:
        count, name = len(system.initial_states), type(subject).__name__
        raise UsageError(
            f"{system.name} has {count} initial states, and {name}.reset takes no argument: let reset(cells) go to the "
            "state whose values it gets, name of a cell -> value"
        ) from None


class Calls:
    """Calls of the methods of subjects. All async methods are awaited in one event loop."""

    def __init__(self) -> None:
        self._runner: asyncio.Runner | None = None

    def close(self) -> None:
        if self._runner is not None:
            self._runner.close()
            self._runner = None

    def __call__(self, subject: object, method: str, *given: object) -> Any:
        """Call a method, which must run to its end, and return the result.

        Raises:
            UsageError: it is a generator, which has not run.
        """
        result = getattr(subject, method)(*given)
        if result is None or type(result) in (bool, dict):
            return result
        return self.done(f"{type(subject).__name__}.{method}", result)

    def done(self, name: str, result: Any) -> Any:
        """The result of a call, after it was awaited.

        Raises:
            UsageError: it is a generator, which has not run.
        """
        if isgenerator(result) or isasyncgen(result):
            raise UsageError(f"{name} is a generator, which does nothing when it is called: leave `yield` out")
        if not isawaitable(result):
            return result
        import asyncio  # needed only for an adapter that is async

        async def awaited() -> Any:
            return await result

        self._runner = self._runner or asyncio.Runner()
        return self._runner.run(awaited())
