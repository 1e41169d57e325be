"""The operations on a server of ours: one request each, answered with a status; the server keeps the deadlines.

Rule: keys are wire names, "/" included; `seconds` is how long the caller is willing to wait, 0 to look once.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from contextlib import nullcontext
from dataclasses import replace
from time import monotonic
from typing import Any, NamedTuple, Protocol, TypeVar

from trystate.model.store.vocabulary import Query

from ..errors import ConnectionLost
from ..operations import OPERATIONS, Barrier, Check, Operation, QueuePop
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
    """The operations on one kind of server."""

    def do(self, operation: Operation[T], seconds: float) -> T:
        """An operation that does not block, whose answer comes within so many seconds (0: within LOOK_SECONDS)."""

    def wait(self, operation: Operation[T], seconds: float, timeout: float) -> T | None:
        """One that blocks for so many seconds; None or False: not in time. `timeout`: the store's, in seconds."""


class Asking(NamedTuple):
    """How our server is asked for an operation: made once for each, from its specification.

    Args:
        encode: the request's fields -> its bytes.
        reply: how to read the answer; None if that depends on how many keys were named.
        decode: what knows the usual small answer at sight.
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


class _Again:
    """The time in which an operation is sent again to a server that is started again: none if it writes.

    A server that is killed after it did an `add`, and before it answered, has kept the sum: a second one would count
    twice.
    """

    def __init__(self, client: Client, operation: Operation[Any], seconds: float) -> None:
        self._client = client
        self._deadline = monotonic() + seconds if client.terms.kept and not operation.SPEC.writes else 0.0

    def seconds(self, lost: ConnectionLost) -> float:
        """The rest of that time. Raises `lost` if nothing is, or if the server is not waited for."""
        if not self._client.comes_back(self._deadline):
            raise lost
        return max(self._deadline - monotonic(), 0.001)


class ExtendedCalls:
    """Our server."""

    def __init__(self, client: Client) -> None:
        self._client = client

    def do(self, operation: Operation[T], seconds: float) -> T:
        asking = ASKING[type(operation)]
        call, within = Call.of(operation, seconds), seconds or LOOK_SECONDS
        if type(operation) is Check:
            # torch's request means the same, takes a byte less, and is not refused for what was not checked here.
            request = codec.many(Query.CHECK, operation.names)
            reply: Answer[Any] = codec.ready
            decode: Callable[[bytes], Any] = codec.decode_ready
        else:
            assert asking.reply is not None
            request, reply, decode = asking.encode(operation.fields), asking.reply, asking.decode
        again = _Again(self._client, operation, within)
        while True:
            try:
                result: T = self._client.ask(call, request, reply, within, decode)
                return result
            except ConnectionLost as error:
                within = again.seconds(error)
                call = call._replace(seconds=within)

    def wait(self, operation: Operation[T], seconds: float, timeout: float) -> T | None:
        kind = type(operation)
        if kind is Barrier:
            return self._gather(operation, seconds)  # type: ignore[arg-type, return-value]
        asking = ASKING[kind]
        call, within = Call.of(operation, seconds), answer_seconds(seconds)
        if kind is QueuePop and not seconds:
            call, within = call._replace(seconds=timeout), timeout or LOOK_SECONDS
        fields = operation.fields
        reply, decode = asking.reply, asking.decode
        if reply is None:  # a value for each key
            count = len(fields[0])
            reply = codec.values_in_time(count)
            if count == 1:
                decode = codec.decode_blobs
        again = _Again(self._client, operation, seconds or within)
        while True:
            try:
                request = asking.encode([server_ms(seconds), *fields])
                result: T | None = self._client.ask(call, request, reply, within, decode)
                return result
            except ConnectionLost as error:
                left = again.seconds(error)
                if seconds:
                    seconds = left
                within, call = answer_seconds(seconds), call._replace(seconds=left)

    def _gather(self, barrier: Barrier, seconds: float) -> bool:
        asking = ASKING[Barrier]
        assert asking.reply is not None
        given = nullcontext(barrier.token) if barrier.token else self._client.barrier_tokens.held(barrier.key)
        with given as token:
            barrier = replace(barrier, token=token)
            request, call = asking.encode([server_ms(seconds), *barrier.fields]), Call.of(barrier, seconds)
            return bool(self._client.ask(call, request, asking.reply, answer_seconds(seconds), asking.decode))


ASKING = {kind: Asking.of(kind) for kind in OPERATIONS}
