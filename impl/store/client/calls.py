"""The operations on our server: one request each, answered with a status. The server keeps the deadlines.

Rule: keys are wire names, "/" included. `seconds` is how long the caller is willing to wait; 0 looks once.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from contextlib import nullcontext
from dataclasses import replace
from time import monotonic
from typing import Any, NamedTuple, TypeVar

from trystate.model.store.vocabulary import Query

from ..errors import ConnectionLost
from ..operations import OPERATIONS, Barrier, Check, Operation, QueuePop
from . import codec
from .client import LOOK_SECONDS, CallText, Client
from .codec import Reply

T = TypeVar("T")
Answer = Callable[[], Reply[T]]

# The time for the answer of a server whose deadline is over: a round trip. A frozen server gets no more time than this.
GRACE_SECONDS = 0.25
MS_MAX = (1 << 62) - 1


def answer_seconds(seconds: float) -> float:
    """How long to wait for an answer that is due after `seconds`."""
    return seconds + GRACE_SECONDS if seconds else LOOK_SECONDS


def server_ms(seconds: float) -> int:
    """A request's timeout in milliseconds, rounded up."""
    return min(math.ceil(seconds * 1000), MS_MAX)


class Asking(NamedTuple):
    """The request of an operation to our server and the reader of its answer, made once from the specification.

    Args:
        encode: the request's fields -> its bytes.
        reply: the reader of the answer; None if the reader depends on the number of keys.
        decode: decodes the usual small answer directly.
    """

    encode: Callable[[Sequence[Any]], bytes]
    reply: Answer[Any] | None
    decode: Callable[[bytes], Any]

    @classmethod
    def of(cls, kind: type[Operation[Any]]) -> Asking:
        spec, ours = kind.SPEC, kind.SPEC.ours
        reply = codec.IN_TIME.get(ours.result) if spec.blocks else codec.GRANTED[ours.result]
        decode = codec.DECODERS.get(ours.result, codec.undecoded)
        return cls(codec.encoder(ours), reply, decode)


class ExtendedCalls:
    """The operations on our server."""

    def __init__(self, client: Client) -> None:
        self._client = client

    def _again(self, operation: Operation[Any], seconds: float) -> float:
        """The time until which an operation is sent again to a server that is restarted: 0.0 if the operation writes.

        A server that was killed after an `add` and before its answer has kept the sum. A second `add` would count
        twice.
        """
        return monotonic() + seconds if self._client.terms.kept and not operation.SPEC.writes else 0.0

    def _left(self, deadline: float, lost: ConnectionLost) -> float:
        """The seconds until this deadline. Raises `lost` if none is left, or if the server is not waited for."""
        if not self._client.comes_back(deadline):
            raise lost
        return max(deadline - monotonic(), 0.001)

    def do(self, operation: Operation[T], seconds: float) -> T:
        """Do an operation that does not block. Its answer is due within `seconds` (0: within LOOK_SECONDS)."""
        asking = ASKING[type(operation)]
        call, within = CallText.of(operation, seconds), seconds or LOOK_SECONDS
        if type(operation) is Check:
            # torch's CHECK means the same, and its reply is a byte shorter. It needs no status for a refusal, because
            # the client has already checked the limits of keys.
            request = codec.many(Query.CHECK, operation.names)
            reply: Answer[Any] = codec.ready
            decode: Callable[[bytes], Any] = codec.decode_ready
        else:
            assert asking.reply is not None
            request, reply, decode = asking.encode(operation.fields), asking.reply, asking.decode
        deadline = self._again(operation, within)
        while True:
            try:
                left = max(within - self._client.ready(call), min(within, LOOK_SECONDS))
                result: T = self._client.ask(call, request, reply, left, decode)
                return result
            except ConnectionLost as error:
                within = self._left(deadline, error)
                call = call._replace(seconds=within)

    def wait(self, operation: Operation[T], seconds: float, timeout: float) -> T | None:
        """Do an operation that blocks for at most `seconds`; None or False: not in time. `timeout` is the store's."""
        kind = type(operation)
        if kind is Barrier:
            return self._gather(operation, seconds)  # type: ignore[arg-type, return-value]
        asking = ASKING[kind]
        call, within = CallText.of(operation, seconds), answer_seconds(seconds)
        # `queue_pop(block=False)` looks once; its answer may take the store's timeout.
        if kind is QueuePop and not seconds:
            call, within = call._replace(seconds=timeout), timeout or LOOK_SECONDS
        fields = operation.fields
        reply, decode = asking.reply, asking.decode
        if reply is None:  # a value for each key
            count = len(fields[0])
            reply = codec.in_time(lambda: codec.some_blobs(count))
            if count == 1:
                decode = codec.decode_blobs
        deadline = self._again(operation, seconds or within)
        while True:
            try:
                used = self._client.ready(call)
                request = asking.encode([server_ms(max(seconds - used, 0.001) if seconds else 0.0), *fields])
                left = max(within - used, min(within, LOOK_SECONDS))
                result: T | None = self._client.ask(call, request, reply, left, decode)
                return result
            except ConnectionLost as error:
                left = self._left(deadline, error)
                if seconds:  # the operation waits for the rest of its time at the restarted server
                    seconds = left
                within, call = answer_seconds(seconds), call._replace(seconds=left)

    def _gather(self, barrier: Barrier, seconds: float) -> bool:
        asking = ASKING[Barrier]
        assert asking.reply is not None
        given = nullcontext(barrier.token) if barrier.token else self._client.barrier_tokens.held(barrier.key)
        with given as token:
            barrier = replace(barrier, token=token)
            request, call = asking.encode([server_ms(seconds), *barrier.fields]), CallText.of(barrier, seconds)
            return bool(self._client.ask(call, request, asking.reply, answer_seconds(seconds), asking.decode))


ASKING = {kind: Asking.of(kind) for kind in OPERATIONS}
