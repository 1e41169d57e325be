"""The bytes of TCPStore's protocol (torch 2.13, TCPStore.cpp and TCPStoreBackend.hpp) and of its extensions.

Rule: integers are little endian, a blob is its u64 length and then its bytes, a list is its u64 count and then blobs.
"""

from __future__ import annotations

from collections.abc import Iterable
from struct import Struct

U32 = Struct("<I")
U64 = Struct("<Q")
I64 = Struct("<q")

MAGIC = 0x3C85F7CE  # sent with VALIDATE (TCPStoreBackend.hpp: validationMagicNumber)
COUNTER_KEY = b"init/"  # the workers that have connected; the one key that torch sends without a leading "/"
PROBE_KEY = b"trystate/extensions/1"  # READY to a CHECK of it: the server knows the extensions
VERSION = 1  # of the extensions
IDENTITY_BYTES = 16  # of a server's contents: another one's are others
SECRET, KEPT = 1, 2  # flags of the answer to HELLO: it wants a proof; it is kept across restarts
TOKEN_BYTES = 16  # identifies our client at a barrier

READY, NOT_READY = b"\x00", b"\x01"  # the reply to CHECK
STOP_WAITING, WAIT_CANCELED = b"\x00", b"\x01"  # the reply to WAIT and BARRIER, and to CANCEL_WAIT


def blob(data: bytes) -> bytes:
    """One key or value."""
    return U64.pack(len(data)) + data


def blobs(items: Iterable[bytes]) -> bytes:
    """Keys or values one after the other, with no count in front."""
    pack = U64.pack
    return b"".join([pack(len(item)) + item for item in items])


def counted(keys: list[bytes]) -> bytes:
    """A list: its count, then its blobs."""
    return U64.pack(len(keys)) + blobs(keys)


def shown(data: bytes) -> str:
    """Bytes of a peer as a line of a log can hold them."""
    return repr(data) if len(data) <= 80 else f"{data[:80]!r}... ({len(data)} bytes)"
