"""A request between two workers, as each of them holds it, and the interceptor that sees the tensors of calls.

Theory of operation. A request is open at both ends, and ends once at each:

    at the caller   `Request`, from before its frame is sent until the one thread that takes it out of the agent's
                    table calls `done`, with the `Answer` or an error. In `ask`, `done` sets an `Outcome`, for which
                    the caller's thread waits.
    at the callee   `Incoming`, from the frame that a reading thread has taken until the first `answer` or `fail`, on
                    any thread.

Failures:

- *The answer cannot be sent*: it is too large, or its type is not allowed. `answer` raises, and the request is still
  open, so `fail` can end it.
- *The caller is lost.* The answer is dropped: the caller's agent has ended the request with PeerLost.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from contextlib import AbstractContextManager, suppress
from dataclasses import dataclass
from typing import TYPE_CHECKING, NamedTuple, Protocol

from torch import Tensor

from . import remote_errors
from .connection import Connection
from .errors import PeerLost, RpcTimeout
from .events import OneShotEvent
from .frames import Frame, Kind, Tensors
from .inquiries import Key

if TYPE_CHECKING:
    from .agent import Agent


class Answer(NamedTuple):
    """The answer to a request: its bytes and its tensors; None where a tensor was None."""

    body: bytes
    tensors: list[Tensor | None]
    metadata: bytes = b""
    flags: int = 0


class Interceptor(Protocol):
    """Sees the tensors of each call (not of other requests) where they leave and where they arrive."""

    def outgoing(self, to: int, tensors: Sequence[Tensor], what: str) -> bytes:
        """Return metadata for a call of function `what`; b"" for none."""

    def incoming(self, peer: int, metadata: bytes, tensors: list[Tensor]) -> AbstractContextManager[None]:
        """Return the scope of a call. Called for each call in the order of frames; may replace elements of the list.

        The thread that runs the function and makes the answer enters the scope. A function that answers later enters it
        again then, so it must allow several entries, one after the other.
        """

    def answer_metadata(self, to: int, tensors: Sequence[Tensor], what: str) -> bytes:
        """Like `outgoing`, but for an answer; called inside the scope."""

    def unsent(self, metadata: bytes) -> None:
        """Called when a message with metadata of `outgoing` or `answer_metadata` could not be sent; not for b""."""

    def answered(self, peer: int, metadata: bytes, tensors: list[Tensor]) -> None:
        """Called at the caller before the result is made from the tensors; may replace elements.

        Only called for metadata other than b"", and not for an answer that comes too late.
        """

    def peer_lost(self, peer: int, reason: str) -> None: ...


Done = Callable[[Answer | BaseException], None]


class Incoming:
    """A request of a peer. The first call of `answer` or `fail` ends it; later calls do nothing."""

    __slots__ = (
        "_agent", "_answered", "_connection", "body", "flags", "kind", "metadata", "number", "peer", "tensors",
        "waits_for",
    )  # fmt: skip

    def __init__(self, agent: Agent, connection: Connection, frame: Frame) -> None:
        self._agent, self._connection, self.peer = agent, connection, connection.peer
        self.kind, self.flags, self.number, self.body, self.metadata, self.tensors = frame
        self._answered = False
        self.waits_for: Key | None = None  # the call that makes the value which this request fetches

    def answer(self, body: bytes, tensors: Tensors = (), metadata: bytes = b"", flags: int = 0) -> None:
        """Answer the request, from any thread.

        Raises:
            LimitExceeded, NotAllowed: the answer cannot be sent; the request is still open.
        """
        if not self._answered:
            self._reply(Kind.ANSWER, body, tensors, metadata, flags)

    def fail(self, error: BaseException) -> None:
        """Answer the request with an error, which is raised at the caller as a RemoteError."""
        if not self._answered:
            self._reply(Kind.FAILED, remote_errors.encoded(error, self._agent.name), (), b"", 0)

    def _reply(self, kind: Kind, body: bytes, tensors: Tensors, metadata: bytes, flags: int) -> None:
        with suppress(PeerLost):  # the caller's request has ended with PeerLost too
            self._agent.transmit(self._connection, kind, self.number, body, tensors, metadata, flags)
        self._answered = True


Handler = Callable[[Incoming], None]


class Outcome(OneShotEvent):
    """The end of a request for which its caller's thread waits."""

    __slots__ = ("result",)

    def __init__(self) -> None:
        super().__init__()
        self.result: Answer | BaseException = RpcTimeout("a thread began to deliver the answer, and did not finish")

    def done(self, result: Answer | BaseException) -> None:
        self.result = result
        self.set()


@dataclass(slots=True, eq=False)
class Request:
    """A request of this worker that has no answer yet."""

    to: int
    done: Done
    what: str
    seconds: float
    deadline: float
    cause: Key | None  # the incoming call whose function made this request
    found: Callable[[], str] | None = None  # the result of its inquiry; None before the inquiry
