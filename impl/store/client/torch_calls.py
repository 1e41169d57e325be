"""The operations on torch's servers, which know no deadlines, no acknowledgements and no refusals.

Rule: what torch's server does in pieces is asked for in one write wherever that makes it one step: CHECK and GET, so
that no value is returned that nobody set; SET and PING, so that a set that returns has happened. Waiting is checked
again each second, since these servers do not wake everybody whom they should.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from time import monotonic
from typing import TypeVar

from trystate.model.store.vocabulary import Query

from ..errors import ConnectionLost, NotANumber, NotSupported, OutcomeUnknown, StoreError
from . import codec
from .calls import GRACE_SECONDS, Answer
from .client import LOOK_SECONDS, Client, Kind
from .connection import Connection

T = TypeVar("T")

BLANKS = b" \t\n\v\f\r"  # what std::stoll skips

# A compare_set that creates a key wakes nobody on the legacy server; a queue's push may wake the wrong one on libuv.
RECHECK_SECONDS = 1.0
# After a wait that ended at once for nothing: a value beside the queue that is waited for.
PAUSE_SECONDS, PAUSE_SECONDS_MAX = 0.005, 0.2


class TorchCalls:
    """torch's libuv or legacy server."""

    def __init__(self, client: Client) -> None:
        self._client = client

    def set(self, name: bytes, value: bytes, seconds: float) -> None:
        self._acknowledged("set", [name], codec.keyed(Query.SET, name, value), seconds)

    def get(self, names: list[bytes], seconds: float) -> list[bytes] | None:
        check, read = codec.many(Query.CHECK, names), codec.many(Query.MULTI_GET, names)

        def ask(connection: Connection, within: float) -> list[bytes] | None:
            if self._client.kind is not Kind.LEGACY:
                return connection.ask(check + read, lambda: codec.ready_blobs(len(names)), within)
            # It hangs up when asked for a missing key; its reply to none has no byte at all.
            deadline = monotonic() + within
            if not connection.ask(check, codec.ready, within):
                return None
            return connection.ask(read, lambda: codec.some_blobs(len(names)), deadline - monotonic()) if names else []

        def look(within: float) -> list[bytes] | None:
            return self._client.perform("get", names, seconds, lambda connection: ask(connection, within), writes=False)

        return self._until(look, "get", names, seconds)

    def multi_set(self, items: list[tuple[bytes, bytes]], seconds: float) -> None:
        self._acknowledged("multi_set", [name for name, _ in items], codec.pairs(Query.MULTI_SET, items), seconds)

    def add(self, name: bytes, amount: int, seconds: float) -> int:
        try:
            return self._ask("add", [name], codec.keyed_number(Query.ADD, name, amount), codec.number, seconds, True)
        except OutcomeUnknown as error:
            if not error.timed_out:
                self._look_for_a_number(name)
            raise

    def _look_for_a_number(self, name: bytes) -> None:
        """These servers hang up when the value is no number: raise NotANumber if it can still be read, and is none."""
        try:
            values = self.get([name], 0.0)
        except (ConnectionLost, StoreError):  # or it was closed: what became of the addition is as unknown as before
            return
        if values is not None and not values[0].lstrip(BLANKS).lstrip(b"+-")[:1].isdigit():
            raise NotANumber(f"add({name[1:].decode('utf-8', 'replace')!r}): the value is {values[0]!r:.60}, no number "
                             f"({self._client.where}); set one first") from None  # fmt: skip

    def compare_set(self, name: bytes, expected: bytes, desired: bytes, seconds: float) -> bytes:
        request = codec.keyed(Query.COMPARE_SET, name, expected, desired)
        return self._ask("compare_set", [name], request, codec.a_blob, seconds, True)

    def append(self, name: bytes, value: bytes, seconds: float) -> None:
        self._acknowledged("append", [name], codec.keyed(Query.APPEND, name, value), seconds)

    def delete(self, name: bytes, seconds: float) -> bool:
        return self._ask("delete_key", [name], codec.keyed(Query.DELETE_KEY, name), codec.number, seconds, True) > 0

    def take(self, name: bytes, seconds: float) -> bytes | None:
        raise self._unsupported("take", "delete and read a key in one step")

    def check(self, names: list[bytes], seconds: float) -> bool:
        return self._ask("check", names, codec.many(Query.CHECK, names), codec.ready, seconds, False)

    def wait(self, names: list[bytes], seconds: float) -> bool:
        def look(within: float) -> bool | None:
            request = codec.many(Query.CHECK, names)
            there = self._client.perform(
                "wait", names, seconds, lambda connection: connection.ask(request, codec.ready, within), writes=False
            )
            return there or None

        return bool(self._until(look, "wait", names, seconds))

    def num_keys(self, seconds: float) -> int:
        return self._ask("num_keys", (), codec.bare(Query.GETNUMKEYS), codec.number, seconds, False)

    def list_keys(self, prefix: bytes, seconds: float) -> list[bytes]:
        names = self._ask("list_keys", [prefix], codec.bare(Query.LIST_KEYS), codec.counted_blobs, seconds, False)
        return [name for name in names if name.startswith(prefix)]

    def queue_push(self, name: bytes, value: bytes, seconds: float) -> None:
        self._need_queues("queue_push")
        self._acknowledged("queue_push", [name], codec.keyed(Query.QUEUE_PUSH, name, value), seconds)

    def queue_pop(self, name: bytes, blocking_seconds: float, seconds: float) -> bytes | None:
        self._need_queues("queue_pop")
        request = codec.keyed(Query.QUEUE_POP, name)

        def look(within: float) -> bytes | None:
            return self._client.perform(
                "queue_pop", [name], blocking_seconds or seconds,
                lambda connection: connection.ask(request, codec.popped, within), writes=True,
            )  # fmt: skip

        if not blocking_seconds:
            return look(seconds or LOOK_SECONDS)
        return self._until(look, "queue_pop", [name], blocking_seconds)

    def queue_len(self, name: bytes, seconds: float) -> int:
        self._need_queues("queue_len")
        return self._ask("queue_len", [name], codec.keyed(Query.QUEUE_LEN, name), codec.number, seconds, False)

    def barrier(self, name: bytes, world_size: int, seconds: float, token: bytes = b"") -> bool:
        request = codec.keyed_number(Query.BARRIER, name, world_size)
        return self._client.perform(
            "barrier",
            [name],
            seconds,
            lambda connection: connection.ask_or_cancel(request, seconds, GRACE_SECONDS if seconds else LOOK_SECONDS),
            writes=True,
        )

    def _until(
        self, look: Callable[[float], T | None], operation: str, names: Sequence[bytes], seconds: float
    ) -> T | None:
        """Look, and wait for the names between two looks, until there is a result or the time is over."""
        deadline = monotonic() + seconds
        pause = PAUSE_SECONDS
        while True:
            left = deadline - monotonic()
            result = look(max(left, 0) + GRACE_SECONDS if seconds else LOOK_SECONDS)
            left = deadline - monotonic()
            if result is not None or left <= 0:
                return result
            began = monotonic()
            if self._woken(operation, names, left) and monotonic() - began < pause:
                time.sleep(min(pause, left))
                pause = min(2 * pause, PAUSE_SECONDS_MAX)

    def _woken(self, operation: str, names: Sequence[bytes], seconds: float) -> bool:
        """Wait until it is time to look again; for the answer to that a server has what is left of the seconds."""
        request, pause = codec.many(Query.WAIT, names), min(seconds, RECHECK_SECONDS)
        grace = seconds - pause + GRACE_SECONDS
        return self._client.perform(
            operation, names, seconds, lambda connection: connection.ask_or_cancel(request, pause, grace), writes=False
        )

    def _ask(
        self, operation: str, names: Sequence[bytes], request: bytes, reply: Answer[T], seconds: float, writes: bool
    ) -> T:
        return self._client.ask(operation, names, seconds, request, reply, seconds or LOOK_SECONDS, writes)

    def _acknowledged(self, operation: str, names: Sequence[bytes], request: bytes, seconds: float) -> None:
        """A request that is not answered, and a ping that is."""
        self._ask(operation, names, request + codec.PING, codec.pong, seconds, True)

    def _need_queues(self, operation: str) -> None:
        if self._client.kind is Kind.LEGACY:
            raise self._unsupported(operation, "keep queues")

    def _unsupported(self, operation: str, what: str) -> NotSupported:
        kind = self._client.kind or Kind.LIBUV
        return NotSupported(f"{operation}: {kind.value} cannot {what} ({self._client.where}); "
                            "use `trystate store serve` instead")  # fmt: skip
