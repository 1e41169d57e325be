"""The bytes of TCPStore's protocol (torch 2.13, TCPStore.cpp and TCPStoreBackend.hpp) and of its extensions.

Rule: integers are little endian. A blob is its u64 length and then its bytes. A list is its u64 count and then blobs.
"""

from __future__ import annotations

from collections.abc import Iterable
from struct import Struct

U32 = Struct("<I")
U64 = Struct("<Q")
I64 = Struct("<q")

MAGIC = 0x3C85F7CE  # sent with VALIDATE (TCPStoreBackend.hpp: validationMagicNumber)
COUNTER_KEY = b"init/"  # counts the connected workers; the only key that torch sends without a leading "/"
PROBE_KEY = b"trystate/extensions/1"  # a server that answers READY to a CHECK of it has the extensions
VERSION = 1  # the version of the extensions
IDENTITY_BYTES = 16  # the size of the identity of a server's contents, which differs for each store
# Flags of the answer to HELLO: the server requires a proof; its store is kept across restarts; it has rooms.
SECRET, KEPT, ROOMS = 1, 2, 4
TOKEN_BYTES = 16  # identifies our client at a barrier

READY, NOT_READY = b"\x00", b"\x01"  # the reply to CHECK
STOP_WAITING, WAIT_CANCELED = b"\x00", b"\x01"  # the reply to WAIT and BARRIER, and to CANCEL_WAIT


def blob(data: bytes) -> bytes:
    """One key or value."""
    return U64.pack(len(data)) + data


def blobs(items: Iterable[bytes]) -> bytes:
    """Keys or values one after the other, without a count."""
    pack = U64.pack
    return b"".join([pack(len(item)) + item for item in items])


def counted(keys: list[bytes]) -> bytes:
    """A list: its count, then its blobs."""
    return U64.pack(len(keys)) + blobs(keys)


def shown(data: bytes) -> str:
    """Bytes of a peer as text for a line of a log."""
    return repr(data) if len(data) <= 80 else f"{data[:80]!r}... ({len(data)} bytes)"
