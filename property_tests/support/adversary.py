"""An adversary on the wire: a relay on a real socket that reads everything, and alters, repeats, or cuts what it likes;
and authorities and certificates, made with the command `openssl` as docs/deploy.md shows it.

Rule: the relay passes bytes on in pieces as they arrive; an `Attack` decides the bytes that leave for each piece.
"""

from __future__ import annotations

import contextlib
import shutil
import socket
import subprocess
import threading
from collections.abc import Callable
from pathlib import Path
from typing import Self

from trystate.impl.host.tls import Tls, contexts

TO_SERVER, TO_CLIENT = 0, 1
NEW = ("-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:prime256v1", "-nodes", "-subj", "/CN=job")
Attack = Callable[[int, int, bytes], bytes | None]  # direction, position of the piece, piece -> what leaves; None: cut


def passing(direction: int, at: int, piece: bytes) -> bytes | None:
    return piece


def flipping(where: int, position: int) -> Attack:
    """Alter one byte of one direction."""

    def attack(direction: int, at: int, piece: bytes) -> bytes | None:
        if direction != where or not at <= position < at + len(piece):
            return piece
        altered = bytearray(piece)
        altered[position - at] ^= 1
        return bytes(altered)

    return attack


def cutting(where: int, position: int) -> Attack:
    """End the connection behind some bytes of one direction."""
    return lambda direction, at, piece: (
        piece if direction != where or at + len(piece) <= position else piece[: position - at] or None
    )


def repeating(where: int, position: int) -> Attack:
    """Send the piece that has this position twice."""
    return lambda direction, at, piece: piece * 2 if direction == where and at <= position < at + len(piece) else piece


def adding(where: int, position: int, added: bytes) -> Attack:
    """Send more bytes behind the piece that begins at this position."""
    return lambda direction, at, piece: piece + added if direction == where and at == position else piece


class Relay:
    """A relay before a port of this machine. `recorded` has the bytes of both directions, of all connections.

    With `tls`, its own files, it ends the TLS of the client, and begins another one to the server.
    """

    def __init__(self, port: int, attack: Attack = passing, tls: Tls | None = None) -> None:
        self._to, self.attack, self._tls = port, attack, tls
        self.recorded = [bytearray(), bytearray()]
        self._listener = socket.create_server(("127.0.0.1", 0))
        self.port: int = self._listener.getsockname()[1]
        self._open: list[socket.socket] = []
        self._threads: list[threading.Thread] = []
        self._accepting = threading.Thread(target=self._accept)
        self._accepting.start()

    def _accept(self) -> None:
        with contextlib.suppress(OSError):
            while True:
                client, _ = self._listener.accept()
                server = socket.create_connection(("127.0.0.1", self._to))
                if self._tls is not None:
                    client = contexts(self._tls).server.wrap_socket(client, server_side=True)
                    server = contexts(self._tls).nameless.wrap_socket(server)
                self._open += [client, server]
                for pair in ((TO_SERVER, client, server), (TO_CLIENT, server, client)):
                    self._threads.append(threading.Thread(target=self._pass, args=pair))
                    self._threads[-1].start()

    def _pass(self, direction: int, source: socket.socket, to: socket.socket) -> None:
        at = 0
        with contextlib.suppress(OSError):
            while piece := source.recv(1 << 16):
                self.recorded[direction] += piece
                leaves = self.attack(direction, at, piece)
                at += len(piece)
                if leaves is None:
                    break
                to.sendall(leaves)
        for sock in (source, to):
            with contextlib.suppress(OSError):
                sock.shutdown(socket.SHUT_RDWR)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self._listener.shutdown(socket.SHUT_RDWR)  # ends `accept`
        self._accepting.join()
        for sock in self._open:
            with contextlib.suppress(OSError):
                sock.shutdown(socket.SHUT_RDWR)
        for thread in self._threads:
            thread.join()
        for sock in (self._listener, *self._open):
            sock.close()


def authority(folder: Path) -> Path:
    """A new authority: ca.crt and ca.key in the folder."""
    folder.mkdir()
    openssl("req", "-x509", *NEW, "-days", "2", "-keyout", "ca.key", "-out", "ca.crt", at=folder)
    return folder


def certified(of: Path, folder: Path, names: str = "DNS:localhost,IP:127.0.0.1", days: int = 2) -> Path:
    """A folder with tls.crt, tls.key and ca.crt: a certificate for these names that the authority has signed.

    With days=-1 it has expired.
    """
    folder.mkdir(exist_ok=True)
    openssl("req", *NEW, "-addext", f"subjectAltName={names}", "-keyout", "tls.key", "-out", "csr", at=folder)
    signed = ("-CA", f"{of}/ca.crt", "-CAkey", f"{of}/ca.key", "-days", str(days), "-copy_extensions", "copy")
    openssl("x509", "-req", "-in", "csr", *signed, "-out", "tls.crt", at=folder)
    shutil.copy(of / "ca.crt", folder)
    return folder


def openssl(*words: str, at: Path) -> None:
    subprocess.run(["openssl", *words], cwd=at, check=True, capture_output=True)
