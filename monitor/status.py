"""The state of a rendezvous at one moment, ours or torch's c10d, as an observer of its store reads it.

Theory of operation. A rendezvous is one key of the store. The observer reads it several times, within a short time, and
writes nothing. A heartbeat is seen when its counter (ours) or its stamp (torch's) has another value than before; its
age is measured by the observer's own clock from then on. Stamps of other machines are compared for equality alone.
"""

from __future__ import annotations

import contextlib
import time
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field, replace
from datetime import timedelta
from typing import Any

from torch.distributed import DistError

from trystate.impl.rendezvous.encoding import decode
from trystate.impl.rendezvous.endpoint import place
from trystate.impl.rendezvous.errors import RendezvousConnectionError, RendezvousError
from trystate.impl.rendezvous.jobs import OURS, TORCH, jobs, keys
from trystate.impl.rendezvous.notifier import look
from trystate.impl.rendezvous.options import Options
from trystate.impl.rendezvous.state import LISTS, Settings, State
from trystate.impl.rendezvous.store_backend import describe
from trystate.impl.store.tcp import TCPStore
from trystate.model.errors import TrystateError

from .round_keys import MISSING_SECONDS, Missing, missing
from .torch_state import TorchNode, TorchState
from .torch_state import read as read_torch

CONNECT_SECONDS = 5.0
OBSERVE_SECONDS_MAX = 60.0
TORCH_BEAT_SECONDS = 5.0  # torch's default interval: its state does not say
BEATS_AWAITED = 1.3  # of the interval: a live node has beaten by then
POLL_SECONDS = 0.2
NAMES_MAX = 20  # jobs in one text


class NoAnswer(TrystateError):
    """The store has no such job, or what it has is no state of a rendezvous; the text says what is there."""


@dataclass(frozen=True, slots=True)
class Member:
    """A listed node; times in seconds of the observer's clock."""

    name: str
    list: str  # participants, expected, waiting or spares
    rank: int | None = None  # in a complete round
    beat_seconds: float | None = None  # since its last heartbeat that was seen
    silent_seconds: float | None = None  # if none was seen: it stood still for at least so long
    drained: bool = False  # an operator has marked it: it leaves


@dataclass(frozen=True, slots=True)
class Status:
    """A rendezvous at one moment; `observed_seconds` is how long it was looked at."""

    backend: str
    job: str
    endpoint: str
    round: int
    complete: bool
    waits_for: str  # the conditions for a complete round; empty if it is complete
    members: tuple[Member, ...]
    observed_seconds: float
    changed_seconds: float | None  # since the last change other than a heartbeat, if one was seen
    closed: Mapping[str, str] | None = None  # by, reason and verdict; empty where torch does not say
    nodes: tuple[int, int] | None = None  # min_nodes and max_nodes; torch's state has neither
    restarts: tuple[int, int] | None = None  # spent, and how many there are; -1: each agent counts for itself
    cause: str = ""  # why the round before was replaced
    done: int = 0  # members whose workers have succeeded
    also: str = ""  # the other backend, if the store has a job of this name there as well
    version: int | None = None
    missing: tuple[Missing, ...] = ()  # keys of torch's agents that the round waits for

    def of(self, name: str) -> tuple[Member, ...]:
        """The members of a list."""
        return tuple(one for one in self.members if one.list == name)

    def as_json(self) -> dict[str, Any]:
        """The fields as values of JSON."""
        members = [{part: getattr(one, part) for part in one.__slots__} for one in self.members]
        found = {name: getattr(self, name) for name in self.__slots__}
        closed = None if self.closed is None else dict(self.closed)
        return found | {"members": members, "closed": closed, "missing": [one.as_json() for one in self.missing]}


@dataclass(slots=True)
class Sight:
    """The things that were seen of a job so far."""

    began: float
    values: dict[str, Any] = field(default_factory=dict)  # of each heartbeat: the value, by the node's identity
    beats: dict[str, float] = field(default_factory=dict)  # when a heartbeat with another value was seen
    structure: Any = None  # all but the heartbeats
    changed: float | None = None

    def take(self, beats: Mapping[str, Any], structure: Any, now: float) -> None:
        """Take in what was read at `now`."""
        for one, value in beats.items():
            is_news = self.values[one] != value if one in self.values else self.structure is not None
            if is_news:  # a node that has come since the first look has just beaten
                self.beats[one] = now
        self.values = dict(beats)
        if self.structure is not None and structure != self.structure:
            self.changed = now
        self.structure = structure

    def all_beat(self) -> bool:
        return all(one in self.beats for one in self.values)

    def lasting(self, gone: tuple[Missing, ...], now: float) -> tuple[Missing, ...]:
        """The missing keys that are no matter of a moment: a finding is certain, or nothing has changed for a while."""
        still = now - (self.began if self.changed is None else self.changed)
        return tuple(one for one in gone if one.finding is not None or still >= MISSING_SECONDS)

    def times(self, one: str, now: float) -> dict[str, Any]:
        """The times of a Member."""
        at = self.beats.get(one)
        age, still = (None, now - self.began) if at is None else (now - at, None)
        return {"beat_seconds": rounded(age), "silent_seconds": rounded(still)}


def rounded(seconds: float | None) -> float | None:
    return None if seconds is None else round(seconds, 2)


@contextlib.contextmanager
def endpoint_store(endpoint: str, secret: bytes | None) -> Iterator[Any]:
    """A client of the store at `host:port`, which is never served by this process.

    Raises:
        RendezvousSettingsError: the endpoint is no host:port.
        RendezvousConnectionError: it is not reached within CONNECT_SECONDS, refuses the secret, or is lost later.
    """
    host, port = place(Options("status", Settings(1, 1), endpoint=endpoint.strip()))
    try:
        with TCPStore(host, port, timeout=timedelta(seconds=CONNECT_SECONDS), secret=secret) as store:
            yield store
    except RendezvousError:
        raise
    except (DistError, OSError) as error:
        raise RendezvousConnectionError(str(error)) from error


def found(store: Any, job: str) -> tuple[str, bytes]:
    """The backend of the job, and the bytes of its state: ours, if the store has both.

    Raises:
        NoAnswer: the store has neither; the text names the jobs that it has.
    """
    for backend, key in keys(job).items():
        if (data := look(store, key)) is not None:
            return backend, data
    raise NoAnswer(f"{describe(store)} has no job {job!r}: {jobs_there(store)}")


def jobs_there(store: Any) -> str:
    """The jobs of a store, in words; a server of torch's may not be able to list them."""
    there = jobs(store)
    if there is None:
        return "its server cannot list its jobs; see the --rdzv-id of the nodes"
    names = [*(f"{name!r}" for name in there.ours), *(f"{name!r} (torch's c10d)" for name in there.torchs)]
    if not names:
        there_are = f"it has no job yet, and {there.keys} other key{'s' * (there.keys != 1)}"
        return there_are if there.keys else "it is empty; see whether a node has come"
    more = f" and {len(names) - NAMES_MAX} more" if len(names) > NAMES_MAX else ""
    return f"it has {', '.join(names[:NAMES_MAX])}{more}"


def lines_of_all(store: Any) -> Iterator[str]:
    """A line for each job of a store, ours and torch's, as it was read once.

    Raises NoAnswer: there is no job, or its server cannot list them.
    """
    there = jobs(store)
    if there is None or not (there.ours or there.torchs):
        raise NoAnswer(f"{describe(store)}: {jobs_there(store)}")
    for backend, names, kind in ((OURS, there.ours, ""), (TORCH, there.torchs, " (torch's c10d)")):
        for name in names[:NAMES_MAX]:
            data = look(store, keys(name)[backend])
            if data is not None:  # else it has gone meanwhile
                yield f"job {name!r}{kind}: {_in_short(backend, data)}"
        if len(names) > NAMES_MAX:
            yield f"and {len(names) - NAMES_MAX} more"


def _in_short(backend: str, data: bytes) -> str:
    """The state of a job in half a line."""
    try:
        state = decode(data) if backend == OURS else read_torch(data)
    except TrystateError as error:
        return str(error)
    counted = f"{len(state.participants)} node{'s' * (len(state.participants) != 1)}"
    if state.closed is not None and state.closed is not False:
        closed = f" by {state.closed.by}: {state.closed.reason}" if isinstance(state, State) and state.closed else ""
        return f"closed{closed}"
    if state.complete:
        return f"round {state.round} is complete: {counted}"
    least = f" of min_nodes={state.settings.min_nodes}" if isinstance(state, State) else ""
    return f"round {state.round} is not complete: {counted}{least}"


def observe(
    store: Any, job: str, seconds: float | None = None, clock: Callable[[], float] = time.monotonic,
    pause: Callable[[float], None] = time.sleep,
) -> Status:  # fmt: skip
    """Look at a job until each listed node has beaten, or for `seconds`; None: a little more than an interval.

    Raises:
        NoAnswer: the store has no such job, or its value is no state.
    """
    sight = Sight(clock())
    while True:
        backend, data = found(store, job)
        now = clock()
        try:
            state = decode(data) if backend == OURS else read_torch(data)
        except TrystateError as error:
            raise NoAnswer(f"{describe(store)}, job {job!r}: {error}") from error
        interval = state.settings.keep_alive_interval if isinstance(state, State) else TORCH_BEAT_SECONDS
        sight.take(*beats_of(state), now)
        closed = state.closed is not None and state.closed is not False
        until = BEATS_AWAITED * interval if seconds is None else seconds
        left = sight.began + min(until, OBSERVE_SECONDS_MAX) - now
        if left <= 0 or (seconds is None and (closed or sight.all_beat())):
            break
        pause(min(POLL_SECONDS, left))
    other = TORCH if backend == OURS and look(store, keys(job)[TORCH]) is not None else ""
    gone = missing(store, job, state) if isinstance(state, TorchState) else ()
    return replace(status_of(state, job, describe(store), sight, now), also=other, missing=sight.lasting(gone, now))


def beats_of(state: State | TorchState) -> tuple[dict[str, Any], Any]:
    """The value of each node's heartbeat, and all the rest of the state."""
    if isinstance(state, State):
        return {p.node.token: p.beats for p in state.listed()}, _without_beats(state)
    return {str(node): at for node, at in state.last_heartbeats.items()}, replace(state, last_heartbeats={})


def status_of(state: State | TorchState, job: str, place: str, sight: Sight, now: float) -> Status:
    """The state in the form that is shown, with the heartbeats that were seen."""
    if isinstance(state, State):
        return _ours(state, job, place, sight, now)
    return _torchs(state, job, place, sight, now)


def _without_beats(state: State) -> State:
    lists: dict[str, Any] = {name: tuple(replace(p, beats=0) for p in getattr(state, name)) for name in LISTS}
    return replace(state, version=0, writer="", **lists)


def _since(sight: Sight, now: float) -> float | None:
    return None if sight.changed is None else round(now - sight.changed, 2)


def _ours(state: State, job: str, where: str, sight: Sight, now: float) -> Status:
    members = [
        Member(str(p.node), name, rank if name == "participants" and state.complete else None,
               **sight.times(p.node.token, now), drained=p.node.token in state.draining)
        for name in LISTS
        for rank, p in enumerate(getattr(state, name))
    ]  # fmt: skip
    settings, closed = state.settings, state.closed
    return Status(
        OURS, job, where, state.round, state.complete, _awaited(state), tuple(members),
        round(now - sight.began, 2), _since(sight, now),
        None if closed is None else {"by": closed.by, "reason": closed.reason, "verdict": closed.verdict},
        (settings.min_nodes, settings.max_nodes), (state.spent, settings.max_restarts), state.cause, len(state.done),
        version=state.version,
    )  # fmt: skip


def _awaited(state: State) -> str:
    if state.complete or state.closed is not None:
        return ""
    parts = []
    missing = state.settings.min_nodes - len(state.participants)
    coming = len(state.expected)
    if coming:
        parts.append(f"{coming} of the round before, which come, leave, or are expelled after "
                     f"{state.settings.expiry_seconds:g} s without a heartbeat")  # fmt: skip
    if missing > coming:
        parts.append(f"{missing - coming} more to have min_nodes={state.settings.min_nodes}")
    if state.calling:
        last = state.settings.rescale_timeout if state.round else state.settings.last_call_timeout
        parts.append(f"the end of the last call, which takes {last:g} s")
    return "; ".join(parts)


def _torchs(state: TorchState, job: str, where: str, sight: Sight, now: float) -> Status:
    lists: dict[str, list[TorchNode]] = {
        "participants": sorted(state.participants, key=lambda node: (state.participants[node], node)),
        "waiting": sorted(state.wait_list),
        "spares": sorted(state.redundancy_list),
    }
    members = [
        Member(str(node), name, state.participants[node] if name == "participants" and state.complete else None,
               **sight.times(str(node), now))
        for name, nodes in lists.items() for node in nodes
    ]  # fmt: skip
    waits = ""
    if not state.complete and not state.closed:
        waits = (
            "the end of the last call: enough nodes have come" if state.deadline is not None
            else "more nodes: fewer than the minimum have come, which the state does not say (--nnodes of the agents)"
        )  # fmt: skip
    closed = {"by": "", "reason": "", "verdict": ""} if state.closed else None
    return Status(
        TORCH, job, where, state.round, state.complete, waits, tuple(members), round(now - sight.began, 2),
        _since(sight, now), closed,
    )  # fmt: skip


def lines(status: Status) -> Iterator[str]:
    """The status in words."""
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
        for one in status.of(name):
            label = f"rank {one.rank}" if one.rank is not None else word
            yield f"    {label:<9} {one.name}  {_beat(one)}{', drained: it leaves' if one.drained else ''}"
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
        return ": torch's state says neither by whom nor why"
    verdict = f" ({closed['verdict']})" if closed["verdict"] else ""
    return f" by {closed['by']}: {closed['reason']}{verdict}"


def _beat(one: Member) -> str:
    if one.beat_seconds is not None:
        return f"heartbeat {one.beat_seconds:.1f} s ago"
    return f"no heartbeat for at least {one.silent_seconds or 0.0:.1f} s"
