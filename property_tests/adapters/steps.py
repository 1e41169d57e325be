"""Common parts of subjects: a method for each step, and names that a subject replaces while it is open."""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping
from contextlib import ExitStack
from typing import Self


class Steps:
    """A subject with a method `_NAME` for each step, or a function in `_steps`. The steps in `TRIED` can be refused."""

    TRIED: Collection[str] = ()
    _steps: Mapping[str, Callable[..., object]] = {}

    def perform(self, step: str, indices: tuple[int, ...]) -> None:
        (self._steps.get(step) or getattr(self, f"_{step}"))(*indices)

    def can_refuse(self, step: str) -> bool:
        return step in self.TRIED


class Replacing:
    """A subject that replaces names of modules while it is open. Use it as a context manager."""

    def __enter__(self) -> Self:
        with ExitStack() as stack:
            self.replace(stack)
            self._replaced = stack.pop_all()
        return self

    def __exit__(self, *error: object) -> None:
        self.abandon()
        self._replaced.close()

    def replace(self, stack: ExitStack) -> None:
        """Replace the names; `stack` puts them back."""
        raise NotImplementedError

    def abandon(self) -> None:
        """End all operations."""
        raise NotImplementedError
