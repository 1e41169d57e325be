"""Our modules under the names of torch's, its private ones included, which its tests use to look inside."""

from __future__ import annotations

from collections.abc import Sequence
from types import SimpleNamespace
from typing import Any

import torch
from trystate.impl.autograd import api

from trystate import autograd as our_autograd
from trystate import rpc as our_rpc


def rpc() -> Any:
    torch.futures.wait_all = _wait_all  # torch's takes its own futures only
    public = {name: getattr(our_rpc, name) for name in our_rpc.__all__}
    return SimpleNamespace(**public, _set_rpc_timeout=_set_rpc_timeout)


def _wait_all(futures: Sequence[Any]) -> list[Any]:
    return [each.wait() for each in futures]


def _set_rpc_timeout(seconds: float) -> None:
    our_rpc.current_agent().timeout = seconds


def autograd() -> Any:
    public = {name: getattr(our_autograd, name) for name in our_autograd.__all__}
    return SimpleNamespace(
        **public,
        _current_context=lambda: api.retrieve_context(api.current_context()),
        _retrieve_context=api.retrieve_context,
        _new_context=lambda: api.retrieve_context(api.new_context()),
        _release_context=api.release_context,
        _get_debug_info=api.debug_info,
        _get_max_id=lambda: (our_rpc.current_agent().me << 48) + (1 << 48) - 1,
    )
