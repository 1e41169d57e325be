"""The states that a watch looks at: polled from a store, or read from a record that grows.

Theory of operation. A source is an iterator of looks, that takes its time: `polled` asks a store every so often, as an
observer that writes nothing, and `tailed` reads the lines of a record as they are written. A store that does not
answer, or a record that does not grow, is a look with a reason. Times are of one clock: the monotonic one of this
process for a store, the recorder's for a record.
"""

from __future__ import annotations

import os
import time
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, BinaryIO

from trystate.impl.rendezvous.encoding import decode
from trystate.impl.rendezvous.errors import RendezvousConnectionError
from trystate.impl.rendezvous.jobs import OURS
from trystate.impl.rendezvous.state import State
from trystate.impl.store.record.format import LINE_BYTES_MAX, is_state
from trystate.model.errors import TrystateError, UsageError

from .record import loaded
from .round_keys import Missing, missing
from .status import NoAnswer, endpoint_store, found
from .torch_state import TorchState
from .torch_state import read as read_torch

PAUSE_SECONDS = 0.2  # between two looks at the end of a record
RETRY_SECONDS = 1.0  # until a store is connected to again
READ_BYTES = 1 << 20
HEAD_BYTES = 1 << 10  # of a file, by which it is known again
SENTINEL = b"Y2FuaW1hZGFt"  # torch writes it where there is no state yet
TORCHS, OURS_BEGIN, OURS_END = "torch.rendezvous.", "trystate/", "/state"


@dataclass(frozen=True, slots=True)
class Look:
    """One look: the state, if there is one, and when. `line`: of a record, with its number."""

    time: float
    state: State | TorchState | None = None
    took: float = 0.0
    job: str = ""
    why: str = ""  # nobody has answered,
    quiet: float = 0.0  # for so many seconds
    waits_for: str = ""  # there is no such job, and what there is
    line: Mapping[str, Any] | None = None
    number: int = 0
    missing: tuple[Missing, ...] = ()  # keys of torch's agents, in a store


def decoded(backend: str, data: bytes) -> State | TorchState:
    """The state that a value is. Raises a TrystateError if it is none."""
    return decode(data) if backend == OURS else read_torch(data)


def polled(
    endpoint: str, job: str, secret: bytes | None, interval: float,
    clock: Callable[[], float] = time.monotonic, pause: Callable[[float], object] = time.sleep,
) -> Iterator[Look]:  # fmt: skip
    """The states of a job, read from the store at its endpoint every `interval` seconds, for ever.

    Raises:
        RendezvousConnectionError: the store is not reached at first, or refuses the secret.
        RendezvousSettingsError: the endpoint is no host:port.
    """
    answered: float | None = None
    while True:
        try:
            with endpoint_store(endpoint, secret) as store:
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
        backend, data = found(store, job)
    except NoAnswer as error:
        return Look(clock(), None, clock() - began, job, waits_for=str(error))
    now = clock()
    try:
        state = decoded(backend, data)
        gone = missing(store, job, state) if isinstance(state, TorchState) else ()
        return Look(now, state, now - began, job, missing=gone)
    except TrystateError as error:
        return Look(now, None, now - began, job, waits_for=f"the job's value is no state: {error}")


def tailed(
    path: Path, job: str | None, clock: Callable[[], float] = time.monotonic,
    pause: Callable[[float], object] = time.sleep,
) -> Iterator[Look]:  # fmt: skip
    """The lines of a record from its begin, and those that come, until it was ended in order.

    Raises:
        UsageError: the file cannot be read or is no record, a line is none, or several jobs are there and none named.
    """
    jobs: dict[str, None] = {}
    last, came = 0.0, clock()
    for number, line in _lines(path, clock, pause):
        if line is None:
            why = "the record does not grow; see whether its server still runs"
            yield Look(last, job=job or next(iter(jobs), ""), why=why, quiet=clock() - came)
            continue
        came = clock()
        last = max(last, _time(path, number, line))
        state = None
        name = _job_of(str(line.get("key", "")))
        if name is not None and line.get("op") == "write":
            jobs[name] = None
            if job is None and len(jobs) > 1:
                raise UsageError(f"{path} has several jobs: choose one with --rdzv-id: {', '.join(jobs)}")
            state = _state_of(path, number, line) if job in (None, name) else None
        yield Look(last, state, job=job or next(iter(jobs), ""), line=line, number=number)
        if line.get("op") == "end":
            return


def _lines(
    path: Path, clock: Callable[[], float], pause: Callable[[float], object]
) -> Iterator[tuple[int, Mapping[str, Any] | None]]:
    """The lines of the files of a record; None: nothing has come for a pause."""
    file, number, rest, part = 0, 0, b"", path
    try:
        while True:
            later = path.with_name(f"{path.name}.{file + 1}")
            with open(part, "rb") as stream:
                head = b""
                while True:
                    over = later.exists()  # before the read: all that was written to this file is then read
                    data = stream.read(READ_BYTES)
                    head = head or data[:HEAD_BYTES]
                    _same(part, stream, head, over)
                    rest += data
                    *whole, rest = rest.split(b"\n")
                    for raw in whole:
                        number += 1
                        yield number, _parsed(part, number, raw)
                    if len(rest) > LINE_BYTES_MAX:
                        raise UsageError(f"{part}: a line of more than {LINE_BYTES_MAX} bytes is none of a record")
                    if not data and over:
                        break
                    if not data:
                        yield number, None
                        pause(PAUSE_SECONDS)
            file, rest, part = file + 1, b"", later
    except OSError as error:
        raise UsageError(f"{part} cannot be read: {error.strerror}: give a file of --record") from None


def _same(path: Path, stream: BinaryIO, head: bytes, over: bool) -> None:
    """Raises UsageError if the open file was truncated or written anew, or if it has lost its name.

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


def _parsed(path: Path, number: int, raw: bytes) -> Mapping[str, Any]:
    try:
        line = loaded(raw)
    except (ValueError, RecursionError):
        raise UsageError(f"{path}: line {number} of the record is no JSON") from None
    if not isinstance(line, dict) or not isinstance(line.get("op"), str) or (number == 1 and line["op"] != "header"):
        raise UsageError(f"{path}: line {number} is none of a record, which `trystate store serve --record` writes")
    return line


def _time(path: Path, number: int, line: Mapping[str, Any]) -> float:
    t = line.get("t")
    if isinstance(t, bool) or not isinstance(t, int | float):
        raise UsageError(f"{path}: line {number} of the record has no time")
    return float(t)


def _job_of(key: str) -> str | None:
    if not is_state(key.encode("latin-1", "replace")):
        return None
    if TORCHS in key:
        return key.rpartition(TORCHS)[2]
    return key[key.rindex(OURS_BEGIN) + len(OURS_BEGIN) :].removesuffix(OURS_END)


def _state_of(path: Path, number: int, line: Mapping[str, Any]) -> State | TorchState | None:
    try:
        data = str(line["value"]).encode("latin-1")
        if data == SENTINEL:
            return None
        return decode(data) if str(line["key"]).endswith(OURS_END) else read_torch(data)
    except (TrystateError, KeyError, UnicodeError) as error:
        raise UsageError(f"{path}: line {number}: the value is no state of a rendezvous: {error}") from None
