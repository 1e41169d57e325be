"""Subjects whose steps are in a table."""

from __future__ import annotations

from collections.abc import Callable


class Steps:
    """A subject that takes each step that comes next, and refuses none; `_steps` has the function of each step."""

    _steps: dict[str, Callable[..., None]]

    def perform(self, step: str, indices: tuple[int, ...]) -> None:
        self._steps[step](*indices)

    def can_refuse(self, step: str) -> bool:
        return False
