"""The operations on a server of ours: one request each, answered with a status; the server keeps the deadlines.

Rule: a name is a wire name, "/" included; `seconds` is how long the caller is willing to wait, 0 to look once.
None or False: not in time.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from contextlib import nullcontext
from typing import Protocol, TypeVar

from trystate.model.store.vocabulary import Extension, Query

from . import codec
from .client import LOOK_SECONDS, Client
from .codec import Reply

T = TypeVar("T")
Answer = Callable[[], Reply[T]]

# For the answer of a server whose deadline is over; it takes a round trip. One that is frozen is not waited for longer.
GRACE_SECONDS = 0.25
MS_MAX = (1 << 62) - 1


def patience(seconds: float) -> float:
    """How long to wait for an answer that is due after so many seconds."""
    return seconds + GRACE_SECONDS if seconds else LOOK_SECONDS


class Calls(Protocol):
    """What a kind of server can do."""

    def set(self, name: bytes, value: bytes, seconds: float) -> None: ...
    def get(self, names: list[bytes], seconds: float) -> list[bytes] | None: ...
    def multi_set(self, items: list[tuple[bytes, bytes]], seconds: float) -> None: ...
    def add(self, name: bytes, amount: int, seconds: float) -> int: ...
    def compare_set(self, name: bytes, expected: bytes, desired: bytes, seconds: float) -> bytes: ...
    def append(self, name: bytes, value: bytes, seconds: float) -> None: ...
    def delete(self, name: bytes, seconds: float) -> bool: ...
    def take(self, name: bytes, seconds: float) -> bytes | None: ...
    def check(self, names: list[bytes], seconds: float) -> bool: ...
    def wait(self, names: list[bytes], seconds: float) -> bool: ...
    def num_keys(self, seconds: float) -> int: ...
    def list_keys(self, prefix: bytes, seconds: float) -> list[bytes]: ...
    def queue_push(self, name: bytes, value: bytes, seconds: float) -> None: ...
    def queue_pop(self, name: bytes, blocking_seconds: float, seconds: float) -> bytes | None: ...
    def queue_len(self, name: bytes, seconds: float) -> int: ...
    def barrier(self, name: bytes, world_size: int, seconds: float, token: bytes = b"") -> bool: ...


class ExtendedCalls:
    """Our server."""

    def __init__(self, client: Client) -> None:
        self._client, self._ask = client, client.ask

    def set(self, name: bytes, value: bytes, seconds: float) -> None:
        request = codec.keyed(Extension.SET, name, value)
        self._ask("set", (name,), seconds, request, _DONE, seconds or LOOK_SECONDS, True, codec.quick_done)

    def get(self, names: list[bytes], seconds: float) -> list[bytes] | None:
        request = codec.timed(Extension.GET, server_ms(seconds), names)
        if len(names) == 1:
            return self._ask("get", names, seconds, request, _VALUE, patience(seconds), False, codec.quick_blobs)
        values = codec.in_time(lambda: codec.some_blobs(len(names)))
        return self._ask("multi_get", names, seconds, request, values, patience(seconds), False)

    def multi_set(self, items: list[tuple[bytes, bytes]], seconds: float) -> None:
        names = [name for name, _ in items]
        request = codec.pairs(Extension.MULTI_SET, items)
        self._ask("multi_set", names, seconds, request, _DONE, seconds or LOOK_SECONDS, True, codec.quick_done)

    def add(self, name: bytes, amount: int, seconds: float) -> int:
        request = codec.keyed_number(Extension.ADD, name, amount)
        return self._ask("add", (name,), seconds, request, _NUMBER, seconds or LOOK_SECONDS, True, codec.quick_number)

    def compare_set(self, name: bytes, expected: bytes, desired: bytes, seconds: float) -> bytes:
        request = codec.keyed(Extension.COMPARE_SET, name, expected, desired)
        within = seconds or LOOK_SECONDS
        return self._ask("compare_set", (name,), seconds, request, _BLOB, within, True, codec.quick_blob)

    def append(self, name: bytes, value: bytes, seconds: float) -> None:
        request = codec.keyed(Extension.APPEND, name, value)
        self._ask("append", (name,), seconds, request, _DONE, seconds or LOOK_SECONDS, True, codec.quick_done)

    def delete(self, name: bytes, seconds: float) -> bool:
        request = codec.keyed(Extension.DELETE, name)
        return self._ask(
            "delete_key", (name,), seconds, request, _FLAG, seconds or LOOK_SECONDS, True, codec.quick_flag
        )

    def take(self, name: bytes, seconds: float) -> bytes | None:
        request, value = codec.keyed(Extension.TAKE, name), codec.granted(codec.optional_blob)
        return self._ask("take", (name,), seconds, request, value, seconds or LOOK_SECONDS, True)

    def check(self, names: list[bytes], seconds: float) -> bool:
        # torch's request: it means the same, takes a byte less, and cannot be refused for what was not checked here.
        request = codec.many(Query.CHECK, names)
        return self._ask(
            "check", names, seconds, request, codec.ready, seconds or LOOK_SECONDS, False, codec.quick_ready
        )

    def wait(self, names: list[bytes], seconds: float) -> bool:
        request = codec.timed(Extension.WAIT, server_ms(seconds), names)
        return bool(self._ask("wait", names, seconds, request, _IN_TIME, patience(seconds), False, codec.quick_done))

    def num_keys(self, seconds: float) -> int:
        request = codec.bare(Extension.NUM_KEYS)
        return self._ask("num_keys", (), seconds, request, _NUMBER, seconds or LOOK_SECONDS, False, codec.quick_number)

    def list_keys(self, prefix: bytes, seconds: float) -> list[bytes]:
        request, names = codec.keyed(Extension.LIST_KEYS, prefix), codec.granted(codec.counted_blobs)
        return self._ask("list_keys", (prefix,), seconds, request, names, seconds or LOOK_SECONDS, False)

    def queue_push(self, name: bytes, value: bytes, seconds: float) -> None:
        request = codec.keyed(Extension.QUEUE_PUSH, name, value)
        self._ask("queue_push", (name,), seconds, request, _NUMBER, seconds or LOOK_SECONDS, True, codec.quick_number)

    def queue_pop(self, name: bytes, blocking_seconds: float, seconds: float) -> bytes | None:
        request = codec.timed_key(Extension.QUEUE_POP, server_ms(blocking_seconds), name)
        within = patience(blocking_seconds) if blocking_seconds else seconds or LOOK_SECONDS
        return self._ask("queue_pop", (name,), blocking_seconds or seconds, request, _POPPED, within, True)

    def queue_len(self, name: bytes, seconds: float) -> int:
        request = codec.keyed(Extension.QUEUE_LEN, name)
        return self._ask("queue_len", (name,), seconds, request, _NUMBER, seconds or LOOK_SECONDS, False)

    def barrier(self, name: bytes, world_size: int, seconds: float, token: bytes = b"") -> bool:
        within = patience(seconds)
        with nullcontext(token) if token else self._client.barrier_tokens.held(name) as token:
            request = codec.barrier(server_ms(seconds), name, world_size, token)
            return bool(self._ask("barrier", (name,), seconds, request, _IN_TIME, within, True, codec.quick_done))


_DONE, _FLAG, _NUMBER = codec.granted(codec.done), codec.granted(codec.flag), codec.granted(codec.number)
_BLOB, _IN_TIME = codec.granted(codec.a_blob), codec.in_time(codec.done)
_POPPED = codec.in_time(codec.popped)
_VALUE = codec.in_time(lambda: codec.some_blobs(1))


def server_ms(seconds: float) -> int:
    return min(math.ceil(seconds * 1000), MS_MAX)
