"""The base of the conformance suite of stores: the hooks, handles that are closed again, claims.

Rule: the tests use the store only through handles of this class.
"""

from __future__ import annotations

import sys
import threading
import unittest
from collections.abc import Callable, Iterator, Sequence
from contextlib import AbstractContextManager, contextmanager
from datetime import timedelta
from typing import Any, ClassVar

from ..subjects import Disagreement
from .deviations import Deviation, lacking
from .handles import PAUSE_SECONDS, PROMPT_SECONDS, Call, Store


class Suite:
    """The hooks. Each store defines `make_store`; the others have defaults."""

    deviations: ClassVar[frozenset[Deviation]] = frozenset()
    """The known differences: the suite then asks for what the store does instead."""

    concurrency: ClassVar[int] = 4
    """How many threads use the store at once, each through a clone of its own; 0: none, blocking calls are left out."""

    def make_store(self) -> Store:
        """An empty store that has no other user."""
        raise NotImplementedError(f"{type(self).__name__}: define make_store(self), which returns an empty store")

    def clone(self, store: Store) -> Store:
        """Another object on the same data, as another thread or process would use it."""
        other: Store = store.clone()
        return other

    def close_store(self, store: Store) -> None:
        """Called once for each store and each clone."""
        close = getattr(store, "close", None)
        if close is not None:
            close()

    # Methods for the tests of the suite.

    @contextmanager
    def opened(self, count: int) -> Iterator[list[Any]]:
        """`count` handles of one store; they are closed at the end."""
        handles = [self.make_store()]
        try:
            while len(handles) < count:
                handles.append(self.clone(handles[0]))
            for handle in handles:
                handle.set_timeout(timedelta(seconds=PROMPT_SECONDS * 4))
            yield handles
        finally:
            while handles:
                self.close_store(handles.pop())

    def _threaded(self, count: int = 0, needs: str = "") -> AbstractContextManager[list[Any]]:
        """`opened` for this number of threads, by default for as many as may use the store at once.

        Skips the test if the number is too large for the store, or if the store lacks the operation `needs`.
        """
        count = count or max(2, self.concurrency)
        self.needs(needs)
        self.needs_threads(count)
        return self.opened(count)

    def needs(self, operation: str) -> None:
        """Skip the test if the store does not have the operation."""
        if operation in lacking(self.deviations):
            raise unittest.SkipTest(f"there is no {operation}")

    def watches(self, store: Store) -> bool:
        """Whether the store has watch_key, which torch's own stores do not have."""
        return hasattr(store, "watch_key") and "watch_key" not in lacking(self.deviations)

    def needs_threads(self, count: int = 2) -> None:
        """Skip the test if the store must not be used by `count` threads."""
        if self.concurrency < count:
            raise unittest.SkipTest(f"concurrency is {self.concurrency}")

    def claim(self, holds: bool, text: str, *unless: Deviation) -> None:
        """Fail if the claim does not hold. If a listed deviation contradicts the claim, fail if the claim holds.

        Raises:
            Disagreement: has the text and the remedy.
        """
        listed = sorted(d.name for d in unless if d in self.deviations)
        if holds and listed:
            raise Disagreement(f"{text}: yes, although {', '.join(listed)} is listed; take it from the deviations")
        if not holds and not listed:
            known = f"; known as {', '.join(d.name for d in unless)}" if unless else ""
            raise Disagreement(f"{text}: no{known}")

    def claim_race(self, holds: bool, text: str, *unless: Deviation) -> None:
        """`claim`, for deviations that need not show each time."""
        if not self.deviations & set(unless):
            self.claim(holds, text, *unless)

    def ends(self, call: Call[Any], *unless: Deviation) -> bool:
        """Whether a call ends soon; the time limit is shorter if a deviation says that the call does not end."""
        return not call.blocked(PAUSE_SECONDS * 2 if self.deviations & set(unless) else PROMPT_SECONDS)

    def settle(self, handle: Any) -> None:
        """After a write, wait until the server has received it, if the store's method does not wait."""
        if Deviation.WRITES_ARE_NOT_ACKNOWLEDGED in self.deviations:
            handle.num_keys()

    def write(self, handle: Any, name: str, *arguments: Any) -> Any:
        result = getattr(handle, name)(*arguments)
        self.settle(handle)
        return result


def all_at_once(functions: Sequence[Callable[[], Any]]) -> list[Any]:
    """Run each function on its own thread, all from one moment on, and return their results.

    Python switches threads often meanwhile, which interrupts operations of a store in Python.
    """
    ready, before = threading.Barrier(len(functions)), sys.getswitchinterval()

    def begun(function: Callable[[], Any]) -> Any:
        ready.wait(PROMPT_SECONDS)
        return function()

    sys.setswitchinterval(1e-5)
    try:
        calls = [Call(begun, function) for function in functions]
        return [call.result(PROMPT_SECONDS * 4) for call in calls]
    finally:
        sys.setswitchinterval(before)
