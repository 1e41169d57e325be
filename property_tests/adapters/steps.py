"""Common parts of subjects: steps in a table, and names that a subject replaces while it is open."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import ExitStack
from typing import Self


class Steps:
    """A subject that takes each step that comes next, and refuses none; `_steps` has the function of each step."""

    _steps: dict[str, Callable[..., None]]

    def perform(self, step: str, indices: tuple[int, ...]) -> None:
        self._steps[step](*indices)

    def can_refuse(self, step: str) -> bool:
        return False


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
