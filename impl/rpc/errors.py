"""The exceptions of RPC. Rule: each is a `TrystateError` and a `RuntimeError`, and its text names the remedy."""

from __future__ import annotations

from trystate.model.errors import TrystateError, UsageError


class RpcError(TrystateError, RuntimeError):
    """Root of the exceptions that a call, an RRef or an agent raises."""


class RpcTimeout(RpcError, TimeoutError):
    """No answer came in time. The call may have happened, or may still happen."""


class PeerLost(RpcError, ConnectionError):
    """A worker's connection closed without GOODBYE: all requests to it fail, now and later."""


class AgentClosed(RpcError):
    """`shutdown()` was called here or at the peer, or `init_rpc()` was not called."""


class AgentExists(RpcError, UsageError):
    """`init_rpc()` was called in a process that is a worker already."""


class UnknownWorker(RpcError, UsageError):
    """No worker has this name or rank."""


class BadName(RpcError, UsageError):
    """A name that no worker can have."""


class NoWorker(UsageError, ValueError):
    """An argument must name a worker, and is not a name, rank or WorkerInfo."""


class FrameRefused(RpcError):
    """A peer's bytes are not a frame, or exceed a limit; its connection is closed."""


class LimitExceeded(RpcError):
    """A frame, a tensor or a number of calls is over a limit of this side; nothing was sent or run."""


class NotAllowed(RpcError, TypeError):
    """A function or an argument that `Options.modules` or `Options.pickles` does not allow."""


class RRefGone(RpcError, LookupError):
    """The owner of an RRef does not have its value, or not any more."""
