"""Distributed autograd over `trystate.impl.rpc`: contexts, FAST and SMART backward passes, an optimizer.

from trystate.impl import autograd, rpc
with autograd.context() as context_id:
    loss = rpc.rpc_sync("worker1", torch.add, args=(a, b)).sum()
    autograd.backward(context_id, [loss])
    gradients = autograd.get_gradients(context_id)
"""

from .api import backward, context, get_gradients, observe
from .errors import (
    AutogradError,
    ContextError,
    ContextReleasedError,
    FreedError,
    GraphFreedError,
    IdsExhaustedError,
    PassError,
    PassPeerLostError,
    PassRunningError,
    PassTimeoutError,
    StalePassError,
    UnusedSendError,
)
from .observer import Event
from .optimizer import DistributedOptimizer

__all__ = [
    "AutogradError",
    "ContextError",
    "ContextReleasedError",
    "DistributedOptimizer",
    "Event",
    "FreedError",
    "GraphFreedError",
    "IdsExhaustedError",
    "PassError",
    "PassPeerLostError",
    "PassRunningError",
    "PassTimeoutError",
    "StalePassError",
    "UnusedSendError",
    "backward",
    "context",
    "get_gradients",
    "observe",
]
