"""One connection as the server sees it: its state now, its half-sent request, its replies.

Theory of operation. A session is data. Each part of it has one owner, the module that alone writes it, on the driver's
thread:

| fields                                                        | owner                             |
| ---                                                           | ---                               |
| `state` up to READY and after it, `nonce`, `closing`, `abort` | `service`, `requests`, `extended` |
| `state` between READY and BLOCKED, `blocked`                  | `blocking`                        |
| `frame`, `buffer`, `half_bytes`                               | `half_sent`                       |
| `promise`, `promised_bytes`                                   | `promises`                        |
| `watches`                                                     | `watches`                         |
| `unsent`, `pending`, and the queue of replies                 | `unread`                          |

Any handler may append a reply to `outgoing` of the session whose request it does. One that appends to another session's
(because that is unblocked, or watches) also says so with `Replies.pend`.

The states: CONNECTING until the magic of VALIDATE has come, VALIDATING until the secret is proved (where there is one),
READY, BLOCKED while a request is not answered, CLOSING until the driver has closed the connection, CLOSED.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, NamedTuple

from trystate.model.store.vocabulary import Connection

from .unread import Held, Unread

if TYPE_CHECKING:
    from ..contents.barriers import Arrival
    from ..contents.waiting import Wait
    from ..contents.watching import Changed
    from .parsing import Frame


class Values(NamedTuple):
    """The promise of values: the keys of a WAIT, and the values that they had."""

    keys: Sequence[bytes] = ()
    values: Sequence[bytes] = ()


class Reserved(NamedTuple):
    """The promise of an element: its queue, the serial number that gives its place there, and the element."""

    key: bytes
    serial: int
    element: bytes


class Session(Unread):
    """One connection. The driver sends what `take_outgoing()` gives, then reads `closing` and `abort`.

    `closing`: close the connection once all is sent; `abort`: at once, whatever is unsent.
    """

    __slots__ = (
        "abort", "blocked", "buffer", "closing", "frame", "half_bytes", "nonce", "peer", "pending", "promise",
        "promised_bytes", "state", "tell", "unsent", "watches",
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
        self.promise: Values | Reserved | None = None  # of a satisfied WAIT to the next request
        self.promised_bytes = 0  # 0 for small values
        self.watches: dict[bytes, None] = {}
        self.unsent = 0  # bytes taken that the transport still holds, as the driver reports
        self.pending = False  # it is in the service's list of those to be served by the driver
        self.closing = False
        self.abort = False
        self.tell = tell

    def changed(self, event: Changed) -> None:
        """A watched key changed."""
        self.tell(self, event)
