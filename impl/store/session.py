"""One connection as the server sees it: what it may do now, what is half read, what is to be sent.

Rule: it is only data; what happens to it is the service's doing.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING

from trystate.model.store.vocabulary import Change, Connection

if TYPE_CHECKING:
    from .barriers import Arrival
    from .parsing import Frame
    from .waiting import Wait

UNCOUNTED_BYTES = 4096  # so much may always be sent to a peer that has read all before: no need to ask

Told = Callable[["Session", bytes, Change, "bytes | None", "bytes | None"], None]


class Session:
    """One connection. The driver reads `take_outgoing()`, then `closing` and `abort`.

    `closing`: close the connection once what was taken is sent; `abort`: at once, whatever is unsent.
    """

    __slots__ = (
        "abort", "blocked", "buffer", "bulk", "closing", "frame", "half_bytes", "kept", "kept_bytes", "nonce",
        "outgoing", "overflowed", "peer", "pending", "reserved", "state", "tell", "unsent", "watches",
    )  # fmt: skip

    def __init__(self, peer: str, tell: Told, overflowed: Callable[[Session, int], bool]) -> None:
        self.peer = peer
        self.state = Connection.CONNECTING
        self.nonce: bytes | None = None  # what a proof must answer
        self.frame: Frame | None = None  # a request of which part has arrived, ...
        self.buffer = bytearray()  # ... its unread bytes ...
        self.half_bytes = 0  # ... and all its bytes so far
        self.blocked: Wait | Arrival | None = None
        # What a satisfied WAIT promised to the next request, as keys and their values, ...
        self.kept: tuple[Sequence[bytes], Sequence[bytes]] | None = None
        self.reserved: tuple[bytes, int, bytes] | None = None  # ... a queue's element (then `kept` is not None), ...
        self.kept_bytes = 0  # ... and what large promises and reservations count for: 0 if there is neither
        self.watches: dict[bytes, None] = {}
        self.outgoing: list[bytes] = []
        self.bulk = 0  # bytes of the large parts in `outgoing`
        self.unsent = 0  # bytes taken that the transport still holds, as the driver reports
        self.pending = False  # it is in the service's list of those to be served by the driver
        self.closing = False
        self.abort = False
        self.tell = tell
        self.overflowed = overflowed

    def take_outgoing(self) -> bytes:
        """What is to be sent now, in order; b"" if there is more beside it than the peer may leave unread."""
        self.pending = False
        outgoing = self.outgoing
        data = outgoing[0] if len(outgoing) == 1 else b"".join(outgoing)
        outgoing.clear()
        small = len(data) - self.bulk  # the large parts were counted when they were queued
        self.bulk = 0
        if (self.unsent or small > UNCOUNTED_BYTES) and self.overflowed(self, small):
            return b""
        return data

    def changed(self, key: bytes, change: Change, old: bytes | None, new: bytes | None) -> None:
        """A watched key changed."""
        self.tell(self, key, change, old, new)
