"""The limits of a worker, with their reasons: every number that a peer announces is first checked against one of them.

Rule: each limit has its reason next to it, and is checked before memory is reserved.
"""

from __future__ import annotations

from dataclasses import dataclass, fields

from trystate.model.errors import UsageError

KIB, MIB, GIB = 1 << 10, 1 << 20, 1 << 30


@dataclass(frozen=True, slots=True)
class Limits:
    """The bounds of one worker. Sizes are in bytes, the rest are counts.

    Raises `UsageError` for a limit that is not positive.
    """

    body_bytes: int = 64 * MIB  # a frame without its tensors: pickled arguments
    metadata_bytes: int = MIB  # added by an interceptor
    tensors: int = 16 * KIB  # tensors in one frame; the head counts them in 16 bits
    tensor_bytes: int = 16 * GIB  # all tensors of a frame that are not in shared memory
    dimensions: int = 64  # dimensions of one tensor: torch's own limit
    name_bytes: int = KIB  # the name of a function
    unsent_bytes: int = 4 * GIB  # bytes that wait for one slow peer; beyond it, requests to the peer fail
    unanswered: int = 64 * KIB  # requests of this worker to all peers that have no answer yet, and are kept in memory
    threads: int = 256  # user functions that run or wait for other workers at the same time, and one thread that reads
    queued: int = 16 * KIB  # calls that wait for a free thread; no function waits for their results
    workers: int = 4 * KIB  # each worker has a connection to every other one
    rrefs: int = MIB  # values that one worker owns for others

    def __post_init__(self) -> None:
        for field in fields(self):
            value = getattr(self, field.name)
            if not value > 0:
                raise UsageError(f"the limit {field.name} is {value!r}: give a number above 0")
        if self.threads < 2:
            raise UsageError(
                "the limit threads is 1: give 2 or more, since one of them reads while others run functions"
            )
