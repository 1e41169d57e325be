"""Steps of the model `SuccessiveJobs`, performed on torch's handlers, on our engines, and on NVRx's shipped barrier.

One look of the model is a run of the node's own call until the call would poll again, or ends. Between looks no time
passes for the other nodes. The members of a round meet, and miss each other, by a step of the subject: the exchange of
addresses is not compared. The heartbeats of killed nodes are valid until `expire`.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Collection, Mapping
from contextlib import ExitStack, suppress
from functools import partial
from types import SimpleNamespace
from typing import Any
from unittest import mock

import torch.distributed.elastic.rendezvous.dynamic_rendezvous as dr
from torch._C._distributed_c10d import HashStore
from torch.distributed.elastic.rendezvous.api import RendezvousClosedError as TorchClosedError
from torch.distributed.elastic.rendezvous.api import RendezvousGracefulExitError

from trystate.impl.rendezvous.engine import RUNS
from trystate.impl.rendezvous.errors import RendezvousClosedError
from trystate.model.errors import UnavailableError
from trystate.model.nvrx import vocabulary as nvrx
from trystate.model.rendezvous.successive import JOINING, Edition, Launcher, Mark, SuccessiveJobs
from trystate.model.rendezvous.vocabulary import Membership

from ..harness.checks import Check, Outcome
from ..harness.paths import replay_systems
from ..harness.subjects import Disagreement, Refused
from .nvrx import nodes, shipped
from .our_rendezvous import parts
from .steps import Replacing, Steps
from .torch_rendezvous import simulation as sim

FAULTS = ("kill", "cut")
TURNS_MAX = 50
ENDS = {"succeed": "succeeded", "fail": "failed", "come_back": "failed", "time_out": "timed out"}  # the verdict


class Jobs(Steps):
    """The subject: the launchers of both jobs, and the store."""

    TRIED = ("look",)

    def __init__(self, system: SuccessiveJobs) -> None:
        self.nodes, self.world = system.sizes["node"], system.sizes["node"] // 2

    def reset(self) -> None:
        self.at = [Launcher.AWAY] * self.nodes
        self.expired: set[int] = set()

    def running(self, *places: Launcher) -> list[int]:
        return [n for n in range(self.nodes) if self.at[n] in places]

    # Each subject has these. `launch` starts node n, and `seen_by` lets it look and returns its place. `close` ends its
    # launcher, and `die` kills it. `store` returns the mark, whether the round is complete, and its members.
    launch: Callable[[int], None]
    seen_by: Callable[[int], Launcher]
    close: Callable[[int, str], None]
    store: Callable[[], tuple[Mark, bool, Collection[int]]]

    def die(self, n: int) -> None:
        """Node n is killed."""

    # ---- the steps

    def perform(self, step: str, indices: tuple[int, ...]) -> None:
        if step in ENDS:
            self.close(indices[0], ENDS[step])
            self.at[indices[0]] = Launcher.SUCCEEDED if step == "succeed" else Launcher.FAILED
        else:
            super().perform(step, indices)

    def _start(self, n: int) -> None:
        self.launch(n)
        self.at[n] = Launcher.WAITING

    def _look(self, n: int) -> None:
        before = self.observe()
        if self.at[n] in JOINING:
            self.at[n] = self.seen_by(n)
        if self.observe() == before:
            raise Refused(f"node {n} remains {self.at[n].name}")

    def _meet(self) -> None:
        for n in self.running(Launcher.MEETING):
            self.at[n] = Launcher.TRAINING

    def _kill(self, but: int = -1) -> None:
        for n in self.running(*JOINING, Launcher.TRAINING, Launcher.AWAY):
            if n < self.world and n != but:
                self.die(n)
                self.at[n] = Launcher.KILLED

    def _cut(self, node: int) -> None:
        self._kill(but=node)
        self.at[node] = Launcher.CUT

    def _expire(self) -> None:
        self.expired |= {*self.running(Launcher.KILLED, Launcher.CUT)}

    def observe(self) -> Mapping[str, Any]:
        mark, complete, listed = self.store()
        seen: dict[str, Any] = {"mark": mark, "complete": complete}
        seen |= {f"at[{n}]": self.at[n] for n in range(self.nodes)}
        return seen | {f"listed[{n}]": n in listed for n in range(self.nodes) if n not in self.expired}


class TorchJobs(Jobs, Replacing):
    """torch's `next_rendezvous` and `shutdown` on a backend in memory. A call stops where it sleeps."""

    def replace(self, stack: ExitStack) -> None:
        def delay(seconds: Any) -> None:
            self.clock.seconds += sim.CACHE_SECONDS + 1
            if not isinstance(seconds, tuple):  # the pause before the first round
                sim.stop("polls")

        self.calls: dict[int, sim.Operation] = {}
        self.clock = sim.Clock()
        stack.enter_context(sim.simulated(self.clock, lambda **_: None))
        meeting = SimpleNamespace(build=lambda *_, **__: sim.stop("meets"))
        stack.enter_context(mock.patch.multiple(dr, _delay=delay, RendezvousStoreInfo=meeting))
        stack.enter_context(mock.patch.object(dr.DynamicRendezvousHandler, "_start_heartbeats", lambda _: None))
        stack.enter_context(mock.patch.dict("os.environ", TORCH_DISABLE_SHARE_RDZV_TCP_STORE="1"))
        self.reset()

    def abandon(self) -> None:
        for call in self.calls.values():
            call.abandon()

    def reset(self) -> None:
        super().reset()
        self.abandon()
        self.backend = sim.Backend(lambda _: None)
        self.handlers: dict[int, Any] = {}
        self.calls = {}

    @staticmethod
    def desc(n: int) -> Any:
        return dr._NodeDesc(f"node{n}", 1, 0)

    def launch(self, n: int) -> None:
        settings = sim.settings(self.world, self.world)
        holder: Any = dr._BackendRendezvousStateHolder(self.backend, settings)
        self.handlers[n] = dr.DynamicRendezvousHandler(self.desc(n), settings, "memory", HashStore(), holder)
        self.calls[n] = sim.Operation(self.handlers[n].next_rendezvous)

    def seen_by(self, n: int) -> Launcher:
        call = self.calls[n]
        if call.at != "meets":
            call.resume()
        if call.error is not None:
            if not isinstance(call.error, TorchClosedError | RendezvousGracefulExitError):
                raise call.error
            return Launcher.FAILED  # after the second error, torch's launcher has no result, and raises (A7)
        if call.at == "meets":
            return Launcher.MEETING
        return Launcher.JOINED if self.desc(n) in self.backend.state().participants else Launcher.QUEUED

    def close(self, n: int, verdict: str) -> None:
        self.calls[n].abandon()
        self.clock.seconds += sim.CACHE_SECONDS + 1
        assert self.handlers[n].shutdown()

    def die(self, n: int) -> None:
        if n in self.calls:
            self.calls[n].abandon()

    def _expire(self) -> None:
        def age(state: Any) -> None:
            for n in self.running(Launcher.KILLED, Launcher.CUT):
                if self.desc(n) in state.last_heartbeats:
                    state.last_heartbeats[self.desc(n)] = sim.NOW - sim.AGES["EXPIRED"]

        self.backend.rewrite(age)
        super()._expire()

    def store(self) -> tuple[Mark, bool, Collection[int]]:
        state = self.backend.state() if self.backend.bits is not None else dr._RendezvousState()
        listed = [n for n in range(self.nodes) if self.desc(n) in state.participants]
        return Mark.ENDED if state.closed else Mark.NONE, state.complete, listed


class OurJobs(Jobs):
    """Our engines on a stage. The counters of all nodes increase while one looks, except of those that have expired."""

    seconds = 60  # longer than any window, so a look also shows that a node is not removed

    def reset(self) -> None:
        super().reset()
        self.stage = parts.Stage()
        self.engines: dict[int, Any] = {}
        self.joins: dict[int, Any] = {}
        self.beats: dict[int, Any] = {}

    def launch(self, n: int) -> None:
        self.engines[n] = self.stage.engine(n, parts.settings(self.world, self.world))
        self._join(n)

    def _join(self, n: int) -> None:
        self.joins[n] = self.stage.start(self.engines[n].join(1e9))

    def seen_by(self, n: int) -> Launcher:
        for _ in range(self.seconds):
            self._run(n)
        ended = self.joins[n].result
        if isinstance(ended, Exception):
            if not isinstance(ended, RendezvousClosedError):
                raise ended
            return Launcher.FAILED
        if not self.joins[n].ended:
            return self._listed(n)
        return Launcher.MEETING

    def _listed(self, n: int) -> Launcher:
        membership = self.stage.state.membership(f"token-{n}") if self.stage.state else Membership.OUTSIDE
        places = {Membership.PARTICIPANT: Launcher.JOINED, Membership.OUTSIDE: Launcher.WAITING}
        return places.get(membership, Launcher.QUEUED)

    def _run(self, n: int) -> None:
        """A second of node n, and of the heartbeats of the nodes in a complete round."""
        beating = {n, *self.running(Launcher.MEETING, Launcher.TRAINING)} & {*self.beats}
        self.stage.actors = [self.beats[m] for m in beating if not self.beats[m].ended]
        self.stage.actors += [] if self.joins[n].ended else [self.joins[n]]
        for m in {*range(self.nodes)} - self.expired:
            self.stage.beats[f"token-{m}"] += 1
        self.stage.run(1.0)
        if not self.joins[n].ended or isinstance(self.joins[n].result, Exception):
            return
        joined, engine = self.joins[n].result, self.engines[n]
        if engine.standing(joined, self.stage.state, self.stage.now) in RUNS:
            if n not in self.beats:
                self.beats[n] = self.stage.start(engine.keep_alive(joined))
        else:  # `Meeting.begin` returns no round: the node joins again
            self.beats.pop(n, None)
            self._join(n)

    def close(self, n: int, verdict: str) -> None:
        self.stage.actors = []
        closing = self.stage.start(self.engines[n].close("its agent has ended", verdict))
        self.stage.run()
        assert closing.ended

    def store(self) -> tuple[Mark, bool, Collection[int]]:
        state = self.stage.state
        if state is None:
            return Mark.NONE, False, ()
        mark = {"succeeded": Mark.ENDED, "failed": Mark.FAILED}[state.closed.verdict] if state.closed else Mark.NONE
        for n in self.running(Launcher.QUEUED):  # a round that is replaced takes them
            self.at[n] = self._listed(n)
        tokens = parts.tokens((*state.participants, *state.expected))
        return mark, state.complete, [n for n in range(self.nodes) if f"token-{n}" in tokens]


class NvrxJobs(Jobs):
    """NVRx's barrier with a control outside. Node k of the later job is on the machine of node k of the first one."""

    def __init__(self, system: SuccessiveJobs) -> None:
        super().__init__(system)
        sizes = {"node": 0, "slot": self.nodes, "world": self.world, "most": self.world, "outside": 1, "round": 2}
        self.job = nodes.Job(SimpleNamespace(sizes=sizes))  # type: ignore[arg-type]

    def reset(self) -> None:
        super().reset()
        self.job.reset()
        self.launchers: dict[int, nodes.Process] = {}

    def launch(self, n: int) -> None:
        self.launchers[n] = nodes.Process(self.job, n % self.world, n // self.world, is_host=False)
        self.job.nodes.append(self.launchers[n])
        self.launchers[n].begin()

    def seen_by(self, n: int) -> Launcher:
        own = self.launchers[n]
        for process in (own, self.job.closing, own):
            with suppress(Refused):
                for _ in range(TURNS_MAX):
                    if not process.is_running:
                        break
                    process.proceed()
                else:
                    raise Disagreement(f"machine {process.number} does not come to rest: {process.place}")
        places = {nvrx.At.TRAINING: Launcher.MEETING, nvrx.At.LEFT: Launcher.UNTRAINED}
        return places.get(own.place) or Launcher[own.place.name]  # type: ignore[arg-type, union-attr]

    def close(self, n: int, verdict: str) -> None:
        self.launchers[n].state.set_shutdown(*(["failure"] if verdict == "failed" else []))

    def die(self, n: int) -> None:
        if n in self.launchers:
            self.launchers[n].dies()

    def store(self) -> tuple[Mark, bool, Collection[int]]:
        marks = {nvrx.Shut.NO: Mark.NONE, nvrx.Shut.GRACEFUL: Mark.ENDED, nvrx.Shut.FAILED: Mark.FAILED}
        records = [self.job._value(f"slot_{k + 1}") for k in range(self.nodes)]
        found = [json.loads(record)["payload"] for record in records if record is not None]
        listed = [int(one["addr"].removeprefix("machine")) + (one["pid"] - 1) * self.world for one in found]
        return marks[self.job._shut()], self.job._value("round_done_0") == b"1", listed


SUBJECTS: Mapping[Edition, type[Jobs]] = {Edition.TORCH: TorchJobs, Edition.TRYSTATE: OurJobs, Edition.NVRX: NvrxJobs}


def has_nvrx() -> bool:
    """Whether NVRx's file is here, in the edition of the model."""
    path = shipped.barrier_file()
    return path is not None and shipped.edition(path) is nvrx.Edition.NVRX


def every_edge(edition: Edition, report: Callable[[str], None], **options: Any) -> Outcome:
    """Take every step of the jobs, with one and with two nodes each, on the launchers, and try each other look.

    Raises:
        UnavailableError: NVRx's file is not here, or has another edition.
    """
    if edition is Edition.NVRX and not has_nvrx():
        raise UnavailableError(shipped.problem() or f"{shipped.barrier_file()} is not NVRx {edition.value}")
    systems = [SuccessiveJobs(edition=edition, faults=FAULTS, node=n) for n in (2, 4)]
    return replay_systems(systems, SUBJECTS[edition], report, **options)


CHECKS = (
    Check("torch's jobs, one after the other", partial(every_edge, Edition.TORCH)),
    Check("our jobs, one after the other", partial(every_edge, Edition.TRYSTATE)),
    Check("NVRx's jobs, one after the other", partial(every_edge, Edition.NVRX)),
)
