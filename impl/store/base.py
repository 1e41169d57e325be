"""The base of all stores: the semantics, the checks of arguments, and the names that C++ looks up.

Rule: a caller's mistake is refused here, before a store does anything. A public method checks its arguments and makes a
value of `operations`; a store implements two hooks, `_do` and `_await` (blocking operations), for all of them.

The common semantics:

- Keys are `str` and are sent as UTF-8. Values are `str` (UTF-8) or `bytes` and are read as `bytes`. The empty key is
  a valid key, and the empty value is a valid value.
- Every operation is atomic, `multi_set` and `multi_get` included.
- A key is *present* when it has a value or names a queue that is not empty. Queues and values have separate tables:
  `get`, `delete_key`, `num_keys` and `list_keys` are about values, `queue_*` about queues, `check` and `wait` see both.
- `get`, `multi_get` and `wait` return when all their keys are present together, and no later than their timeout.
  `delete_key` wakes no waiter. Neither does a `compare_set` that changes nothing.
- A timeout of zero looks once. A negative timeout is refused.
- A barrier has its own table. It releases its callers when `world_size` callers have arrived, each once, and is then
  ready for the next round. A caller that times out does not count as arrived.
- A failed operation changes nothing, unless its error states that the outcome is unknown.

A store lives until `close()`, the end of its `with` block, or the exit of the process, even if nothing in Python refers
to it. `torch.distributed.PrefixStore`, in which `init_process_group` wraps every store, keeps only the C++ half of the
store, and a call into a Python object that was deleted ends in an assertion (pytorch issue 120843). Python cannot find
out whether C++ holds the store, so a PrefixStore also lives that long, though it owns no resources. A program that
makes many of them closes each.
"""

from __future__ import annotations

import atexit
import operator
import os
import threading
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from datetime import timedelta
from typing import Self, TypeVar

from torch.distributed import Store as TorchStore  # type: ignore[attr-defined]

from trystate.model.store.vocabulary import Change

from ..host.visible import some
from . import group_ranks
from .errors import (
    ConnectionLost,
    InvalidArgument,
    InvalidType,
    LimitExceeded,
    QueueEmpty,
    StoreClosed,
    StoreError,
    StoreTimeout,
)
from .operations import (
    Add,
    Append,
    Barrier,
    Check,
    CompareSet,
    DeleteKey,
    Get,
    ListKeys,
    MultiSet,
    NumKeys,
    Operation,
    QueueLen,
    QueuePop,
    QueuePush,
    Set,
    Take,
    Wait,
)

T = TypeVar("T")

INT64_MIN, INT64_MAX = -(1 << 63), (1 << 63) - 1
SHOWN_KEYS_MAX = 8  # the keys in an error's text: enough to recognise the call, short enough to read
DEFAULT_TIMEOUT = timedelta(seconds=300)  # torch's (Store.hpp: kDefaultTimeout)


@dataclass(frozen=True, slots=True)
class Event:
    """One change of a watched key: its value before and after the change (None: the key is absent)."""

    kind: Change
    key: str
    old: bytes | None
    new: bytes | None


class Watch:
    """The registration of a callback for a key, from the moment when `watch_key` returned it until `cancel()`.

    `lost` is True when changes may have been missed: the connection broke, the process is a fork of the process that
    watched. Then read the key and watch it again.
    """

    def __init__(self, key: str, callback: Callable[[Event], None], withdraw: Callable[[Watch], None]) -> None:
        self.key, self.callback = key, callback
        self.lost = False
        self.cancelled = False
        self._withdraw = withdraw

    def cancel(self) -> None:
        """End the watch. No callback starts after this. May be called twice, and from the callback."""
        if not self.cancelled:
            self.cancelled = True
            self._withdraw(self)

    def __repr__(self) -> str:
        state = "cancelled" if self.cancelled else "lost" if self.lost else "active"
        return f"<Watch of {self.key!r}, {state}>"


OnLost = Callable[[StoreError | ConnectionLost], None]


class Store(TorchStore):
    """The base of every store here. The module describes what the operations mean."""

    _has_barrier_tokens = True  # a barrier request that is repeated with the same token counts once

    def __init__(
        self,
        timeout: timedelta = DEFAULT_TIMEOUT,
        *,
        key_bytes: int | None = None,
        value_bytes: int | None = None,
        keys_in_request: int | None = None,
    ) -> None:
        """`None` for a size means that only memory limits it. A subclass may set the attributes later."""
        super().__init__()
        self.key_bytes, self.value_bytes, self.keys_in_request = key_bytes, value_bytes, keys_in_request
        self._closed = False
        self.set_timeout(timeout)
        with _LIVING_LOCK:
            _LIVING[id(self)] = self

    # Values.

    def set(self, key: str, value: str | bytes) -> None:
        """Give a key a value. Raises GroupsDiffer if torch makes a group whose name belongs to other ranks here."""
        if isinstance(key, str) and group_ranks.BELOW_PREFIXES in key:
            group_ranks.compare(key, self.compare_set)
        self._do(Set(self._key("set", key), self._value("set", value)))

    def get(self, key: str) -> bytes:
        """The value of a key, once it has one; StoreTimeout if it has none in time."""
        return self._values("get", [key])[0]

    def multi_get(self, keys: Sequence[str]) -> list[bytes]:
        """The values of all keys at one moment, in the order of the keys."""
        return self._values("multi_get", keys)

    def multi_set(self, keys: Sequence[str], values: Sequence[str | bytes]) -> None:
        """Give each key its value, all at one moment. The last value of a repeated key counts."""
        names = self._keys("multi_set", keys)
        if isinstance(values, str | bytes):
            raise InvalidType(f"multi_set: values is one {type(values).__name__}; pass a list, one value for each key")
        blobs = [self._value("multi_set", v) for v in values]
        if len(names) != len(blobs):
            raise InvalidArgument(f"multi_set: {len(names)} keys but {len(blobs)} values; give each key one value")
        pairs = [*names, *blobs]
        pairs[::2], pairs[1::2] = names, blobs
        self._do(MultiSet(pairs))

    def add(self, key: str, amount: int) -> int:
        """Add to the decimal number that a key holds (absent: 0) and return the sum.

        Raises NotANumber or CounterOverflow; the value then stays as it was.
        """
        return self._do(Add(self._key("add", key), _int64("add", "amount", amount)))

    def compare_set(self, key: str, expected_value: str | bytes, desired_value: str | bytes) -> bytes:
        """Set a key to `desired_value` if it holds `expected_value`, and return its value afterwards.

        An absent key is created if `expected_value` is empty. Otherwise an absent key stays absent, and the method
        returns `expected_value`.
        """
        name = self._key("compare_set", key)
        expected, desired = self._value("compare_set", expected_value), self._value("compare_set", desired_value)
        return self._do(CompareSet(name, expected, desired))

    def append(self, key: str, value: str | bytes) -> None:
        """Put `value` at the end of a key's value. An absent key counts as empty."""
        self._do(Append(self._key("append", key), self._value("append", value)))

    def delete_key(self, key: str) -> bool:
        """Delete a key's value; returns False if it had none."""
        return self._do(DeleteKey(self._key("delete_key", key)))

    def take(self, key: str) -> bytes | None:
        """Delete a key and return its value, in one step; None if it had no value."""
        return self._do(Take(self._key("take", key)))

    def check(self, keys: Sequence[str]) -> bool:
        """Whether all keys are present now."""
        return self._do(Check(self._keys("check", keys)))

    def wait(self, keys: Sequence[str], timeout: timedelta | None = None) -> None:
        """Return when all keys are present together. Raises StoreTimeout if they are not in time."""
        names, seconds = self._keys("wait", keys), self._seconds("wait", timeout)
        if not self._await(Wait(names), seconds):
            raise self._late("wait", names, seconds)

    def num_keys(self) -> int:
        """The number of keys that have a value."""
        self._alive("num_keys")
        return self._do(NumKeys())

    def list_keys(self, prefix: str = "") -> list[str]:
        """The keys that have a value and begin with `prefix`, sorted by code points."""
        self._alive("list_keys")
        names = self._do(ListKeys(_utf8("list_keys", "prefix", prefix)))
        return sorted(name.decode("utf-8", "replace") for name in names)

    # Queues, barriers, watches.

    def queue_push(self, key: str, value: str | bytes) -> None:
        """Put a value at the end of a queue."""
        self._do(QueuePush(self._key("queue_push", key), self._value("queue_push", value)))

    def queue_pop(self, key: str, block: bool = True) -> bytes:
        """Take the first value of a queue. If the queue is empty, wait (StoreTimeout) or raise QueueEmpty."""
        name = self._key("queue_pop", key)
        seconds = self._seconds("queue_pop", None) if block else 0.0
        value = self._await(QueuePop(name), seconds)
        if value is not None:
            return value
        if block:
            raise self._late("queue_pop", [name], seconds)
        raise QueueEmpty(f"queue_pop({key!r}): the queue is empty ({self._where()}); push first, or use block=True")

    def queue_len(self, key: str) -> int:
        """The number of values in a queue."""
        return self._do(QueueLen(self._key("queue_len", key)))

    def barrier(self, key: str, world_size: int, timeout: timedelta | None = None) -> None:
        """Return when `world_size` callers have arrived. StoreTimeout withdraws the arrival.

        Raises WrongWorld if the callers that already wait in this barrier named another world_size.
        """
        name, seconds = self._key("barrier", key), self._seconds("barrier", timeout)
        if _int64("barrier", "world_size", world_size) < 1:
            raise InvalidArgument(f"barrier({key!r}): world_size is {world_size}; a barrier needs at least 1 caller")
        if not self._await(Barrier(name, world_size), seconds):
            raise self._late("barrier", [name], seconds)

    def watch_key(self, key: str, callback: Callable[[Event], None], on_lost: OnLost | None = None) -> Watch:
        """Call `callback` for every change of a key from now on, and `on_lost` if changes may be missed.

        The watch is registered when this returns. It reports the changes of all clients. Both callbacks run on one
        thread of the store, in the order of the changes, and may use the store. When `Watch.lost` becomes True,
        `on_lost` is called once with the reason. Without `on_lost` a warning is logged, except in a forked child.
        Raises NotSupported on a store or a server of torch.
        """
        name = self._key("watch_key", key)
        if not callable(callback) or not (on_lost is None or callable(on_lost)):
            raise InvalidType(
                f"watch_key({key!r}): callback is {callback!r:.60}, on_lost {on_lost!r:.60}; pass functions"
            )
        return self._watch(name, callback, on_lost)

    # The object itself.

    @property
    def timeout(self) -> timedelta:
        """How long `get`, `wait`, `queue_pop` and `barrier` wait if the call has no timeout."""
        value: timedelta = super().timeout  # type: ignore[misc]
        return value

    def set_timeout(self, timeout: timedelta) -> None:
        """Change `timeout`, rounded up to whole milliseconds."""
        _refuse_negative("set_timeout", timeout)
        # Kept in the C++ half, so C++ (torch's PrefixStore) and Python read and write one value. The C++ half cuts off
        # fractions of a millisecond, which would turn a short timeout into zero.
        ms = -(-min(timeout, _TIMEOUT_MAX) // timedelta(milliseconds=1))
        super().set_timeout(timedelta(milliseconds=ms))

    def has_extended_api(self) -> bool:
        """True: append, multi_get and multi_set exist."""
        return True

    def clone(self) -> Store:
        """Another store on the same data, with its own timeout (a copy of this store's) and its own `close()`."""
        self._alive("clone")
        return self._clone()

    def close(self) -> None:
        """Release the store's resources. Later operations raise StoreClosed. May be called twice."""
        if self._forget():
            self._close()

    def _forget(self) -> bool:
        """Mark the store closed without releasing anything, as after a failed constructor; False if it was closed."""
        with _LIVING_LOCK:
            first = not self._closed
            self._closed = True
            _LIVING.pop(id(self), None)
        return first

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *exception: object) -> None:
        self.close()

    # C++ looks these two up under its own names (torch/csrc/distributed/c10d/init.cpp: PythonStore).

    def deleteKey(self, key: str) -> bool:
        return self.delete_key(key)

    def getNumKeys(self) -> int:
        return self.num_keys()

    # Hooks, for subclasses.

    def _do(self, operation: Operation[T]) -> T:
        """Do an operation that does not block."""
        raise NotImplementedError

    def _await(self, operation: Operation[T], seconds: float) -> T | None:
        """Do an operation that blocks, for at most `seconds` (0 looks once). None or False: not in time."""
        raise NotImplementedError

    def _keep(self, barrier: Barrier, *, look: bool = False) -> bool:
        """Keep an arrival at a barrier until `close()`; False if the present arrivals named another world_size.

        With `look` nothing is kept, only compared. Stores in memory and torch's stores keep no arrivals.
        """
        return True

    def _watch(self, name: bytes, callback: Callable[[Event], None], on_lost: OnLost | None = None) -> Watch:
        raise NotImplementedError

    def _clone(self) -> Store:
        raise NotImplementedError

    def _close(self) -> None:
        """Release threads and sockets. Called once."""

    def _where(self) -> str:
        """The place of the data, for the texts of errors: "server 127.0.0.1:29500"."""
        return type(self).__name__

    # Checks.

    def _alive(self, operation: str) -> None:
        if self._closed:
            raise StoreClosed(f"{operation}: this {type(self).__name__} was closed ({self._where()}); make another one")

    def _key(self, operation: str, key: str) -> bytes:
        self._alive(operation)
        name = _utf8(operation, "key", key)
        if self.key_bytes is not None and len(name) > self.key_bytes:
            raise LimitExceeded(f"{operation}({key[:40]!r}...): the key has {len(name)} bytes, but the limit is "
                                f"{self.key_bytes} ({self._where()}); use a shorter key")  # fmt: skip
        return name

    def _keys(self, operation: str, keys: Sequence[str]) -> list[bytes]:
        if isinstance(keys, str | bytes):
            raise InvalidType(f"{operation}({keys!r}): one {type(keys).__name__} instead of a list; pass [{keys!r}]")
        self._alive(operation)
        if not isinstance(keys, Iterable):
            raise InvalidType(f"{operation}: keys is a {type(keys).__name__} ({keys!r:.60}); pass a list of str")
        names = [self._key(operation, key) for key in keys]
        if self.keys_in_request is not None and len(names) > self.keys_in_request:
            raise LimitExceeded(f"{operation}: {len(names)} keys, but the limit of one request is "
                                f"{self.keys_in_request} ({self._where()}); use several requests")  # fmt: skip
        return names

    def _value(self, operation: str, value: str | bytes) -> bytes:
        if isinstance(value, bytes):
            blob = value
        elif isinstance(value, bytearray | memoryview):
            blob = bytes(value)
        else:
            blob = _utf8(operation, "value", value)
        if self.value_bytes is not None and len(blob) > self.value_bytes:
            raise LimitExceeded(f"{operation}: the value has {len(blob)} bytes, but the limit is {self.value_bytes} "
                                f"({self._where()}); split it, or use a store with more value_bytes")  # fmt: skip
        return blob

    def _seconds(self, operation: str, timeout: timedelta | None) -> float:
        if timeout is None:
            timeout = self.timeout  # C++ may have set a negative timeout, which is refused here
        _refuse_negative(operation, timeout)
        return min(timeout.total_seconds(), threading.TIMEOUT_MAX)

    def _values(self, operation: str, keys: Sequence[str]) -> list[bytes]:
        names, seconds = self._keys(operation, keys), self._seconds(operation, None)
        values = self._await(Get(names), seconds)
        if values is None:
            raise self._late(operation, names, seconds)
        return values

    def _late(self, operation: str, names: Sequence[bytes], seconds: float) -> StoreTimeout:
        shown = some([repr(name.decode()) for name in names], SHOWN_KEYS_MAX)
        what = "not all callers arrived" if operation == "barrier" else "not present"
        return StoreTimeout(f"{operation}({shown}): timed out after {round(seconds * 1000)}ms, {what} "
                            f"({self._where()}); see whether the others run, or raise the timeout")  # fmt: skip


_TIMEOUT_MAX = timedelta(seconds=int(threading.TIMEOUT_MAX))
_LIVING: dict[int, Store] = {}
_LIVING_LOCK = threading.Lock()


@atexit.register
def _close_all() -> None:
    """Close every store at exit.

    Processes of multiprocessing end without calling this. The kernel then closes their sockets.
    """
    for store in list(_LIVING.values()):
        store.close()


def _after_fork() -> None:
    """Keep the parent's stores alive in the child without closing them: their peers belong to the parent."""
    global _LIVING_LOCK
    _LIVING_LOCK = threading.Lock()
    _INHERITED.append(dict(_LIVING))
    _LIVING.clear()


_INHERITED: list[dict[int, Store]] = []
os.register_at_fork(after_in_child=_after_fork)


def _refuse_negative(operation: str, timeout: timedelta) -> None:
    if not isinstance(timeout, timedelta):
        raise InvalidType(f"{operation}: the timeout is a {type(timeout).__name__} ({timeout!r}); pass a timedelta")
    if timeout < timedelta(0):
        raise InvalidArgument(f"{operation}: the timeout is {timeout.total_seconds()} s; pass 0 to look once, or more")


def _int64(operation: str, what: str, number: int) -> int:
    try:
        whole = operator.index(number)
    except TypeError:
        raise InvalidType(f"{operation}: {what} is a {type(number).__name__} ({number!r}); pass an int") from None
    if not INT64_MIN <= whole <= INT64_MAX:
        raise InvalidArgument(f"{operation}: {what} is {whole}; it must fit into a signed 64-bit integer")
    return whole


def _utf8(operation: str, what: str, text: str) -> bytes:
    if not isinstance(text, str):
        allowed = "str or bytes" if what == "value" else "str"
        raise InvalidType(f"{operation}: the {what} is a {type(text).__name__} ({text!r:.60}); pass {allowed}")
    try:
        return text.encode()
    except UnicodeEncodeError as error:
        raise InvalidArgument(f"{operation}: the {what} {text!r:.60} is not Unicode text ({error.reason}); "
                              f"pass {'bytes' if what == 'value' else 'another key'}") from None  # fmt: skip
