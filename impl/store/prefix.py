"""`PrefixStore`: a part of another store, under a prefix.

Rule: the key `k` is the key `escaped(prefix) + "/" + k` of the store below, and the first "/" ends the prefix. So two
prefixes never name one key, and only keys of this part are listed and counted. "job/" is the same prefix as "job", so
`list_keys("job/")` of the store below lists the keys of both.

torch's PrefixStore writes prefix + "/" + k without escaping. A prefix without "/" and "%" is escaped to itself. Then
our class and torch's name the same keys, and ranks may use either. If a prefix has "/", torch's "a/b" + "c" and "a" +
"b/c" are one key, and ours are two keys. Then all ranks must use the same class. (`init_process_group` wraps a given
store in torch's PrefixStore. A PrefixStore of ours is then the store below and not affected.)
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from datetime import timedelta
from typing import Self, TypeVar

from torch.distributed import Store as TorchStore  # type: ignore[attr-defined]

from trystate.model.errors import TrystateError

from .base import Event, OnLost, Store, Watch
from .errors import InvalidArgument, InvalidType
from .operations import Barrier, ListKeys, NumKeys, Operation
from .torch_adapter import Borrowed

T = TypeVar("T")
R = TypeVar("R")


def escaped(prefix: str) -> str:
    """The prefix without "/", still different for different prefixes. A "/" at its end is dropped."""
    return prefix.removesuffix("/").replace("%", "%25").replace("/", "%2F")


class PrefixStore(Store):
    """The keys, queues and barriers of a store that begin with a prefix. Prefixes may be nested.

    It has its own timeout, which is at first the timeout of the store below. `close()` leaves the store below open.

    Like every store it is kept until `close()`, because Python cannot find out whether C++ still holds it. A program
    that makes many of them closes each, best with `with`.
    """

    def __init__(self, prefix: str, store: TorchStore, timeout: timedelta | None = None) -> None:
        if not isinstance(prefix, str):
            raise InvalidType(f"PrefixStore: the prefix is a {type(prefix).__name__} ({prefix!r:.60}); pass a str")
        if store is None:
            raise InvalidArgument("PrefixStore: the store is None; pass a torch.distributed.Store")
        if not isinstance(store, TorchStore):
            raise InvalidType(f"PrefixStore: the store is a {type(store).__name__}; pass a torch.distributed.Store")
        try:
            self._prefix = escaped(prefix).encode() + b"/"
        except UnicodeEncodeError as error:
            raise InvalidArgument(
                f"PrefixStore: the prefix {prefix!r:.60} is not Unicode text ({error.reason}); pass another prefix"
            ) from None
        self._below = store if isinstance(store, Store) else Borrowed(store)
        super().__init__(self._below.timeout if timeout is None else timeout)
        self.prefix, self.underlying_store = prefix, store
        self._owns_below = isinstance(self._below, Borrowed)  # made above, for this store only
        self._has_barrier_tokens = self._below._has_barrier_tokens
        self.value_bytes, self.keys_in_request = self._below.value_bytes, self._below.keys_in_request
        limit = self._below.key_bytes
        self.key_bytes = None if limit is None else max(0, limit - len(self._prefix))

    @classmethod
    def owning(cls, prefix: str, store: TorchStore, timeout: timedelta | None = None) -> Self:
        """A PrefixStore that also closes the store below when it is closed."""
        made = cls(prefix, store, timeout)
        made._owns_below = True
        return made

    def _do(self, operation: Operation[T]) -> T:
        if isinstance(operation, NumKeys):  # the store below would also count keys without this prefix
            return len(self._do(ListKeys(b"")))  # type: ignore[return-value]
        return operation.above(self._below_do(operation, self._below._do), self._prefix)

    def _await(self, operation: Operation[T], seconds: float) -> T | None:
        return self._below_do(operation, lambda full: self._below._await(full, seconds))

    def _below_do(self, operation: Operation[T], do: Callable[[Operation[T]], R]) -> R:
        """Do an operation on the full keys. The text of an error has the keys without prefix and this store's place.

        Raises the same exception object as the store below, with all its attributes.
        """
        with self._in_our_words(operation.SPEC.name, operation.keys):
            return do(operation.under(self._prefix))

    @contextmanager
    def _in_our_words(self, operation: str, names: Sequence[bytes]) -> Iterator[None]:
        try:
            self._below._alive(operation)
            yield
        except TrystateError as error:
            error.args = tuple(self._reworded(each, names) for each in error.args)
            raise

    def _reworded(self, text: object, names: Sequence[bytes]) -> object:
        if not isinstance(text, str):
            return text
        for name in names:
            full = self._prefix + name
            text = text.replace(repr(full.decode("utf-8", "replace")), repr(name.decode("utf-8", "replace")))
        return text.replace(self._below._where(), self._where())

    def _watch(self, name: bytes, callback: Callable[[Event], None], on_lost: OnLost | None = None) -> Watch:
        """The watch of the store below. The watch and its events have the key without the prefix."""
        key = name.decode()

        def told(event: Event) -> None:
            callback(Event(event.kind, key, event.old, event.new))

        with self._in_our_words("watch_key", [name]):
            watch = self._below._watch(self._prefix + name, told, on_lost)
        watch.key = key
        return watch

    def _keep(self, barrier: Barrier, *, look: bool = False) -> bool:
        return self._below_do(barrier, lambda full: self._below._keep(full, look=look))  # type: ignore[arg-type]

    def _clone(self) -> PrefixStore:
        below = self._below
        clone = below.method("clone") if isinstance(below, Borrowed) else below.clone
        return PrefixStore.owning(self.prefix, clone(), self.timeout)

    def _close(self) -> None:
        if self._owns_below:
            self._below.close()

    def _where(self) -> str:
        return f"prefix {self.prefix!r} in {self._below._where()}"
