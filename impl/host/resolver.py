"""Addresses of a host by its name, within a time limit.

The system's resolver accepts no time limit: glibc waits 5 s for each datagram that is lost. A name is therefore looked
up on its own thread, which is abandoned when the time is over.
"""

from __future__ import annotations

import ipaddress
import queue
import socket
import threading
from typing import Any

from .deadlines import rounded

SHORTEST_SECONDS = 0.001  # shortest timeout of a socket or queue, where 0 would mean not to wait at all
Address = tuple[socket.AddressFamily, Any]


def resolve(host: str, port: int, seconds: float) -> list[Address]:
    """The addresses of a host. Raises OSError, and TimeoutError if the resolver does not answer in time."""
    try:
        ipaddress.ip_address(host)
    except ValueError:
        return _resolve_aside(host, port, seconds)
    return _addresses(host, port)


def _addresses(host: str, port: int) -> list[Address]:
    try:
        found = socket.getaddrinfo(host, port, type=socket.SOCK_STREAM)
    except UnicodeError as error:
        raise OSError(f"this is not a host name: {error}") from None
    return [(family, where) for family, _, _, _, where in found]


def _resolve_aside(host: str, port: int, seconds: float) -> list[Address]:
    answers: queue.SimpleQueue[list[Address] | OSError] = queue.SimpleQueue()

    def look_up() -> None:
        try:
            answers.put(_addresses(host, port))
        except OSError as error:
            answers.put(error)

    threading.Thread(target=look_up, name=f"resolve {host}", daemon=True).start()
    try:
        answer = answers.get(timeout=max(seconds, SHORTEST_SECONDS))
    except queue.Empty:
        raise TimeoutError(f"the resolver did not answer within {rounded(seconds)} s") from None
    if isinstance(answer, OSError):
        raise answer
    return answer
