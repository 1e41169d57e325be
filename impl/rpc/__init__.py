"""RPC between named workers: calls by name, tensors beside the pickle, references to values that stay where they are.

    from trystate.impl import rpc
    rpc.init_rpc("worker1", rank=1, world_size=2)
    rpc.rpc_sync("worker0", torch.add, args=(a, b))
    rpc.shutdown()

Rule: importing this loads nothing: a name is fetched from where it lives when it is first used.
"""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from . import functions
    from .agent import Agent, Answer, Interceptor, WorkerInfo
    from .allowed import FunctionSet
    from .calls import current_agent, get_worker_info, init_rpc, remote, rpc_async, rpc_sync, shutdown
    from .errors import (
        AgentClosed,
        FrameRefused,
        LimitExceeded,
        NotAllowed,
        PeerLost,
        RemoteError,
        RpcError,
        RpcTimeout,
        RRefGone,
    )
    from .flags import Flag
    from .functions import async_execution
    from .limits import Limits
    from .options import Options, Pickles
    from .rref import RRef

_HOMES = {
    "agent": ("Agent", "Answer", "Interceptor", "WorkerInfo"),
    "allowed": ("FunctionSet",),
    "calls": ("current_agent", "get_worker_info", "init_rpc", "remote", "rpc_async", "rpc_sync", "shutdown"),
    "errors": (
        "AgentClosed", "FrameRefused", "LimitExceeded", "NotAllowed", "PeerLost", "RRefGone", "RemoteError", "RpcError",
        "RpcTimeout",
    ),
    "flags": ("Flag",),
    "functions": ("async_execution", "functions"),
    "limits": ("Limits",),
    "options": ("Options", "Pickles"),
    "rref": ("RRef",),
}  # fmt: skip
_HOME = {name: home for home, names in _HOMES.items() for name in names}

__all__ = [
    "Agent", "AgentClosed", "Answer", "Flag", "FrameRefused", "FunctionSet", "Interceptor", "LimitExceeded", "Limits",
    "NotAllowed", "Options", "PeerLost", "Pickles", "RRef", "RRefGone", "RemoteError", "RpcError", "RpcTimeout",
    "WorkerInfo", "async_execution", "current_agent", "functions", "get_worker_info", "init_rpc", "remote", "rpc_async",
    "rpc_sync", "shutdown",
]  # fmt: skip


def __getattr__(name: str) -> Any:
    if name not in _HOME:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}: it has {', '.join(__all__)}")
    home = importlib.import_module(f"{__name__}.{_HOME[name]}")
    value = globals()[name] = home if name == _HOME[name] else getattr(home, name)
    return value


def __dir__() -> list[str]:
    return sorted({*globals(), *__all__})
