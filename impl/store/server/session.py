"""One connection as the server sees it: what it may do now, what is half read, what is to be sent.

Rule: it is only data; what happens to it is the service's doing.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING

from trystate.model.store.vocabulary import Connection

from .unread import Held, Unread

if TYPE_CHECKING:
    from ..contents.barriers import Arrival
    from ..contents.waiting import Wait
    from ..contents.watching import Changed
    from .parsing import Frame


class Session(Unread):
    """One connection. The driver sends what `take_outgoing()` gives, then reads `closing` and `abort`.

    `closing`: close the connection once all is sent; `abort`: at once, whatever is unsent.
    """

    __slots__ = (
        "abort", "blocked", "buffer", "closing", "frame", "half_bytes", "kept", "kept_bytes", "nonce", "peer",
        "pending", "reserved", "state", "tell", "unsent", "watches",
    )  # fmt: skip

    def __init__(self, peer: str, tell: Callable[[Session, Changed], None], held: Held) -> None:
        super().__init__(held)
        self.peer = peer
        self.state = Connection.CONNECTING
        self.nonce: bytes | None = None  # the challenge that a proof must answer
        self.frame: Frame | None = None  # a request of which part has arrived, ...
        self.buffer = bytearray()  # ... its unread bytes ...
        self.half_bytes = 0  # ... and all its bytes so far
        self.blocked: Wait | Arrival | None = None
        # A satisfied WAIT's promise to the next request: keys and their values, ...
        self.kept: tuple[Sequence[bytes], Sequence[bytes]] | None = None
        self.reserved: tuple[bytes, int, bytes] | None = None  # ... a queue's element (then `kept` is not None), ...
        self.kept_bytes = 0  # ... and the bytes of large promises and reservations: 0 if there is neither
        self.watches: dict[bytes, None] = {}
        self.unsent = 0  # bytes taken that the transport still holds, as the driver reports
        self.pending = False  # it is in the service's list of those to be served by the driver
        self.closing = False
        self.abort = False
        self.tell = tell

    def changed(self, event: Changed) -> None:
        """A watched key changed."""
        self.tell(self, event)
