"""TLS between the processes of a job: three files in a folder, and the layer of one connection.

A TLS secret of Kubernetes, as cert-manager writes it, has these names. TLS is mutual: a server
accepts only clients with a certificate of its authority, and a client only such servers. A client of a store also
checks that the certificate is for the host that it connects to. RPC does not, because its workers give each other
addresses; it includes the certificate in its proof (`rpc/handshake.py`).

The files are read again when they have changed, by the next new connection, so certificates are replaced without a
restart. A process whose new files cannot be used continues with the old ones, which it has in memory: a connection may
be made between the writing of two files.

Rule: files that no peer could accept are refused where they are named, before the program listens or connects.
"""

from __future__ import annotations

import contextlib
import hashlib
import os
import socket
import ssl
import stat
import threading
from dataclasses import dataclass
from pathlib import Path
from typing import NamedTuple

from trystate.model.errors import UsageError

from .sealing import Altered, limit, read_record

CERTIFICATE, KEY, AUTHORITY = FILES = ("tls.crt", "tls.key", "ca.crt")
OLDEST = ssl.TLSVersion.TLSv1_2
HANDSHAKE = 22  # the type of the first record of a connection (RFC 8446, 5.1)
NO_TLS = bytes.fromhex("15030100020246")  # an alert: fatal, protocol_version
HEAD_BYTES = 5
BODY_BYTES_MAX = (1 << 14) + 2048  # RFC 5246, 6.2.3
PIECE_BYTES = 1 << 18
REMEDY = "docs/deploy.md shows how to make the three files"


class _Contexts(NamedTuple):
    server: ssl.SSLContext
    client: ssl.SSLContext  # checks the name of the server
    nameless: ssl.SSLContext
    digest: bytes  # SHA-256 of the certificate


_known: dict[str, tuple[object, _Contexts]] = {}  # a folder: the state of its files when they were read, and the result


@dataclass(frozen=True, slots=True)
class Tls:
    """TLS with the files tls.crt, tls.key and ca.crt of a folder: the certificate of this process, its private key, and
    the authority that has signed the certificates of all processes.

    Raises UsageError if a file is missing, all users can read the key, or the three do not fit together.
    """

    folder: str

    def __post_init__(self) -> None:
        object.__setattr__(self, "folder", str(self.folder))
        contexts(self)


def contexts(tls: Tls) -> _Contexts:
    """The contexts of the files as they are now. Raises UsageError."""
    state = [_state(tls.folder, name) for name in FILES]
    known = _known.get(tls.folder)
    if known is None or known[0] != state:
        known = _known[tls.folder] = state, _read(tls.folder)
    return known[1]


def latest(tls: Tls) -> _Contexts:
    """The contexts of the files as they are now, or of the last files that could be used."""
    try:
        return contexts(tls)
    except UsageError:
        if tls.folder not in _known:
            raise
        return _known[tls.folder][1]


def serving(tls: Tls) -> Layer:
    """The layer of a connection that this process has accepted."""
    found = latest(tls)
    return Layer(found.server, found.digest)


def calling(tls: Tls, host: str = "") -> Layer:
    """The layer of a connection to `host`; without a host the name in the certificate is not checked."""
    found = latest(tls)
    return Layer(found.client if host else found.nameless, None, host)


def _state(folder: str, name: str) -> tuple[int, ...]:
    path = Path(folder, name)
    try:
        found = path.stat()
    except (OSError, ValueError) as error:
        why = getattr(error, "strerror", None) or error
        raise UsageError(f"tls={folder}: cannot read {path} ({why}): {REMEDY}") from error
    if name == KEY and found.st_mode & (stat.S_IROTH | stat.S_IWOTH):
        raise UsageError(f"tls={folder}: the key is open to every user of this machine: chmod o-rw {path}")
    return found.st_mtime_ns, found.st_ino, found.st_size


def _read(folder: str) -> _Contexts:
    server = _context(folder, ssl.PROTOCOL_TLS_SERVER)
    client, nameless = (_context(folder, ssl.PROTOCOL_TLS_CLIENT) for _ in range(2))
    nameless.check_hostname = False
    try:
        digest = _tried(server, nameless)
    except ssl.SSLError as error:
        raise UsageError(f"tls={folder}: {CERTIFICATE} is refused: {reason(error)}; use a valid certificate that the "
                         f"authority in {AUTHORITY} has signed: {REMEDY}") from error  # fmt: skip
    return _Contexts(server, client, nameless, digest)


def _context(folder: str, side: int) -> ssl.SSLContext:
    context = ssl.SSLContext(side)
    context.minimum_version = OLDEST
    context.options |= ssl.OP_NO_RENEGOTIATION
    context.verify_mode = ssl.CERT_REQUIRED
    if side == ssl.PROTOCOL_TLS_SERVER:
        context.num_tickets = 0  # a client that waits for an answer reads nothing else
    certificate, key, authority = (os.path.join(folder, name) for name in FILES)
    try:
        context.load_cert_chain(certificate, key, password=lambda: b"")
    except (OSError, ValueError) as error:
        raise UsageError(f"tls={folder}: {CERTIFICATE} and {KEY} cannot be used: {reason(error)}; give a certificate "
                         f"and its key, without a password, as PEM: {REMEDY}") from error  # fmt: skip
    try:
        context.load_verify_locations(authority)
    except (OSError, ValueError) as error:
        raise UsageError(f"tls={folder}: {AUTHORITY} cannot be used: {reason(error)}; give the certificate of the "
                         f"authority as PEM: {REMEDY}") from error  # fmt: skip
    return context


def reason(error: Exception) -> str:
    """The cause of an error of `ssl`, without the place in its source."""
    if isinstance(error, ssl.SSLCertVerificationError):
        return str(error.verify_message)
    found = getattr(error, "reason", None)
    return found.lower().replace("_", " ") if isinstance(found, str) else str(error)


def _tried(server: ssl.SSLContext, client: ssl.SSLContext) -> bytes:
    """The digest of the certificate, which both sides accept. Raises SSLError, of a certificate that is expired too."""
    sides = Layer(client), Layer(server, b"")
    sender, receiver = sides
    while not (sender.step() and receiver.shaken):
        receiver.feed(sender.answer())
        sender, receiver = receiver, sender
    return sides[0].digest


class Layer:
    """The records of one connection over TLS. `digest` identifies the certificate of the server."""

    HEAD_BYTES = HEAD_BYTES

    def __init__(self, context: ssl.SSLContext, digest: bytes | None = None, host: str = "") -> None:
        self._in, self._out = ssl.MemoryBIO(), ssl.MemoryBIO()
        self._serves = digest is not None
        self._digest = digest
        self._tls = context.wrap_bio(self._in, self._out, server_side=self._serves, server_hostname=host or None)
        # OpenSSL allows one thread at a time. Reentrant: a signal handler may send while its thread opens.
        self._lock = threading.RLock()
        self.shaken = False
        self._begun = False

    @property
    def digest(self) -> bytes:
        if self._digest is None:
            self._digest = hashlib.sha256(self._tls.getpeercert(True) or b"").digest()
        return self._digest

    def body_bytes(self, head: bytes) -> int:
        if head[1] != 3 or (size := int.from_bytes(head[3:5], "big")) > BODY_BYTES_MAX:
            raise Altered("the peer does not speak TLS: give both sides the same `tls`")
        return size

    def feed(self, data: bytes) -> None:
        """Take bytes of the peer. Raises Altered if they do not begin a handshake."""
        if data and not self._begun:
            self._begun = True
            if data[0] != HANDSHAKE and self._serves:
                self._out.write(NO_TLS)
                raise Altered("it speaks without TLS: give the client `tls`")
        self._in.write(data)

    def step(self) -> bool:
        """Continue the handshake; whether it is over. Raises SSLError; the bytes of `answer` then have the reason."""
        with self._lock, contextlib.suppress(ssl.SSLWantReadError):
            self._tls.do_handshake()
            self.shaken = True
        return self.shaken

    def sealed(self, data: bytes) -> bytes:
        view, found = memoryview(data).cast("B"), []
        with self._lock:
            while len(view):
                view = view[self._tls.write(view[:PIECE_BYTES]) :]
                found.append(self._out.read())  # not once behind all: one read returns less than 2 GiB
        return b"".join(found)

    def opened(self, data: bytes) -> bytes:
        self.feed(data)
        found: list[bytes] = []
        if not self.shaken and not self.step():
            return b""
        with self._lock, contextlib.suppress(ssl.SSLWantReadError):
            while piece := self._tls.read(PIECE_BYTES):
                found.append(piece)
            if not found:
                raise ConnectionResetError("closed by the peer")
        return b"".join(found)

    def answer(self) -> bytes:
        return self._out.read()

    def shake(self, sock: socket.socket, deadline: float) -> None:
        """Do the whole handshake on a blocking socket. No byte behind it is taken from the socket.

        Raises SSLError, Altered, TimeoutError, ConnectionResetError.
        """
        try:
            while not self.step():
                limit(sock, deadline)
                sock.sendall(self.answer())
                self.feed(read_record(sock, self, deadline))
        except ConnectionResetError as error:
            raise ConnectionResetError(f"{error} during the handshake of TLS: see whether the peer has `tls`") from None
        finally:
            with contextlib.suppress(OSError):
                sock.sendall(self.answer())
