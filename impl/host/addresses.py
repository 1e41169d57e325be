"""Addresses as people write them, and the address by which others reach this machine.

Rule: options, URLs and variables are read by these functions alone; a host is kept without the brackets of its text.
"""

from __future__ import annotations

import ipaddress
import re
import socket

from trystate.model.errors import UsageError

from .listening import listen
from .resolver import resolve

PORT_MAX = 65535
NAME = re.compile(r"[\w.-]{1,253}", re.ASCII)  # a name of DNS has at most 253 characters
LOOK_UP_SECONDS = 30.0  # glibc gives up after 5 s for each server and attempt
ROUTE = "192.0.2.1"  # an example address (RFC 5737), which this machine reaches by its default route


def host_of(text: str) -> str:
    """The host that a text names, an IPv6 address with or without brackets. Raises UsageError."""
    host = text.strip()
    if host[:1] == "[" and host[-1:] == "]":
        host = host[1:-1]
        if _version(host) != 6:
            raise UsageError(f"{text!r} has brackets, which only an IPv6 address may have; give a name or an address")
    elif ":" in host and _version(host) != 6:
        raise UsageError(f"{text!r} is not a host: give a name or an address, without a port")
    if not NAME.fullmatch(host) and _version(host) is None:
        raise UsageError(f"{text!r} is not a host: give a name or an address")
    return host


def host_and_port(text: str, default_port: int | None = None) -> tuple[str, int]:
    """The host and the port of "host:port"; an IPv6 address needs brackets. Raises UsageError."""
    host, colon, port = text.strip().rpartition(":")
    if not colon or port[-1:] == "]":  # the last colon is part of an address in brackets
        host, colon, port = text.strip(), "", ""
    if host[:1] != "[" and ":" in host:
        meant = f"[{host}]:{port}" if _version(text.strip()) is None else f"[{text.strip()}]:{default_port or 29500}"
        raise UsageError(f"{text!r}: an IPv6 address needs brackets before a port: write {meant}")
    if not colon and default_port is not None:
        return host_of(host), default_port
    if not (port.isascii() and port.isdigit() and len(port) < 9 and int(port) <= PORT_MAX):
        raise UsageError(f"{text!r} has no port from 0 to {PORT_MAX}; give host:port")
    return host_of(host), int(port)


def known_host(text: str) -> str:
    """The host that a text names, which this machine can look up. Raises UsageError."""
    host = host_of(text)
    try:
        resolve(host, 0, LOOK_UP_SECONDS)
    except OSError as error:
        raise UsageError(f"{text!r} is unknown to this machine ({error.strerror or error}): give an address of this "
                         f"machine, or a name that `getent hosts {host}` knows") from error  # fmt: skip
    return host


def own_host(given: str | None, towards: str) -> str:
    """The address by which the others reach this machine: the given one, or else the source address of its route.

    If `towards` is a name of this machine that means loopback here, the address is that name, which means another
    address elsewhere.

    Args:
        given: the user's address; None or empty: not given.
        towards: a host that all machines reach; empty: the default route is used.
    """
    if given:
        return host_of(given)
    try:
        family, kind, _, _, address = socket.getaddrinfo(towards or ROUTE, 9, type=socket.SOCK_DGRAM)[0]
        with socket.socket(family, kind) as route:
            route.connect(address)  # sends nothing
            found = str(route.getsockname()[0])
    except (OSError, UnicodeError):
        return socket.gethostname()
    return towards if _is_name(towards) and is_loopback(found) else found


def listen_as(host: str) -> socket.socket:
    """A socket that listens on the address that others use for this machine, and on any free port.

    It listens on all addresses if that address is not its own, or is a name that means loopback here.

    Raises:
        UsageError: the name is unknown.
    """
    try:
        found = listen(host, 0)
    except UsageError as error:
        if isinstance(error.__cause__, socket.gaierror | UnicodeError):
            raise
    else:
        if not (_is_name(host) and is_loopback(found.getsockname()[0])):
            return found
        found.close()
    return listen("::" if socket.has_dualstack_ipv6() else "0.0.0.0", 0)


def is_loopback(host: str) -> bool:
    """Whether it is a loopback address; a name is not an address."""
    return _version(host) is not None and ipaddress.ip_address(host).is_loopback


def _is_name(host: str) -> bool:
    return host not in ("", "localhost") and _version(host) is None


def _version(host: str) -> int | None:
    try:
        return ipaddress.ip_address(host).version
    except ValueError:
        return None
