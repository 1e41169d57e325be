"""The bytes of a server's journal: a magic, then records, each with its length and checksums.

Rule: a file that was cut off at any byte is a shorter file of the same store. Anything else that does not read is
reported as damage.

    magic | record ...          record = u32 length | u32 CRC of the length | u32 CRC of the payload | payload
    payload = u8 kind | i64 number | blob ...

The length has its own checksum. Without it an overwritten length would look like the start of a very long record that
was cut off, and all later records would be lost. The checksum of the payload is combined with the place of the record
(`place`), so a copy of the record in another place does not read.
"""

from __future__ import annotations

import enum
from collections.abc import Callable
from dataclasses import dataclass
from struct import Struct
from struct import error as StructError
from zlib import crc32

from ..wire import I64, U64, blobs

HEAD = Struct("<III")
LENGTH = Struct("<I")


class Kind(enum.IntEnum):
    """The kind of a record: about the file itself, or a change of the contents."""

    HEADER = 0  # identity, generation, nonce, nothing
    SNAPSHOT_END = 3  # the records before it are the state at one moment, not its history
    SET = 4  # key, value
    MULTI_SET = 5  # key, value, key, value, ...
    APPEND = 8  # key, value
    TAKE = 9  # key
    PUSH = 10  # key, value
    POP = 11  # number: how many elements are before it; key
    SYNCED = 14  # number: how many bytes of the journal were durable at this write; its nonce
    ROOM = 15  # run id, a record of that room


PARTS = {
    Kind.HEADER: 4, Kind.SNAPSHOT_END: 0, Kind.SET: 2, Kind.APPEND: 2, Kind.TAKE: 1, Kind.PUSH: 2, Kind.POP: 1,
    Kind.SYNCED: 1, Kind.ROOM: 2,
}  # fmt: skip


@dataclass(frozen=True, slots=True)
class Record:
    """One record, decoded."""

    kind: Kind
    number: int
    parts: tuple[bytes, ...]

    @property
    def size(self) -> int:
        """The size of the record in the file."""
        return HEAD.size + 1 + I64.size + sum(U64.size + len(part) for part in self.parts)


def encode(kind: Kind, *parts: bytes, number: int = 0) -> bytes:
    """The bytes of a record in the file."""
    payload = bytes([kind]) + I64.pack(number) + blobs(parts)
    length = LENGTH.pack(len(payload))
    return length + LENGTH.pack(crc32(length)) + LENGTH.pack(crc32(payload)) + payload


@dataclass(frozen=True, slots=True)
class Scan:
    """The result of a read: whole records, their size in bytes, and whether the rest is damaged or only cut off."""

    records: list[Record]
    used: int
    damaged: bool


def unplaced(at: int) -> int:
    """The number of the place of the header, whose nonce gives the numbers of all later places: 0."""
    return 0


def place(records: bytearray, number: Callable[[int], int]) -> None:
    """Combine the checksum of each record with the number of its place, its offset in `records`."""
    at = 0
    while at < len(records):
        length, length_sum, payload_sum = HEAD.unpack_from(records, at)
        HEAD.pack_into(records, at, length, length_sum, payload_sum ^ number(at))
        at += HEAD.size + length


def scan(data: bytes, number: Callable[[int], int] = unplaced) -> Scan:
    """The records at the start of `data`. `number` is as in `place`. Never raises; reads each byte once."""
    records: list[Record] = []
    at, end = 0, len(data)
    while end - at >= HEAD.size:
        length, length_sum, payload_sum = HEAD.unpack_from(data, at)
        if crc32(data[at : at + LENGTH.size]) != length_sum:
            # Only zeros: the file system kept the new length of the file but not its bytes when the machine crashed.
            return Scan(records, at, damaged=bool(data[at:].strip(b"\0")))
        payload = data[at + HEAD.size : at + HEAD.size + length]
        if len(payload) < length:
            break
        if crc32(payload) != payload_sum ^ number(at) or (record := _decoded(payload)) is None:
            return Scan(records, at, damaged=True)
        records.append(record)
        at += HEAD.size + length
    return Scan(records, at, damaged=False)


def _decoded(payload: bytes) -> Record | None:
    try:
        kind, (number,) = Kind(payload[0]), I64.unpack_from(payload, 1)
    except (IndexError, ValueError, StructError):
        return None
    parts: list[bytes] = []
    at, end = 1 + I64.size, len(payload)
    while at < end:
        if end - at < U64.size:
            return None
        (length,) = U64.unpack_from(payload, at)
        at += U64.size
        if length > end - at:
            return None
        parts.append(payload[at : at + length])
        at += length
    right = len(parts) == PARTS[kind] if kind in PARTS else len(parts) % 2 == 0
    return Record(kind, number, tuple(parts)) if right else None
