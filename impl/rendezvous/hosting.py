"""The owner of a store that a node serves at the endpoint: the store ends with that node, and other jobs may use it.

The node that serves writes its job beside the states. A node of another job warns when it finds that, and its errors
name the job when the store is gone; the node that serves warns when it ends while other jobs have nodes there.

Rule: nothing here waits longer than an operation of the store, or keeps a node from meeting or ending.
"""

from __future__ import annotations

import logging
from datetime import timedelta
from typing import Any

from trystate.model.errors import TrystateError

from .encoding import decode
from .notifier import look
from .state import NAMED_MAX, named

KEY = "trystate/hosted-by"  # no job's state: those end with /state
STATE = ("trystate/", "/state")
LOOK_SECONDS = 2.0  # at a server that is this node's own
JOB_BYTES_MAX = 1000  # of a name that is shown

log = logging.getLogger("trystate.rendezvous")


def claim(store: Any, job: str) -> None:
    """Write whose node serves the store."""
    store.set(KEY, job)


def owner(store: Any, job: str) -> str:
    """The job whose node serves the store, if it is another one than this, which is warned; else empty."""
    found = look(store, KEY)
    name = bytes(found or b"")[:JOB_BYTES_MAX].decode(errors="replace")
    if name in ("", job):
        return ""
    log.warning(
        "a node of the job %r serves the store at this endpoint, and the store ends with that node: then the workers "
        "of this job, %r, are stopped. Give this job an endpoint of its own, or run `trystate store serve`, which "
        "serves any number of jobs", name, job,
    )  # fmt: skip
    return name


def warn_of_others(store: Any, job: str) -> None:
    """Name the other jobs that have nodes at a store that ends now."""
    try:
        store.set_timeout(timedelta(seconds=LOOK_SECONDS))
        keys = [key for key in store.list_keys(STATE[0]) if key.endswith(STATE[1])]
        names = sorted(key.removeprefix(STATE[0]).removesuffix(STATE[1]) for key in keys)
        found = [said for name in names if name != job and (said := _nodes(store, name))]
    except (TrystateError, RuntimeError, OSError):  # the server is gone already
        return
    if found:
        more = f" and {len(found) - NAMED_MAX} more" if len(found) > NAMED_MAX else ""
        log.warning("this node, of the job %r, ends, and with it the store that it serves; others use that: %s%s. They "
                    "stop their workers", job, "; ".join(found[:NAMED_MAX]), more)  # fmt: skip


def _nodes(store: Any, job: str) -> str:
    data = look(store, f"{STATE[0]}{job}{STATE[1]}")
    try:
        state = decode(data) if data is not None else None
    except TrystateError:  # of another version
        return f"the job {job!r}"
    if state is None or state.closed is not None or not state.listed():
        return ""
    return f"the job {job!r} ({named(p.node for p in state.listed())})"
