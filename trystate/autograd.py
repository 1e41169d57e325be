"""Distributed autograd over `trystate.rpc`: contexts, FAST and SMART backward passes, an optimizer.

    from trystate import autograd, rpc

    with autograd.context() as context_id:
        loss = rpc.rpc_sync("worker1", torch.add, args=(a, b)).sum()
        autograd.backward(context_id, [loss])
        gradients = autograd.get_gradients(context_id)

`docs/autograd.md` describes what each mode promises.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from trystate.impl.autograd.api import backward, context, get_gradients, observe, record_to
    from trystate.impl.autograd.errors import *
    from trystate.impl.autograd.messages import (
        Backward,
        Cancel,
        Clean,
        Done,
        Forward,
        Kept,
        Mark,
        Unused,
        unpack_outcome,
    )
    from trystate.impl.autograd.observer import Event
    from trystate.impl.autograd.optimizer import DistributedOptimizer
    from trystate.impl.autograd.recorder import Recorder
    from trystate.model.autograd.vocabulary import Failure, Mode
else:
    from .lazy import lazily

    __getattr__, __dir__ = lazily(__name__, {"messages": "trystate.impl.autograd.messages"})

__all__ = [
    "AutogradError", "Backward", "Cancel", "Clean", "ContextError", "ContextReleasedError", "DistributedOptimizer",
    "Done", "Event", "Failure", "Forward", "FreedError", "GraphFreedError", "IdsExhaustedError", "Kept", "Mark", "Mode",
    "PassError", "PassPeerLostError", "PassRunningError", "PassTimeoutError", "Recorder", "StalePassError", "Unused",
    "UnusedSendError", "backward", "context", "get_gradients", "observe", "record_to", "unpack_outcome",
]  # fmt: skip
