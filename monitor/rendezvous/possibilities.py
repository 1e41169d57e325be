"""The set of states that a record allows, and what is done to all of them at once."""

from __future__ import annotations

from collections.abc import Callable, Iterable

from trystate.model.rendezvous.vocabulary import Edition

from .editions import EDITIONS, Moves, build
from .known import Event, Trail
from .nodes import Roster
from .shared_state import Protocol, Snapshot
from .states import Lens, rearranged
from .stepping import Bytes, Stepper, Values

UNKNOWN_MAX = 60_000  # min and max while the record has not shown them


class Possibilities:
    """States, each with the steps that led to it since there was only one. A node that is not there yet has crashed."""

    def __init__(self, protocol: Protocol, edition: Edition, low: int | None, high: int | None) -> None:
        self.protocol, self.edition = protocol, edition
        self.moves: Moves = EDITIONS[edition]
        self.low, self.high = low, high
        self.roster = Roster(protocol)
        self.snapshot = Snapshot()
        self.now, self.place = 0.0, ""
        self.stepper = Stepper(build(self.moves, 2, *self._sizes()))
        self.lens = Lens(self.stepper, protocol)
        absent: Values = {("crashed", (k,)): 1 for k in range(2)}
        self.states: dict[Bytes, Trail | None] = {self.stepper.put(self.stepper.initial, absent): None}

    def each(self, names: Iterable[str], node: int, *, keep: bool = True) -> None:
        """From each state, take any of these steps of a node as often as it goes.

        Keep where they lead, and with `keep` also where they began.
        """
        names = tuple(names)
        found: dict[Bytes, Trail | None] = {}
        queue, seen = list(self.states.items()), set(self.states)
        for state, trail in queue:
            here, moved = self.stepper.at(state, node), False
            for name in names:
                after = self.stepper.step(name, here)
                if after is None:
                    continue
                moved, after = True, self.refilled(after)
                if after not in seen:
                    seen.add(after)
                    queue.append((after, self.then(trail, name, node)))
            if keep or not moved:
                found[state] = trail
        self.states = found

    def refilled(self, state: Bytes) -> Bytes:
        """Faults happen as often as they did."""
        if all(state[at] == value for at, value in self.lens.counters):
            return state
        out = list(state)
        for at, value in self.lens.counters:
            out[at] = value
        return tuple(out)

    def always(self, name: str, *indices: int) -> None:
        """Take a step in each state in which it is possible."""
        step, at = self.stepper.step, self.stepper.at
        label = name if name in ("crash", "resume") else ""
        self.change(lambda state: self.refilled(step(name, at(state, *indices)) or state), label, *indices)

    def change(self, change: Callable[[Bytes], Bytes], label: str = "", node: int | None = None) -> None:
        out: dict[Bytes, Trail | None] = {}
        for state, trail in self.states.items():
            after = self.refilled(change(state))
            told = label and after != state
            out.setdefault(after, self.then(trail, label, node) if told else trail)
        self.states = out

    def then(self, trail: Trail | None, step: str, node: int | None) -> Trail | None:
        if step in ("keep_alive", "mark_done"):
            return trail
        who = self.roster.peers[node].who if node is not None else None
        return Trail(trail, Event(self.now, self.place, step, who, self.snapshot.round))

    # ---- other sizes

    def _sizes(self) -> tuple[int, int]:
        """min:max; while no deadline was set and no round complete, each is more than there are nodes."""
        high = self.high or UNKNOWN_MAX
        return min(self.low or high, high), high

    def rebuild(self, size: int, sources: list[int | None]) -> None:
        """The system for other sizes; the states stay what they are."""
        old = self.stepper
        self.stepper = Stepper(build(self.moves, size, *self._sizes()))
        self.stepper.taken = old.taken
        self.lens = Lens(self.stepper, self.protocol)
        self.rearrange(old, sources)

    def rearrange(self, old: Stepper, sources: list[int | None]) -> None:
        new = self.stepper
        self.states = {rearranged(state, old, new, sources): trail for state, trail in self.states.items()}
