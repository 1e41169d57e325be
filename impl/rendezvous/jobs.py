"""The jobs whose rendezvous a store holds, by its keys: jobs of ours, and jobs of torch's c10d rendezvous.

Rule: nothing is written here, and keys are listed only on a person's request or after a node has waited for a while.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from typing import Any

from torch.distributed import DistError

from trystate.model.errors import TrystateError

from .encoding import decode
from .notifier import has_room, look
from .state import NAMED_MAX, State, named

OURS, TORCH = "trystate", "c10d"
ROUND = re.compile(r"\.\d+/")  # between a job's id and the keys of a round of its workers


def keys(job: str) -> dict[str, str]:
    """The key of the state in each backend."""
    return {OURS: f"trystate/{job}/state", TORCH: f"torch.rendezvous.{job}"}


def counter_key(job: str, token: str) -> str:
    """The key of the counter of a node's heartbeats."""
    return f"trystate/{job}/beat/{token}"


def names(there: Iterable[str]) -> list[str]:
    """The jobs of ours that have a state among these keys, sorted."""
    states = (key for key in there if key.startswith("trystate/") and key.endswith("/state"))
    return sorted(key.removeprefix("trystate/").removesuffix("/state") for key in states)


def stored(store: Any, job: str) -> tuple[bytes | None, State | None]:
    """A job's state as stored and as decoded; None: the store has no state, or one of another version."""
    data = look(store, keys(job)[OURS])
    try:
        return data, decode(data) if data is not None else None
    except TrystateError:
        return data, None


def counters(store: Any, job: str, tokens: Iterable[str]) -> dict[str, int]:
    """The counters of heartbeats of a job's nodes; 0: the store has none. The state of a room shows them itself."""
    if has_room(store, keys(job)[OURS]):
        return {}
    found = {token: look(store, counter_key(job, token)) or b"" for token in tokens}
    return {token: int(value) if value.isdigit() else 0 for token, value in found.items()}


@dataclass(frozen=True, slots=True)
class Jobs:
    """The ids of a store's jobs, sorted; `keys` counts all its keys."""

    ours: tuple[str, ...]
    torchs: tuple[str, ...]
    keys: int


def jobs(store: Any) -> Jobs | None:
    """The jobs of a store; None: its server cannot list keys, like some of torch's."""
    try:
        there = store.list_keys()
    except (DistError, RuntimeError, NotImplementedError, AttributeError):  # older releases of torch have no list_keys
        return None
    states = {key for key in there if key.startswith("torch.rendezvous.")}
    # The keys of torch's workers in round N are `torch.rendezvous.ID.N/...`. An id may contain dots, digits and
    # slashes, so a key is one of a round only if the state of its job exists.
    whole = [key for key in states if not any(key[: found.start()] in states for found in ROUND.finditer(key))]
    torchs = sorted(key.removeprefix("torch.rendezvous.") for key in whole)
    return Jobs(tuple(names(there)), tuple(torchs), len(there))


def others_that_wait(store: Any, job: str) -> str:
    """The sentence about other jobs of a store without a complete round; empty if no such job exists."""
    found = jobs(store)
    if found is None:
        return ""
    parts = [*_waiting(store, [name for name in found.ours if name != job])]
    if job in found.torchs:
        parts.append(f"nodes with torch's c10d rendezvous have the id {job!r} too, and these do not meet ours")
    return "; ".join(parts)


def _waiting(store: Any, others: list[str]) -> Iterator[str]:
    for name in others[:NAMED_MAX]:
        _, state = stored(store, name)
        if state is not None and state.closed is None and not state.complete:
            nodes = f" ({named(p.node for p in state.participants)})" if state.participants else ""
            yield (f"the job {name!r} at this store has no complete round either, {len(state.participants)} of "
                   f"{state.settings.min_nodes} nodes{nodes}: nodes of one job need one --rdzv-id")  # fmt: skip
