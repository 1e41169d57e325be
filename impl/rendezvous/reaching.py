"""The first connection to an endpoint, and the sentences about the obstacles of that connection.

Theory of operation. A store that is not up yet is normal at the start of a job: nodes start in any order. So a node
tries until its deadline. It logs the obstacle after the first attempt, and again when the obstacle changes. An attempt
is short, so the first sentence appears within two seconds. If a server accepts the connection and does not answer, one
more connection sends an HTTP request: a program that answers it, with any bytes, is not a store.

Rule: an obstacle that time may remove is tried again (a name, a port, a server that hangs). Any other obstacle ends the
connection at once (another protocol, a secret).
"""

from __future__ import annotations

import contextlib
import socket
import time
from collections.abc import Callable

from ..host.resolver import resolve
from ..store.client.client import Client
from ..store.client.codec import Garbled
from ..store.client.connection import HungUp
from ..store.errors import ConnectionLost, NotSupported

ATTEMPT_SECONDS, ATTEMPT_SECONDS_MAX = 1.0, 10.0  # doubled: a server on a busy machine answers later
LOOK_SECONDS = 0.3  # the shortest attempt, and the time for the HTTP request to a server that does not answer
PAUSE_SECONDS, PAUSE_SECONDS_MAX = 0.05, 0.5  # pause between two attempts
QUESTION = b"GET / HTTP/1.0\r\n\r\n"  # torch's servers and ours hang up on it
SHOWN_BYTES_MAX = 60  # the part of a foreign answer that is shown


def reach(client: Client, seconds: float, say: Callable[[str], object], unserved: str = "") -> None:
    """Return when the store answers; `say` is called with each obstacle, once in a row.

    `unserved`: the reason why this node could not serve the endpoint, which has its address.

    Raises:
        ConnectionLost: the store has not answered in `seconds`.
        NotSupported: another protocol answers.
        SecretRefused: the store and this client have different secrets.
    """
    ends, attempt, pause, said = time.monotonic() + seconds, ATTEMPT_SECONDS, PAUSE_SECONDS, ""
    while True:
        try:
            client.open(max(min(attempt, ends - time.monotonic()), LOOK_SECONDS)).close()
            return
        except Garbled as error:
            raise _foreign(client, _question(client) or str(error).encode()) from None
        except (OSError, HungUp) as error:
            what = _met(client, error)
            if unserved and isinstance(error, ConnectionRefusedError):
                what = f"no process listens at {client.where}, and this node could not: {unserved}"
        left = ends - time.monotonic()
        if left <= 0:
            raise ConnectionLost(what)
        if what != said:
            say(f"{what}. Trying again for up to {left:.0f} s")
            said = what
        time.sleep(min(pause, left))
        attempt, pause = min(2 * attempt, ATTEMPT_SECONDS_MAX), min(1.5 * pause, PAUSE_SECONDS_MAX)


def _foreign(client: Client, answer: bytes) -> NotSupported:
    """The error for a port of another program."""
    shown = answer[:SHOWN_BYTES_MAX].split(b"\n")[0].strip().decode("ascii", "backslashreplace")
    return NotSupported(f"{client.where} speaks another protocol and is not a store: {shown!r}; give the store's "
                        "port in --rdzv-endpoint, or move that program to another port")  # fmt: skip


def _met(client: Client, error: OSError | HungUp) -> str:
    """The obstacle of an attempt, with the remedy. Raises NotSupported: another protocol."""
    if isinstance(error, socket.gaierror):
        if error.errno == socket.EAI_AGAIN:
            return (f"the name {client.host!r} cannot be looked up now ({error.strerror}): see whether this machine's "
                    "resolver works, or give an address")  # fmt: skip
        return (f"the name {client.host!r} is unknown to this machine ({error.strerror}): give an address, or a name "
                f"that `getent hosts {client.host}` knows")  # fmt: skip
    if isinstance(error, ConnectionRefusedError):
        return (f"no process listens at {client.where} yet: start the node that serves the endpoint, or `trystate "
                "store serve` there; if it runs, check the port")  # fmt: skip
    if not isinstance(error, TimeoutError | HungUp | ConnectionResetError):
        return (f"{client.where} cannot be reached ({error.strerror or error}): see whether this machine has a route "
                "there")  # fmt: skip
    try:
        answer = _question(client)
    except TimeoutError:
        return (f"the name {client.host!r} has not been looked up in time: see whether this machine's resolver "
                "answers, or give an address")  # fmt: skip
    if answer is None:
        return (f"{client.where} does not answer to a connection: see whether that host is up, and whether a firewall "
                "lets this machine through to the port")  # fmt: skip
    if answer:
        raise _foreign(client, answer)
    if isinstance(error, TimeoutError):
        return (f"{client.where} accepts connections and does not answer: see whether that server hangs, or is not a "
                "store")  # fmt: skip
    return (f"{client.where} accepts connections and hangs up: see the log of that server, whether both sides use TLS, "
            "or whether it is not a store")  # fmt: skip


def _question(client: Client) -> bytes | None:
    """The answer to an HTTP request; empty: no answer; None: no connection.

    Raises TimeoutError: the host's name could not be looked up, or not in time.
    """
    try:
        family, address = resolve(client.host, client.port, LOOK_SECONDS)[0]
    except socket.gaierror:  # it was known a moment ago: the resolver's answers change
        raise TimeoutError from None
    with socket.socket(family, socket.SOCK_STREAM) as asked:
        asked.settimeout(LOOK_SECONDS)
        try:
            asked.connect(address)
        except OSError:
            return None
        with contextlib.suppress(OSError):
            asked.sendall(QUESTION)
            return asked.recv(1 << 10)
        return b""
