"""The sources of a watch: states polled from a store, or read from a record that grows.

Theory of operation. A source is a blocking iterator of looks: `polled` reads a store periodically, as an observer that
writes nothing, and `tailed` reads the lines of a record as they are written. A store that does not answer, or a record
that does not grow, is a look with a reason. All times are by one clock: this process's monotonic clock for a store, the
recorder's clock for a record.
"""

from __future__ import annotations

import os
import time
from collections import Counter, defaultdict
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any, BinaryIO

from trystate.impl.host.tls import Tls
from trystate.impl.rendezvous.errors import RendezvousConnectionError
from trystate.impl.store.record.format import LINE_BYTES_MAX
from trystate.impl.store.record.writer import segments
from trystate.model.errors import UsageError

from .record import Flaw, Line, parse
from .rendezvous.shared_state import BEAT, NoState, Protocol, Snapshot, counted, identify, read
from .round_keys import Missing, missing
from .status import NoAnswer, endpoint_store, read_job

PAUSE_SECONDS = 0.2  # polling interval of the end of a record
RETRY_SECONDS = 1.0  # pause before a new connection to a store
READ_BYTES = 1 << 20
HEAD_BYTES = 1 << 10  # the beginning of a file, by which it is recognised
# A look costs time for each node. A record of 1,000 nodes has 200 heartbeats a second, each of them a line.
NODES, BEATS_SECONDS = 64, 0.03  # heartbeats are shown together, within BEATS_SECONDS for each 64 nodes


@dataclass(frozen=True, slots=True)
class Look:
    """One look: its time, and the state if one exists. `line`: a line of a record."""

    time: float
    state: Snapshot | None = None
    took: float = 0.0
    job: str = ""
    why: str = ""  # the reason why no answer has come
    quiet: float = 0.0  # the seconds without an answer
    waits_for: str = ""  # the text if the store has no such job
    line: Line | None = None
    missing: tuple[Missing, ...] = ()  # missing keys of torch's agents in a store


def polled(
    endpoint: str, job: str, secret: bytes | None, interval: float, tls: Tls | None = None, *,
    clock: Callable[[], float] = time.monotonic, pause: Callable[[float], object] = time.sleep,
) -> Iterator[Look]:  # fmt: skip
    """The states of a job, read from the store at its endpoint every `interval` seconds, for ever.

    Raises:
        RendezvousConnectionError: the store cannot be reached at first, or refuses the secret.
        RendezvousSettingsError: the endpoint is not host:port.
    """
    answered: float | None = None
    while True:
        try:
            with endpoint_store(endpoint, secret, tls) as store:
                while True:
                    began = clock()
                    look = _asked(store, job, began, clock)
                    answered = clock()
                    yield look
                    pause(max(interval - (clock() - began), 0.0))
        except RendezvousConnectionError as error:
            if answered is None:
                raise
            yield Look(clock(), job=job, why=str(error), quiet=clock() - answered)
            pause(RETRY_SECONDS)


def _asked(store: Any, job: str, began: float, clock: Callable[[], float]) -> Look:
    try:
        _, state = read_job(store, job)
    except NoAnswer as error:
        return Look(clock(), None, clock() - began, job, waits_for=str(error))
    now = clock()
    return Look(now, state, now - began, job, missing=missing(store, job, state))


def tailed(
    path: Path, job: str | None, clock: Callable[[], float] = time.monotonic,
    pause: Callable[[float], object] = time.sleep,
) -> Iterator[Look]:  # fmt: skip
    """The lines of a record from its start, and new lines as they come, until it was ended in order.

    Raises:
        UsageError: the file cannot be read, is not a record, has a bad line, or has several jobs without a choice.
    """
    jobs: dict[str, None] = {}
    last, came = 0.0, clock()
    states, counters = dict[str, Snapshot](), defaultdict[str, Counter[str]](Counter)  # each job has one
    rooms = dict[int, str]()  # the token of the node that has last changed a room by each connection
    beaten, shown = "", 0.0  # the job with heartbeats that no look has shown; the time of the last look with a state
    for line in _lines(path, clock, pause):
        if line is None:
            why = "the record does not grow; see whether its server still runs"
            yield Look(last, job=job or next(iter(jobs), ""), why=why, quiet=clock() - came)
            continue
        came = clock()
        last = max(last, line.time)
        state = None
        identity = identify(line.key)
        if identity is not None and line.what == "write":
            protocol, name = identity
            jobs[name] = None
            if job is None and len(jobs) > 1:
                raise UsageError(f"{path} has several jobs; choose one with --rdzv-id: {', '.join(jobs)}")
            state = _state_of(path, line, protocol) if job in (None, name) else None
            if state is not None and protocol is Protocol.OURS:
                rooms[line.connection] = state.writer
                states[name], state = state, counted(state, counters[name])
        elif identity is not None and line.what == "room" and identity[1] in states and "error" not in line.fields:
            name, token = identity[1], str(line.fields.get("node") or rooms.get(line.connection, ""))
            counters[name][token] += 1
            beaten = name
        elif line.what == "add" and (beat := BEAT.search(line.key)) is not None:
            name = beat["run"]
            result = line.fields.get("result")
            if isinstance(result, int) and name in states and any(w.token == beat["token"] for w in states[name].beats):
                counters[name][beat["token"]] = result
                beaten = name
        if state is None and beaten:
            due = shown + BEATS_SECONDS * (len(states[beaten].members) // NODES)
            state = counted(states[beaten], counters[beaten]) if last >= due or line.what == "end" else None
        if state is not None:
            beaten, shown = "", last
        yield Look(last, state, job=job or next(iter(jobs), ""), line=line)
        if line.what == "end":
            return


def _lines(path: Path, clock: Callable[[], float], pause: Callable[[float], object]) -> Iterator[Line | None]:
    """The lines of the files of a record; None: no line has come for a pause."""
    number, rest, part, file = 0, b"", path, 0
    base, _, ending = path.name.rpartition(".")
    found = segments(path)
    if found and not path.exists():  # the recorder removes its oldest files
        file, part = found[0]
    elif base and ending.isdecimal() and len(found) == 1 and _continues(path, int(ending)):
        path, file = path.with_name(base), int(ending)
    try:
        while True:
            later = path.with_name(f"{path.name}.{file + 1}")
            with open(part, "rb") as stream:
                head = b""
                while True:
                    over = later.exists()  # before the read, which then gets all lines of this file
                    data = stream.read(READ_BYTES)
                    head = head or data[:HEAD_BYTES]
                    _same(part, stream, head, over)
                    rest += data
                    *whole, rest = rest.split(b"\n")
                    for raw in whole:
                        number += 1
                        yield _parsed(part, number, raw)
                    if len(rest) > LINE_BYTES_MAX:
                        raise UsageError(f"{part}: a line has more than {LINE_BYTES_MAX} bytes, the limit of a record")
                    if not data and over:
                        break
                    if not data:
                        yield None
                        pause(PAUSE_SECONDS)
            file, rest, part = file + 1, b"", later
    except OSError as error:
        raise UsageError(f"{part} cannot be read: {error.strerror}: give a file of --record") from None


def _continues(path: Path, number: int) -> bool:
    """Whether the file is a later one of a record, whose header has its number."""
    try:
        with open(path, "rb") as stream:
            header = parse(stream.readline(READ_BYTES), "", 1)
    except OSError:
        return False
    return isinstance(header, Line) and header.fields.get("continues") == number


def _same(path: Path, stream: BinaryIO, head: bytes, over: bool) -> None:
    """Raises UsageError if the open file was truncated or overwritten, or if it has lost its name.

    `over`: the next file has begun, and the recorder may have removed this one.
    """
    size, read = os.fstat(stream.fileno()).st_size, stream.tell()
    what = ""
    if size < read or os.pread(stream.fileno(), len(head), 0) != head:
        what = f"was truncated: it had {read} bytes or more"
    elif not over:
        try:
            if not os.path.samestat(os.stat(path), os.fstat(stream.fileno())):
                what = "was renamed, and another file has its name"
        except FileNotFoundError:
            what = "was removed or renamed"
    if what:
        raise UsageError(
            f"{path} {what}: let the recorder alone rotate its record (--record-bytes), and watch it again"
        )


def _parsed(path: Path, number: int, raw: bytes) -> Line:
    line = parse(raw, "", number)
    if isinstance(line, Flaw):
        raise UsageError(f"{path}: {line.place} of the record: {line.why}")
    if number == 1 and line.what != "header":
        raise UsageError(f"{path}: {line.place} is not the header of a record of `trystate store serve --record`")
    return line


def _state_of(path: Path, line: Line, protocol: Protocol) -> Snapshot | None:
    try:
        return read(protocol, line.value)
    except NoState as error:
        raise UsageError(f"{path}: {line.place}: the value is not a state of a rendezvous: {error}") from None
