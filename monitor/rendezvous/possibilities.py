"""The set of states that a record allows. An operation on the set changes all its states."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from functools import lru_cache

from trystate.model.language.sorts import ordinal
from trystate.model.rendezvous.vocabulary import AgentPhase, Edition

from .editions import EDITIONS, Moves, build
from .known import TakenStep, Trail
from .nodes import Roster
from .shared_state import Protocol, Snapshot
from .states import Lens, rearranged
from .stepping import Bytes, Stepper, Values

UNKNOWN_MAX = 60_000  # value of min and max while the record has not shown them
STEPPERS_MAX = 64  # cached systems: tracing one and compiling its trees is half the time of a short record


@lru_cache(STEPPERS_MAX)
def _stepper(edition: Edition, nodes: int, low: int, high: int) -> Stepper:
    return Stepper(build(EDITIONS[edition], nodes, low, high))


class Possibilities:
    """Possible states, each with the steps since the last certain state. A node that has not come yet has crashed."""

    def __init__(self, protocol: Protocol, edition: Edition, low: int | None, high: int | None) -> None:
        self.protocol, self.edition = protocol, edition
        self.moves: Moves = EDITIONS[edition]
        self.low, self.high = low, high
        self.roster = Roster(protocol)
        self.snapshot = Snapshot()
        self.now, self.place = 0.0, ""
        self._build(2)
        absent: Values = {("crashed", (k,)): 1 for k in range(2)}
        self.states: dict[Bytes, Trail | None] = {self.stepper.put(self.stepper.initial, absent): None}

    def each(self, names: Iterable[str], node: int, *, keep: bool = True) -> None:
        """From each state, take any of these steps of a node as often as possible.

        Keep the states after the steps, and with `keep` also the states before them.
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
        """The state with full counters of faults, because a follower does not limit them."""
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
        return Trail(trail, TakenStep(self.now, self.place, step, who, self.snapshot.round))

    # ---- other sizes

    def _sizes(self) -> tuple[int, int]:
        """min:max; before a deadline was set or a round was complete, each exceeds the number of nodes."""
        high = self.high or UNKNOWN_MAX
        return min(self.low or high, high), high

    def rebuild(self, size: int, sources: list[int | None]) -> None:
        """Rebuild the system for other sizes; the states keep their values."""
        old = self.stepper
        self._build(size)
        self.rearrange(old, sources)

    def _build(self, size: int) -> None:
        """Build the system, and sort its steps into steps that a line shows and steps without a trace."""
        self.size, self.stepper = size, _stepper(self.edition, size, *self._sizes())
        self.lens = Lens(self.stepper, self.protocol)
        self.writes = self.moves.writes(self.stepper.system)
        self.traceless = self.moves.traceless(self.stepper.system)

    def rearrange(self, old: Stepper, sources: list[int | None]) -> None:
        new = self.stepper
        self.states = {rearranged(state, old, new, sources): trail for state, trail in self.states.items()}

    def insert(self, place: int) -> None:
        """Add a node to the states, at this place of the roster."""
        sources: list[int | None] = [*range(place), None, *range(place, len(self.roster.peers) - 1)]
        if len(sources) > self.size:
            self.rebuild(self.size * 2, sources)
        else:
            self.rearrange(self.stepper, sources)

    def forget_the_gone(self) -> bool:
        """Drop nodes that have left or died, are on no list, and that no other node counts as a member or master."""
        gone = set(range(len(self.roster.peers)))
        for state in self.states:
            row, get = self.stepper.row, self.stepper.get
            masters, left = row(state, "master"), ordinal(AgentPhase.LEFT)
            saw = self.stepper.seen(state)
            over = [bool(a) or b == left for a, b in zip(row(state, "crashed"), row(state, "phase"), strict=True)]
            gone = {k for k in gone if over[k] and not get(state, "member", k) and not saw[k] and k + 1 not in masters}
        kept: list[int | None] = [k for k in range(len(self.roster.peers)) if k not in gone]
        if gone:
            self.roster.drop(gone)
            self.rearrange(self.stepper, kept)
        return bool(gone)
