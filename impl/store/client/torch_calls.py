"""The operations on torch's servers, which have no deadlines, no acknowledgements and no refusals.

Rule: an operation that torch's server does in several requests is sent in one write if that makes it one step. CHECK
and GET are one write, so no value is returned that was never set. SET and PING are one write, so a set that returns
has happened. A wait checks its keys again each second, since these servers do not wake every waiter that they should.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from time import monotonic
from typing import Any, TypeVar

from trystate.model.store.vocabulary import Query

from ..errors import ConnectionLost, NotANumber, NotSupported, OutcomeUnknown, StoreError
from ..operations import (
    OPERATIONS,
    Add,
    Barrier,
    DeleteKey,
    Get,
    ListKeys,
    Operation,
    QueueLen,
    QueuePop,
    QueuePush,
    Result,
    Wait,
)
from . import codec
from .calls import GRACE_SECONDS
from .client import LOOK_SECONDS, CallText, Client, Kind
from .connection import Connection

T = TypeVar("T")

BLANKS = b" \t\n\v\f\r"  # skipped by std::stoll

# A compare_set that creates a key wakes no waiter on the legacy server. A push may wake the wrong waiter on libuv.
RECHECK_SECONDS = 1.0
# The pause after a WAIT that returned at once without a result: the key has a value, but its queue is empty.
PAUSE_SECONDS, PAUSE_SECONDS_MAX = 0.005, 0.2


class TorchCalls:
    """The operations on torch's libuv or legacy server."""

    def __init__(self, client: Client) -> None:
        self._client = client

    def do(self, operation: Operation[T], seconds: float) -> T:
        spec, call = operation.SPEC, CallText.of(operation, seconds)
        if spec.torch is None:
            raise self._unsupported(spec.name, "do this: torch's protocol has no request for it")
        if isinstance(operation, QueuePush | QueueLen):
            self._need_queues(spec.name)
        request, within = _ENCODERS[type(operation)](operation.fields), seconds or LOOK_SECONDS
        if spec.torch.result is Result.NOTHING:  # the request has no answer, but the ping after it has
            return self._client.ask(call, request + codec.PING, codec.pong, within)  # type: ignore[return-value]
        try:
            result: Any = self._client.ask(call, request, codec.RESULTS[spec.torch.result], within)
        except OutcomeUnknown as error:
            if isinstance(operation, Add) and not error.timed_out:
                self._look_for_a_number(operation.key, call)
            raise
        match operation:
            case DeleteKey():
                result = result > 0
            case ListKeys(prefix):
                result = [name for name in result if name.startswith(prefix)]
        return result  # type: ignore[no-any-return]

    def _look_for_a_number(self, name: bytes, call: CallText) -> None:
        """Raise NotANumber if the value can be read and is not a number: these servers then hang up on an ADD."""
        try:
            values = self._get(Get([name]), 0.0)
        except (ConnectionLost, StoreError):  # the server is lost or this store is closed: the outcome stays unknown
            return
        if values is not None and not values[0].lstrip(BLANKS).lstrip(b"+-")[:1].isdigit():
            raise NotANumber(
                f"{call}: the value is {values[0]!r:.60}, not a number ({self._client.where}); set a number first"
            ) from None

    def wait(self, operation: Operation[T], seconds: float, timeout: float) -> T | None:
        result: Any = None
        match operation:
            case Get():
                result = self._get(operation, seconds)
            case Wait():
                result = self._wait(operation, seconds)
            case QueuePop():
                result = self._pop(operation, seconds, timeout)
            case Barrier():
                result = self._gather(operation, seconds)
        return result  # type: ignore[no-any-return]

    def _get(self, get: Get, seconds: float) -> list[bytes] | None:
        names, call = get.names, CallText.of(get, seconds)
        check, read = codec.many(Query.CHECK, names), codec.many(Query.MULTI_GET, names)

        def ask(connection: Connection, within: float) -> list[bytes] | None:
            if self._client.kind is not Kind.LEGACY:
                return connection.ask(check + read, lambda: codec.ready_blobs(len(names)), within)
            # The legacy server hangs up on a missing key, so CHECK has to succeed first. For an empty list of keys its
            # reply has no byte, so no request is sent.
            deadline = monotonic() + within
            if not connection.ask(check, codec.ready, within):
                return None
            return connection.ask(read, lambda: codec.some_blobs(len(names)), deadline - monotonic()) if names else []

        return self._until(lambda within: self._client.perform(call, lambda connection: ask(connection, within)), call)

    def _wait(self, wait: Wait, seconds: float) -> bool:
        request, call = codec.many(Query.CHECK, wait.names), CallText.of(wait, seconds)
        return bool(self._until(lambda within: self._client.ask(call, request, codec.ready, within) or None, call))

    def _pop(self, pop: QueuePop, seconds: float, timeout: float) -> bytes | None:
        self._need_queues(pop.SPEC.name)
        request, call = codec.keyed(Query.QUEUE_POP, pop.key), CallText.of(pop, seconds or timeout)

        def look(within: float) -> bytes | None:
            return self._client.ask(call, request, codec.popped, within)

        # `queue_pop(block=False)` looks once; its answer may take the store's timeout.
        return self._until(look, call) if seconds else look(timeout or LOOK_SECONDS)

    def _gather(self, barrier: Barrier, seconds: float) -> bool:
        request = _ENCODERS[Barrier](barrier.fields)
        grace = GRACE_SECONDS if seconds else LOOK_SECONDS
        return self._client.perform(
            CallText.of(barrier, seconds), lambda connection: connection.ask_or_cancel(request, seconds, grace)
        )

    def _until(self, look: Callable[[float], T | None], call: CallText) -> T | None:
        """Look until there is a result or the time is over, and wait for the keys between two looks."""
        seconds = call.seconds
        deadline = monotonic() + seconds
        pause = PAUSE_SECONDS
        while True:
            left = deadline - monotonic()
            result = look(max(left, 0) + GRACE_SECONDS if seconds else LOOK_SECONDS)
            left = deadline - monotonic()
            if result is not None or left <= 0:
                return result
            began = monotonic()
            if self._woken(call._replace(seconds=left, writes=False)) and monotonic() - began < pause:
                time.sleep(min(pause, left))
                pause = min(2 * pause, PAUSE_SECONDS_MAX)

    def _woken(self, call: CallText) -> bool:
        """Wait until the keys may be present or RECHECK_SECONDS are over. The answer may take the rest of the time."""
        request, pause = codec.many(Query.WAIT, call.names), min(call.seconds, RECHECK_SECONDS)
        grace = call.seconds - pause + GRACE_SECONDS
        return self._client.perform(call, lambda connection: connection.ask_or_cancel(request, pause, grace))

    def _need_queues(self, operation: str) -> None:
        if self._client.kind is Kind.LEGACY:
            raise self._unsupported(operation, "keep queues")

    def _unsupported(self, operation: str, what: str) -> NotSupported:
        kind = self._client.kind or Kind.LIBUV
        return NotSupported(f"{operation}: {kind.value} cannot {what} ({self._client.where}); "
                            "use `trystate store serve` instead")  # fmt: skip


_ENCODERS = {kind: codec.encoder(kind.SPEC.torch) for kind in OPERATIONS if kind.SPEC.torch is not None}
