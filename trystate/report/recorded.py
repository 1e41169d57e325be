"""The sequence picture of a real run: the steps that are certain, collapsed to those that change what others see."""

from __future__ import annotations

from collections.abc import Iterator

from trystate.diagrams.sequence import story_dot
from trystate.model.checker.story import Change, Step, Story
from trystate.model.language import Kind
from trystate.monitor.rendezvous.editions import RAN
from trystate.monitor.rendezvous.follower import Follower
from trystate.monitor.rendezvous.judging import Problem
from trystate.monitor.rendezvous.known import Runs, TakenStep
from trystate.monitor.rendezvous.telling import TOLD

ROWS_MAX = 40
MEMBERS_MAX = 12  # lifelines; a wider picture cannot be read
REST = "other nodes"


def picture(follower: Follower) -> str:
    """The last steps of a run as a sequence diagram, in DOT."""
    events = [event for event in follower.events if event.step in TOLD or event.step in RAN[follower.protocol]]
    left = max(0, len(events) - ROWS_MAX)
    names = _members(follower, events[left:])
    steps = tuple(_steps(follower, events[left:], names))
    shown = tuple(names) if len(names) <= MEMBERS_MAX else (*names[:MEMBERS_MAX], REST)
    title = f"rendezvous {follower.run}: a recorded run"
    below = f" ({left} steps before these are left out)" if left else ""
    return story_dot(Story(follower.stepper.system, shown, (), steps, None, "store"), title + below)


def _members(follower: Follower, events: list[TakenStep]) -> list[str]:
    """The lifelines: the nodes that act, in the order of the ranks."""
    acting = {str(event.node) for event in events if event.node is not None}
    return [str(peer) for peer in follower.roster.peers if str(peer) in acting]


def _steps(follower: Follower, events: list[TakenStep], names: list[str]) -> Iterator[Step]:
    ran: dict[tuple[float, str], Runs] = {(r.time, str(r.node)): r for r in follower.runs}
    transitions = follower.stepper.transitions
    broken = {_row(events, problem): problem for problem in follower.problems if problem.harm}
    for number, event in enumerate(events, 1):
        known = transitions.get(event.step)
        kind = known.kind if known is not None else Kind.FAULT
        actor = names.index(str(event.node)) if str(event.node) in names else None
        actor = None if actor is None else min(actor, MEMBERS_MAX)
        note = f"{event.time - follower.first:.2f} s"
        found = ran.get((event.time, str(event.node)))
        if event.step in RAN[follower.protocol] and found is not None:
            note += f": runs as rank {found.rank} of {found.world}, with the master {found.master}"
        problem = broken.get(number)
        changes = [Change(problem.name or problem.kind, None, "holds", "VIOLATED")] if problem is not None else []
        if event.step in ("mark_complete", "mark_closed"):
            changes.append(Change(f"round {event.round}", None, "open", event.step.removeprefix("mark_")))
        yield Step(number, event.step, kind, TOLD.get(event.step, ""), actor, tuple(changes), note)


def _row(events: list[TakenStep], problem: Problem) -> int:
    """The number of the last step before a problem shows."""
    return max((number for number, event in enumerate(events, 1) if event.time <= problem.time), default=1)
