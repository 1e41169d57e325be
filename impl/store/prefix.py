"""`PrefixStore`: a part of another store, under a prefix.

Rule: the key `k` is the key `escaped(prefix) + "/" + k` of the store below, and the first "/" ends the prefix: two
prefixes never name one key, and what is listed and counted is this part alone.

torch's PrefixStore writes prefix + "/" + k as it is. A prefix without "/" and "%" is escaped to itself: then ours and
torch's name the same keys, and ranks may use either. With "/" in it torch's "a/b" + "c" and "a" + "b/c" are one key,
and ours are two: then all ranks must use the same class. (`init_process_group` wraps the store that it is given in
torch's own; ours is below it, and is not concerned.)
"""

from __future__ import annotations

from collections.abc import Callable
from datetime import timedelta
from typing import Any

from torch.distributed import Store as TorchStore  # type: ignore[attr-defined]

from .base import Event, OnLost, Store, Watch
from .borrowed import Borrowed
from .errors import InvalidArgument, InvalidType


def escaped(prefix: str) -> str:
    """A prefix without "/", and still different from every other."""
    return prefix.replace("%", "%25").replace("/", "%2F")


class PrefixStore(Store):
    """The keys, queues and barriers of a store that begin with a prefix; nests.

    It has its own timeout, at first that of the store below. `close()` leaves the store below open.

    Like every store it is kept until `close()`: nobody but C++ can tell whether C++ still has it. A program that makes
    many closes each, best with `with`.
    """

    def __init__(self, prefix: str, store: TorchStore, timeout: timedelta | None = None) -> None:
        if not isinstance(prefix, str):
            raise InvalidType(f"PrefixStore: the prefix is a {type(prefix).__name__} ({prefix!r:.60}); pass a str")
        if not isinstance(store, TorchStore):
            raise InvalidType(f"PrefixStore: the store is a {type(store).__name__}; pass a torch.distributed.Store")
        try:
            self._prefix = escaped(prefix).encode() + b"/"
        except UnicodeEncodeError as error:
            raise InvalidArgument(
                f"PrefixStore: the prefix {prefix!r:.60} is no Unicode text ({error.reason})"
            ) from None
        self._below = store if isinstance(store, Store) else Borrowed(store)
        super().__init__(self._below.timeout if timeout is None else timeout)
        self.prefix, self.underlying_store = prefix, store
        self._owns_below = isinstance(self._below, Borrowed)  # it was made for this store alone
        self.value_bytes, self.keys_in_request = self._below.value_bytes, self._below.keys_in_request
        limit = self._below.key_bytes
        self.key_bytes = None if limit is None else max(0, limit - len(self._prefix))

    @classmethod
    def owning(cls, prefix: str, store: TorchStore, timeout: timedelta | None = None) -> PrefixStore:
        """One that closes the store below with itself."""
        made = cls(prefix, store, timeout)
        made._owns_below = True
        return made

    def _open(self, operation: str) -> Store:
        self._below._alive(operation)
        return self._below

    def _full(self, names: list[bytes]) -> list[bytes]:
        return [self._prefix + name for name in names]

    def _set(self, name: bytes, value: bytes) -> None:
        self._open("set")._set(self._prefix + name, value)

    def _get(self, names: list[bytes], seconds: float) -> list[bytes] | None:
        return self._open("get")._get(self._full(names), seconds)

    def _multi_set(self, pairs: list[tuple[bytes, bytes]]) -> None:
        self._open("multi_set")._multi_set([(self._prefix + name, value) for name, value in pairs])

    def _add(self, name: bytes, amount: int) -> int:
        return self._open("add")._add(self._prefix + name, amount)

    def _compare_set(self, name: bytes, expected: bytes, desired: bytes) -> bytes:
        return self._open("compare_set")._compare_set(self._prefix + name, expected, desired)

    def _append(self, name: bytes, value: bytes) -> None:
        self._open("append")._append(self._prefix + name, value)

    def _delete(self, name: bytes) -> bool:
        return self._open("delete_key")._delete(self._prefix + name)

    def _take(self, name: bytes) -> bytes | None:
        return self._open("take")._take(self._prefix + name)

    def _check(self, names: list[bytes]) -> bool:
        return self._open("check")._check(self._full(names))

    def _wait(self, names: list[bytes], seconds: float) -> bool:
        return self._open("wait")._wait(self._full(names), seconds)

    def _list_keys(self, prefix: bytes) -> list[bytes]:
        found = self._open("list_keys")._list_keys(self._prefix + prefix)
        return [name.removeprefix(self._prefix) for name in found]

    def _queue_push(self, name: bytes, value: bytes) -> None:
        self._open("queue_push")._queue_push(self._prefix + name, value)

    def _queue_pop(self, name: bytes, seconds: float) -> bytes | None:
        return self._open("queue_pop")._queue_pop(self._prefix + name, seconds)

    def _queue_len(self, name: bytes) -> int:
        return self._open("queue_len")._queue_len(self._prefix + name)

    def _barrier(self, name: bytes, world_size: int, seconds: float) -> bool:
        return self._open("barrier")._barrier(self._prefix + name, world_size, seconds)

    def _watch(self, name: bytes, callback: Callable[[Event], None], on_lost: OnLost | None = None) -> Watch:
        """The watch is the one of the store below, and has the key's full name; the events have ours."""
        key = name.decode()
        below = self._open("watch_key")

        def told(event: Event) -> None:
            callback(Event(event.kind, key, event.old, event.new))

        return below._watch(self._prefix + name, told, on_lost)

    def _clone(self) -> PrefixStore:
        below: Any = self.underlying_store  # torch's stub has no clone()
        return PrefixStore.owning(self.prefix, below.clone(), self.timeout)

    def _close(self) -> None:
        if self._owns_below:
            self._below.close()

    def _where(self) -> str:
        return f"prefix {self.prefix!r} in {self._below._where()}"
