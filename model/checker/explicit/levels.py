"""The levels of a search: each stays in the memory where it was found, or in a storage, until it is read."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import overload

from .packing import Layout
from .storage import Level, Run


class Levels(Sequence[Level]):
    """Sorted keys by their distance from the initial states, as arrays of NumPy or runs of a storage."""

    def __init__(self, held: Iterable[tuple[Layout, Level]] = ()) -> None:
        self._held = [*held]

    def append(self, layout: Layout, level: Level) -> None:
        """Add a level, in the layout's kind of array; if that memory is crowded, move all levels out of it."""
        self._held.append((layout, level))
        if layout.crowded:
            self.fetch()

    def fetch(self) -> None:
        """Move every level to arrays of NumPy."""
        for number in range(len(self._held)):
            self[number]

    @property
    def sizes(self) -> list[int]:
        """The number of states of each level."""
        return [len(level) for _, level in self._held]

    def __len__(self) -> int:
        return len(self._held)

    def __setitem__(self, number: int, level: Level) -> None:
        """Replace a level by the same states in another form."""
        self._held[number] = self._held[number][0], level

    @overload
    def __getitem__(self, number: int) -> Level: ...
    @overload
    def __getitem__(self, number: slice) -> list[Level]: ...
    def __getitem__(self, number: int | slice) -> Level | list[Level]:
        if isinstance(number, slice):
            return [self[k] for k in range(len(self))[number]]
        layout, level = self._held[number]
        if layout.home is not layout and not isinstance(level, Run):
            layout, level = self._held[number] = layout.home, layout.fetched(level)
        return level
