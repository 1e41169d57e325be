"""torch's own executor and state holder, run step by step in one thread on a simulated clock and backend.

The code that decides, acts, sanitises, pickles and loops is torch's, unmodified. The sources of time (`datetime.now`,
`time.monotonic`, `_delay`), the event log and the backend are replaced. Each operation runs in a greenlet that stops
where the model has a step: before a get or set, before the operator decides, before the copy is changed.
"""

from __future__ import annotations

import itertools
import pickle
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from datetime import UTC, datetime, timedelta
from types import SimpleNamespace
from typing import Any
from unittest import mock

import greenlet  # type: ignore[import-untyped]
import torch.distributed.elastic.rendezvous.dynamic_rendezvous as dr

NOW = datetime(2030, 1, 1, tzinfo=UTC)
INTERVAL = timedelta(seconds=5)
ATTEMPTS = 3
LAST_CALL = timedelta(seconds=30)
JOIN_SECONDS = 600.0
CACHE_SECONDS = 1.0

# One moment in the middle of each age that the model distinguishes.
AGES = {"FRESH": timedelta(0), "DUE": INTERVAL * 2, "EXPIRED": INTERVAL * (ATTEMPTS + 1)}


# The wall clock hardly moves: a heartbeat ages when its time stamp is set back. Two readings differ by a
# microsecond: no two time stamps are the same by chance. All are within a second, less than any age, however many
# readings a process has made.
_ticks = itertools.count()
STILL_DATE = SimpleNamespace(now=lambda tz=None: NOW + timedelta(microseconds=next(_ticks) % 1_000_000))


def age_of(stamp: datetime) -> str:
    """Which of the model's ages a time stamp has."""
    age = NOW - stamp
    return "FRESH" if age < INTERVAL else "DUE" if age < INTERVAL * ATTEMPTS else "EXPIRED"


class Clock:
    """`time.monotonic`, which moves only when it is set."""

    def __init__(self) -> None:
        self.seconds = 1_000.0

    def monotonic(self) -> float:
        return self.seconds


class Backend(dr.RendezvousBackend):
    """A shared state in memory; its version is the token. As in c10d's backend, a write of equal bytes is won."""

    def __init__(self, stop: Callable[[str], None]) -> None:
        self.bits: bytes | None = None
        self.version = 0
        self._stop = stop
        self._seen: tuple[bytes | None, Any] = (None, dr._RendezvousState())

    @property
    def name(self) -> str:
        return "memory"

    def get_state(self) -> Any:
        self._stop("get")
        return None if self.bits is None else (self.bits, self.version)

    def set_state(self, state: bytes, token: Any = None) -> Any:
        if (token or 0) == self.version:
            self.bits = state
            self.version += 1
        # c10d_rendezvous_backend.py:set_state compares bytes to find out whether it won.
        return self.bits, self.version, state == self.bits

    def state(self) -> Any:
        """The stored state, which its caller does not change."""
        if self._seen[0] != self.bits:
            self._seen = (self.bits, pickle.loads(self.bits or b""))
        return self._seen[1]

    def rewrite(self, change: Callable[[Any], None]) -> None:
        """Change the stored state as time does, without a new version."""
        if self.bits is not None:
            state = pickle.loads(self.bits)
            change(state)
            self.bits = pickle.dumps(state)


def settings(min_nodes: int, max_nodes: int) -> Any:
    timeouts = dr.RendezvousTimeout(
        join=timedelta(seconds=JOIN_SECONDS), last_call=LAST_CALL, close=INTERVAL, heartbeat=INTERVAL
    )
    return dr.RendezvousSettings("simulated", min_nodes, max_nodes, timeouts, INTERVAL, ATTEMPTS)


@contextmanager
def simulated(clock: Clock, record: Callable[..., None]) -> Iterator[None]:
    """Replace torch's sources of time and its event log while the block runs."""

    def delay(seconds: Any) -> None:
        clock.seconds += CACHE_SECONDS + 1

    # get_method_name walks the stack and its sources for the event log: a quarter of the time of a step.
    with mock.patch.multiple(
        dr, datetime=STILL_DATE, time=clock, _delay=delay, construct_and_record_rdzv_event=record,
        get_method_name=lambda depth=2: "",
    ):  # fmt: skip
        yield


class Operation:
    """One run of the executor in a greenlet; `at` is the place where it has stopped: get, set, decide or act.

    `error` is the exception that ended it.
    """

    def __init__(self, run: Callable[[], object]) -> None:
        self.error: Exception | None = None
        self.at = ""
        self._run = run
        self._greenlet = greenlet.greenlet(self._guarded)

    def _guarded(self) -> None:
        try:
            self._run()
        except Exception as error:
            self.error = error

    def resume(self) -> None:
        """Run to the next stop, or to the end."""
        stopped = self._greenlet.switch()
        self.at = "" if self._greenlet.dead else stopped

    def interrupt(self, error: Exception) -> None:
        """Raise the error at the stop; then run to the next stop, or to the end."""
        stopped = self._greenlet.throw(error)
        self.at = "" if self._greenlet.dead else stopped

    @property
    def over(self) -> bool:
        return bool(self._greenlet.dead)

    @property
    def running(self) -> bool:
        return self._greenlet is greenlet.getcurrent()

    def abandon(self) -> None:
        """The process has ended: unwind the greenlet."""
        if not self._greenlet.dead:
            self._greenlet.throw(greenlet.GreenletExit)


def act(parts: Iterable[Any]) -> None:
    """torch logs an action before it performs the action: the part that runs, and is to act, stops there."""
    for part in parts:
        if part.about_to_act and part.operation is not None and part.operation.running:
            part.about_to_act = False
            stop("act")


def stop(where: str) -> None:
    """Stop the operation that runs, if one does; outside an operation, continue."""
    parent = greenlet.getcurrent().parent
    if parent is not None:
        parent.switch(where)
