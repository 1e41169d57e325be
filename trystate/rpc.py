"""RPC between named workers: calls by name, tensors next to the pickle, references to values that stay where they are.

    from trystate import rpc

    rpc.init_rpc("worker1", rank=1, world_size=2)
    rpc.rpc_sync("worker0", torch.add, args=(a, b))
    rpc.shutdown()

`docs/rpc.md` describes which functions other workers may call and what an error means.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from trystate.impl.host.tls import Tls
    from trystate.impl.rpc import functions
    from trystate.impl.rpc.agent import Agent, WorkerInfo
    from trystate.impl.rpc.allowed import FunctionSet
    from trystate.impl.rpc.calls import (
        all_gather,
        barrier,
        current_agent,
        debug_info,
        get_rpc_timeout,
        get_worker_info,
        init_rpc,
        remote,
        rpc_async,
        rpc_sync,
        set_rpc_timeout,
        shutdown,
        wait_all,
    )
    from trystate.impl.rpc.errors import *
    from trystate.impl.rpc.functions import async_execution
    from trystate.impl.rpc.limits import Limits
    from trystate.impl.rpc.options import Options, Pickles
    from trystate.impl.rpc.remote_errors import RemoteError
    from trystate.impl.rpc.requests import Answer, Incoming
    from trystate.impl.rpc.rref import RRef
else:
    from .lazy import lazily

    __getattr__, __dir__ = lazily(__name__)

__all__ = [
    "Agent", "AgentClosed", "AgentExists", "Answer", "FrameRefused", "FunctionSet", "Incoming", "LimitExceeded",
    "Limits", "NoWorker", "NotAllowed", "Options", "PeerLost", "Pickles", "RRef", "RRefGone", "RemoteError",
    "RpcError", "RpcTimeout", "Tls", "UnknownWorker", "WorkerInfo", "all_gather", "async_execution", "barrier",
    "current_agent", "debug_info", "functions", "get_rpc_timeout", "get_worker_info", "init_rpc", "remote",
    "rpc_async", "rpc_sync", "set_rpc_timeout", "shutdown", "wait_all",
]  # fmt: skip
