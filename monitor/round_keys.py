"""The keys by which torch's agents meet in a complete round: the missing ones, and the node that has to write each.

Theory of operation. Below the prefix of the round rank 0 writes the address of its master. Each member reads it and
then writes its role and its number of workers. Rank 0 reads these and writes the ranks of all workers. With
TORCH_ELASTIC_WORKER_IDENTICAL=1 only the address is written: if no member has a role, no role is missing.

Rule: only `check` is used for a key. The compare_set of torch's server would wake the members that wait for it (S1).
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import asdict, dataclass
from typing import Any

from trystate.model.checker.expectations import Finding
from trystate.model.rendezvous.findings import FINDINGS

from .rendezvous.shared_state import Snapshot

MASTER, ROLE, RANKS = "MASTER_ADDR", "torchelastic/role_info/", "torchelastic/assigned_ranks/"
ROLES_MAX = 256  # members of a round whose keys are checked, with one request each
MISSING_SECONDS = 2.0  # agents that meet have written their keys by then
KEPT = FINDINGS["master-not-republished"]


@dataclass(frozen=True, slots=True)
class Missing:
    """A missing key, the node that has to write it, and the reason why it does not; `finding` if that is certain."""

    key: str
    what: str
    rank: int
    node: str
    why: str = ""
    finding: Finding | None = None

    def __str__(self) -> str:
        known = f": {self.finding.number} {self.finding.name}" if self.finding is not None else ""
        why = f"; {self.why}{known}" if self.why else ""
        return f"{self.what} is missing: {self.node}, rank {self.rank}, has to write {self.key}{why}"

    def as_json(self) -> dict[str, Any]:
        """The fields as values of JSON."""
        return asdict(self) | {"finding": None if self.finding is None else self.finding.number}


def missing(store: Any, job: str, state: Snapshot) -> tuple[Missing, ...]:
    """The keys that the members of a complete round of torch's have yet to write; empty for any other state."""
    torchs = state.settings is None
    return tuple(_missing(store, job, state)) if torchs and state.ranks and not state.closed else ()


def _missing(store: Any, job: str, state: Snapshot) -> Iterator[Missing]:
    prefix = f"torch.rendezvous.{job}.{state.round}/"
    names = {rank: str(node) for node, rank in state.ranks.items()}
    wanted = sorted(names)[:ROLES_MAX]
    if store.check([prefix + key for key in (MASTER, *(f"{ROLE}{k}" for k in wanted), f"{RANKS}{wanted[-1]}")]):
        return
    has_master = store.check([prefix + MASTER])
    roles = {k for k in wanted if store.check([f"{prefix}{ROLE}{k}"])}
    first = names.get(0, "its node")
    if not has_master:
        kept = 0 in roles  # rank 0 publishes its master before it writes its role
        why = "it has kept the master of an earlier round, and does not publish it again" if kept else ""
        yield Missing(prefix + MASTER, "the master's address", 0, first, why, KEPT if kept else None)
    for k in wanted if roles else ():
        if k not in roles:
            why = "" if has_master else "it waits for the master's address"
            yield Missing(f"{prefix}{ROLE}{k}", "the number of workers", k, names[k], why)
    if roles == {*wanted}:
        yield Missing(f"{prefix}{RANKS}{wanted[-1]}", "the ranks of all workers", 0, first)
