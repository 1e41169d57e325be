"""A real store that does operations of the reference, and returns results in the reference's terms.

Rule: a call that may block runs on its own thread, so the suite notices a call that never returns.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable
from dataclasses import astuple
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

PROMPT_SECONDS = 6.0  # limit for an event that must happen, on a busy machine
PAUSE_SECONDS = 0.03  # time for an event that must not happen; a slow machine can hide a fault, but not cause one
AMPLE = timedelta(seconds=30)  # a timeout that does not expire
MAY_BLOCK = (ref.Get, ref.MultiGet, ref.QueuePop, ref.Wait, ref.Barrier)


class Call(Generic[T]):
    """A function that runs on its own thread; `elapsed` is how many seconds it took."""

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
        """Whether it still runs after `seconds`."""
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
    """One object of a store. Its use depends on `deviations`; the expected results do not."""

    def __init__(self, store: Store, deviations: frozenset[Deviation]) -> None:
        self.store = store
        self._settled: tuple[type[Operation], ...] = ()  # after these operations another request is sent
        if Deviation.WRITES_ARE_NOT_ACKNOWLEDGED in deviations:
            self._settled += (ref.Set, ref.Append, ref.MultiSet, ref.QueuePush)
        if Deviation.WAIT_HOLDS_AN_ITEM in deviations:
            self._settled += (ref.Wait,)

    def perform(self, operation: Operation, timeout: timedelta = AMPLE) -> Result | str:
        """Do the operation; the result is a text if the store raises an exception that the reference does not have."""
        try:
            result = self.call(operation, timeout)
            if isinstance(operation, self._settled):
                self.store.num_keys()
            return result
        except Exception as error:  # the store's exception is the observation
            return refusal(operation, error)

    def call(self, operation: Operation, timeout: timedelta = AMPLE) -> Result:
        """Do the operation. Raises the store's exception. `timeout` applies to operations that block."""
        own = isinstance(operation, ref.Wait | ref.Barrier)  # they get their timeout with the call
        self.store.set_timeout(timeout if isinstance(operation, MAY_BLOCK) and not own else AMPLE)
        return asked(self.store, operation, timeout)


def asked(store: Store, operation: Operation, timeout: timedelta) -> Result:
    """Call the store's method; returns the result in the reference's types. `timeout` is for `wait` and `barrier`."""
    given: list[Any] = [[*each] if isinstance(each, tuple) else each for each in astuple(operation)]  # type: ignore[call-overload]
    if isinstance(operation, ref.Wait | ref.Barrier):
        given.append(timeout)
    said = getattr(store, "multi_get" if isinstance(operation, ref.MultiGet) else operation.table)(*given)
    match operation:
        case ref.Get() | ref.QueuePop() | ref.CompareAndSet():
            return _of(bytes, said)
        case ref.MultiGet():
            return tuple(_of(bytes, one) for one in said)
        case ref.Take():
            return None if said is None else _of(bytes, said)
        case ref.AddTo() | ref.NumKeys() | ref.QueueLen():
            return _of(int, said)
        case ref.DeleteKey() | ref.Check():
            return _of(bool, said)
        case ref.ListKeys():
            return tuple(sorted(said))
    return None


def _of(kind: type[T], result: Any) -> T:
    if type(result) is not kind:
        raise TypeError(f"the result is {result!r}, which is not of the type {kind.__name__}")
    return result


def refusal(operation: Operation, error: Exception) -> Refusal | str:
    """The refusal of the reference that an exception means; otherwise the exception as text."""
    if isinstance(error, QueueEmptyError):
        return Refusal.EMPTY
    is_no_method = isinstance(error, AttributeError) and isinstance(error.obj, c10d.Store)  # before some release
    if isinstance(error, NotImplementedError) or is_no_method:
        return Refusal.UNSUPPORTED
    if isinstance(error, c10d.DistNetworkError | ConnectionError):
        return Refusal.CLOSED
    if is_timeout(error):
        return Refusal.TIMED_OUT
    is_refused = isinstance(error, ValueError | c10d.DistStoreError) or "must be of same size" in str(error)
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


def is_timeout(error: BaseException | None) -> bool:
    """Whether it is a TimeoutError, or an error of torch whose text names a timeout (torch has no class for it)."""
    if isinstance(error, TimeoutError):
        return True
    return isinstance(error, RuntimeError) and any(word in str(error).lower() for word in ("timeout", "timed out"))
