"""Cases of the simulator: schedules of faults, on whole handlers, and on agents that are members of a room.

On torch's handlers a violated property is a finding of torch's: the property and the faults of the smallest run decide
which one. Ours must keep every promise in the same schedule.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping
from contextlib import AbstractContextManager
from dataclasses import replace
from typing import Any
from unittest import mock

import torch.distributed.elastic.rendezvous.dynamic_rendezvous as torch_rendezvous
from torch.distributed.elastic.rendezvous import RendezvousInfo

from trystate.impl.rendezvous.handler import DynamicRendezvousHandler
from trystate.impl.rendezvous.rooms import messages
from trystate.model.errors import UsageError

from ..rooms.worlds import ROOMS as MEMBERS
from ..simulator import swarm
from ..simulator.handlers import OURS, ROOMS, SETTLE_SECONDS, TORCH, usual
from ..simulator.swarm import Run, Subject
from .cases import HELD, Case, Kind, again

SHOWN_MAX = 200  # number of events shown of a run that failed
# The property that a finding of torch's violates, and the faults that remain in the smallest run.
FINDINGS: Mapping[str, tuple[str, tuple[str, ...]]] = {
    "R1": ("members_learn_the_master", ()), "R2": ("agree_on_master", ()),
    "R3": ("agree_on_world", ("worker_failure",)), "R4": ("agree_on_world", ("crash",)),
    "R6": ("never_two_groups", ("cut",)), "R7": ("never_two_groups", ("outage",)),
    "R8": ("full_rounds_come_to_rest", ("worker_failure",)), "R9": ("enough_nodes_complete_a_round", ()),
    "R10": ("closing_is_earned", ()), "R12": ("never_two_groups", ()), "R14": ("departures_are_noticed", ("crash",)),
}  # fmt: skip


def wrong_ranks() -> AbstractContextManager[Any]:
    """The planted fault of our handlers: each node has rank 0."""
    real: Any = DynamicRendezvousHandler.next_rendezvous

    def next_rendezvous(self: Any, *given: Any) -> RendezvousInfo:
        info = real(self, *given)
        return RendezvousInfo(info.store, 0, info.world_size, info.bootstrap_store_info)

    return mock.patch.object(DynamicRendezvousHandler, "next_rendezvous", next_rendezvous)


def wrong_masters() -> AbstractContextManager[Any]:
    """The planted fault of rooms: an answer names the last member of a round as the master."""
    return mock.patch.object(messages, "next", lambda members: [*members][-1], create=True)


class Simulated(Kind):
    """Runs of a subject of the simulator."""

    def __init__(self, name: str, title: str, subject: Subject, settle_seconds: float, batch: int) -> None:
        self.name, self.title, self.subject = name, title, subject
        self.settle_seconds, self.batch = settle_seconds, batch

    def case(self, seed: int, nodes: int | None = None) -> Case:
        done = swarm.run(self.subject.draw(seed, nodes), self.subject)
        return self.of(done, done.fails, str(done.violation or ""))

    def of(self, done: Run, fails: str, seen: str) -> Case:
        faults = Counter(event.fault.kind for event in done.log if event.fault is not None)
        seed, rest = done.schedule.seed, done.settled_seconds
        return Case(seed, done.moments, done.seconds, rest, faults, fails, seen)

    def cases(self, seeds: Any, nodes: int | None = None) -> Any:
        return super().cases(swarm.tidily(seeds), nodes)

    def planted(self) -> AbstractContextManager[Any]:
        return wrong_masters() if self.subject is MEMBERS else wrong_ranks()

    def lines(self, seed: int, nodes: int | None = None, **how: Any) -> list[str]:
        """The run in words; `on`: the smallest run that violates this property; `whole`: not made smaller."""
        on = str(how.get("on") or "")
        done = self.drawn(seed, nodes, on)
        if on and on not in done.violations:
            raise UsageError(f"--on {on}: seed {seed} violates {', '.join(done.violations) or 'no property'}")
        if done.fails and not how.get("whole"):
            done = swarm.shrink(done, on)
        return told(done, nodes, self.name, log=bool(how.get("log")))

    def drawn(self, seed: int, nodes: int | None, on: str) -> Run:
        return swarm.run(self.subject.draw(seed, nodes), self.subject, on=bool(on))


class Torch(Simulated):
    """torch's handlers, and ours in the same schedule. A case fails if ours does not keep a promise."""

    def case(self, seed: int, nodes: int | None = None) -> Case:
        schedule = usual(seed, nodes)
        theirs = swarm.run(schedule, TORCH)
        ours = [swarm.run(schedule, subject) for subject in (OURS, ROOMS)]
        broken = next((one for one in ours if one.fails), None)
        done = self.of(
            theirs, broken.fails if broken else "", f"{broken.subject.name}: {broken.violation}" if broken else ""
        )
        return replace(done, settled_seconds=0.0, shown=(named(theirs),) if theirs.fails else ())

    def drawn(self, seed: int, nodes: int | None, on: str) -> Run:
        """The run of ours that fails, or violates `on`, else torch's."""
        runs = [swarm.run(usual(seed, nodes), subject, on=bool(on)) for subject in (OURS, ROOMS, TORCH)]
        return next((one for one in runs if one.fails and on in ("", *one.violations)), runs[-1])


def named(failed: Run) -> str:
    """The finding of the first violation of a run on torch's handlers, or the property, which several may violate."""
    kinds = tuple(sorted({fault.kind for fault in swarm.shrink(failed).schedule.faults}))
    number = next((number for number, seen in FINDINGS.items() if seen == (failed.fails, kinds)), "")
    return number or f"{failed.fails}, not told apart"


def told(done: Run, nodes: int | None, kind: str = "", *, log: bool = True) -> list[str]:
    """A run in words: its schedule, what happened, and how to see it again."""
    lines = [f"seed {done.schedule.seed}: {len(done.schedule.hosts)} nodes, {len(done.schedule.faults)} faults"]
    lines += done.schedule.lines()
    if log or done.fails:
        lines += ["", *map(str, done.log[-SHOWN_MAX:] if done.fails else done.log)]
    lines.append(f"violated: {done.violation}" if done.fails else f"{HELD} for {done.seconds:.1f} s")
    kind = kind or done.subject.name
    return [*lines, f"again: {again(kind, done.schedule.seed, nodes)}"] if done.fails else lines


KINDS = (
    Simulated("ours", "our whole handlers, on documents", OURS, SETTLE_SECONDS, 40),
    Simulated("rooms", "our whole handlers, in a room", ROOMS, SETTLE_SECONDS, 50),
    Simulated("members", "our agents in a room, with faults of the server", MEMBERS, swarm.World.settle_seconds, 150),
    Torch("torch", "torch's own handlers, and ours in the same schedules", TORCH, 0.0, 4),
)
assert torch_rendezvous  # loaded before a process is forked
