"""The state of a rendezvous at one moment, ours or torch's c10d, as an observer of its store reads it.

Theory of operation. A rendezvous is one key of the store; ours also has a counter for each node. The observer reads
them several times within a short time, and writes nothing. A heartbeat is seen when its counter (ours) or its stamp
(torch's) changes; its age is measured by the observer's own clock from then on. Stamps of other
machines are only compared for equality.
"""

from __future__ import annotations

import contextlib
import time
from collections.abc import Callable, Iterator, Mapping
from dataclasses import asdict, dataclass, field, replace
from datetime import timedelta
from typing import Any

from torch.distributed import DistError

from trystate.impl.host.tls import Tls
from trystate.impl.host.visible import some
from trystate.impl.rendezvous.endpoint import place
from trystate.impl.rendezvous.errors import RendezvousConnectionError, RendezvousError
from trystate.impl.rendezvous.jobs import OURS, TORCH, counters, jobs, keys
from trystate.impl.rendezvous.notifier import look
from trystate.impl.rendezvous.options import Options
from trystate.impl.rendezvous.state import LISTS, Closed, Settings
from trystate.impl.rendezvous.store_backend import describe
from trystate.impl.store.tcp import TCPStore
from trystate.model.errors import TrystateError
from trystate.model.rendezvous.vocabulary import Membership

from .rendezvous.shared_state import NodeName, NoState, Protocol, Snapshot, counted, read
from .round_keys import MISSING_SECONDS, Missing, missing

CONNECT_SECONDS = 5.0
OBSERVE_SECONDS_MAX = 60.0
TORCH_BEAT_SECONDS = 5.0  # torch's default interval, which its state lacks
BEATS_AWAITED = 1.3  # intervals after which a live node has sent a heartbeat
POLL_SECONDS = 0.2
NAMES_MAX = 20  # jobs in one text


class NoAnswer(TrystateError):
    """The store has no such job, or its value is not a state of a rendezvous; the text describes the contents."""


@dataclass(frozen=True, slots=True)
class Member:
    """A listed node; times in seconds of the observer's clock."""

    name: str
    list: str  # participants, expected, waiting or spares
    rank: int | None = None  # None before the round is complete
    beat_seconds: float | None = None  # time since its last seen heartbeat
    silent_seconds: float | None = None  # if no heartbeat was seen: the least time without one
    drained: bool = False  # an operator has marked it: it leaves

    @property
    def age(self) -> float:
        """The time without a heartbeat, at least."""
        return self.beat_seconds if self.beat_seconds is not None else self.silent_seconds or 0.0


@dataclass(frozen=True, slots=True)
class Status:
    """A rendezvous at one moment; `observed_seconds` is the length of the observation."""

    backend: str
    job: str
    endpoint: str
    round: int
    complete: bool
    waits_for: str  # the conditions for a complete round; empty if it is complete
    members: tuple[Member, ...]
    observed_seconds: float
    changed_seconds: float | None  # time since the last change other than a heartbeat, if one was seen
    closed: Mapping[str, str] | None = None  # by, reason and verdict; empty texts for torch, whose state lacks them
    nodes: tuple[int, int] | None = None  # min_nodes and max_nodes; torch's state has neither
    restarts: tuple[int, int] | None = None  # spent and allowed restarts; -1: each agent counts its own
    cause: str = ""  # the reason why the last round was replaced
    done: int = 0  # members whose workers have succeeded
    also: str = ""  # the other backend, if the store also has a job of this name there
    version: int | None = None
    missing: tuple[Missing, ...] = ()  # keys of torch's agents that the round waits for

    def of(self, name: str) -> tuple[Member, ...]:
        """The members of a list."""
        return tuple(one for one in self.members if one.list == name)

    def as_json(self) -> dict[str, Any]:
        """The fields as values of JSON."""
        return asdict(self) | {"missing": [one.as_json() for one in self.missing]}


@dataclass(slots=True)
class Sight:
    """The observations of a job so far."""

    began: float
    values: Mapping[NodeName, float] = field(default_factory=dict)  # the value of each node's heartbeat
    beats: dict[NodeName, float] = field(default_factory=dict)  # the time at which each node's heartbeat changed
    structure: Snapshot | None = None  # all but the heartbeats
    changed: float | None = None

    def take(self, state: Snapshot, now: float) -> None:
        """Take the state that was read at `now`."""
        structure = replace(state, beats={}, version=0, writer="")
        for one, value in state.beats.items():
            is_news = self.values[one] != value if one in self.values else self.structure is not None
            if is_news:  # a node that has come since the first look has just sent a heartbeat
                self.beats[one] = now
        self.values = state.beats
        if self.structure is not None and structure != self.structure:
            self.changed = now
        self.structure = structure

    def lasting(self, gone: tuple[Missing, ...], now: float) -> tuple[Missing, ...]:
        """The keys that are not missing just for a moment: a finding is certain, or nothing has changed for a while."""
        still = now - (self.began if self.changed is None else self.changed)
        return tuple(one for one in gone if one.finding is not None or still >= MISSING_SECONDS)

    def times(self, one: NodeName, now: float) -> dict[str, Any]:
        """The times of a Member."""
        if (at := self.beats.get(one)) is not None:
            return {"beat_seconds": round(now - at, 2)}
        return {"silent_seconds": round(now - self.began, 2)}


@contextlib.contextmanager
def endpoint_store(endpoint: str, secret: bytes | None, tls: Tls | None = None) -> Iterator[Any]:
    """A client of the store at `host:port`, which is never served by this process.

    Raises:
        RendezvousSettingsError: the endpoint is not host:port.
        RendezvousConnectionError: it is not reached within CONNECT_SECONDS, refuses the secret, or is lost later.
    """
    host, port = place(Options("status", Settings(1, 1), endpoint=endpoint.strip()))
    try:
        with TCPStore(host, port, timeout=timedelta(seconds=CONNECT_SECONDS), secret=secret, tls=tls) as store:
            yield store
    except RendezvousError:
        raise
    except (DistError, OSError) as error:
        raise RendezvousConnectionError(str(error)) from error


def read_job(store: Any, job: str) -> tuple[str, Snapshot]:
    """The backend of the job, and its state. Raises NoAnswer like `found`, and for a value that is not a state."""
    backend, data = found(store, job)
    try:
        state = decoded(backend, data)
        if backend == OURS:
            state = counted(state, counters(store, job, [who.token for who in state.beats]))
        return backend, state
    except NoState as error:
        raise NoAnswer(f"{describe(store)}, job {job!r}: {error}") from error


def found(store: Any, job: str) -> tuple[str, bytes]:
    """The backend of the job, and the bytes of its state: ours, if the store has both.

    Raises:
        NoAnswer: the store has no such job; the text names its jobs.
    """
    for backend, key in keys(job).items():
        if (data := look(store, key)) is not None:
            return backend, data
    raise NoAnswer(f"{describe(store)} has no job {job!r}: {jobs_there(store)}")


def jobs_there(store: Any) -> str:
    """The sentence about the jobs of a store; a server of torch may not be able to list them."""
    there = jobs(store)
    if there is None:
        return "its server cannot list its jobs; see the --rdzv-id of the nodes"
    names = [*(f"{name!r}" for name in there.ours), *(f"{name!r} (torch's c10d)" for name in there.torchs)]
    if not names:
        there_are = f"it has no job yet, and {there.keys} other key{'s' * (there.keys != 1)}"
        return there_are if there.keys else "it is empty; see whether a node has come"
    return f"it has {some(names, NAMES_MAX)}"


def lines_of_all(store: Any) -> Iterator[str]:
    """A line for each job of a store, ours and torch's, after one read.

    Raises NoAnswer: the store has no job, or its server cannot list them.
    """
    there = jobs(store)
    if there is None or not (there.ours or there.torchs):
        raise NoAnswer(f"{describe(store)}: {jobs_there(store)}")
    for backend, names, kind in ((OURS, there.ours, ""), (TORCH, there.torchs, " (torch's c10d)")):
        for name in names[:NAMES_MAX]:
            data = look(store, keys(name)[backend])
            if data is not None:  # else it was deleted meanwhile
                yield f"job {name!r}{kind}: {_in_short(backend, data)}"
        if len(names) > NAMES_MAX:
            yield f"and {len(names) - NAMES_MAX} more"


def decoded(backend: str, data: bytes) -> Snapshot:
    """The state in a value. Raises NoState if the value is not a state."""
    state = read(Protocol.OURS if backend == OURS else Protocol.TORCH, data)
    if state is None:
        raise NoState("no node has written its state yet")
    return state


def by_whom(closed: Closed) -> str:
    """The node that has closed a job, and its reason; empty for torch, whose state lacks them."""
    return f" by {closed.by}: {closed.reason}" if closed.by else ""


def _in_short(backend: str, data: bytes) -> str:
    """The state of a job in half a line."""
    try:
        state = decoded(backend, data)
    except TrystateError as error:
        return str(error)
    members = len(state.listed(Membership.PARTICIPANT))
    counted = f"{members} node{'s' * (members != 1)}"
    if state.closed:
        return f"closed{by_whom(state.closed)}"
    if state.complete:
        return f"round {state.round} is complete: {counted}"
    least = f" of min_nodes={state.settings.min_nodes}" if state.settings is not None else ""
    return f"round {state.round} is not complete: {counted}{least}"


def observe(
    store: Any, job: str, seconds: float | None = None, clock: Callable[[], float] = time.monotonic,
    pause: Callable[[float], None] = time.sleep,
) -> Status:  # fmt: skip
    """Observe a job until each listed node has sent a heartbeat, or for `seconds`; None: 1.3 intervals at most.

    Raises:
        NoAnswer: the store has no such job, or its value is not a state.
    """
    sight = Sight(clock())
    while True:
        backend, state = read_job(store, job)
        now = clock()
        interval = TORCH_BEAT_SECONDS if state.settings is None else state.settings.keep_alive_interval
        sight.take(state, now)
        until = BEATS_AWAITED * interval if seconds is None else seconds
        left = sight.began + min(until, OBSERVE_SECONDS_MAX) - now
        if left <= 0 or (seconds is None and (state.closed or sight.values.keys() <= sight.beats.keys())):
            break
        pause(min(POLL_SECONDS, left))
    other = TORCH if backend == OURS and look(store, keys(job)[TORCH]) is not None else ""
    gone = sight.lasting(missing(store, job, state), now)
    return replace(status_of(state, job, describe(store), sight, now), also=other, missing=gone)


def status_of(state: Snapshot, job: str, place: str, sight: Sight, now: float) -> Status:
    """The state in the form that is shown, with the observed heartbeats."""
    members = [
        Member(
            str(who),
            name,
            state.ranks.get(who),
            drained=who.token in state.draining,
            **({} if who.token in state.done else sight.times(who, now)),  # a node that has finished may be silent
        )
        for name, membership in LISTS.items()
        for who, listed in state.members.items()
        if listed is membership
    ]
    settings, closed = state.settings, state.closed
    status = Status(
        TORCH, job, place, state.round, state.complete, _awaited(state), tuple(members), round(now - sight.began, 2),
        None if sight.changed is None else round(now - sight.changed, 2), None if closed is None else asdict(closed),
        cause=state.cause, done=len(state.done),
    )  # fmt: skip
    if settings is None:
        return status
    limits, restarts = (settings.min_nodes, settings.max_nodes), (state.spent, settings.max_restarts)
    return replace(status, backend=OURS, nodes=limits, restarts=restarts, version=state.version)


def _awaited(state: Snapshot) -> str:
    if state.complete or state.closed is not None:
        return ""
    settings = state.settings
    if settings is None:
        return (
            "the end of the last call: enough nodes have come" if state.calling
            else "more nodes: fewer than the minimum have come, which the state lacks (see --nnodes of the agents)"
        )  # fmt: skip
    parts = []
    missing = settings.min_nodes - len(state.listed(Membership.PARTICIPANT))
    coming = len(state.listed(Membership.EXPECTED))
    if coming:
        parts.append(f"{coming} of the round before, which come, leave, or are expelled after "
                     f"{settings.expiry_seconds:g} s without a heartbeat")  # fmt: skip
    if missing > coming:
        parts.append(f"{missing - coming} more to have min_nodes={settings.min_nodes}")
    if state.calling:
        last = settings.rescale_timeout if state.round else settings.last_call_timeout
        parts.append(f"the end of the last call, which takes {last:g} s")
    return "; ".join(parts)


def lines(status: Status, nodes_max: int | None = None) -> Iterator[str]:
    """The status in words, with at most `nodes_max` nodes of each list; None: all."""
    kind = "trystate's rendezvous" if status.backend == OURS else "torch's c10d rendezvous"
    yield f"job {status.job!r} at {status.endpoint}: {kind}"
    counted = len(status.of("participants"))
    if status.closed is not None:
        yield f"  closed{_closing(status.closed)}; its last round was {status.round}"
    limits = "" if status.nodes is None else f", min_nodes={status.nodes[0]}, max_nodes={status.nodes[1]}"
    phase = "is complete" if status.complete else "was not complete" if status.closed is not None else "is not complete"
    yield f"  round {status.round} {phase}: {counted} node{'s' * (counted != 1)}{limits}"
    if status.waits_for:
        yield f"  waits for {status.waits_for}"
    for name, word in (("participants", "member"), ("expected", "expected"), ("waiting", "waits"), ("spares", "spare")):
        listed = status.of(name)
        for one in listed[:nodes_max]:
            label = f"rank {one.rank}" if one.rank is not None else word
            yield f"    {label:<9} {one.name}  {_beat(one)}{', drained: it leaves' if one.drained else ''}"
        if nodes_max is not None and len(listed) > nodes_max:
            yield f"    and {len(listed) - nodes_max} more"
    for lost in status.missing:
        yield f"  {lost}"
    for finding in dict.fromkeys(lost.finding for lost in status.missing if lost.finding is not None):
        yield f"    {finding.number}: {finding.title}"
        yield f"    what to do: {finding.workaround} Now: end the job on all nodes, and start it with another --rdzv-id"
    if status.done:
        yield f"  the workers of {status.done} of {counted} have succeeded"
    if status.restarts is not None and status.restarts[1] >= 0:
        yield f"  restarts: {status.restarts[0]} of {status.restarts[1]} spent"
    if status.cause:
        yield f"  the round before was replaced by {status.cause}"
    seen = f"in {status.observed_seconds:g} s of looking"
    if status.changed_seconds is None:
        yield f"  {seen} nothing but heartbeats has changed"
    else:
        yield f"  {seen} the last change was {status.changed_seconds:g} s ago"
    if status.also:
        yield f"  the store has a job of this name in torch's c10d rendezvous as well: {keys(status.job)[status.also]}"


def _closing(closed: Mapping[str, str]) -> str:
    if not closed["by"]:
        return ": torch's state has neither the node nor the reason"
    verdict = f" ({closed['verdict']})" if closed["verdict"] else ""
    return f" by {closed['by']}: {closed['reason']}{verdict}"


def _beat(one: Member) -> str:
    ago = f"heartbeat {one.age:.1f} s ago"
    return ago if one.beat_seconds is not None else f"no heartbeat for at least {one.age:.1f} s"
