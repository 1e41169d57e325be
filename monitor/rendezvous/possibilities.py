"""The set of states that a record allows, and what is done to all of them at once."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from functools import lru_cache

from trystate.model.language.sorts import ordinal
from trystate.model.rendezvous.vocabulary import AgentPhase, Edition

from .editions import EDITIONS, Moves, build
from .known import Event, Trail
from .nodes import Roster
from .shared_state import Protocol, Snapshot
from .states import Lens, rearranged
from .stepping import Bytes, Stepper, Values

UNKNOWN_MAX = 60_000  # min and max while the record has not shown them
STEPPERS_MAX = 64  # systems that are kept: tracing one, and compiling its trees, is half the time of a short record


@lru_cache(STEPPERS_MAX)
def _stepper(edition: Edition, nodes: int, low: int, high: int) -> Stepper:
    return Stepper(build(EDITIONS[edition], nodes, low, high))


class Possibilities:
    """States, each with the steps that led to it since there was only one. A node that is not there yet has crashed."""

    def __init__(self, protocol: Protocol, edition: Edition, low: int | None, high: int | None) -> None:
        self.protocol, self.edition = protocol, edition
        self.moves: Moves = EDITIONS[edition]
        self.low, self.high = low, high
        self.roster = Roster(protocol)
        self.snapshot = Snapshot()
        self.now, self.place = 0.0, ""
        self.stepper = _stepper(edition, 2, *self._sizes())
        self.lens = Lens(self.stepper, protocol)
        self._sort_steps()
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
        self.stepper = _stepper(self.edition, size, *self._sizes())
        self.lens = Lens(self.stepper, self.protocol)
        self._sort_steps()
        self.rearrange(old, sources)

    def _sort_steps(self) -> None:
        """Which steps of the system a line shows, and which leave no trace."""
        self.writes = self.moves.writes(self.stepper.system)
        self.traceless = self.moves.traceless(self.stepper.system)

    def rearrange(self, old: Stepper, sources: list[int | None]) -> None:
        new = self.stepper
        self.states = {rearranged(state, old, new, sources): trail for state, trail in self.states.items()}

    def insert(self, place: int) -> None:
        """A node is known from now on, at this place of the roster."""
        count, size = len(self.roster.peers), self.stepper.columns["member"].shape[0]
        sources: list[int | None] = [*range(place), None, *range(place, count - 1)]
        if count > size:
            self.rebuild(size * 2, sources)
        else:
            self.rearrange(self.stepper, sources)

    def forget_the_gone(self) -> bool:
        """Make room: nodes that have left or died, are on no list, and that no node still counts on."""
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
