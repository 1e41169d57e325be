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
from typing import Any, TypeVar

from torch.distributed import Store as TorchStore  # type: ignore[attr-defined]
from trystate.model.errors import TrystateError

from .base import Event, OnLost, Store, Watch
from .errors import InvalidArgument, InvalidType
from .torch_adapter import Borrowed

T = TypeVar("T")


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
        self._has_barrier_tokens = self._below._has_barrier_tokens
        self.value_bytes, self.keys_in_request = self._below.value_bytes, self._below.keys_in_request
        limit = self._below.key_bytes
        self.key_bytes = None if limit is None else max(0, limit - len(self._prefix))

    @classmethod
    def owning(cls, prefix: str, store: TorchStore, timeout: timedelta | None = None) -> PrefixStore:
        """One that closes the store below with itself."""
        made = cls(prefix, store, timeout)
        made._owns_below = True
        return made

    def _ask(self, operation: str, names: list[bytes], ask: Callable[[Store, list[bytes]], T]) -> T:
        """Do it on the full names in the store below; what that raises names the keys and the place as the caller does.

        Raises the exception of the store below itself, with all that it carries.
        """
        try:
            self._below._alive(operation)
            return ask(self._below, [self._prefix + name for name in names])
        except TrystateError as error:
            error.args = tuple(self._in_our_words(each, names) for each in error.args)
            raise

    def _ask_one(self, operation: str, name: bytes, ask: Callable[[Store, bytes], T]) -> T:
        return self._ask(operation, [name], lambda below, full: ask(below, full[0]))

    def _in_our_words(self, text: object, names: list[bytes]) -> object:
        if not isinstance(text, str):
            return text
        for name in names:
            full = self._prefix + name
            text = text.replace(repr(full.decode("utf-8", "replace")), repr(name.decode("utf-8", "replace")))
        return text.replace(self._below._where(), self._where())

    def _set(self, name: bytes, value: bytes) -> None:
        self._ask_one("set", name, lambda below, full: below._set(full, value))

    def _get(self, names: list[bytes], seconds: float) -> list[bytes] | None:
        return self._ask("get", names, lambda below, full: below._get(full, seconds))

    def _multi_set(self, pairs: list[tuple[bytes, bytes]]) -> None:
        values = [value for _, value in pairs]
        self._ask("multi_set", [name for name, _ in pairs],
                  lambda below, full: below._multi_set(list(zip(full, values, strict=True))))  # fmt: skip

    def _add(self, name: bytes, amount: int) -> int:
        return self._ask_one("add", name, lambda below, full: below._add(full, amount))

    def _compare_set(self, name: bytes, expected: bytes, desired: bytes) -> bytes:
        return self._ask_one("compare_set", name, lambda below, full: below._compare_set(full, expected, desired))

    def _append(self, name: bytes, value: bytes) -> None:
        self._ask_one("append", name, lambda below, full: below._append(full, value))

    def _delete(self, name: bytes) -> bool:
        return self._ask_one("delete_key", name, lambda below, full: below._delete(full))

    def _take(self, name: bytes) -> bytes | None:
        return self._ask_one("take", name, lambda below, full: below._take(full))

    def _check(self, names: list[bytes]) -> bool:
        return self._ask("check", names, lambda below, full: below._check(full))

    def _wait(self, names: list[bytes], seconds: float) -> bool:
        return self._ask("wait", names, lambda below, full: below._wait(full, seconds))

    def _list_keys(self, prefix: bytes) -> list[bytes]:
        found = self._ask_one("list_keys", prefix, lambda below, full: below._list_keys(full))
        return [name.removeprefix(self._prefix) for name in found]

    def _queue_push(self, name: bytes, value: bytes) -> None:
        self._ask_one("queue_push", name, lambda below, full: below._queue_push(full, value))

    def _queue_pop(self, name: bytes, seconds: float) -> bytes | None:
        return self._ask_one("queue_pop", name, lambda below, full: below._queue_pop(full, seconds))

    def _queue_len(self, name: bytes) -> int:
        return self._ask_one("queue_len", name, lambda below, full: below._queue_len(full))

    def _barrier(self, name: bytes, world_size: int, seconds: float, token: bytes = b"") -> bool:
        return self._ask_one("barrier", name, lambda below, full: below._barrier(full, world_size, seconds, token))

    def _watch(self, name: bytes, callback: Callable[[Event], None], on_lost: OnLost | None = None) -> Watch:
        """The watch of the store below, with the key's name here, as in the events."""
        key = name.decode()

        def told(event: Event) -> None:
            callback(Event(event.kind, key, event.old, event.new))

        watch = self._ask_one("watch_key", name, lambda below, full: below._watch(full, told, on_lost))
        watch.key = key
        return watch

    def _clone(self) -> PrefixStore:
        below: Any = self.underlying_store  # torch's stub has no clone()
        return PrefixStore.owning(self.prefix, below.clone(), self.timeout)

    def _close(self) -> None:
        if self._owns_below:
            self._below.close()

    def _where(self) -> str:
        return f"prefix {self.prefix!r} in {self._below._where()}"
