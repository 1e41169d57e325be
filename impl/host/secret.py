"""The secret of a store, in a file for the server and its clients.

Rule: a secret that protects nothing is refused where it is read, by each side, and before anything listens or connects.
"""

from __future__ import annotations

import hashlib
import hmac
import os
import stat
from pathlib import Path

from trystate.model.errors import UsageError

SECRET_BYTES_MIN = 16  # 128 bits: an eavesdropper on a handshake can try any number afterwards
NONCE_BYTES = 32  # length of the random challenge that each side sends to the other
SECRET_BYTES_MAX = 4096  # a longer file is not a secret


def read_secret(path: str | Path) -> bytes:
    """The secret in a file, without the line end that an editor leaves.

    Raises UsageError if it cannot be read, is short or very long, or can be read or written by every user.
    """
    try:
        with open(path, "rb") as file:
            secret = file.read(SECRET_BYTES_MAX + 1).rstrip(b"\r\n")
            mode = os.fstat(file.fileno()).st_mode
    except (OSError, ValueError) as error:  # ValueError: a name with a zero byte in it
        why = getattr(error, "strerror", None) or error
        raise UsageError(f"cannot read the secret in {path}: {why}; give a file that you may read") from error
    if len(secret) < SECRET_BYTES_MIN:
        size = f"has {len(secret)} bytes, fewer than {SECRET_BYTES_MIN}" if secret else "is empty"
        raise UsageError(f"the secret in {path} {size}; make one: (umask 077; openssl rand -hex 32 > {path})")
    if len(secret) > SECRET_BYTES_MAX:
        raise UsageError(f"the secret in {path} has more than {SECRET_BYTES_MAX} bytes: name the file that holds it")
    if mode & (stat.S_IROTH | stat.S_IWOTH):
        raise UsageError(f"the secret in {path} is open to every user of this machine: chmod o-rw {path}")
    return secret


def client_proof(secret: bytes, server_nonce: bytes, client_nonce: bytes, agreed: bytes = b"") -> bytes:
    """A client's proof that it has the secret: the HMAC of both nonces, the server's challenge first.

    `agreed`: the bytes that both sides exchanged before; not empty if bound records of a store follow (`sealing`).
    """
    return hmac.digest(secret, b"trystate client" + server_nonce + client_nonce + agreed, hashlib.sha256)


def server_proof(secret: bytes, server_nonce: bytes, client_nonce: bytes, agreed: bytes = b"") -> bytes:
    """A server's proof that it has the secret: the HMAC of both nonces, the client's challenge first."""
    return hmac.digest(secret, b"trystate server" + client_nonce + server_nonce + agreed, hashlib.sha256)
