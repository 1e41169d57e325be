"""A running job followed from look to look: the changes between two states, and what is out of order.

Theory of operation. `Watch.look` is told the state of a rendezvous, ours or torch's, and when it was seen: by polling a
store, or line by line from a record. It gives notices: changes, warnings, and gaps, for what happened between two looks
is not known. It compares no clocks: ages count from when a change was seen, by the clock of the caller alone. A warning
is given once, and again only after it was over (`warnings` are those that hold). The machines of the job's things
(`machines`) move with the states.

| warning | when |
| --- | --- |
| silent | a listed node has not beaten for longer than the others may let it be |
| stuck | a last call lasts longer than its time, or an open round longer than a node may wait for it |
| unanswered | nodes wait beside a complete round for longer than agents need to see them |
| lost | the store has another incarnation of the job, an older one, or none any more |
| quiet | the store does not answer |
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field, replace

from trystate.impl.rendezvous.state import State
from trystate.model.rendezvous.vocabulary import Heartbeat, Membership, Round

from .machines import Machines
from .round_keys import Missing
from .status import TORCH_BEAT_SECONDS, Sight, Status, beats_of, status_of
from .torch_state import TorchState

ATTEMPTS = 3  # heartbeats that torch's default lets a node miss: its state does not say
LAST_CALL_SECONDS = 30.0  # torch's default
JOIN_SECONDS = 600.0  # torch's default: a node gives up then
BESIDE_SECONDS = 60.0  # agents look for waiting nodes every 30 s at most
QUIET_SECONDS = 5.0
NOTICES_MAX = 1_000
BUCKETS = (0.1, 0.5, 1.0, 2.5, 5.0, 10.0, 30.0, 60.0, 120.0, 300.0, 600.0)  # s from a round's begin to its end
CAUSES = {  # a part of the text in which our state keeps the cause of a round's replacement -> its name
    " expelled ": "expelled", "its workers failed": "workers_failed", "waited for a seat": "newcomer",
    "it left": "left", "it is about to leave": "left", "comes back after the end of its lease": "lease_ended",
    "its agent restarts the workers": "restarted",
}  # fmt: skip


@dataclass(frozen=True, slots=True)
class Notice:
    """Something to tell: `kind` is change, warning, over (of a warning) or unseen; `time` is the caller's."""

    kind: str
    time: float
    text: str


@dataclass(frozen=True, slots=True)
class Terms:
    """The times of a job's protocol, in seconds; of torch's, whose state has none, the defaults or what was given."""

    interval: float = TORCH_BEAT_SECONDS
    expiry: float = TORCH_BEAT_SECONDS * ATTEMPTS
    last_call: float = LAST_CALL_SECONDS
    join: float = JOIN_SECONDS


@dataclass(slots=True)
class Numbers:
    """The numbers of a watch, for metrics. Counts begin with the watch."""

    rounds: int = 0  # that were seen complete
    restarts: int = 0  # rounds that have replaced a complete one
    causes: dict[str, int] = field(default_factory=dict)  # of restarts, where the state says them
    lost_writes: int = 0  # compare-and-sets that were refused, in a record
    unseen: int = 0  # versions between two looks
    warned: dict[str, int] = field(default_factory=dict)
    formed: list[int] = field(default_factory=lambda: [0] * len(BUCKETS))  # rounds that took at most so long
    formed_count: int = 0
    formed_sum: float = 0.0
    answered: float = 0.0  # s that the store took for the last answer


class Watch:
    """The watch of one job.

    Args:
        job: its `--rdzv-id`.
        place: of its store, in words.
        terms: of torch's protocol, if they are not the defaults; ours says its own.
        machines: that move with the job.
    """

    def __init__(self, job: str, place: str, terms: Terms | None = None, machines: Machines | None = None) -> None:
        self.job, self.place, self._given = job, place, terms or Terms()
        self.machines = machines
        self.numbers = Numbers()
        self.warnings: dict[str, Notice] = {}
        self.notices: deque[Notice] = deque(maxlen=NOTICES_MAX)
        self.state: State | TorchState | None = None
        self.sight: Sight | None = None
        self.missing: tuple[Missing, ...] = ()
        self.now = 0.0
        self._began: float | None = None  # the round's begin

    @property
    def terms(self) -> Terms:
        """The times that hold for the job."""
        if not isinstance(self.state, State):
            return self._given
        own = self.state.settings
        last_call = own.rescale_timeout if self.state.round else own.last_call_timeout
        return Terms(own.keep_alive_interval, own.expiry_seconds, last_call, self._given.join)

    def status(self) -> Status | None:
        """The job as it was last seen."""
        if self.state is None or self.sight is None:
            return None
        status = status_of(self.state, self.job, self.place, self.sight, self.now)
        return replace(status, missing=self.sight.lasting(self.missing, self.now))

    def look(
        self, state: State | TorchState | None, now: float, took: float = 0.0, missing: tuple[Missing, ...] = ()
    ) -> list[Notice]:
        """The state at `now`; None: the store has none. `took` is how long the store took to answer.

        missing: the keys that torch's agents have yet to write.

        Returns what there is to tell.
        """
        self.missing = missing
        told = list(self._looked(state, now, took))
        self.notices += told
        return told

    def silence(self, quiet: float, why: str) -> list[Notice]:
        """The store has not answered for `quiet` seconds, and why."""
        problem = {"quiet": f"the store has not answered for {quiet:.0f} s: {why}"} if quiet > QUIET_SECONDS else {}
        told = list(self._warns(problem, only="quiet"))
        self.notices += told
        return told

    def refused(self) -> None:
        """A write of the state was refused: another was before it."""
        self.numbers.lost_writes += 1

    def _looked(self, state: State | TorchState | None, now: float, took: float) -> Iterator[Notice]:
        self.now, self.numbers.answered = now, took
        before = self.state
        lost = "" if before is None or state is None else _lost(before, state)
        if state is not None:
            if self.sight is None or lost:
                self.sight = Sight(now)
            beats, structure = beats_of(state)
            self.sight.take(beats, structure, now)
            self.state = state
            yield from self._changes(before, state, now)
        if lost:
            yield Notice("warning", now, lost)
            self.numbers.warned["lost"] = self.numbers.warned.get("lost", 0) + 1
        gone = {"lost": "the store has lost the job's state"} if state is None and before is not None else {}
        yield from self._warns(gone or dict(self._problems(now)))
        self._move(now)

    # ---- changes

    def _changes(self, before: State | TorchState | None, state: State | TorchState, now: float) -> Iterator[Notice]:
        if before is None or self._began is None:
            self._began = now
            yield Notice("change", now, f"round {state.round} {_phase(state)}: {_counted(state)}")
            self.numbers.rounds += state.complete
            return
        if isinstance(before, State) and isinstance(state, State) and before.life == state.life:
            missed = state.version - before.version - 1
            if missed > 0:
                self.numbers.unseen += missed
                yield Notice("unseen", now, f"{missed} version{'s' * (missed != 1)} of the state passed unseen")
        elif state.round > before.round + 1:
            self.numbers.unseen += state.round - before.round - 1
            missed = state.round - before.round - 1
            yield Notice("unseen", now, f"{missed} round{'s' * (missed != 1)} passed unseen")
        if state.round != before.round:
            yield from self._replaced(before, state, now)
        yield from self._moved(before, state, now)
        if state.complete and (not before.complete or state.round != before.round):
            self._formed(now)
            yield Notice("change", now, f"round {state.round} is complete after {now - self._began:.1f} s: "
                         f"{_counted(state)}")  # fmt: skip
        if bool(state.closed) and not before.closed:
            by = f" by {state.closed.by}: {state.closed.reason}" if isinstance(state, State) and state.closed else ""
            yield Notice("change", now, f"the job is closed{by}")

    def _replaced(self, before: State | TorchState, state: State | TorchState, now: float) -> Iterator[Notice]:
        self._began = now
        cause = state.cause if isinstance(state, State) else ""
        if before.complete:
            self.numbers.restarts += 1
            kind = next((kind for part, kind in CAUSES.items() if part in cause), "unknown")
            self.numbers.causes[kind] = self.numbers.causes.get(kind, 0) + 1
        yield Notice("change", now, f"round {state.round} has begun{f': {cause}' if cause else ''}")

    def _formed(self, now: float) -> None:
        took = now - (now if self._began is None else self._began)
        self.numbers.rounds += 1
        for place, most in enumerate(BUCKETS):
            self.numbers.formed[place] += took <= most
        self.numbers.formed_count += 1
        self.numbers.formed_sum += took

    def _moved(self, before: State | TorchState, state: State | TorchState, now: float) -> Iterator[Notice]:
        was, here = lists(before), lists(state)
        for name in sorted(here.keys() - was.keys()):
            yield Notice("change", now, f"{name} has come: {_WORDS[here[name]]}")
        for name in sorted(was.keys() - here.keys()):
            note = f", and round {state.round} is complete" if state.complete and state.round == before.round else ""
            yield Notice("change", now, f"{name} has gone, which was {_WORDS[was[name]]}{note}")
        for name in sorted(here.keys() & was.keys()):
            if here[name] is not was[name]:
                yield Notice("change", now, f"{name} is {_WORDS[here[name]]}, which was {_WORDS[was[name]]}")

    # ---- warnings

    def _problems(self, now: float) -> Iterator[tuple[str, str]]:
        status, terms = self.status(), self.terms
        if status is None or self.sight is None or status.closed is not None:
            return
        still = now - (self.sight.began if self.sight.changed is None else self.sight.changed)
        for one in status.members:
            age = one.beat_seconds if one.beat_seconds is not None else one.silent_seconds or 0.0
            if age > terms.expiry + terms.interval:
                yield (
                    f"silent {one.name}",
                    (
                        f"{one.name} has not beaten for {age:.0f} s, and is still listed: the others may drop it after "
                        f"{terms.expiry:g} s"
                    ),
                )
        for lost in status.missing:
            way = f"; {lost.finding.workaround}" if lost.finding is not None else ""
            yield f"missing {lost.key}", f"{lost}{way}"
        if not status.complete:
            if _is_calling(self.state) and still > terms.last_call + terms.interval:
                yield (
                    "stuck",
                    (
                        f"the last call of round {status.round} has lasted {still:.0f} s, longer than its "
                        f"{terms.last_call:g} s: nobody has completed the round"
                    ),
                )
            elif still > terms.join:
                yield (
                    "stuck",
                    (
                        f"round {status.round} has waited {still:.0f} s for {status.waits_for or 'nodes'}: its nodes "
                        f"give up after {terms.join:g} s"
                    ),
                )
        waiting = status.of("waiting")
        if status.complete and waiting and still > BESIDE_SECONDS:
            names = ", ".join(one.name for one in waiting[:3]) + (" waits" if len(waiting) == 1 else " wait")
            yield "unanswered", f"{names} beside round {status.round} for {still:.0f} s, and no member makes room"

    def _warns(self, problems: Mapping[str, str], only: str = "") -> Iterator[Notice]:
        """The warnings that are new, and those that are over."""
        for name, text in problems.items():
            notice = Notice("warning", self.now, text)
            if name not in self.warnings:
                kind = name.partition(" ")[0]
                self.numbers.warned[kind] = self.numbers.warned.get(kind, 0) + 1
                yield notice
            self.warnings[name] = notice
        for name in [name for name in self.warnings if name not in problems and (not only or name == only)]:
            over = self.warnings.pop(name)
            yield Notice("over", self.now, f"no longer: {over.text}")

    # ---- machines

    def _move(self, now: float) -> None:
        if self.machines is None or self.state is None:
            return
        self.machines.see("round", self.job, round_state(self.state).name, now)
        here, status = lists(self.state), self.status()
        assert status is not None
        for name, membership in here.items():
            self.machines.see("node", name, membership.name, now)
        for one in status.members:
            self.machines.see("heartbeat", one.name, self._heartbeat(one.beat_seconds, one.silent_seconds).name, now)
        for thing in [each for each in self.machines if each.kind == "node" and each.name not in here]:
            self.machines.see("node", thing.name, Membership.OUTSIDE.name, now)
            for kind in ("node", "heartbeat"):
                self.machines.forget(kind, thing.name)

    def _heartbeat(self, age: float | None, silent: float | None) -> Heartbeat:
        terms = self.terms
        since = age if age is not None else silent or 0.0
        if since > terms.expiry:
            return Heartbeat.EXPIRED
        return Heartbeat.DUE if since > terms.interval else Heartbeat.FRESH


_WORDS = {
    Membership.PARTICIPANT: "a member",
    Membership.EXPECTED: "expected",
    Membership.WAITING: "waiting",
    Membership.REDUNDANT: "a spare",
}


def _lost(before: State | TorchState, state: State | TorchState) -> str:
    """Why the state is none that follows the one before; empty if it may be."""
    if isinstance(before, State) and isinstance(state, State):
        if before.life != state.life:
            return f"the store has lost the job's state, which was in version {before.version}: it has begun anew"
        if state.version < before.version:
            return f"the state went back from version {before.version} to {state.version}: two stores answer"
        return ""
    if type(before) is not type(state):
        return "the job has another backend than before"
    if state.round < before.round:
        return f"the round went back from {before.round} to {state.round}: the store has lost the job's state"
    return ""


def lists(state: State | TorchState) -> dict[str, Membership]:
    """Where each node is listed."""
    if isinstance(state, State):
        return {str(p.node): state.membership(p.node.token) for p in state.listed()}
    found = {str(node): Membership.REDUNDANT for node in state.redundancy_list}
    found |= {str(node): Membership.WAITING for node in state.wait_list}
    return found | {str(node): Membership.PARTICIPANT for node in state.participants}


def round_state(state: State | TorchState) -> Round:
    """The state of the round, as the model's machine calls it."""
    if state.closed:
        return Round.CLOSED
    if state.complete:
        return Round.COMPLETE
    return Round.LAST_CALL if _is_calling(state) else Round.JOINING


def _is_calling(state: State | TorchState | None) -> bool:
    return state is not None and (state.calling if isinstance(state, State) else state.deadline is not None)


def _phase(state: State | TorchState) -> str:
    if state.closed:
        return "is the last, the job is closed"
    return "is complete" if state.complete else "is open"


def _counted(state: State | TorchState) -> str:
    here = list(lists(state).values())
    said = [f"{here.count(m)} {word.removeprefix('a ')}" + ("s" if m in (Membership.PARTICIPANT, Membership.REDUNDANT)
            and here.count(m) != 1 else "") for m, word in _WORDS.items() if here.count(m)]  # fmt: skip
    return ", ".join(said) or "no node"
