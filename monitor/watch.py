"""A running job followed from look to look: the changes between two states, and warnings.

Theory of operation. `Watch.look` receives the state of a rendezvous, ours or torch's, with the time of the look: from a
polled store, or line by line from a record. It returns notices: changes, warnings, and gaps, which are unseen changes
between two looks. It compares no clocks: ages count from the time at which a change was seen, by the caller's clock
alone. A warning is given once, and again only after it was over (`warnings` has the present ones). The machines of the
job's things (`machines`) move with the states.

| warning | condition |
| --- | --- |
| silent | a listed node has sent no heartbeat for longer than the others may tolerate |
| stuck | a last call lasts longer than its time, or an open round longer than a node may wait for it |
| unanswered | nodes wait next to a complete round for longer than agents need to notice them |
| lost | the store has another incarnation of the job, an older state, or no state any more |
| quiet | the store does not answer |
"""

from __future__ import annotations

from collections import Counter, deque
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field, replace

from trystate.model.rendezvous.vocabulary import Heartbeat, Membership, Round

from .machines import Machines
from .rendezvous.shared_state import Snapshot
from .round_keys import Missing
from .status import TORCH_BEAT_SECONDS, Sight, Status, by_whom, status_of

ATTEMPTS = 3  # heartbeats that a node may miss by torch's default, which its state lacks
LAST_CALL_SECONDS = 30.0  # torch's default
JOIN_SECONDS = 600.0  # torch's default: a node gives up then
OUR_JOIN_SECONDS = 900.0  # the default of nodes of `trystate run`; our state does not have it
BESIDE_SECONDS = 60.0  # agents look for waiting nodes every 30 s at most
QUIET_SECONDS = 5.0
NOTICES_MAX = 1_000
BUCKETS = (0.1, 0.5, 1.0, 2.5, 5.0, 10.0, 30.0, 60.0, 120.0, 300.0, 600.0)  # s from a round's start to its end
CAUSES = {  # a part of our state's text for the cause of a round's replacement -> its name
    " expelled ": "expelled", "its workers failed": "workers_failed", "waited for a seat": "newcomer",
    "it left": "left", "it is about to leave": "left", "comes back after the end of its lease": "lease_ended",
    "its agent restarts the workers": "restarted", " an operator drains ": "drained",
}  # fmt: skip


@dataclass(frozen=True, slots=True)
class Notice:
    """A message: `kind` is change, warning, over (the end of a warning) or unseen; `time` is by the caller's clock."""

    kind: str
    time: float
    text: str


@dataclass(frozen=True, slots=True)
class Times:
    """The times of a job's protocol, in seconds; for torch, whose state lacks them, defaults or the given times."""

    interval: float = TORCH_BEAT_SECONDS
    expiry: float = TORCH_BEAT_SECONDS * ATTEMPTS
    last_call: float = LAST_CALL_SECONDS
    join: float = 0.0  # 0: the default of the protocol
    newcomers: float = 0.0  # the time for which a complete round lets newcomers wait


@dataclass(slots=True)
class Numbers:
    """The numbers of a watch, for metrics. Counts begin with the watch."""

    rounds: int = 0  # rounds that were seen complete
    restarts: int = 0  # rounds that have replaced a complete one
    causes: Counter[str] = field(default_factory=Counter)  # causes of restarts, if the state has them
    lost_writes: int = 0  # compare-and-sets that were refused, in a record
    unseen: int = 0  # versions between two looks
    warned: Counter[str] = field(default_factory=Counter)
    formed: list[int] = field(default_factory=lambda: [0] * len(BUCKETS))  # rounds up to each limit
    formed_count: int = 0
    formed_sum: float = 0.0
    answered: float = 0.0  # seconds until the last answer of the store


class Watch:
    """The watch of one job.

    Args:
        job: its `--rdzv-id`.
        place: the text that names its store.
        terms: the times of torch's protocol, if they are not the defaults; our state has its own.
        machines: machines that move with the job.
    """

    def __init__(self, job: str, place: str, terms: Times | None = None, machines: Machines | None = None) -> None:
        self.job, self.place, self._given = job, place, terms or Times()
        self.machines = machines
        self.numbers = Numbers()
        self.warnings: dict[str, Notice] = {}
        self.notices: deque[Notice] = deque(maxlen=NOTICES_MAX)
        self.state: Snapshot | None = None
        self.sight: Sight | None = None
        self.missing: tuple[Missing, ...] = ()
        self.now = 0.0
        self._began: float | None = None  # the round's begin

    @property
    def terms(self) -> Times:
        """The times of the job's protocol."""
        if self.state is None or (own := self.state.settings) is None:
            return replace(self._given, join=self._given.join or JOIN_SECONDS)
        last_call = own.rescale_timeout if self.state.round else own.last_call_timeout
        interval, newcomers = own.keep_alive_interval, own.scale_up_interval
        join = self._given.join or OUR_JOIN_SECONDS
        return Times(interval, own.expiry_seconds, last_call, join, newcomers)

    def status(self) -> Status | None:
        """The last seen status of the job."""
        if self.state is None or self.sight is None:
            return None
        status = status_of(self.state, self.job, self.place, self.sight, self.now)
        return replace(status, missing=self.sight.lasting(self.missing, self.now))

    def look(
        self, state: Snapshot | None, now: float, took: float = 0.0, missing: tuple[Missing, ...] = ()
    ) -> list[Notice]:
        """Take the state at `now`; None: the store has no state. `took` is the time that the store took to answer.

        missing: the keys that torch's agents have yet to write.

        Returns the notices.
        """
        self.missing = missing
        told = list(self._looked(state, now, took))
        self.notices += told
        return told

    def silence(self, quiet: float, why: str) -> list[Notice]:
        """Take a look without an answer: the store has not answered for `quiet` seconds, with the reason."""
        problem = {"quiet": f"the store has not answered for {quiet:.0f} s: {why}"} if quiet > QUIET_SECONDS else {}
        told = list(self._warns(problem, only="quiet"))
        self.notices += told
        return told

    def _looked(self, state: Snapshot | None, now: float, took: float) -> Iterator[Notice]:
        self.now, self.numbers.answered = now, took
        before = self.state
        lost = "" if before is None or state is None else _lost(before, state)
        if state is not None:
            if self.sight is None or lost:
                self.sight = Sight(now)
            self.sight.take(state, now)
            self.state = state
            yield from self._changes(before, state, now)
        if lost:
            yield Notice("warning", now, lost)
            self.numbers.warned["lost"] += 1
        gone = {"lost": "the store has lost the job's state"} if state is None and before is not None else {}
        yield from self._warns(gone or dict(self._problems(now)))
        self._move(now)

    # ---- changes

    def _changes(self, before: Snapshot | None, state: Snapshot, now: float) -> Iterator[Notice]:
        if before is None or self._began is None or before.life != state.life:
            self._began = now
            yield Notice("change", now, f"round {state.round} {_phase(state)}: {_counted(state)}")
            self.numbers.rounds += state.complete
            return
        is_ours = state.life and before.life == state.life
        missed = (state.version - before.version if is_ours else state.round - before.round) - 1
        if missed > 0:
            self.numbers.unseen += missed
            what = f"version{'s' * (missed != 1)} of the state" if is_ours else f"round{'s' * (missed != 1)}"
            yield Notice("unseen", now, f"{missed} {what} passed unseen")
        if state.round != before.round:
            yield from self._replaced(before, state, now)
        yield from self._moved(before, state, now)
        if state.complete and (not before.complete or state.round != before.round):
            self._formed(now)
            yield Notice("change", now, f"round {state.round} is complete after {now - self._began:.1f} s: "
                         f"{_counted(state)}")  # fmt: skip
        if state.closed and not before.closed:
            yield Notice("change", now, f"the job is closed{by_whom(state.closed)}")

    def _replaced(self, before: Snapshot, state: Snapshot, now: float) -> Iterator[Notice]:
        self._began = now
        # Each new round of ours replaces a complete one, also of rounds that passed unseen.
        times = state.round - before.round if state.life and state.life == before.life else int(before.complete)
        if times > 0:
            self.numbers.restarts += times
            self.numbers.causes += Counter({"unknown": times - 1})
            self.numbers.causes[next((kind for part, kind in CAUSES.items() if part in state.cause), "unknown")] += 1
        yield Notice("change", now, f"round {state.round} has begun{f': {state.cause}' if state.cause else ''}")

    def _formed(self, now: float) -> None:
        took = now - (now if self._began is None else self._began)
        self.numbers.rounds += 1
        for place, most in enumerate(BUCKETS):
            self.numbers.formed[place] += took <= most
        self.numbers.formed_count += 1
        self.numbers.formed_sum += took

    def _moved(self, before: Snapshot, state: Snapshot, now: float) -> Iterator[Notice]:
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
            if one.age > terms.expiry + terms.interval:
                text = "has sent no heartbeat for {:.0f} s, and is still listed: the others may drop it after {:g} s"
                yield f"silent {one.name}", f"{one.name} {text.format(one.age, terms.expiry)}"
        for lost in status.missing:
            way = f"; {lost.finding.workaround}" if lost.finding is not None else ""
            yield f"missing {lost.key}", f"{lost}{way}"
        calling = self.state is not None and self.state.calling and not status.of("expected")
        if not status.complete and calling and still > terms.last_call + terms.interval:
            text = f"longer than its {terms.last_call:g} s: no node has completed the round"
            yield "stuck", f"the last call of round {status.round} has lasted {still:.0f} s, {text}"
        elif not status.complete and still > terms.join:
            text = f"{status.waits_for or 'nodes'}: its nodes give up after {terms.join:g} s"
            yield "stuck", f"round {status.round} has waited {still:.0f} s for {text}"
        waiting = status.of("waiting")
        if status.complete and waiting and still > max(BESIDE_SECONDS, terms.newcomers + terms.interval):
            names = ", ".join(one.name for one in waiting[:3]) + (" waits" if len(waiting) == 1 else " wait")
            yield "unanswered", f"{names} next to round {status.round} for {still:.0f} s, and no member makes room"

    def _warns(self, problems: Mapping[str, str], only: str = "") -> Iterator[Notice]:
        """The notices of new warnings and of warnings that are over."""
        for name, text in problems.items():
            notice = Notice("warning", self.now, text)
            if name not in self.warnings:
                self.numbers.warned[name.partition(" ")[0]] += 1
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
            self.machines.see("heartbeat", one.name, self._heartbeat(one.age).name, now)
        for thing in [each for each in self.machines if each.kind == "node" and each.name not in here]:
            self.machines.see("node", thing.name, Membership.OUTSIDE.name, now)
            for kind in ("node", "heartbeat"):
                self.machines.forget(kind, thing.name)

    def _heartbeat(self, age: float) -> Heartbeat:
        if age > self.terms.expiry:
            return Heartbeat.EXPIRED
        return Heartbeat.DUE if age > self.terms.interval else Heartbeat.FRESH


_WORDS = {
    Membership.PARTICIPANT: "a member",
    Membership.EXPECTED: "expected",
    Membership.WAITING: "waiting",
    Membership.REDUNDANT: "a spare",
}


def _lost(before: Snapshot, state: Snapshot) -> str:
    """The reason why the state cannot follow the previous one; empty if it may."""
    if (before.settings is None) is not (state.settings is None):
        return "the job has another backend than before"
    if before.life != state.life:
        return f"the store has lost the job's state, which was in version {before.version}: it has started again"
    if state.version < before.version:
        return f"the state went back from version {before.version} to {state.version}: two stores answer"
    if state.settings is None and state.round < before.round:
        return f"the round went back from {before.round} to {state.round}: the store has lost the job's state"
    return ""


def lists(state: Snapshot) -> dict[str, Membership]:
    """The list of each node."""
    return {str(who): membership for who, membership in state.members.items()}


def round_state(state: Snapshot) -> Round:
    """The state of the round in the model's machine."""
    if state.closed:
        return Round.CLOSED
    if state.complete:
        return Round.COMPLETE
    return Round.LAST_CALL if state.calling else Round.JOINING


def _phase(state: Snapshot) -> str:
    if state.closed:
        return "is the last, the job is closed"
    return "is complete" if state.complete else "is open"


def _counted(state: Snapshot) -> str:
    here = list(lists(state).values())
    said = [f"{here.count(m)} {word.removeprefix('a ')}" + ("s" if m in (Membership.PARTICIPANT, Membership.REDUNDANT)
            and here.count(m) != 1 else "") for m, word in _WORDS.items() if here.count(m)]  # fmt: skip
    return ", ".join(said) or "no node"
