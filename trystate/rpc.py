"""RPC between named workers: calls by name, tensors beside the pickle, references to values that stay where they are.

    from trystate import rpc

    rpc.init_rpc("worker1", rank=1, world_size=2)
    rpc.rpc_sync("worker0", torch.add, args=(a, b))
    rpc.shutdown()

`docs/autograd.md` says which functions other workers may call, and what an error means.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from trystate.impl.rpc import functions
    from trystate.impl.rpc.agent import Agent, WorkerInfo
    from trystate.impl.rpc.allowed import FunctionSet
    from trystate.impl.rpc.calls import current_agent, get_worker_info, init_rpc, remote, rpc_async, rpc_sync, shutdown
    from trystate.impl.rpc.errors import (
        AgentClosed,
        FrameRefused,
        LimitExceeded,
        NotAllowed,
        PeerLost,
        RpcError,
        RpcTimeout,
        RRefGone,
    )
    from trystate.impl.rpc.functions import async_execution
    from trystate.impl.rpc.limits import Limits
    from trystate.impl.rpc.options import Options, Pickles
    from trystate.impl.rpc.remote_errors import RemoteError
    from trystate.impl.rpc.rref import RRef
else:
    from .lazy import lazily

    __getattr__, __dir__ = lazily(__name__)

__all__ = [
    "Agent", "AgentClosed", "FrameRefused", "FunctionSet", "LimitExceeded", "Limits",
    "NotAllowed", "Options", "PeerLost", "Pickles", "RRef", "RRefGone", "RemoteError", "RpcError", "RpcTimeout",
    "WorkerInfo", "async_execution", "current_agent", "functions", "get_worker_info", "init_rpc", "remote", "rpc_async",
    "rpc_sync", "shutdown",
]  # fmt: skip
