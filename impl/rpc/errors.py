"""The exceptions of RPC. Rule: each is a `TrystateError` and a `RuntimeError`, and its text says what to do."""

from __future__ import annotations

from typing import Any

from trystate.model.errors import TrystateError


class RpcError(TrystateError, RuntimeError):
    """Root of what a call, an RRef or an agent raises."""


class RpcTimeout(RpcError, TimeoutError):
    """There was no answer in time; whether the call happened, or will, is not known."""


class PeerLost(RpcError, ConnectionError):
    """A worker's connection closed without good-bye: all that was asked of it fails, now and later."""


class AgentClosed(RpcError):
    """`shutdown()` was called, here or there, or `init_rpc()` was not."""


class FrameRefused(RpcError):
    """What a peer sent is no frame, or breaks a limit; its connection is closed."""


class LimitExceeded(RpcError):
    """A frame, a tensor or a number of calls is over a limit of this side; nothing was sent or run."""


class NotAllowed(RpcError, TypeError):
    """A function or an argument that the restriction of names and pickles does not let through."""


class RRefGone(RpcError, LookupError):
    """The owner of an RRef does not have it (any more)."""


class RemoteError(RpcError):
    """A function raised on another worker; where that can be, it is of the type that was raised there as well.

    `workers`: the names of those it came through, the one where it was raised last; `original`: the qualified name of
    its type there; `remote_traceback`: as it was printed there.
    """

    workers: tuple[str, ...] = ()
    original: str = ""
    remote_traceback: str = ""
    said: str = ""  # its text there
    text: str = ""

    def __init__(self, text: str) -> None:
        Exception.__init__(self, text)
        self.text = text

    def __str__(self) -> str:  # not that of the original type, which may show fields that were never set
        return self.text

    def __reduce__(self) -> tuple[Any, ...]:  # the class may be one that was made for it
        from .faults import made

        return made, (self.original, self.said, self.remote_traceback, self.workers)
