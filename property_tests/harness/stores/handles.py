"""A real store, asked to do an operation of the reference, and what it says in the reference's words.

Rule: a call that may block runs on a thread of its own, so that the suite sees one that never returns.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable
from datetime import timedelta
from typing import Any, Generic, TypeVar

import torch.distributed as dist

from trystate.impl.torch_release import queue_empty_error
from trystate.model.store import reference as ref
from trystate.model.store.reference import Operation, Refusal, Result

from ..subjects import Disagreement
from .deviations import Deviation

Store = Any  # torch.distributed.Store, which torch leaves out of its types
c10d: Any = dist
QueueEmptyError = queue_empty_error()
T = TypeVar("T")

PROMPT_SECONDS = 6.0  # within this, what must happen has happened, even on a busy machine
PAUSE_SECONDS = 0.03  # for what must not happen; a slow machine can only hide a fault, not make one up
AMPLE = timedelta(seconds=30)  # a timeout that is not to expire
MAY_BLOCK = (ref.Get, ref.MultiGet, ref.QueuePop, ref.Wait, ref.Barrier)


class Call(Generic[T]):
    """A function that runs on a thread of its own; `elapsed` is how many seconds it took."""

    def __init__(self, function: Callable[..., T], *arguments: Any) -> None:
        self._over = threading.Event()
        self._result: list[T] = []
        self.error: BaseException | None = None
        self.elapsed = 0.0
        self._work = (function, arguments)
        threading.Thread(target=self._run, daemon=True).start()

    def _run(self) -> None:
        function, arguments = self._work
        began = time.monotonic()
        try:
            self._result.append(function(*arguments))
        except BaseException as error:  # `result` raises it again
            self.error = error
        self.elapsed = time.monotonic() - began
        self._over.set()

    def blocked(self, seconds: float = PAUSE_SECONDS) -> bool:
        """Whether it is still running after so long."""
        return not self._over.wait(seconds)

    def result(self, seconds: float = PROMPT_SECONDS) -> T:
        """The function's result, or its exception, raised again.

        Raises:
            Disagreement: it is still running.
        """
        if self.blocked(seconds):
            raise Disagreement(f"{self._work[0].__name__}{self._work[1]} is still blocked after {seconds} s")
        if self.error is not None:
            raise self.error
        return self._result[0]


class Handle:
    """One object of a store. `deviations` say how to use it, not what to expect of it."""

    def __init__(self, store: Store, deviations: frozenset[Deviation]) -> None:
        self.store = store
        self._settled: tuple[type[Operation], ...] = ()  # after these the server is asked for something else
        if Deviation.WRITES_ARE_NOT_ACKNOWLEDGED in deviations:
            self._settled += (ref.Set, ref.Append, ref.MultiSet, ref.QueuePush)
        if Deviation.WAIT_HOLDS_AN_ITEM in deviations:
            self._settled += (ref.Wait,)

    def perform(self, operation: Operation, timeout: timedelta = AMPLE) -> Result | str:
        """Do it; text stands for an exception that no reference foresees."""
        try:
            result = self.call(operation, timeout)
            if isinstance(operation, self._settled):
                self.store.num_keys()
            return result
        except Exception as error:  # the store's exception is the observation
            return refusal(operation, error)

    def call(self, operation: Operation, timeout: timedelta = AMPLE) -> Result:
        """The same, with the exception of the store where it raises."""
        store: Any = self.store
        store.set_timeout(timeout if isinstance(operation, MAY_BLOCK) else AMPLE)  # a brief look's time is its own
        match operation:
            case ref.Get(key):
                return _bytes(store.get(key))
            case ref.MultiGet(keys):
                return tuple(_bytes(v) for v in store.multi_get(list(keys)))
            case ref.QueuePop(key, block):
                return _bytes(store.queue_pop(key, block))
            case ref.Wait(keys):
                store.wait(list(keys), timeout)
                return None
            case ref.Barrier(key, world_size):
                store.barrier(key, world_size, timeout)
                return None
        return self._write_or_look(operation)

    def _write_or_look(self, operation: Operation) -> Result:
        store: Any = self.store
        match operation:
            case ref.Set(key, value):
                store.set(key, value)
            case ref.Append(key, value):
                store.append(key, value)
            case ref.MultiSet(keys, values):
                store.multi_set(list(keys), list(values))
            case ref.QueuePush(key, value):
                store.queue_push(key, value)
            case ref.AddTo(key, amount):
                return int(store.add(key, amount))
            case ref.CompareAndSet(key, expected, desired):
                return _bytes(store.compare_set(key, expected, desired))
            case ref.DeleteKey(key):
                return bool(store.delete_key(key))
            case ref.Take(key):
                taken = store.take(key)
                return None if taken is None else _bytes(taken)
            case ref.Check(keys):
                return bool(store.check(list(keys)))
            case ref.NumKeys():
                return int(store.num_keys())
            case ref.ListKeys():
                return tuple(sorted(store.list_keys()))
            case ref.QueueLen(key):
                return int(store.queue_len(key))
        return None


def _bytes(value: Any) -> bytes:
    if not isinstance(value, bytes):
        raise TypeError(f"a value is {value!r}, which is not bytes")
    return value


def refusal(operation: Operation, error: Exception) -> Refusal | str:
    """An exception in the reference's words; as text, if it has none."""
    if isinstance(error, QueueEmptyError):
        return Refusal.EMPTY
    if isinstance(error, NotImplementedError) or is_no_method(error):
        return Refusal.UNSUPPORTED
    if isinstance(error, c10d.DistNetworkError | ConnectionError):
        return Refusal.CLOSED
    if is_timeout(error):
        return Refusal.TIMED_OUT
    is_refused = isinstance(error, ValueError | c10d.DistStoreError) or "must be of same size" in str(error)  # to 2.7
    if isinstance(operation, ref.MultiSet) and is_refused:
        return Refusal.ARGUMENT
    if isinstance(operation, ref.AddTo):
        for kind, meaning in _OF_ADD:
            if isinstance(error, kind):
                return meaning
    return f"{type(error).__name__}: {error}"


_OF_ADD: tuple[tuple[type[Exception], Refusal], ...] = (
    (OverflowError, Refusal.OVERFLOW),
    (IndexError, Refusal.OUT_OF_RANGE),
    (ValueError, Refusal.NOT_A_NUMBER),
)


def is_no_method(error: Exception) -> bool:
    """Whether a store has no method of the name that it was asked for, as torch's before some release."""
    return isinstance(error, AttributeError) and isinstance(error.obj, c10d.Store)


def is_timeout(error: BaseException | None) -> bool:
    """TimeoutError, or an exception of torch's (which has no class for it) whose text speaks of a timeout."""
    if isinstance(error, TimeoutError):
        return True
    return isinstance(error, RuntimeError) and any(word in str(error).lower() for word in ("timeout", "timed out"))
