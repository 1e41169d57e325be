"""The releases of torch that the model covers: how each differs from the one before, and which findings it has.

Theory of operation. A row is a minor release; its patch releases do not differ in anything that is modelled. Two
columns name the editions that describe its rendezvous and its agent. The edition TORCH describes the operators, shared
state, state holder and executor of every row. A finding has the first and the last release with it; the functions below
answer for one release. They take the version of an installed package (`2.13.0+cpu`).

The back-off of 2.15 (`--rdzv-conf cas_backoff_max_seconds`, off by default) is a delay. A node that has lost a write
waits, decides on the state that the store sent it before the wait, and writes the result. The model has no clock
between a read and the write after it: any time may pass between two steps. So each schedule with the delay is also a
schedule without it, and the delay removes no finding. The delay is itself a finding (R17): `LOST_WRITES` has its cost.

Sources: the wheels of 2.4.0 to 2.13.0, compared by syntax tree, and the wheels of 2.13.0, 2.14.1 and 2.15.0, compared
line by line, in torch/distributed (elastic, launcher, rpc, autograd) and the headers of c10d. `tools/releases.py` runs
the findings on each release.
"""

from __future__ import annotations

import re
from dataclasses import dataclass

from .agent.vocabulary import Edition as Agent
from .checker.expectations import Finding
from .rendezvous.vocabulary import Edition as Rendezvous

Series = tuple[int, int]


@dataclass(frozen=True, slots=True)
class LostWrites:
    """Writes that `nodes` nodes lose in a first round with a back-off of up to `max_seconds`: median, least and most.

    `seconds` is the median time until all have a rank; None if after 60 s no node has one.
    """

    nodes: int
    max_seconds: float
    lost: int
    least: int
    most: int
    seconds: float | None


@dataclass(frozen=True, slots=True)
class Release:
    """A minor release: the patch release that is tested, its editions, and its differences from the release before."""

    name: str
    tried: str
    rendezvous: Rendezvous
    agent: Agent
    changes: tuple[str, ...] = ()

    @property
    def series(self) -> Series:
        return _series(self.name)


OLD, NEW = Rendezvous.TORCH_2_12, Rendezvous.TORCH
CLOSING, LEAVING = Agent.TORCH_2_7, Agent.TORCH

# The first row is compared with torch 2.5.
RELEASES: tuple[Release, ...] = (
    Release("2.6", "2.6.0", OLD, CLOSING, (
        "rendezvous: rank 0 serves the master's store itself, on a free port of its own address",
        "rendezvous: heartbeats are times with a zone: with a node of 2.5 both nodes raise TypeError",
        "rendezvous: handlers of others by the entry point `torchrun.handlers`",
        "agent: keys that workers wrote in an earlier attempt stay visible in the agent's store",
    )),
    Release("2.7", "2.7.1", OLD, CLOSING, (
        "rendezvous: `keep_alive_interval`, `keep_alive_max_attempt` and `heartbeat` in --rdzv-conf",
        "store: the libuv server hangs up, in this release alone, when it has read a part of a request that fills its "
        "buffer of 4,096 bytes, and the rest has not come yet: large values fail at times with `Broken pipe`",
    )),
    Release("2.8", "2.8.0", OLD, LEAVING, (
        "agent: a signal that ends an agent no longer closes the rendezvous (A16)",
        "agent: an event for the start of each worker; --event-log-handler",
        "store: queues (`queue_push`, `queue_pop`, `queue_len`); `clone`",
        "store: the libuv server waits for the rest of a request whose first part fills its buffer, as it did in 2.6",
    )),
    Release("2.9", "2.9.1", OLD, LEAVING, (
        "agent: --numa-binding",
    )),
    Release("2.10", "2.10.0", OLD, LEAVING, (
        "agent: --signals-to-handle, --virtual-local-rank, --duplicate-stdout-filters, --duplicate-stderr-filters",
        "store: `list_keys`",
    )),
    Release("2.11", "2.11.0", OLD, LEAVING),
    Release("2.12", "2.12.1", OLD, LEAVING, (
        "agent: --shutdown-timeout; a hook for a check of health before the first round",
        "store: `barrier`",
    )),
    Release("2.13", "2.13.0", NEW, LEAVING, (
        "rendezvous: a member that becomes rank 0 starts a store, and publishes it (R16)",
        "agent: workers in uninterruptible sleep are reported; their ends are waited for within limits",
    )),
    Release("2.14", "2.14.1", NEW, LEAVING, (
        "agent: a URL of another address or port than the agent's own no longer uses the agent's store",
        "agent: --log-line-prefix-template, --print-completion",
    )),
    Release("2.15", "2.15.0", NEW, LEAVING, (
        "rendezvous: `cas_backoff_max_seconds` in --rdzv-conf: a random delay after a lost write, off by default",
        "rendezvous: free ports are looked for on every interface",
        "agent: what the handler's shutdown() raises when an agent ends is logged, and not raised",
        "agent: `HIP_VISIBLE_DEVICES` is split like `CUDA_VISIBLE_DEVICES`",
    )),
)  # fmt: skip
OLDEST, NEWEST = RELEASES[0], RELEASES[-1]

# torch 2.15.0's handlers in the simulator, nine seeds each; three seeds, for 60 s, in the last row.
LOST_WRITES = (
    LostWrites(16, 0.0, 19, 15, 22, 2.4),
    LostWrites(16, 0.1, 21, 15, 33, 2.4),
    LostWrites(16, 0.3, 20, 15, 35, 2.6),
    LostWrites(16, 1.0, 20, 15, 40, 4.2),
    LostWrites(16, 3.0, 56, 15, 820, 12.5),
    LostWrites(64, 0.0, 185, 162, 232, 2.4),
    LostWrites(64, 0.1, 308, 232, 362, 3.2),
    LostWrites(64, 0.3, 273, 221, 332, 4.9),
    LostWrites(64, 1.0, 3_648, 3_621, 3_651, None),
)


def is_newer(version: str) -> bool:
    """Whether a version is newer than every row."""
    return _series(version) > NEWEST.series


def has(version: str, finding: Finding) -> bool:
    """Whether a version of torch has a finding."""
    if finding.of != "torch":
        return False
    came = not finding.since or _series(finding.since) <= _series(version)
    return came and not is_over(version, finding)


def is_over(version: str, finding: Finding) -> bool:
    """Whether a version is newer than the last one that has a finding."""
    return finding.of == "torch" and bool(finding.until) and _series(version) > _series(finding.until)


def is_out_of_reach(finding: Finding) -> bool:
    """Whether no row has a finding, only older releases: the model shows it, and no torch can replay it."""
    return is_over(OLDEST.tried, finding)


def is_reported(finding: Finding) -> bool:
    """Whether the newest release of torch has a finding; a defect of another package is always reported."""
    return finding.of != "torch" or has(NEWEST.tried, finding)


def span(finding: Finding) -> str:
    """The releases that have a finding: `2.5 to 2.12`, `up to 2.13`, `since 2.8`, `all`, `NVRx since 0.6.0`."""
    of = "" if finding.of == "torch" else f"{finding.of} "
    if finding.since == finding.until:
        return f"{of}{finding.since or 'all'}"
    if not finding.since:
        return f"{of}up to {finding.until}"
    return f"{of}{finding.since} to {finding.until}" if finding.until else f"{of}since {finding.since}"


def absence(version: str, finding: Finding) -> str:
    """Why a version does not have a finding (`R16 is not in torch 2.13.0: fixed in 2.13.0`); empty if it has it."""
    if has(version, finding):
        return ""
    why = f"it came with {finding.since}" if finding.of == "torch" else f"it is a defect of {finding.of}"
    if is_over(version, finding):
        last = _series(finding.until)
        fixed = next((row for row in RELEASES if row.series > last), None)
        is_known = last >= OLDEST.series and fixed is not None
        why = f"fixed in {fixed.name}.0" if fixed is not None and is_known else f"last seen in {finding.until}"
    return f"{finding.number} is not in torch {version.partition('+')[0]}: {why}"


def _series(version: str) -> Series:
    """Major and minor number."""
    major, minor = re.findall(r"\d+", version)[:2]
    return int(major), int(minor)
