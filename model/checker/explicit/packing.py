"""The place of each cell of a state in its 64-bit words, and the order of packed states.

A set of states is one sortable array of *keys*; evaluation works on its *columns*, one contiguous array per
word. Whole keys are compared and nothing is hashed, so no state can be mistaken for another.

- One word: the key is the word, an int64.
- Two words: the key is the pair viewed as a complex128, which NumPy sorts lexicographically and fast. Each half is then
  compared as a float. Positive normal floats have the order of their bits, and differ where their bits differ. So every
  word has the bit MARK (an exponent that is neither zero nor all ones), and the bits above MARK are clear. A thread
  that flushes subnormals to zero does no harm.
- More words: the key is all words, viewed as a string of two characters per word. NumPy has its own stable sort of
  strings, which compares characters as numbers; bytes (void) need a function call for each
  comparison and take 1.7 times as long. No key is ever read as text: most halves of a word are not valid
  characters.
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import cache
from typing import Any

import numpy as np
from numpy.typing import NDArray

from ...errors import UsageError
from ...language.expressions import Expr
from ...language.fields import Cell
from ...language.systems import State
from ..engine import Clock
from ..kernel import Limits
from .arrays import NUMPY, Arrays, built

CHUNK = 1 << 15  # states evaluated at once: the temporaries of a step then fit a core's second-level cache
QUICK_MIN = 1 << 12  # keys: for fewer, both sorts take about the same time
QUICK_GAIN = 3  # quicksort with vector instructions is more than this factor faster; without, less
RUN_LENGTH = 512  # the average length of runs, in keys, at which merging them is as fast as quicksort
SAMPLED = 16  # one of this number of neighbouring pairs is compared
BLOCK = 1 << 12  # sorted keys that are looked up at once
WORD_BITS = 61
MARK = 1 << WORD_BITS

_FACTOR = np.uint64(0x9E3779B97F4A7C15)  # multiplicative hashing (Knuth 1973, 6.4): 2**64 by the golden ratio, odd

Column = NDArray[np.int64]
Columns = tuple[Column, ...]
Keys = NDArray[Any]
Mask = NDArray[np.bool_]
Rows = NDArray[np.intp]
Masked = tuple[int, int, int]  # a word, a mask, and the bits under it


@dataclass(frozen=True, slots=True)
class Place:
    """The place of one cell: `bits` bits of word `word` from bit `shift`. They hold its value minus `low`."""

    word: int
    shift: int
    bits: int
    low: int
    high: int

    @property
    def ones(self) -> int:
        return (1 << self.bits) - 1

    @property
    def mask(self) -> int:
        return self.ones << self.shift

    def pattern(self, value: int) -> int:
        """A value of the cell as bits of its word."""
        return (value - self.low) << self.shift


@dataclass(frozen=True, slots=True)
class Lane:
    """The bits of one member of an index: all its cells next to each other, in the same order for each member."""

    word: int
    shift: int
    bits: int


@dataclass(frozen=True, slots=True)
class FusedSteps:
    """Steps that were taken at once: their number, and the states after them.

    The steps in `open` must nevertheless be run one by one. If such a step is in `taken`, only its watches matter.
    """

    edges: int
    after: Columns
    open: Sequence[int]
    taken: Collection[int]


class Layout:
    """Places of the cells: first the cells without an index, then the cells of each member.

    With `lanes` (the name of an index) the cells of each of its members stay together in one word.
    A cell in `frozen` (position -> value) never changes and takes no bits. The methods for keys and columns take
    arrays of NumPy; subclasses override them for another kind.

    Raises:
        UsageError: a cell, or a lane, is wider than a word.
    """

    arrays: Arrays = NUMPY

    def __init__(self, cells: Sequence[Cell], frozen: Mapping[int, int] | None = None, lanes: str = "") -> None:
        self.cells = tuple(cells)
        self._frozen = dict(frozen or {})
        self.position = {cell.key: k for k, cell in enumerate(self.cells)}
        self._used: list[int] = []
        places: dict[int, Place] = {}
        self.lanes: list[Lane] = []
        for (index, _), members in sorted(self._groups().items()):
            together = bool(lanes) and index == lanes
            word, shift = self._room([self._bits(k) for k in members], lanes) if together else (-1, 0)
            start = shift
            for k in members:
                bits = self._bits(k)
                if not together:
                    word, shift = self._room([bits], self.cells[k].name)
                low, high = self._range(k)
                places[k] = Place(word, shift, bits, low, high)
                shift += bits
            if together:
                self.lanes.append(Lane(word, start, shift - start))
        self.places = tuple(places[k] for k in range(len(self.cells)))
        self.words = max(1, len(self._used))
        self.dtype: Any = {1: np.int64, 2: np.complex128}.get(self.words, f"U{2 * self.words}")
        self.state_bytes = 8 * self.words

    @property
    def names(self) -> list[str]:
        """The names of the words in generated code."""
        return [f"w{j}" for j in range(self.words)]

    @property
    def home(self) -> Layout:
        """The layout of the same states in arrays of NumPy."""
        return self

    @property
    def chunks(self) -> int:
        """The number of states evaluated at once, as a multiple of `CHUNK`."""
        return 1

    @property
    def run_max(self) -> int:
        """The number of keys that may be sorted at once."""
        return sys.maxsize

    @property
    def crowded(self) -> bool:
        """Whether the memory of these arrays is so full that old levels should leave it."""
        return False

    def fetched(self, keys: Keys) -> Keys:
        """Keys of this layout as keys of `home`."""
        return keys

    def sent(self, keys: Keys) -> Keys:
        """Keys of `home` as keys of this layout."""
        return keys

    def function(self, name: str, lines: Sequence[str]) -> Callable[..., Any]:
        """The function of the words with the given body."""
        return built(self.arrays, name, self.names, lines)

    def fused(self, columns: Columns, steps: Sequence[Any], watching: Any) -> FusedSteps | None:
        """Take steps at once; None: take them one by one."""
        return None

    def first(self, masks: Sequence[Mask]) -> list[int | None]:
        """The first row of each mask where it holds."""
        return [int(mask.argmax()) if mask.any() else None for mask in masks]

    def _groups(self) -> dict[tuple[str, int], list[int]]:
        """Cells per (first index, member): cells that change together are then in the same word."""
        groups: dict[tuple[str, int], list[int]] = {}
        for k, cell in enumerate(self.cells):
            group = (cell.slot.dims[0].name, cell.indices[0]) if cell.indices else ("", 0)
            groups.setdefault(group, []).append(k)
        return groups

    def _bits(self, k: int) -> int:
        low, high = self._range(k)
        return (high - low).bit_length()

    def _range(self, k: int) -> tuple[int, int]:
        if k in self._frozen:
            return self._frozen[k], self._frozen[k]
        return self.cells[k].sort.low, self.cells[k].sort.high

    def _room(self, widths: list[int], name: str) -> tuple[int, int]:
        """Reserve bits in the first word with enough free bits."""
        bits = sum(widths)
        if bits > WORD_BITS:
            raise UsageError(
                f"{name} takes {bits} bits, and the engine explicit holds at most {WORD_BITS} together: narrow "
                f"the range, or use another engine{' or no symmetry' if len(widths) > 1 else ''}"
            )
        for word, used in enumerate(self._used):
            if used + bits <= WORD_BITS:
                self._used[word] += bits
                return word, used
        self._used.append(bits)
        return len(self._used) - 1, 0

    def place(self, expr: Expr) -> Place:
        """The place of the cell that a closed tree reads."""
        name, *indices = expr.args
        return self.places[self.position[name, tuple(i.value for i in indices)]]

    def masked(self, facts: Mapping[Expr, Expr]) -> list[Masked]:
        """One mask per word; together they hold exactly where the cells have these values."""
        return sorted(masks((self.place(cell), value.value) for cell, value in facts.items()))

    def pack(self, states: Iterable[State]) -> Columns:
        # The offsets fit a word even if the values themselves do not.
        rows = [[value - p.low for value, p in zip(state, self.places, strict=True)] for state in states]
        offsets = np.array(rows, dtype=np.int64).reshape(len(rows), len(self.cells))
        columns = tuple(np.full(len(offsets), MARK, np.int64) for _ in range(self.words))
        for k, p in enumerate(self.places):
            columns[p.word][:] |= offsets[:, k] << p.shift
        return columns

    def unpack(self, words: Sequence[int]) -> State:
        return tuple(((int(words[p.word]) >> p.shift) & p.ones) + p.low for p in self.places)

    def keys(self, columns: Columns) -> Keys:
        """Columns as one sortable array (for one word the column itself)."""
        return columns[0] if self.words == 1 else self.joined([columns])

    def joined(self, parts: Sequence[Columns]) -> Keys:
        """The columns of each part, one part after the other, as one sortable array."""
        table = np.empty((sum(len(columns[0]) for columns in parts), self.words), np.int64)
        for j in range(self.words if parts else 0):
            np.concatenate([columns[j] for columns in parts], out=table[:, j], casting="unsafe")  # also of Python ints
        keys: Keys = table.view(self.dtype)[:, 0]
        return keys

    def concatenated(self, parts: Sequence[Keys]) -> Keys:
        """The keys of each part, one part after the other."""
        return np.concatenate(parts) if parts else np.empty(0, self.dtype)

    def columns(self, keys: Keys) -> Columns:
        if self.words == 1:
            return (keys,)
        table = self.table(keys)
        return tuple(np.ascontiguousarray(table[:, j]) for j in range(self.words))

    def words_of(self, keys: Keys, row: int) -> tuple[int, ...]:
        return tuple(int(column[0]) for column in self.columns(keys[row : row + 1]))

    def differ(self, a: Keys, b: Keys) -> Mask:
        """Elementwise, which keys are not equal."""
        if self.words <= 2:
            return np.not_equal(a, b)
        ours, others = self.table(a), self.table(b)
        differs: Mask = ours[:, 0] != others[:, 0]
        for j in range(1, self.words):
            differs |= ours[:, j] != others[:, j]
        return differs

    def sort(self, keys: Keys) -> Keys:
        """Sort keys that are all different, in place where that saves memory."""
        keys.sort(kind="stable")
        return keys

    def sort_unique(self, keys: Keys) -> Keys:
        """Sort in place and drop repetitions."""
        if len(keys) < 2:
            return keys
        sort_words(keys)
        fresh = np.empty(len(keys), np.bool_)
        fresh[0] = True
        fresh[1:] = self.differ(keys[1:], keys[:-1])
        return keys[fresh]

    def find(self, keys: Keys, sorted_keys: Keys) -> tuple[Rows, Mask]:
        """For each key, its position in a sorted array that is not empty, and whether the array contains it."""
        at = np.searchsorted(sorted_keys, keys)
        at[at == len(sorted_keys)] = 0
        return at, ~self.differ(sorted_keys[at], keys)

    def seen(self, keys: Keys, run: Keys) -> Mask:
        """Which of the sorted keys are in a sorted array that is not empty.

        The search goes block by block, so each look-up is short and in nearby memory.
        """
        seen = np.empty(len(keys), np.bool_)
        starts = range(0, len(keys), BLOCK)
        bounds = [*np.searchsorted(run, keys[::BLOCK]).tolist(), len(run)]
        for start, first, last in zip(starts, bounds, bounds[1:], strict=False):
            window = run[min(first, len(run) - 1) : last + 1]
            seen[start : start + BLOCK] = self.find(keys[start : start + BLOCK], window)[1]
        return seen

    def table(self, keys: Keys) -> NDArray[np.int64]:
        """Keys as a row of words for each state."""
        return np.ascontiguousarray(keys).view(np.int64).reshape(-1, self.words)


def masks(values: Iterable[tuple[Place, int]]) -> list[Masked]:
    """The cells of each word, as a mask and the bits of their values."""
    found: dict[int, tuple[int, int]] = {}
    for p, value in values:
        mask, pattern = found.get(p.word, (0, 0))
        found[p.word] = mask | p.mask, pattern | p.pattern(value)
    return [(word, *bits) for word, bits in found.items()]


def hashed(columns: Columns, bits: int) -> Rows:
    """A hash of each state, with this number of bits."""
    found = columns[0].view(np.uint64) * _FACTOR
    for column in columns[1:]:
        found = (found ^ column.view(np.uint64)) * _FACTOR
    return (found >> np.uint64(64 - bits)).view(np.int64)


def sort_words(keys: Keys) -> None:
    """Sort in place, with the faster of two sorts.

    The stable sort merges runs. It takes 2 to 5 ns per element if the runs are long, such as successors that a step
    leaves in order, and 15 to 50 ns if they are short. NumPy's quicksort of unordered int64s takes 5 ns if it uses the
    vector instructions of this processor, and otherwise 50 ns.
    """
    short_runs = keys.dtype == np.int64 and len(keys) >= QUICK_MIN and descents(keys) * RUN_LENGTH > len(keys)
    keys.sort(kind="quicksort" if short_runs and quick_is_fast() else "stable")


def descents(words: Column) -> int:
    """An estimate of how many words are less than the word before them."""
    return int(SAMPLED * np.count_nonzero(words[:-1:SAMPLED] > words[1::SAMPLED]))


@cache
def quick_is_fast() -> bool:
    """Whether NumPy's quicksort of int64s uses vector instructions: it does not on each processor that has them."""
    words = np.arange(QUICK_MIN) * 0x9E3779B9 & 0xFFFFFFFF
    clock, seconds = Clock(Limits()), {}
    for kind in ("stable", "quicksort", "stable", "quicksort"):  # the first of each loads its code
        copy = words.copy()
        begun = clock.seconds
        copy.sort(kind=kind)
        seconds[kind] = clock.seconds - begun
    return seconds["quicksort"] * QUICK_GAIN < seconds["stable"]


Layouts = Callable[[Sequence[Cell], Mapping[int, int], str], Layout]  # from cells, frozen, lanes; one kind of array
