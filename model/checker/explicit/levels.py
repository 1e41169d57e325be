"""The levels of a search: each stays in the memory where it was found, until it is asked for."""

from __future__ import annotations

from collections.abc import Sequence
from typing import overload

from .packing import Keys, Layout


class Levels(Sequence[Keys]):
    """Sorted keys by their distance from the initial states, as arrays of NumPy."""

    def __init__(self) -> None:
        self._held: list[tuple[Layout, Keys]] = []

    def append(self, layout: Layout, keys: Keys) -> None:
        """Add a level, in the layout's kind of array; earlier ones leave a memory that is crowded."""
        self._held.append((layout, keys))
        if layout.crowded:
            self.fetch()

    def fetch(self) -> None:
        """Bring every level here."""
        for number in range(len(self._held)):
            self[number]

    @property
    def sizes(self) -> list[int]:
        """How many states each level has."""
        return [len(keys) for _, keys in self._held]

    def __len__(self) -> int:
        return len(self._held)

    @overload
    def __getitem__(self, number: int) -> Keys: ...
    @overload
    def __getitem__(self, number: slice) -> list[Keys]: ...
    def __getitem__(self, number: int | slice) -> Keys | list[Keys]:
        if isinstance(number, slice):
            return [self[k] for k in range(len(self))[number]]
        layout, keys = self._held[number]
        if layout.home is not layout:
            layout, keys = self._held[number] = layout.home, layout.fetched(keys)
        return keys
