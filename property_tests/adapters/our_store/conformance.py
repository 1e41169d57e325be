"""The stores' models replayed on real servers, edge by edge, as `trystate verify` runs them.

Rule: a system has the smallest sizes at which its clients meet. A sample has some edges of each system.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from contextlib import ExitStack
from dataclasses import dataclass, field
from functools import partial
from typing import Any

from trystate.impl.store.tcp_server import TCPStoreServer
from trystate.model.language import System
from trystate.model.store.barriers import Barriers
from trystate.model.store.frames import Frames
from trystate.model.store.queues import Queues
from trystate.model.store.registers import Registers
from trystate.model.store.vocabulary import Edition
from trystate.model.store.waits import Waits
from trystate.model.store.watches import Watches

from ...harness.checks import Check, Outcome
from ...harness.paths import replay_systems
from ...harness.subjects import Subject
from ..torch_release import require
from ..torch_store.server import TorchServer
from .lines import InProcess, OverTcp, Server
from .queues import BarriersSubject, QueuesSubject, WaitsSubject
from .registers import FramesSubject, RegistersSubject
from .watches import LIMITS, WatchesSubject

Report = Callable[[str], None]
Sizes = Mapping[str, int]
TORCH, TRYSTATE = Edition.TORCH, Edition.TRYSTATE
SUBJECTS: Mapping[type[System], Callable[..., Subject]] = {
    Barriers: BarriersSubject, Frames: FramesSubject, Queues: QueuesSubject, Registers: RegistersSubject,
    Waits: WaitsSubject, Watches: WatchesSubject,
}  # fmt: skip


@dataclass(frozen=True, slots=True)
class Case:
    """A system of one size. With `extended`, its clients send our requests instead of torch's."""

    system: type[System]
    edition: Edition
    sizes: Sizes = field(default_factory=dict)
    faults: tuple[str, ...] = ()
    extended: bool = False

    def build(self) -> System:
        return self.system(edition=self.edition, faults=self.faults, **self.sizes)

    def subject(self, system: System, server: Server) -> Subject:
        options: dict[str, Any] = {"extended": True} if self.extended else {}
        return SUBJECTS[self.system](system, server, **options)

    def __str__(self) -> str:
        sizes = (f"{name}={size}" for name, size in self.sizes.items())
        return " ".join((self.system.__name__, *sizes, *self.faults, *(["extended"] if self.extended else [])))


SAMPLE_EDGES = 100
ALL = ("delete", "drop", "timeout", "write")
OURS = (
    Case(Frames, TRYSTATE),
    Case(Barriers, TRYSTATE, {"client": 2, "rounds": 2}, ALL, extended=True),
    Case(Barriers, TRYSTATE, {"client": 3, "world": 3}, ("delete", "timeout", "write")),
    Case(Watches, TRYSTATE, {"key": 1, "writes": 2}),
    Case(Watches, TRYSTATE, {"client": 1, "writes": 2}, ("again", "cancel")),
    Case(Watches, TRYSTATE, {"client": 1, "writes": 2}, ("another", "cancel")),
    Case(Watches, TRYSTATE, {"client": 1, "key": 1}, ("drop", "slow")),
    Case(Watches, TRYSTATE, {"client": 1, "key": 1}, ("leave", "newcomer", "wait")),
    Case(Waits, TRYSTATE, {"client": 1}, ("drop",)),
    Case(Waits, TRYSTATE, {"client": 1, "key": 1, "value": 2}, ("drop", "half_frame")),
    Case(Waits, TRYSTATE, {"client": 1, "value": 2, "torch_clients": 0}, ("drop", "half_frame")),
    Case(Queues, TRYSTATE, {"client": 1}, ("dawdle", "drop")),
    Case(Queues, TRYSTATE, {"client": 1, "torch_clients": 0}, ("drop",)),
    Case(Queues, TRYSTATE, {"element": 1, "both": 0}),
    Case(Registers, TRYSTATE, {"client": 1}, ("drop",)),
    Case(Registers, TRYSTATE, {"client": 1}, extended=True),
    Case(Registers, TRYSTATE, {"value": 1}),
)
OURS_OVER_TCP = (
    Case(Frames, TRYSTATE, {"connection": 1}),
    Case(Barriers, TRYSTATE, {"client": 2}, ALL, extended=True),
    Case(Watches, TRYSTATE, {"client": 1, "writes": 1}, ("another", "cancel")),
    Case(Waits, TRYSTATE, {"client": 1, "key": 1}, ("drop",)),
    Case(Waits, TRYSTATE, {"client": 1, "key": 1, "torch_clients": 0}),
    Case(Queues, TRYSTATE, {"client": 1, "torch_clients": 0}, ("drop",)),
    Case(Registers, TRYSTATE, {"client": 1, "value": 1}, ("drop",)),
)
TORCHS = (
    Case(Frames, TORCH, {"connection": 1}),
    Case(Barriers, TORCH, {"client": 2, "rounds": 2}),
    Case(Barriers, TORCH, {"client": 2}, ("drop", "timeout")),
    Case(Barriers, TORCH, {"client": 2}, ("delete", "timeout", "write")),
    Case(Waits, TORCH, {"client": 1}),
    Case(Waits, TORCH, {"client": 1, "key": 1}, ("drop", "half_frame")),
    Case(Queues, TORCH, {"client": 1}),
    Case(Queues, TORCH, {"client": 1, "element": 1}, ("drop",)),
    Case(Registers, TORCH, {"client": 1}, ("drop",)),
)
TORCHS_METHODS: Mapping[type[System], str] = {Queues: "queue_push", Barriers: "barrier"}  # not in every torch


def replay(
    cases: tuple[Case, ...], report: Report, edges_max: int | None = None, *, server: Callable[[ExitStack], Server]
) -> Outcome:
    """Replay every edge of each case on one server, or about `edges_max` of each.

    Raises:
        NotInRelease: the installed torch's server lacks the requests of these systems.
    """
    for method in {TORCHS_METHODS[case.system] for case in cases if case.system in TORCHS_METHODS and server is torchs}:
        require(method)
    made = {case.build(): case for case in cases}
    with ExitStack() as stack:
        where = server(stack)
        return replay_systems(made, lambda one: made[one].subject(one, where), report, edges_max, repeats=True)


def in_process(stack: ExitStack) -> Server:
    """Our service, with the model's limit of unread messages for a watcher."""
    return InProcess(LIMITS)


def over_tcp(stack: ExitStack) -> Server:
    """Our server in a thread. Its log of connections that break rules is not shown."""
    server = TCPStoreServer(run_in="thread", log=lambda line: None)
    return stack.enter_context(OverTcp(stack.enter_context(server).port))


def torchs(stack: ExitStack) -> Server:
    """torch's server, in its own process."""
    return stack.enter_context(OverTcp(stack.enter_context(TorchServer()).port))


def checks(place: str, cases: tuple[Case, ...], replay: Callable[..., Outcome]) -> Iterator[Check]:
    """A check for each system of the cases."""
    for system in dict.fromkeys(case.system for case in cases):
        whole = partial(replay, tuple(case for case in cases if case.system is system))
        yield Check(f"{system.__name__.lower()} on {place}", whole, partial(whole, edges_max=SAMPLE_EDGES))


CHECKS: tuple[Check, ...] = (
    *checks("our service", OURS, partial(replay, server=in_process)),
    *checks("our server", OURS_OVER_TCP, partial(replay, server=over_tcp)),
    *checks("torch's server", TORCHS, partial(replay, server=torchs)),
)
