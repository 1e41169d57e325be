"""The limits of a server, with their reasons: every length that a peer announces is first checked against one of them.

Rule: each limit stands beside its reason, and is checked before memory is reserved.
"""

from __future__ import annotations

from dataclasses import dataclass, fields

from trystate.model.errors import UsageError

KIB, MIB, GIB = 1 << 10, 1 << 20, 1 << 30


@dataclass(frozen=True, slots=True)
class Limits:
    """The bounds of one server. Sizes are in bytes, times in seconds, the rest are counts.

    Raises `UsageError` for a limit that is not positive.
    """

    key_bytes: int = 8 * KIB  # as in torch 2.13's TCPStoreLibUvBackend.cpp; the "/" that its client adds counts
    value_bytes: int = 8 * MIB  # likewise: what a torch user may rely on, and no more
    keys_in_request: int = 128 * KIB  # likewise
    frame_bytes: int = 256 * MIB  # one request or answer: a multi_set or multi_get of 32 of the largest values
    half_sent_bytes_total: int = GIB  # of unfinished requests, all connections together; the largest is closed
    keys_total: int = 4 * MIB  # values and queues; some 200 bytes of tables each
    bytes_total: int = 4 * GIB  # of keys, values and queued elements
    queue_items: int = 4 * MIB  # in all queues together
    connections: int = 16 * KIB  # a few for each rank of a very large job
    unsent_bytes: int = 64 * MIB  # of one connection, beside the answer in hand: eight of the largest values
    unsent_bytes_total: int = GIB  # of memory, for all connections together; the one with most is closed
    kept_bytes_total: int = GIB  # of values that waits keep for the gets that follow them; beyond, none are kept
    watches_per_connection: int = 16 * KIB  # a client has one connection for all its watches
    waited_keys_total: int = MIB  # of all blocked waits together; some 350 bytes of tables each
    handshake_seconds: float = 30.0  # from the connection to its first valid request, and to its proof
    half_sent_seconds: float = 120.0  # without another byte of a request that has begun
    reservation_seconds: float = 1.0  # how long a queue's element is kept for the pop that follows a wait

    def __post_init__(self) -> None:
        for field in fields(self):
            value = getattr(self, field.name)
            if not value > 0:
                raise UsageError(f"the limit {field.name} is {value!r}: give a number above 0")
        least = self.key_bytes + 2 * self.value_bytes + KIB
        if self.frame_bytes < least:
            raise UsageError(f"the limit frame_bytes is {self.frame_bytes}: a compare_set needs {least}")
