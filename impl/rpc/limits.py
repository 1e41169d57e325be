"""The limits of a worker, with their reasons: every number that a peer announces is first checked against one of them.

Rule: each limit stands beside its reason, and is checked before memory is reserved.
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

    body_bytes: int = 64 * MIB  # of a frame beside its tensors: pickled arguments
    metadata_bytes: int = MIB  # added by an interceptor
    tensors: int = 16 * KIB  # in one frame; the head counts them in 16 bits
    tensor_bytes: int = 16 * GIB  # of all tensors in one frame that travel in it
    dimensions: int = 64  # of one tensor: torch's own limit
    name_bytes: int = KIB  # of a function
    unsent_bytes: int = 4 * GIB  # waiting for one slow peer; beyond, requests to it fail
    unanswered: int = 64 * KIB  # requests of this worker without an answer, to all peers together: what it keeps
    threads: int = 256  # for user functions that run, or wait for other workers, at the same time; one of them reads
    queued: int = 16 * KIB  # calls that wait until one of the threads is free; no function waits for their results
    workers: int = 4 * KIB  # each has a connection to each
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
