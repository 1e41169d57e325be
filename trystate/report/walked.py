"""A recorded rendezvous as a walk for the page's player.

*Theory of operation.* A follower has the steps that are certain, and the state after them whenever the record leaves
only one state possible. `Watched` keeps that state each time. At the end the steps are taken again, one after the
other, in the model for the nodes of the record. The kept state may differ: time has passed, which has no line, or a
value bypassed the recorder. Then the walk lists the cells that have other values after that step. If the record has a
step that the model does not take from there, the page shows it next to the steps that the model takes.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import islice, product
from pathlib import Path

from trystate.model.errors import UsageError
from trystate.monitor.rendezvous.editions import EDITIONS, build
from trystate.monitor.rendezvous.follower import Follower
from trystate.monitor.rendezvous.judging import Problem
from trystate.monitor.rendezvous.known import TakenStep
from trystate.monitor.rendezvous.shared_state import NodeName
from trystate.monitor.rendezvous.states import rearranged
from trystate.monitor.rendezvous.stepping import Bytes, Stepper, Values
from trystate.page.contents import Choice, Contents, Shown

from ..version import installed

NODES_MAX = 16  # lanes beyond cannot be read; a state has some fields for each pair of nodes
WALKS_MAX = 8  # walks of one record: one for each problem
STATES_MAX = 20_000  # states kept for a rendezvous
TIMES = 200  # bound on each fault: a record itself has none


@dataclass(frozen=True, slots=True)
class CertainState:
    """A state that was certain after `steps` certain steps. `peers` names the nodes in its order."""

    steps: int
    stepper: Stepper
    state: Bytes
    peers: tuple[NodeName, ...]


class Watched:
    """Keeps the certain states of one follower. Call `look` after each line."""

    def __init__(self) -> None:
        self.known: list[CertainState] = []

    def look(self, follower: Follower) -> None:
        if len(follower.states) != 1 or len(self.known) >= STATES_MAX:
            return
        (state,) = follower.states
        if self.known and self.known[-1].state is state:
            return
        steps = follower.dropped + len(follower.events)
        peers = tuple(peer.who for peer in follower.roster.peers)
        self.known.append(CertainState(steps, follower.stepper, state, peers))


def walked(follower: Follower, watched: Watched) -> Contents:
    """The page of a recorded rendezvous: its walk, and the explorer of its model.

    Raises:
        UsageError: too many nodes, or the first steps were let go.
    """
    names = _names(follower, watched)
    if len(names) > NODES_MAX:
        raise UsageError(f"--html: the record has {len(names)} nodes, a page at most {NODES_MAX}: use --diagram")
    if follower.dropped:
        raise UsageError(f"--html: the record has {follower.dropped} more steps than are kept: use --diagram")
    if not names:
        raise UsageError("--html: the record has no node of a rendezvous to show: leave out --html")
    walk = _Walk(follower, watched, names)
    walk.take_all()
    harm = [problem for problem in follower.problems if problem.harm]
    lanes = [str(name.name) for name in names]
    fine = f"rendezvous {follower.run}: no property was violated"
    shown = [
        Shown(
            "recorded",
            fine if problem is None else problem.text,
            walk.choice,
            walk.steps,
            notes=walk.notes,
            loop=len(walk.steps)
            if problem is not None and problem.kind == "hopeless" and problem.until is None
            else None,
            breaks=walk.step_at(problem.time) if problem is not None and problem.kind == "hopeless" else None,
            property="" if problem is None else problem.name.partition("(")[0],
            findings=[problem.finding.number] if problem is not None and problem.finding is not None else [],
            lanes=lanes,
            set=walk.set,
        )
        for problem in (*_one_each(harm),) or (None,)
    ]
    findings = {p.finding.number: p.finding for p in harm if p.finding is not None}
    return Contents(
        heading=f"rendezvous {follower.run}, recorded", view="#/trace/0", shown=shown, torch=installed("torch"),
        findings=[*findings.values()],
    )  # fmt: skip


def _one_each(harm: Sequence[Problem]) -> list[Problem]:
    """The first problem of each finding, in the order in which they show; and of each property without a finding."""
    found: dict[tuple[str, str], Problem] = {}
    for problem in harm:
        found.setdefault(("", problem.name) if problem.finding is None else (problem.finding.number, ""), problem)
    return list(found.values())[:WALKS_MAX]


def _names(follower: Follower, watched: Watched) -> list[NodeName]:
    """All nodes, in the order of their ranks."""
    seen = {who for known in watched.known for who in known.peers} | {peer.who for peer in follower.roster.peers}
    return sorted(seen | {event.node for event in follower.events if event.node is not None})  # also a newcomer's step


class _Walk:
    """The steps of a record, taken in the model for its nodes."""

    def __init__(self, follower: Follower, watched: Watched, names: Sequence[NodeName]) -> None:
        self.follower, self.watched, self.names = follower, watched, names
        moves = EDITIONS[follower.edition]
        sizes = follower.stepper.system.sizes
        planned = build(moves, len(names), sizes["min_nodes"], sizes["max_nodes"])
        self.choice = Choice(
            moves.system, "rendezvous", moves.edition, planned.sizes, dict.fromkeys(planned.faults, TIMES)
        )  # fmt: skip
        self.system = moves.system(edition=moves.edition, faults=dict(self.choice.faults), **planned.sizes)
        self.stepper = Stepper(self.system)
        self.budget = {self.system.fault_counter(fault) for fault in self.system.faults}
        self.state = self.stepper.initial
        self.base = self.state  # the state of the page after the last step, before `set`
        self.steps: list[str] = []
        self.notes: list[str] = []
        self.times: list[float] = []  # the time of each step
        self.set: dict[int, dict[str, int]] = {}
        self._seen = 0  # events read; an event that is not a step of the model, such as silence, only changes the state

    def step_at(self, time: float) -> int:
        """The number of the last step at that time."""
        return sum(at <= time for at in self.times)

    def take_all(self) -> None:
        events = iter(self.follower.events)
        for known in self.watched.known:
            for event in islice(events, known.steps - self._seen):
                self._take(event)
            self.state = self._kept(known)
        for event in events:
            self._take(event)
        self._close()

    def _kept(self, known: CertainState) -> Bytes:
        """A kept state, extended to all nodes of the record; the walk counts the faults, the kept state does not."""
        places = {who: k for k, who in enumerate(known.peers)}
        sources = [places.get(who) for who in self.names]
        found = list(rearranged(known.state, known.stepper, self.stepper, sources))
        for name in self.budget:
            at = self.stepper.columns[name].at
            found[at] = self.state[at]
        absent: Values = {("crashed", (k,)): 1 for k, source in enumerate(sources) if source is None}
        return self.stepper.put(tuple(found), absent)

    def _take(self, event: TakenStep) -> None:
        self._seen += 1
        transition = self.stepper.transitions.get(event.step)
        if transition is None or len(transition.params) > 1:
            return
        node = self.names.index(event.node) if event.node is not None else None
        if transition.params and node is None:
            return
        indices = (node,) if transition.params and node is not None else ()
        label = event.step + (f"({indices[0]})" if indices else "")
        if node is not None and self.stepper.get(self.state, "crashed", node):  # absent before its first step
            self.state = self.stepper.put(self.state, {("crashed", (node,)): 0})
        self._close()
        after = self.stepper.step(event.step, self.stepper.at(self.state, *indices))
        self.steps.append(label)
        self.times.append(event.time)
        self.notes.append(f"{event.time - self.follower.first:.2f} s, {Path(event.place).name}")
        self.base = self.state = after if after is not None else self.state
        if after is None:
            self.set[len(self.steps)] = {}

    def _close(self) -> None:
        """Note what the record shows besides the last step."""
        changed = dict(self._differences())
        if changed:
            self.set.setdefault(len(self.steps), {}).update(changed)

    def _differences(self) -> Iterator[tuple[str, int]]:
        for name, column in self.stepper.columns.items():
            if name in self.budget or self.base[column.at] == self.state[column.at]:
                continue
            for place, indices in enumerate(product(*(range(size) for size in column.shape))):
                value = column.value(self.state, place)
                if value != column.value(self.base, place):
                    yield name + "".join(f"[{i}]" for i in indices), value
