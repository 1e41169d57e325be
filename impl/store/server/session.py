"""The server's data of one connection: its state, its half-sent request, its replies.

Theory of operation. A session is data. Each part has one owner, the only module that writes it, on the driver's thread:

| fields                                                        | owner                             |
| ---                                                           | ---                               |
| `state` to READY and after it, `nonce`, `bound`, `closing`    | `service`, `requests`, `extended` |
| `abort`                                                       | `service`                         |
| `state` between READY and BLOCKED, `blocked`                  | `blocking`                        |
| `frame`, `buffer`, `half_bytes`                               | `half_sent`                       |
| `promise`, `promised_bytes`                                   | `promises`                        |
| `watches`                                                     | `watches`                         |
| `unsent`, `pending`, and the queue of replies                 | `unread`                          |

Any handler may append a reply to `outgoing` of the session whose request it does. If it appends to another session's
(a blocked session that continues, or a watcher), it also calls `Replies.pend`.

The states: CONNECTING until the magic of VALIDATE has come, VALIDATING until the secret is proved (if the server has
one), READY, BLOCKED while a request is not answered, CLOSING until the driver has closed the connection, CLOSED.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import NamedTuple

from trystate.model.store.vocabulary import Connection

from ...host.sealing import Bound
from ..contents.barriers import Arrival
from ..contents.waiting import Wait
from ..contents.watching import Changed
from .parsing import Frame
from .unread import Unread, UnreadBytes


class Values(NamedTuple):
    """The promise of values: the keys of a WAIT and their values at that moment."""

    keys: Sequence[bytes] = ()
    values: Sequence[bytes] = ()


class Reserved(NamedTuple):
    """The promise of an element: its queue, its serial number, which determines its place there, and the element."""

    key: bytes
    serial: int
    element: bytes


class Session(Unread):
    """One connection. The driver sends the bytes of `take_outgoing()`, then reads `closing` and `abort`.

    `closing`: close the connection after all bytes are sent. `abort`: close it at once, even if bytes are unsent.
    """

    __slots__ = (
        "abort", "blocked", "bound", "buffer", "closing", "frame", "half_bytes", "nonce", "peer", "pending", "promise",
        "promised_bytes", "state", "tell", "unsent", "watches",
    )  # fmt: skip

    def __init__(self, peer: str, tell: Callable[[Session, Changed], None], held: UnreadBytes) -> None:
        super().__init__(held)
        self.peer = peer
        self.state = Connection.CONNECTING
        self.nonce: bytes | None = None  # the challenge that a proof must answer
        self.bound: Bound | None = None  # the layer of the records after a proof
        self.frame: Frame | None = None  # a half-sent request, ...
        self.buffer = bytearray()  # ... its bytes that the frame could not read yet ...
        self.half_bytes = 0  # ... and the number of all its bytes so far
        self.blocked: Wait | Arrival | None = None
        self.promise: Values | Reserved | None = None  # the promise of a satisfied WAIT to the next request
        self.promised_bytes = 0  # 0 for small values
        self.watches: dict[bytes, None] = {}
        self.unsent = 0  # taken bytes that the transport still holds, as the driver reports
        self.pending = False  # it is in `Replies.pending`
        self.closing = False
        self.abort = False
        self.tell = tell

    def changed(self, event: Changed) -> None:
        """Send the change of a watched key."""
        self.tell(self, event)
