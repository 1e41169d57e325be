"""One request as its bytes arrive: each byte is read once, and a request is done only when it is complete.

Rule: every announced length is compared with its limit before memory is used for it. The total work is linear in the
size of the request.
"""

from __future__ import annotations

import struct
from collections.abc import Callable
from typing import Any

from trystate.model.store.vocabulary import Extension, Query, Status

from ..contents.contents import Refused
from ..limits import Limits
from ..operations import BODIES, INTEGER, KEY, KEYS, PAIRS, VALUE, WORD, Field
from ..wire import I64, U32, U64, shown

OUTSIDE = (struct.error, OverflowError)  # raised by unpacking if bytes are missing; cheaper than a test before
FEW = 16  # a longer list of keys is read by a frame, which continues where a piece ended
LISTS, LISTED_BYTES = 64, 4096  # the number of lists of keys that are cached, and the size of each


def keys_at(
    lists: dict[bytes, list[bytes]], limits: Limits, data: bytes, position: int, end: int
) -> tuple[int, list[bytes]] | None:
    """The end of a short list of keys, and the keys, if the list is complete and within its limits.

    torch's client sends a list twice, with WAIT and with MULTI_GET, and every rank of a job sends the same list. So
    `lists` caches the lists that ended a piece.
    """
    alone = end - position < LISTED_BYTES
    if alone and (known := lists.get(data[position:])) is not None:
        return end, known
    found = blobs_at(limits, data, position, end, 1)
    if alone and found is not None and found[0] == end:
        if len(lists) >= LISTS:
            lists.clear()
        lists[data[position:]] = found[1]
    return found


def blobs_at(limits: Limits, data: bytes, position: int, end: int, parts: int) -> tuple[int, list[bytes]] | None:
    """Like `keys_at`, without the cache. `parts` is 2 for a list of keys with their values."""
    unpack = U64.unpack_from
    items: list[bytes] = []
    try:
        (count,) = unpack(data, position)
        if count > FEW:
            return None
        at, limit, other = position + 8, limits.key_bytes, limits.key_bytes if parts == 1 else limits.value_bytes
        for _ in range(parts * count):
            (size,) = unpack(data, at)
            begin = at + 8
            at = begin + size
            if size > limit:
                return None
            items.append(data[begin:at])
            limit, other = other, limit
    except OUTSIDE:
        return None
    return (at, items) if at <= end and at - position < limits.frame_bytes else None


class Frame:
    """A request that may be incomplete.

    `fields` has the complete fields: bytes for a key or a value, int for a number, a flat list of bytes for a list of
    keys or pairs. While the request is not `complete`, `needed` is the number of bytes from the reached position that
    the next step of reading needs.
    """

    __slots__ = ("complete", "fields", "items", "limits", "needed", "operation", "remaining", "shape", "size", "step")

    def __init__(self, operation: int, limits: Limits) -> None:
        self.operation = operation
        self.limits = limits
        self.shape = BODIES[operation]
        self.step = 0
        self.fields: list[Any] = []
        self.items: list[bytes] | None = None  # the items of the list that is being read; `remaining` are missing
        self.remaining = 0
        self.size = 1  # bytes read so far
        self.needed = 0
        self.complete = False

    def advance(self, data: bytes | memoryview, position: int, end: int) -> int:
        """Read more, and return the reached position. Raises `Refused` if a limit is exceeded."""
        began, fields, shape = position, self.fields, self.shape
        self.needed = 0
        while self.step < len(shape):
            field = shape[self.step]
            if field is KEY or field is VALUE:
                position = self._blob(field, data, position, end)
            elif field is INTEGER or field is WORD:
                width, read = (8, I64) if field is INTEGER else (4, U32)
                if end - position < width:
                    self.needed = width
                    break
                fields.append(read.unpack_from(data, position)[0])
                position += width
                self.step += 1
            else:
                position = self._list(field, data, position, end)
            if self.needed:
                break
        else:
            self.complete = True
        self.size += position - began
        if self.size + self.needed > self.limits.frame_bytes:
            raise self._too_large("the request", self.size + self.needed, "frame_bytes")
        return position

    def _blob(self, field: Field, data: bytes | memoryview, position: int, end: int) -> int:
        self.needed = 8
        if end - position < 8:
            return position
        length = U64.unpack_from(data, position)[0]
        if field is KEY:
            if length > self.limits.key_bytes:
                raise self._too_large("a key", length, "key_bytes")
        elif length > self.limits.value_bytes:
            raise self._too_large("a value", length, "value_bytes")
        stop: int = position + 8 + length
        if stop > end:
            self.needed = 8 + length
            return position
        self.fields.append(bytes(data[position + 8 : stop]))
        self.needed = 0
        self.step += 1
        return stop

    def _list(self, field: Field, data: bytes | memoryview, position: int, end: int) -> int:
        if self.items is None:
            self.needed = 8
            if end - position < 8:
                return position
            count = U64.unpack_from(data, position)[0]
            if count > self.limits.keys_in_request:
                raise self._too_large("a list", count, "keys_in_request", "keys")
            self.remaining = count if field is KEYS else 2 * count
            self.items = []
            self.needed = 0
            position += 8
        position = self._read_items(self.items, field is PAIRS, data, position, end)
        if not self.remaining:
            self.fields.append(self.items)
            self.items = None
            self.step += 1
        return position

    def _read_items(self, items: list[bytes], pairs: bool, data: bytes | memoryview, position: int, end: int) -> int:
        limit = other = self.limits.key_bytes
        if pairs:
            other = self.limits.value_bytes
            if self.remaining & 1:  # the last piece ended between a key and its value
                limit, other = other, limit
        length_at: Callable[[Any, int], tuple[int]] = U64.unpack_from
        append, had = items.append, len(items)
        self.needed = 0
        for _ in range(self.remaining):
            begin = position + 8
            if begin > end:
                self.needed = 8
                break
            length = length_at(data, position)[0]
            if length > limit:
                raise self._too_large("a key or value", length, "key_bytes or value_bytes")
            stop = begin + length
            if stop > end:
                self.needed = 8 + length
                break
            append(bytes(data[begin:stop]))
            position = stop
            limit, other = other, limit
        self.remaining -= len(items) - had
        return position

    def _too_large(self, what: str, size: int, limit: str, unit: str = "bytes") -> Refused:
        most = " or ".join(str(getattr(self.limits, name)) for name in limit.split(" or "))
        name = next(kind(self.operation).name for kind in (Query, Extension) if self.operation in set(kind))
        about = f" ({shown(self.fields[0])})" if self.fields and isinstance(self.fields[0], bytes) else ""
        reason = f"{name}{about}: {what} of {size} {unit} exceeds {most}; send less at a time, or raise {limit}"
        return Refused(Status.TOO_LARGE, reason)
