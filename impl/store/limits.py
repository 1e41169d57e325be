"""The limits of a server, with their reasons. Every length that a peer announces is first compared with a limit.

Rule: each limit has its reason next to it, and is checked before memory is reserved.
"""

from __future__ import annotations

from dataclasses import dataclass, fields

from trystate.model.errors import UsageError

KIB, MIB, GIB = 1 << 10, 1 << 20, 1 << 30


@dataclass(frozen=True, slots=True)
class Limits:
    """The limits of one server. Sizes are in bytes, times in seconds, the rest are counts.

    Raises `UsageError` for a limit that is not positive.
    """

    key_bytes: int = 8 * KIB  # torch 2.13 has the same limit (TCPStoreLibUvBackend.cpp); the "/" of its client counts
    value_bytes: int = 8 * MIB  # torch has the same limit, so a torch user may rely on it
    keys_in_request: int = 128 * KIB  # torch has the same limit
    frame_bytes: int = 256 * MIB  # one request or answer: a multi_set or multi_get of 32 of the largest values
    half_sent_bytes_total: int = GIB  # unfinished requests of all connections; beyond it the largest is closed
    keys_total: int = 4 * MIB  # values and queues; some 200 bytes of tables each
    bytes_total: int = 4 * GIB  # keys, values and queued elements
    queue_items: int = 4 * MIB  # the elements of all queues together
    connections: int = 16 * KIB  # a few for each rank of a very large job
    unsent_bytes: int = 64 * MIB  # unread by one connection at its next request or event: eight of the largest values
    unsent_bytes_total: int = GIB  # memory of the unread replies of all connections; beyond it the slowest is closed
    kept_bytes_total: int = GIB  # values that waits keep for the gets after them; beyond it no values are kept
    watches_per_connection: int = 16 * KIB  # a client has one connection for all its watches
    waited_keys_total: int = MIB  # the keys of all blocked waits together; some 350 bytes of tables each
    rooms: int = 4 * KIB  # a job has one, some kilobytes; beyond it a finished one is forgotten (server/rooms.py)
    members_per_room: int = 64 * KIB  # the nodes of twice the largest job; some 2 KiB each
    handshake_seconds: float = 30.0  # time between the connection and its first valid request, or its proof
    half_sent_seconds: float = 120.0  # the time without another byte of a half-sent request
    reservation_seconds: float = 1.0  # how long a queue's element is kept for the pop after a wait

    def __post_init__(self) -> None:
        for field in fields(self):
            value = getattr(self, field.name)
            if not value > 0:
                raise UsageError(f"the limit {field.name} is {value!r}; give a number above 0")
        least = self.key_bytes + 2 * self.value_bytes + KIB
        if self.frame_bytes < least:
            raise UsageError(f"the limit frame_bytes is {self.frame_bytes}; give at least {least}, for a compare_set")
