"""The events of a run, and the properties that do not hold in it."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

from trystate.impl.rendezvous.state import State
from trystate.model.errors import TrystateError

from .moments import Time
from .schedule import Fault


@dataclass(frozen=True, slots=True)
class Event:
    """An event of a run: its time in seconds, its node, and the state that was written, if one was."""

    at: float
    who: str
    what: str
    state: State | None = None
    fault: Fault | None = None

    def __str__(self) -> str:
        return f"{self.at:8.3f} {self.who:5} {self.what}{shown(self.state) if self.state is not None else ''}"


class Violation(TrystateError):
    """A property does not hold in a run: its name in the model, and the facts that contradict it."""

    def __init__(self, name: str, seen: str) -> None:
        super().__init__(f"{name}: {seen}")
        self.name, self.seen = name, seen

    def __reduce__(self) -> tuple[type[Violation], tuple[str, str]]:
        return Violation, (self.name, self.seen)


def demand(holds: object, name: str, *seen: object) -> None:
    """Raises Violation unless `holds`. `seen` is formatted only then: each node calls this a hundred times a run."""
    if not holds:
        raise Violation(name, ", ".join(shown(one) if isinstance(one, State) else str(one) for one in seen))


class Watch:
    """The events of a run so far, and the properties that do not hold."""

    def __init__(self, time: Time) -> None:
        self._time = time
        self.log: list[Event] = []
        self.violations: dict[str, Violation] = {}  # the first violation of each property

    def say(self, who: str, what: str, state: State | None = None) -> None:
        self.log.append(Event(self._time.now, who, what, state))

    def strikes(self, fault: Fault) -> None:
        self.log.append(Event(self._time.now, "", str(fault)[8:], fault=fault))

    def demand(self, holds: object, name: str, seen: str) -> None:
        if not holds and name not in self.violations:
            self.violations[name] = Violation(name, seen)
            self.say("", f"violated: {name}: {seen}")

    def look(self) -> None:
        """Called at regular intervals."""

    def unrest(self) -> Iterator[tuple[str, str]]:
        """Why a run without disturbances is not at rest yet: properties, each with the fact that contradicts it."""
        raise NotImplementedError


def shown(state: State) -> str:
    """`round 3 complete: 0 1 2; waiting 4`"""
    lists = {"": state.participants, "expected ": state.expected, "waiting ": state.waiting, "spare ": state.spares}
    parts = [name + " ".join(p.node.token for p in nodes) for name, nodes in lists.items() if nodes]
    flags = f"{' complete' if state.complete else ''}{' closed' if state.closed else ''}"
    return f"round {state.round}{flags}: {'; '.join(parts) or 'nobody'}"
