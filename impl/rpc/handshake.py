"""How two workers connect: the worker with the higher rank calls, and both prove that they have the same key.

The key is the token that worker 0 put into the store, followed by the secret of the options, if any. The stores
use the same proofs (host/secret.py). On one machine two workers meet at a socket without address or port, and give
each other their arenas. Each side refuses a process of another user there. Between machines TLS comes first, if the
options have it, and the proofs include the certificate of the called worker, so no other process with a certificate can
be between the two. Without TLS and with a secret, all frames are bound to the proofs (`host/sealing`). No worker
listens any more when all are connected. Rule: each caller is greeted on its own thread within a few seconds, or not at
all, so no stranger delays the others.
"""

from __future__ import annotations

import contextlib
import hmac
import os
import secrets
import select
import socket
import threading
from collections.abc import Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from struct import Struct
from time import monotonic
from typing import Any

from ..host.addresses import is_loopback, listen_as
from ..host.listening import BACKLOG, peer_name, prepared
from ..host.resolver import resolve
from ..host.sealing import Altered, Layer, bound, exactly, limit, read_record
from ..host.secret import NONCE_BYTES, client_proof, server_proof
from ..host.tls import Layer as TlsLayer
from ..host.tls import calling, serving
from . import arena as shared
from .arena import Arena, Window
from .connection import Connection
from .directory import Entry, machine
from .errors import FrameRefused, PeerLost, RpcError, RpcTimeout
from .events import EventFd
from .options import Options

MAGIC = b"trysRPC3"
HELLO = Struct(f"<8sI{NONCE_BYTES}s")  # the caller's rank and challenge
REPLY = Struct(f"<8sI{NONCE_BYTES}s32s")  # the callee's rank and challenge, and its proof
PROOF = Struct("<32s?")  # the caller's proof, and whether an arena comes with it
CREDENTIALS, WHO = Struct("3i"), (socket.SOL_SOCKET, socket.SO_PEERCRED)  # process, user and group of a peer
ACCEPTED = Struct("<?")  # whether an arena comes with it
GREETING_SECONDS = 5.0  # time for a caller to send its rank and its proof
GREETINGS_MAX = 64  # greetings at the same time
BUFFER_BYTES = 1 << 22  # a socket's buffers, as far as the system allows


@dataclass
class Listeners:
    """Where this worker can be reached while all are connecting."""

    tcp: socket.socket
    local: socket.socket | None
    name: str

    @classmethod
    def open(cls, host: str) -> Listeners:
        """Raises UsageError if the host is unknown."""
        tcp = listen_as(host)
        local, name = None, ""
        if machine():
            name = f"trystate-rpc-{secrets.token_hex(16)}"
            local = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
            local.bind("\0" + name)
            local.listen(BACKLOG)
        return cls(tcp, local, name)

    def close(self) -> None:
        self.tcp.close()
        if self.local is not None:
            self.local.close()


class Meeting:
    """One worker while it connects to all others."""

    def __init__(self, me: int, entries: Sequence[Entry], options: Options, deadline: float) -> None:
        self.me, self.entries, self.options, self.deadline = me, entries, options, deadline
        self._key = bytes.fromhex(entries[0].token) + (options.secret or b"")
        self._failed = ""  # the error of the last refused caller
        self._callers: set[socket.socket] = set()  # sockets with a handshake in progress
        self._room = threading.Semaphore(GREETINGS_MAX)
        self._bell = EventFd()  # rung when a greeting is over

    def connect(self, listeners: Listeners) -> dict[int, Connection]:
        """A connection to each other worker. Raises RpcTimeout, PeerLost and RpcError."""
        found: dict[int, Connection] = {}
        try:
            for peer in range(self.me):
                found[peer] = self._call(peer)
            self._answer(listeners, found)
        except BaseException:
            for connection in found.values():
                connection.release()
            raise
        return found

    def alone(self) -> tuple[Connection, Connection]:
        """Both ends of a connection to this worker itself."""
        one, other = socket.socketpair()
        limits = self.options.limits
        return Connection(self.me, one, None, None, limits), Connection(self.me, other, None, None, limits)

    # The caller's side.

    def _call(self, peer: int) -> Connection:
        entry = self.entries[peer]
        try:
            sock = self._reach(peer)
        except OSError as error:
            place = peer_name((entry.host, entry.port))
            remedy = "see whether it runs, and which `host` its options give"
            if is_loopback(entry.host):  # a loopback address means this machine here, and the other machine there
                remedy = "that address is each machine's own; give that worker its address: Options(host=...)"
            raise PeerLost(f"worker {entry.name!r} cannot be reached at {place} ({error}): {remedy}"
                           ) from error  # fmt: skip
        try:
            return self._introduce(sock, peer)
        except BaseException as error:
            sock.close()
            if isinstance(error, TimeoutError):
                raise RpcTimeout(f"worker {entry.name!r} did not answer in time: see what it waits for, or raise "
                                 "init_timeout") from None  # fmt: skip
            if isinstance(error, OSError):
                raise PeerLost(f"worker {entry.name!r} closed the connection while it was made ({error}): see its "
                               "error, and whether all have the same secret and `tls`") from error  # fmt: skip
            raise

    def _reach(self, peer: int) -> socket.socket:
        entry = self.entries[peer]
        family, address = (
            (socket.AF_UNIX, "\0" + entry.local)
            if self._beside(peer, self.me)
            else resolve(entry.host, entry.port, self._left())[0]
        )
        sock = socket.socket(family, socket.SOCK_STREAM)
        try:
            sock.settimeout(self._left())
            sock.connect(address)
            if family != socket.AF_UNIX:
                prepared(sock)
            elif _is_of_another_user(sock):
                raise RpcError(f"another user listens at the local socket of worker {entry.name!r}: end that process")
        except BaseException:
            sock.close()
            raise
        return sock

    def _introduce(self, sock: socket.socket, peer: int) -> Connection:
        mine = secrets.token_bytes(NONCE_BYTES)
        wire = Wire(sock, self.deadline)
        digest = wire.shake(calling(self.options.tls)) if self.options.tls and not wire.local else b""
        wire.send(HELLO.pack(MAGIC, self.me, mine))
        magic, rank, theirs, proof = REPLY.unpack(wire.read(REPLY.size))
        key = self._pair(self.me, peer, digest)
        if magic != MAGIC or rank != peer or not hmac.compare_digest(proof, server_proof(key, theirs, mine)):
            raise RpcError(f"worker {self.entries[peer].name!r} does not know the group's secret: give "
                           "all workers the same `secret`")  # fmt: skip
        arena = self._arena(sock)
        wire.give(PROOF.pack(client_proof(key, theirs, mine), arena is not None), arena)
        with wire.taken(ACCEPTED) as ((shares,), window):
            if self._binds(wire):
                wire.layer = bound(key, theirs, mine, server=False)
            return self._connection(peer, wire, arena, window if shares else None)

    # The other side.

    def _answer(self, listeners: Listeners, found: dict[int, Connection]) -> None:
        """Greet callers until all workers have called. Where all use the local socket, no TCP caller is accepted."""
        near = all(self._beside(self.me, caller) for caller in range(self.me + 1, len(self.entries)))
        doors = {door.fileno(): door for door in (listeners.local, None if near else listeners.tcp) if door is not None}
        poll = select.poll()
        for fd in (*doors, self._bell.fd):
            poll.register(fd, select.POLLIN)
        with ThreadPoolExecutor(GREETINGS_MAX, "rpc greeting") as threads:
            try:
                while len(found) < len(self.entries) - 1:
                    left = self.deadline - monotonic()
                    ready = poll.poll(left * 1000) if left > 0 else []
                    if not ready:
                        self._nobody(found)
                    for fd, _ in ready:
                        if fd == self._bell.fd:
                            self._bell.heard()
                        elif self._room.acquire(timeout=self._left()):
                            sock, _ = doors[fd].accept()
                            self._callers.add(sock)
                            threads.submit(self._greet, sock, found)
            finally:
                for sock in list(self._callers):  # strangers: their threads end now
                    with contextlib.suppress(OSError):
                        sock.shutdown(socket.SHUT_RDWR)

    def _greet(self, sock: socket.socket, found: dict[int, Connection]) -> None:
        try:
            peer, connection = self._receive(sock, found, min(self.deadline, monotonic() + GREETING_SECONDS))
            # Before it counts as found: handshakes in progress are cut off when all are found.
            self._callers.discard(sock)
            if found.setdefault(peer, connection) is not connection:
                connection.release()
        except Exception as error:  # a stranger may send anything
            self._failed = str(error)
            sock.close()
        finally:
            self._callers.discard(sock)
            self._room.release()
            self._bell.ring()

    def _nobody(self, found: dict[int, Connection]) -> None:
        missing = [e.name for rank, e in enumerate(self.entries) if rank > self.me and rank not in found]
        also = f"; the last failed attempt: {self._failed}" if self._failed else ""
        many = "1 worker" if len(missing) == 1 else f"{len(missing)} workers"
        raise RpcTimeout(f"{many} did not connect in time ({', '.join(missing[:8])}): see their "
                         f"errors, or raise init_timeout{also}")  # fmt: skip

    def _receive(self, sock: socket.socket, found: dict[int, Connection], deadline: float) -> tuple[int, Connection]:
        wire = Wire(sock, deadline)
        if wire.local and _is_of_another_user(sock):
            raise RpcError("a process of another user calls at the local socket of this worker: end that process")
        digest = wire.shake(serving(self.options.tls)) if self.options.tls and not wire.local else b""
        magic, peer, theirs = HELLO.unpack(wire.read(HELLO.size))
        if magic != MAGIC or not self.me < peer < len(self.entries) or peer in found:
            raise RpcError(f"a caller claims to be worker {peer}")
        if wire.local and not self._beside(self.me, peer):
            raise RpcError(f"a caller of this machine claims to be worker {peer}, which is of another machine")
        mine = secrets.token_bytes(NONCE_BYTES)
        key = self._pair(peer, self.me, digest)
        wire.send(REPLY.pack(MAGIC, self.me, mine, server_proof(key, mine, theirs)))
        with wire.taken(PROOF) as ((proof, shares), window):
            if not hmac.compare_digest(proof, client_proof(key, mine, theirs)):
                raise RpcError(f"worker {self.entries[peer].name!r} does not know the group's secret")
            arena = self._arena(sock)
            wire.give(ACCEPTED.pack(arena is not None), arena)
            if self._binds(wire):
                wire.layer = bound(key, mine, theirs, server=True)
            return peer, self._connection(peer, wire, arena, window if shares else None)

    # Both.

    def _left(self) -> float:
        return max(self.deadline - monotonic(), 0.001)

    def _beside(self, called: int, caller: int) -> bool:
        """Whether they meet at the local socket of `called`."""
        return bool(self.entries[called].local) and self.entries[called].machine == self.entries[caller].machine

    def _pair(self, caller: int, called: int, digest: bytes) -> bytes:
        return hmac.digest(self._key, b"%d calls %d" % (caller, called) + digest, "sha256")

    def _binds(self, wire: Wire) -> bool:
        return self.options.secret is not None and self.options.tls is None and not wire.local

    def _arena(self, sock: socket.socket) -> Arena | None:
        if sock.family != socket.AF_UNIX or not self.options.arena_bytes or not shared.available():
            return None
        try:
            return Arena(self.options.arena_bytes)
        except OSError:  # no descriptor, or not allowed here: tensors go through the socket
            return None

    def _connection(self, peer: int, wire: Wire, arena: Arena | None, window: int | None) -> Connection:
        sock = wire.sock
        for option in (socket.SO_SNDBUF, socket.SO_RCVBUF):
            if sock.family == socket.AF_UNIX:
                sock.setsockopt(socket.SOL_SOCKET, option, BUFFER_BYTES)
        mapped = None if window is None else Window(os.dup(window))
        return Connection(peer, sock, arena, mapped, self.options.limits, wire.layer)


def _is_of_another_user(sock: socket.socket) -> bool:
    """Whether the peer at a local socket is a process of another user."""
    return bool(CREDENTIALS.unpack(sock.getsockopt(*WHO, CREDENTIALS.size))[1] != os.getuid())


class Wire:
    """The socket of a handshake, and its layer if it has one: each message is one record."""

    def __init__(self, sock: socket.socket, deadline: float) -> None:
        self.sock, self.deadline = sock, deadline
        self.layer: Layer | None = None
        self.local = sock.family == socket.AF_UNIX

    def shake(self, layer: TlsLayer) -> bytes:
        """Begin TLS. Returns the digest of the certificate of the called worker."""
        layer.shake(self.sock, self.deadline)
        self.layer = layer
        return layer.digest

    def send(self, data: bytes) -> None:
        limit(self.sock, self.deadline)
        self.sock.sendall(data if self.layer is None else self.layer.sealed(data))

    def read(self, size: int) -> bytes:
        if self.layer is None:
            return exactly(self.sock, size, self.deadline)
        data = self.layer.opened(read_record(self.sock, self.layer, self.deadline))
        if len(data) != size:
            raise Altered(f"it sent {len(data)} bytes, not the {size} of a greeting")
        return data

    def give(self, data: bytes, arena: Arena | None) -> None:
        if arena is None:
            self.send(data)
            return
        if socket.send_fds(self.sock, [data], [arena.fd]) != len(data):
            raise FrameRefused("the socket accepted only a part of a greeting")
        arena.close_descriptor()

    @contextlib.contextmanager
    def taken(self, what: Struct) -> Iterator[tuple[tuple[Any, ...], int | None]]:
        """The values that were sent, and the descriptor that came with them. TCP carries no descriptors.

        All descriptors are closed at the end, since a stranger may have sent several.
        """
        if not self.local:
            yield what.unpack(self.read(what.size)), None
            return
        limit(self.sock, self.deadline)
        data, fds, _, _ = socket.recv_fds(self.sock, what.size, 1)
        try:
            for fd in fds:
                os.set_inheritable(fd, False)
            if not data:
                raise ConnectionResetError("closed by the peer")
            if len(data) < what.size:
                data += exactly(self.sock, what.size - len(data), self.deadline)
            yield what.unpack(data), fds[0] if fds else None
        finally:
            for fd in fds:
                os.close(fd)
