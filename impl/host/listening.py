"""Listening sockets: bound to the one given address, or taken over from a caller.

Rule: an error in an address is reported before anything is served, as a UsageError with the remedy, whose cause is the
OSError.
"""

from __future__ import annotations

import errno
import os
import socket

from trystate.model.errors import UsageError

BACKLOG = 4096  # 512 clients connect in one burst; the kernel caps it at net.core.somaxconn

# A peer whose machine vanished sends no FIN. Its resources are freed after about 2 minutes without an answer to the
# kernel's probes; a peer that is merely idle answers these without noticing.
KEEPALIVE = {
    socket.TCP_KEEPIDLE: 60, socket.TCP_KEEPINTVL: 15, socket.TCP_KEEPCNT: 4, socket.TCP_USER_TIMEOUT: 120_000,
}  # fmt: skip


def listen(host: str, port: int) -> socket.socket:
    """A socket that listens on `host` alone; "0.0.0.0" and "::" (which takes IPv4 too) are all interfaces.

    `port` 0 is any free one. Raises UsageError if the host is unknown or not of this machine, or the port is taken.
    """
    if not host:
        raise UsageError('the host is empty; give an address, such as "127.0.0.1", or "0.0.0.0" for all interfaces')
    if not 0 <= port <= 65535:
        raise UsageError(f"port {port} is not in the range from 0 (any free port) to 65535; give one that is")
    try:
        found = socket.getaddrinfo(host, port, type=socket.SOCK_STREAM, flags=socket.AI_PASSIVE)
    except (OSError, UnicodeError) as error:
        raise UsageError(f"unknown host {host!r} ({error}): give a name or an address of this machine") from error
    family, kind, protocol, _, address = found[0]
    listener = socket.socket(family, kind, protocol)
    try:
        listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        if family == socket.AF_INET6:
            listener.setsockopt(socket.IPPROTO_IPV6, socket.IPV6_V6ONLY, int(address[0] != "::"))
        listener.bind(address)
        listener.listen(BACKLOG)
    except OSError as error:
        listener.close()
        raise UsageError(f"cannot listen on {host}:{port}: {_remedy(error)}") from error
    return prepared(listener)


def _remedy(error: OSError) -> str:
    said = os.strerror(error.errno or 0)
    match error.errno:
        case errno.EADDRINUSE:
            return f"{said}; stop the process that uses it, or take port 0 for any free one"
        case errno.EADDRNOTAVAIL:
            return f"{said}; give an address of this machine"
        case errno.EACCES:
            return f"{said}; ports below 1024 are reserved: take a higher one"
    return f"{said}; give another address"


def adopt(listen_fd: int) -> socket.socket:
    """The caller's socket, which listens from now on, and which we close.

    Raises UsageError if `listen_fd` is not a bound TCP socket; the caller then still owns it.
    """
    try:
        listener = socket.socket(fileno=listen_fd)
    except (OSError, ValueError) as error:
        raise UsageError(f"listen_fd {listen_fd}: {error}; give the number of an open, bound socket") from None
    tcp = listener.family in (socket.AF_INET, socket.AF_INET6) and listener.type == socket.SOCK_STREAM
    try:
        if not tcp or not listener.getsockname()[1]:
            raise UsageError(f"listen_fd {listen_fd} is not a bound TCP socket; call bind() on it first")
        if not listener.getsockopt(socket.SOL_SOCKET, socket.SO_ACCEPTCONN):
            listener.listen(BACKLOG)
    except OSError as error:  # it is connected, or another socket listens on its port
        listener.detach()
        raise UsageError(f"listen_fd {listen_fd} cannot listen: {_remedy(error)}") from error
    except UsageError:
        listener.detach()
        raise
    return prepared(listener)


def prepared(listener: socket.socket) -> socket.socket:
    """Set the options that every accepted connection inherits: no delay for small replies, probes for lost peers."""
    listener.setblocking(False)
    listener.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
    listener.setsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE, 1)
    for option, value in KEEPALIVE.items():
        listener.setsockopt(socket.IPPROTO_TCP, option, value)
    return listener


def peer_name(address: tuple[object, ...]) -> str:
    """`127.0.0.1:40000`: numbers only; no name is looked up."""
    host, port = address[0], address[1]
    return f"[{host}]:{port}" if ":" in str(host) else f"{host}:{port}"
