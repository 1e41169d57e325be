"""The functions that workers of torch.distributed.autograd call: contexts, and a backward pass."""

from __future__ import annotations

from typing import Any

import torch.distributed.autograd
import torch.distributed.rpc
from torch import Tensor

dist_autograd: Any = torch.distributed.autograd  # most of it has no types
rpc: Any = torch.distributed.rpc
_entries: list[Any] = []


def failure(context: int, loss: Tensor, *, retain_graph: bool = False) -> str:
    """The error of a backward pass: its first line; empty if it ends well."""
    try:
        dist_autograd.backward(context, [loss], retain_graph=retain_graph)
    except RuntimeError as error:
        return str(error).splitlines()[0]
    return ""


def enter() -> int:
    """A context that stays until `leave`, whatever thread comes to that."""
    manager = dist_autograd.context()
    _entries.append(manager)
    return int(manager.__enter__())


def leave() -> None:
    """Out of the context that was entered last."""
    _entries.pop().__exit__(None, None, None)
