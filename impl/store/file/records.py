"""The bytes of a store's file, and of a server's journal: a magic, then records, each with its length and checksums.

Rule: a file that was cut off at any byte is a shorter file of the same store; anything else that does not read is
damage, and is said so.

    magic | record ...          record = u32 length | u32 CRC of the length | u32 CRC of the payload | payload
    payload = u8 kind | i64 number | blob ...

The length has a checksum of its own: an append that was cut off is told from a length that was overwritten, which
would otherwise pass for the beginning of a very long record, and take all that follow with it. In a journal the
checksum of the payload is combined with the place of the record (`place`): a copy of it elsewhere does not read.
"""

from __future__ import annotations

import enum
from collections.abc import Callable
from dataclasses import dataclass
from struct import Struct
from struct import error as StructError
from zlib import crc32

from ..wire import I64, U64, blobs

MAGIC = b"\x89tryst\x02\n"  # no text begins so; the number is the version of this format
HEAD = Struct("<III")
LENGTH = Struct("<I")
RECORD_BYTES_MAX = (1 << 32) - 1


class Kind(enum.IntEnum):
    """The kind of a record: of the file itself, or an operation that each reader repeats."""

    HEADER = 0  # number: world_size; identity, generation, job, users who have left
    JOIN = 1  # number: the user's pid; ticket, when that process started, where it runs
    LEAVE = 2  # ticket
    SNAPSHOT_END = 3  # the records before it are the state at a moment, and not its history
    SET = 4  # key, value
    MULTI_SET = 5  # key, value, key, value, ...
    ADD = 6  # number: the amount; key
    COMPARE_SET = 7  # key, expected, desired
    APPEND = 8  # key, value
    TAKE = 9  # key
    PUSH = 10  # key, value
    POP = 11  # key; in a journal, number: how many elements stand before it
    ARRIVE = 12  # number: world_size; key, ticket
    WITHDRAW = 13  # ticket
    SYNCED = 14  # of a journal alone; number: so many bytes of it were durable when this was written; its nonce


PARTS = {
    Kind.HEADER: 4, Kind.JOIN: 3, Kind.LEAVE: 1, Kind.SNAPSHOT_END: 0, Kind.SET: 2, Kind.ADD: 1, Kind.COMPARE_SET: 3,
    Kind.APPEND: 2, Kind.TAKE: 1, Kind.PUSH: 2, Kind.POP: 1, Kind.ARRIVE: 2, Kind.WITHDRAW: 1,
    Kind.SYNCED: 1,
}  # fmt: skip


@dataclass(frozen=True, slots=True)
class Record:
    """One of them, decoded."""

    kind: Kind
    number: int
    parts: tuple[bytes, ...]

    @property
    def size(self) -> int:
        """How many bytes it takes in the file."""
        return HEAD.size + 1 + I64.size + sum(U64.size + len(part) for part in self.parts)


def encode(kind: Kind, *parts: bytes, number: int = 0) -> bytes:
    """A record as it stands in the file."""
    payload = bytes([kind]) + I64.pack(number) + blobs(parts)
    length = LENGTH.pack(len(payload))
    return length + LENGTH.pack(crc32(length)) + LENGTH.pack(crc32(payload)) + payload


@dataclass(frozen=True, slots=True)
class Scan:
    """The result of a read: whole records, their size in bytes, and whether the rest is damaged (or just cut off)."""

    records: list[Record]
    used: int
    damaged: bool


def unplaced(at: int) -> int:
    """The number of a place where records have none."""
    return 0


def place(records: bytearray, number: Callable[[int], int]) -> None:
    """Combine the checksum of each record with the number of its place, its offset in `records`."""
    at = 0
    while at < len(records):
        length, length_sum, payload_sum = HEAD.unpack_from(records, at)
        HEAD.pack_into(records, at, length, length_sum, payload_sum ^ number(at))
        at += HEAD.size + length


def scan(data: bytes, number: Callable[[int], int] = unplaced) -> Scan:
    """The records at the beginning of `data`, with the numbers of their places. Never raises; reads each byte once."""
    records: list[Record] = []
    at, end = 0, len(data)
    while end - at >= HEAD.size:
        length, length_sum, payload_sum = HEAD.unpack_from(data, at)
        if crc32(data[at : at + LENGTH.size]) != length_sum:
            # A file system may have kept the new length of the file, and not the bytes, when the machine stopped.
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
