"""Subjects with a method for each step."""

from __future__ import annotations

from collections.abc import Callable, Mapping


class Steps:
    """A subject with a method `_NAME` for each step, or a function in `_steps`. The steps in `TRIED` can be refused."""

    TRIED: tuple[str, ...] = ()
    _steps: Mapping[str, Callable[..., None]] = {}

    def perform(self, step: str, indices: tuple[int, ...]) -> None:
        (self._steps.get(step) or getattr(self, f"_{step}"))(*indices)

    def can_refuse(self, step: str) -> bool:
        return step in self.TRIED
