"""The operations on a server of ours: one request each, answered with a status; the server keeps the deadlines.

Rule: keys are wire names, "/" included; `seconds` is how long the caller is willing to wait, 0 to look once.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from contextlib import nullcontext
from dataclasses import replace
from typing import Any, Protocol, TypeVar

from trystate.model.store.vocabulary import Query

from ..operations import Barrier, Check, Get, Operation, QueuePop
from . import codec
from .client import LOOK_SECONDS, Call, Client
from .codec import Reply

T = TypeVar("T")
Answer = Callable[[], Reply[T]]

# For the answer of a server whose deadline is over; it takes a round trip. One that is frozen is not waited for longer.
GRACE_SECONDS = 0.25
MS_MAX = (1 << 62) - 1


def answer_seconds(seconds: float) -> float:
    """How long to wait for an answer that is due after so many seconds."""
    return seconds + GRACE_SECONDS if seconds else LOOK_SECONDS


def server_ms(seconds: float) -> int:
    """The same in milliseconds, as the server is told: rounded up."""
    return min(math.ceil(seconds * 1000), MS_MAX)


class Calls(Protocol):
    """What a kind of server can do."""

    def do(self, operation: Operation[T], seconds: float) -> T:
        """An operation that does not block, whose answer comes within so many seconds (0: within LOOK_SECONDS)."""

    def wait(self, operation: Operation[T], seconds: float, timeout: float) -> T | None:
        """One that blocks for so many seconds; None or False: not in time. `timeout`: the store's, in seconds."""


class ExtendedCalls:
    """Our server."""

    def __init__(self, client: Client) -> None:
        self._client = client

    def do(self, operation: Operation[T], seconds: float) -> T:
        spec, call = operation.SPEC, Call.of(operation, seconds)
        within = seconds or LOOK_SECONDS
        if isinstance(operation, Check):
            # torch's request means the same, takes a byte less, and is not refused for what was not checked here.
            request = codec.many(Query.CHECK, operation.names)
            ready: Any = self._client.ask(call, request, codec.ready, within, codec.quick_ready)
            return ready  # type: ignore[no-any-return]
        request = codec.encoded(spec.ours, operation.fields)
        reply = codec.GRANTED[spec.ours.result]
        result: T = self._client.ask(call, request, reply, within, codec.QUICK.get(spec.ours.result, codec.never))
        return result

    def wait(self, operation: Operation[T], seconds: float, timeout: float) -> T | None:
        if isinstance(operation, Barrier):
            return self._gather(operation, seconds)  # type: ignore[return-value]
        call, within = Call.of(operation, seconds), answer_seconds(seconds)
        if isinstance(operation, QueuePop) and not seconds:
            call, within = Call.of(operation, timeout), timeout or LOOK_SECONDS
        if isinstance(operation, Get) and len(operation.names) != 1:
            call = call._replace(name="multi_get")
        return self._ask(operation, call, seconds, within)

    def _ask(self, operation: Operation[T], call: Call, seconds: float, within: float) -> T | None:
        ours = operation.SPEC.ours
        request = codec.encoded(ours, [server_ms(seconds), *operation.fields])
        reply = codec.waited_for(ours.result, len(operation.names) if isinstance(operation, Get) else 0)
        quick: Callable[[bytes], Any] = codec.QUICK.get(ours.result, codec.never)
        if isinstance(operation, Get) and len(operation.names) == 1:
            quick = codec.quick_blobs
        result: T | None = self._client.ask(call, request, reply, within, quick)
        return result

    def _gather(self, barrier: Barrier, seconds: float) -> bool:
        given = nullcontext(barrier.token) if barrier.token else self._client.barrier_tokens.held(barrier.key)
        with given as token:
            barrier = replace(barrier, token=token)
            return bool(self._ask(barrier, Call.of(barrier, seconds), seconds, answer_seconds(seconds)))
