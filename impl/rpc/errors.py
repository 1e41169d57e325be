"""The exceptions of RPC. Rule: each is a `TrystateError` and a `RuntimeError`, and its text says what to do."""

from __future__ import annotations

from trystate.model.errors import TrystateError, UsageError


class RpcError(TrystateError, RuntimeError):
    """Root of what a call, an RRef or an agent raises."""


class RpcTimeout(RpcError, TimeoutError):
    """There was no answer in time; whether the call happened, or will, is not known."""


class PeerLost(RpcError, ConnectionError):
    """A worker's connection closed without good-bye: all that was asked of it fails, now and later."""


class AgentClosed(RpcError):
    """`shutdown()` was called, here or there, or `init_rpc()` was not."""


class AgentExists(RpcError, UsageError):
    """`init_rpc()` was called in a process that is a worker already."""


class UnknownWorker(RpcError, UsageError):
    """There is no worker of this name or rank."""


class BadName(RpcError, UsageError):
    """A name that no worker can have."""


class NoWorker(UsageError, ValueError):
    """An argument stands for a worker, and is no name, rank or WorkerInfo."""


class FrameRefused(RpcError):
    """A peer's bytes are no frame, or break a limit; its connection is closed."""


class LimitExceeded(RpcError):
    """A frame, a tensor or a number of calls is over a limit of this side; nothing was sent or run."""


class NotAllowed(RpcError, TypeError):
    """A function or an argument that the restriction of names and pickles does not let through."""


class RRefGone(RpcError, LookupError):
    """The owner of an RRef does not have it (any more)."""
