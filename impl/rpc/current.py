"""The agent of this process that the functions without an agent mean."""

from __future__ import annotations

from typing import TYPE_CHECKING

from .errors import AgentClosed

if TYPE_CHECKING:
    from .invocations import Invocations

_calls: Invocations | None = None


def calls() -> Invocations:
    """Raises AgentClosed if there is none."""
    if _calls is None:
        raise AgentClosed("RPC is not up in this process: call init_rpc() first, and shutdown() last")
    return _calls


def use(calls: Invocations | None) -> None:
    global _calls
    _calls = calls


def is_used() -> bool:
    return _calls is not None
