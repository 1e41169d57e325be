"""States of several words as one number each: a word is replaced by its number in a table of the word's values so far.

*Theory of operation.* A search has millions of states, and each word has only thousands of values: most steps write a
few words and leave the others. Once a search is large, `Codes` numbers the values of each word in the order in which
they occur, and the set of states seen holds a *code* for each state: the numbers of its words in one int64 (COLLAPSE in
Holzmann 1997, "State compression in Spin"). Codes are sorted, searched and merged like states of one word. The levels
hold the words, in the order of the layout: the outcome is the same with and without codes.

A hash of the word selects a slot of a table, and the value in the slot is compared with the whole word. If they differ,
the word is looked up among the sorted values: only the speed depends on the hash.

Tables grow only between levels. A successor with a value that no state had is new; it is kept with all its words
(*novel*) until the level is over. So the workers receive new values once per level (`Workers.tell`), and number them
in the same way. If the numbers no longer fit a code, or the tables have too many values to pay, the set is rebuilt
from the levels: with other codes, or without codes.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from itertools import pairwise

import numpy as np
from numpy.typing import NDArray

from .levels import Levels
from .packing import CHUNK, Column, Columns, Keys, Layout, Rows, hashed, sort_words
from .storage import Level
from .visited import NextLevel, Recent, Successors, Visited
from .workers import Workers

SHARE = 4  # states for each value: with more, the tables take less memory than the codes save
RETRY = 4  # codes that did not pay are tried again when the states have grown by this factor
CODE_BITS = 62  # an int64 that is never negative
TEMPORARIES = 6  # temporary arrays with a word for each successor of a chunk
SLOTS_MIN = 1 << 10
SPARSE = 4  # the least number of slots for each value: at most an eighth of the values have no slot

_HALF = np.uint64(32)
_ONE_WORD = Layout(())

Words = NDArray[np.uint64]


def _ordered(column: Column, swapped: bool) -> Words:
    words = column.view(np.uint64)
    return (words << _HALF) | (words >> _HALF) if swapped else words


def distinct(layout: Layout, parts: Iterable[Keys]) -> list[Column]:
    """The values that each word has in some states, sorted."""
    swapped = layout.words > 2
    seen: list[list[Words]] = [[] for _ in range(layout.words)]
    for keys in parts:
        for words, column in zip(seen, layout.columns(keys), strict=True):
            words.append(np.unique(_ordered(column, swapped)))
    values = [np.unique(np.concatenate(words)).view(np.int64) for words in seen]
    return [_ordered(column, swapped).view(np.int64) for column in values]


class Table:
    """The values of one word, with their numbers shifted to their place in a code. No value is 0."""

    def __init__(self, shift: int, bits: int, swapped: bool) -> None:
        self.shift = shift
        self.ones = (1 << bits) - 1
        self.mask = self.ones << shift
        self._swapped = swapped
        self.values: Column = np.empty(0, np.int64)  # sorted like the layout
        self._numbers: Column = np.empty(0, np.int64)  # the numbers of `values`
        self.ranks: Column = np.empty(0, np.int64)  # number -> position in `values`
        self._slots: Column = np.empty(0, np.int64)
        self._slot_codes: Column = np.empty(0, np.int64)

    @property
    def bytes(self) -> int:
        return sum(array.nbytes for array in (self.values, self._numbers, self.ranks, self._slots, self._slot_codes))

    def ordered(self, column: Column) -> Words:
        """Words as numbers in the order of the layout: with three or more words, the lower half comes first.

        Applied twice, it returns the words.
        """
        return _ordered(column, self._swapped)

    def has_room(self, count: int) -> bool:
        return len(self.values) + count <= self.ones + 1

    def add(self, values: Column) -> None:
        """Number further values, which are sorted and not in the table."""
        at = np.searchsorted(self.ordered(self.values), self.ordered(values))
        numbers = np.arange(len(self.values), len(self.values) + len(values))
        self.values = np.insert(self.values, at, values)
        self._numbers = np.insert(self._numbers, at, numbers)
        self.ranks = np.empty(len(self.values), np.int64)
        self.ranks[self._numbers] = np.arange(len(self.values))
        if len(self.values) * SPARSE > len(self._slots):
            size = max(SLOTS_MIN, 2 * SPARSE << len(self.values).bit_length())
            self._slots, self._slot_codes = np.zeros(size, np.int64), np.zeros(size, np.int64)
            values, numbers = self.values, self._numbers
        slots = self._slot(values)
        self._slots[slots] = values
        self._slot_codes[slots] = numbers << self.shift

    def _slot(self, column: Column) -> Rows:
        return hashed((column,), len(self._slots).bit_length() - 1)

    def codes(self, column: Column) -> tuple[Column, Rows]:
        """The numbers of words, at their place in a code, and the rows of words without a number (which get 0)."""
        slots = self._slot(column)
        codes = self._slot_codes.take(slots)
        others = np.flatnonzero(self._slots.take(slots) != column)
        if not len(others):
            return codes, others
        words = self.ordered(column[others])
        at = np.searchsorted(self._sorted, words)
        at[at == len(self.values)] = 0
        here = self._sorted[at] == words
        codes[others] = np.where(here, self._numbers[at] << self.shift, 0)
        return codes, others[~here]

    @property
    def _sorted(self) -> Words:
        return self.ordered(self.values)

    def lacking(self, column: Column) -> Column:
        """The values of the words that have no number, sorted."""
        missing = column[self.codes(column)[1]]
        return self.ordered(np.unique(self.ordered(missing)).view(np.int64)).view(np.int64)


class Codes:
    """The tables of all words. `values` are the first values of each word, sorted, and are added if they fit."""

    def __init__(self, layout: Layout, values: Sequence[Column]) -> None:
        self.layout = layout
        bits = [len(column).bit_length() for column in values]
        spare = max(0, CODE_BITS - sum(bits)) // len(bits)
        self.tables: list[Table] = []
        shift = CODE_BITS
        for width in bits:  # the first word has the highest bits, as in the order of keys
            shift -= width + spare
            self.tables.append(Table(max(0, shift), width + spare, layout.words > 2))
        self.fits = shift >= 0
        if self.fits:
            self.add(values)

    @property
    def bytes(self) -> int:
        return sum(table.bytes for table in self.tables)

    @property
    def values(self) -> int:
        """The number of values of all words."""
        return sum(len(table.values) for table in self.tables)

    def add(self, values: Sequence[Column]) -> None:
        """Number further values of each word."""
        for table, column in zip(self.tables, values, strict=True):
            if len(column):
                table.add(column)

    def lacking(self, keys: Keys) -> list[Column]:
        """For each word, its values in some states that have no number, sorted."""
        columns = self.layout.columns(keys)
        return [table.lacking(column) for table, column in zip(self.tables, columns, strict=True)]

    def of(self, keys: Keys) -> Column:
        """The codes of states whose words are all known, sorted."""
        codes = np.zeros(len(keys), np.int64)
        for start in range(0, len(keys), CHUNK):
            for table, column in zip(self.tables, self.layout.columns(keys[start : start + CHUNK]), strict=True):
                codes[start : start + CHUNK] |= table.codes(column)[0]
        sort_words(codes)
        return codes

    def keys(self, codes: Column) -> Keys:
        """The states of some codes, sorted."""
        ranks = np.zeros(len(codes), np.int64)
        for start in range(0, len(codes), CHUNK):
            part, out = codes[start : start + CHUNK], ranks[start : start + CHUNK]
            for table in self.tables:
                out |= table.ranks.take((part >> table.shift) & table.ones) << table.shift
        sort_words(ranks)
        keys = np.empty(len(codes), self.layout.dtype)
        words = self.layout.table(keys)
        for start in range(0, len(codes), CHUNK):
            part = ranks[start : start + CHUNK]
            for j, table in enumerate(self.tables):
                words[start : start + CHUNK, j] = table.values.take((part >> table.shift) & table.ones)
        return keys


class CodedSuccessors(Successors):
    """Gathers successors as codes."""

    def __init__(self, codes: Codes, columns: Columns, recent: Recent | None) -> None:
        super().__init__(codes.layout, recent)
        self._tables = codes.tables
        self._base = np.zeros(len(columns[0]), np.int64)
        for table, column in zip(self._tables, columns, strict=True):
            self._base |= table.codes(column)[0]
        self._codes: list[Column] = []  # step by step, the codes of the unwritten words
        self._written: list[list[int]] = [[] for _ in self._tables]  # word by word, the numbers of the steps

    def add(self, after: Columns, rows: Rows | None = None, before: Columns = ()) -> None:
        same = 0
        for j, table in enumerate(self._tables):
            if before and after[j] is before[j]:
                same |= table.mask
            else:
                self._written[j].append(len(self._after))
        self._codes.append(np.zeros(len(after[0]), np.int64) if rows is None else self._base.take(rows) & same)
        self._after.append(after)

    def finish(self) -> tuple[Column, Keys, int]:
        ends = np.cumsum([0, *map(len, self._codes)]).tolist()
        codes = np.concatenate([*self._codes, np.zeros(0, np.int64)])
        self._codes.clear()
        lacking: list[Rows] = []
        for j, table in enumerate(self._tables):
            written = self._written[j]
            if not written:
                continue
            column = np.concatenate([self._after[k][j] for k in written], dtype=np.int64, casting="unsafe")
            found, missing = table.codes(column)
            starts = [0]
            for k in written:
                starts.append(starts[-1] + ends[k + 1] - ends[k])
                codes[ends[k] : ends[k + 1]] |= found[starts[-2] : starts[-1]]
            if len(missing):
                at = np.searchsorted(starts, missing, side="right") - 1
                lacking.append(missing + (np.array(ends)[written] - np.array(starts[:-1]))[at])
        held = (len(self._tables) + TEMPORARIES) * codes.nbytes
        novel: list[Columns] = []
        if lacking:
            rows = np.unique(np.concatenate(lacking))
            for k, (start, stop) in enumerate(pairwise(np.searchsorted(rows, ends).tolist())):
                if start < stop:
                    novel.append(tuple(column.take(rows[start:stop] - ends[k]) for column in self._after[k]))
            codes = np.delete(codes, rows)
        if self._recent is not None:
            (codes,) = self._recent.unknown((codes,))
        return _ONE_WORD.sort_unique(codes), self._layout.sort_unique(self._layout.joined(novel)), held


class Coded(Visited):
    """The set of states seen, as codes. Levels are passed and returned as keys of the layout."""

    def __init__(self, codes: Codes, workers: Workers) -> None:
        super().__init__(_ONE_WORD, workers)
        self.codes: Codes = codes
        self.full = False  # the tables have no room: the set no longer holds its states, and must be rebuilt
        self.latest: Keys | None = None  # the codes of the next level

    @property
    def pays(self) -> bool:
        return not self.full and self.codes.values * SHARE <= 2 * self.count

    def next_level(self, room: int) -> NextLevel:
        return NextCodes(self, room, self._workers)

    def append(self, fresh: Level) -> None:
        if self.full:
            self.release()
            self.count += len(fresh)
            return
        codes, self.latest = self.latest, None
        super().append(self.codes.of(fresh[:]) if codes is None else codes)

    def merged(self) -> Keys:
        return self.codes.keys(super().merged())

    @property
    def bytes(self) -> int:
        return self.count * (self.codes.layout.state_bytes + 8 * 5 // 2) + self.codes.bytes


class NextCodes(NextLevel):
    """Gathers the successors of one level as codes, and novel successors as keys."""

    def __init__(self, visited: Coded, room: int, workers: Workers) -> None:
        super().__init__(_ONE_WORD, visited, room, workers)
        self._coded = visited
        self._keys = visited.codes.layout
        self._novel = NextLevel(self._keys, Visited(self._keys, workers), room, workers)

    @property
    def count(self) -> int:
        return super().count + self._novel.count

    @property
    def waiting(self) -> int:
        return super().waiting + self._novel.waiting

    @property
    def bytes(self) -> int:
        return (3 * 8 + self._keys.state_bytes) * self.held + self._novel.bytes

    def add_novel(self, keys: Keys) -> None:
        self._novel.add(keys)
        if self.count + self.waiting > self._room:
            self._settle()

    def _settle(self) -> None:
        super()._settle()
        self._novel._settle()

    def finish(self) -> Level:
        return self._numbered(super().finish()[:], self._novel.finish()[:])

    def _numbered(self, known: Column, novel: Keys) -> Level:
        """The new states, after the values of the novel states have been added to the tables."""
        codes, coded = self._coded.codes, self._coded
        values = codes.lacking(novel)
        if all(table.has_room(len(new)) for table, new in zip(codes.tables, values, strict=True)):
            if len(novel):
                codes.add(values)
                self._workers.tell(values)
                known = _ONE_WORD.sort(_ONE_WORD.concatenated([known, codes.of(novel)]))
            coded.latest = known
            return codes.keys(known)
        coded.full = True
        return self._keys.sort(self._keys.concatenated([codes.keys(known), novel]))


def renewed(visited: Visited, layout: Layout, levels: Levels, workers: Workers) -> Visited | None:
    """The set rebuilt with codes or without, after the workers have received its codes; None: keep it as it is."""
    if visited.pays:
        return None
    made = _coded(layout, levels, visited.count, workers)
    if made is None and not isinstance(visited, Coded):
        visited.codes_min = RETRY * visited.count
        return None
    if made is None:
        made = Visited(layout, workers)
        made.codes_min = RETRY * visited.count
    workers.tell(made.codes)
    for level in levels:
        made.add(level)
    return made


def _coded(layout: Layout, levels: Levels, count: int, workers: Workers) -> Visited | None:
    """An empty set that has codes for the states of some levels; None if codes would not pay."""
    values = distinct(layout, (level[:] for level in levels))
    if sum(map(len, values)) * SHARE > count:
        return None
    codes = Codes(layout, values)
    return Coded(codes, workers) if codes.fits else None
