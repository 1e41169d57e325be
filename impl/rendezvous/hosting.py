"""The owner of a store that a node serves at the endpoint: the store ends with that node, and other jobs may use it.

The node that serves writes its job next to the states. A node of another job warns when it reads that, and its errors
name the job when the store has ended. After its own job, the serving node continues to serve until the nodes of other
jobs have left (`serve`), up to a limit, and warns if it ends before that.

Rule: only `serve` waits longer than an operation of the store, and only `serve` delays the end of a node.
"""

from __future__ import annotations

import logging
import time
from collections.abc import Callable
from datetime import timedelta
from functools import partial
from typing import Any

from trystate.model.errors import TrystateError

from ..store.errors import StoreTimeout
from . import jobs
from .notifier import look
from .state import NAMED_MAX, State, named
from .waiting import Teller, lasting

KEY = "trystate/hosted-by"  # not the key of a job's state, which ends with /state
LOOK_SECONDS = 2.0  # timeout of a request to this node's own server
JOB_BYTES_MAX = 1000  # the part of a job's name that is shown
PAUSE_SECONDS = 0.5  # polling interval of the other jobs
UNREADABLE_SECONDS = 60.0  # the window of a job whose state is of another version

log = logging.getLogger("trystate.rendezvous")


def owner(store: Any, job: str) -> str:
    """The job whose node serves the store, with a warning, if it is another job than this one; else empty."""
    found = look(store, KEY)
    name = bytes(found or b"")[:JOB_BYTES_MAX].decode(errors="replace")
    if name in ("", job):
        return ""
    log.warning(
        "a node of the job %r serves the store at this endpoint. It continues when its own job is over, but not when "
        "it is killed or gets a signal: then the workers of this job, %r, are stopped. Give this job its own "
        "endpoint, or run `trystate store serve`, which serves any number of jobs", name, job,
    )  # fmt: skip
    return name


def serve(
    store: Any, job: str, seconds: float, clock: Callable[[], float] = time.monotonic,
    pause: Callable[[float], None] = time.sleep,
) -> bool:  # fmt: skip
    """Return True when no other job uses the store, False after `seconds`, with a line in the log each minute.

    A job uses the store while its state lists nodes and they send heartbeats. If neither the state nor a counter has
    changed for the job's window, its nodes are regarded as dead. While the store is too slow to answer, the last list
    of jobs counts: a busy machine ends no job.
    """
    ends, teller = clock() + seconds, Teller()
    found: dict[str, tuple[bytes, State | None]] = {}
    since: dict[str, tuple[bytes, float]] = {}  # each job's state, and when it was first seen so
    while True:
        seen, now = _others(store, job), clock()
        found = found if seen is None else seen
        since = {name: was if (was := since.get(name)) and was[0] == data else (data, now)
                 for name, (data, _) in found.items()}  # fmt: skip
        left = {name: state for name, (_, state) in found.items() if now - since[name][1] < _window(state)}
        if seen is not None and not left:
            return True
        if now >= ends:
            return False
        what = (f"this node, of the job {job!r}, has left; it serves the store until the nodes of other jobs have "
                f"left: {_named(left) or 'the store has not listed them yet'}")  # fmt: skip
        limit = f"up to {lasting(ends - now)} (other_jobs_timeout), or until a signal"
        teller.tell(partial(str, what), now, partial(str, limit))
        pause(min(PAUSE_SECONDS, ends - now))


def warn_of_others(store: Any, job: str) -> None:
    """Log the other jobs with nodes at a store that ends now."""
    found = {name: state for name, (_, state) in (_others(store, job) or {}).items()
             if state is None or state.closed is None}  # fmt: skip
    if found:
        log.warning("this node of the job %r ends, and with it the store that it serves. Other jobs use that store and "
                    "will stop their workers: %s", job, _named(found))  # fmt: skip


def _others(store: Any, job: str) -> dict[str, tuple[bytes, State | None]] | None:
    """The bytes and the state of each other job with nodes at the store; None: the store was too slow.

    The bytes are the state and the counters. They differ after a heartbeat.
    """
    found: dict[str, tuple[bytes, State | None]] = {}
    try:
        store.set_timeout(timedelta(seconds=LOOK_SECONDS))
        for name in jobs.names(store.list_keys("trystate/")):
            data, state = jobs.stored(store, name) if name != job else (None, None)
            if data is not None and (state is None or any(state.listed())):
                found[name] = data + _counted(store, name, state), state
    except StoreTimeout:
        return None
    except (TrystateError, RuntimeError, OSError):  # the server has ended already
        return {}
    return found


def _counted(store: Any, job: str, state: State | None) -> bytes:
    tokens = [p.node.token for p in state.listed()] if state is not None else []
    return repr(jobs.counters(store, job, tokens)).encode()


def _window(state: State | None) -> float:
    return state.settings.expiry_seconds if state is not None else UNREADABLE_SECONDS


def _named(found: dict[str, State | None]) -> str:
    said = [f"the job {name!r}" + (f" ({named(p.node for p in state.listed())})" if state is not None else "")
            for name, state in found.items()]  # fmt: skip
    more = f" and {len(said) - NAMED_MAX} more" if len(said) > NAMED_MAX else ""
    return "; ".join(said[:NAMED_MAX]) + more
