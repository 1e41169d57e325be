"""The store at the rendezvous' endpoint: a node that it belongs to serves it, all are its clients.

Rule: the server runs in a process of its own, which ends with the node; a node that finds the port taken is a client.
"""

from __future__ import annotations

import ipaddress
import socket
import threading
import time
from dataclasses import dataclass
from datetime import timedelta
from pathlib import Path
from typing import Any

from trystate.model.errors import TrystateError, UsageError

from ..host.addresses import host_and_port
from ..store.client.client import Client
from ..store.errors import NotSupported, SecretRefused
from ..store.file.store import FileStore
from ..store.hash import HashStore
from ..store.record.writer import check_free
from ..store.tcp import TCPStore
from ..store.tcp_server import TCPStoreServer
from . import hosting
from .errors import RendezvousConnectionError, RendezvousSettingsError
from .meeting_place import DEFAULT_PORT
from .options import Options
from .reaching import reach
from .waiting import said_when_late, say


@dataclass(slots=True)
class Endpoint:
    """The store in which the nodes meet, and the server, if it is this node's."""

    store: Any
    server: TCPStoreServer | None = None
    host: str = ""  # of the endpoint; empty if there is none
    job: str = ""
    owner: str = ""  # the job whose node serves it, if it is another one
    unused: bool = False  # by other jobs: `serve_others` has seen that

    def serve_others(self, seconds: float) -> None:
        """Return when no node of another job uses the store that this node serves, at the latest after `seconds`."""
        if self.server is not None:
            self.unused = hosting.serve(self.store, self.job, seconds)

    def close(self) -> None:
        """Let go of it, and stop serving; may be called twice."""
        if self.server is not None and not self.unused:
            hosting.warn_of_others(self.store, self.job)
        self.store.close()
        if self.server is not None:
            self.server.close()


def meet(options: Options) -> Endpoint:
    """The store that the options name, served by this node if it is to.

    Raises:
        RendezvousConnectionError: nobody serves it, it refuses the secret, or another program has the port.
        RendezvousSettingsError: the options name no endpoint.
    """
    if options.store_type == "memory":
        return Endpoint(_shared(options.endpoint))
    began = time.monotonic()
    try:
        if options.store_type == "file":
            return Endpoint(_file(options))
        return _tcp(options, *place(options))
    except RendezvousSettingsError:
        raise
    except SecretRefused as error:
        raise RendezvousConnectionError(
            f"rendezvous {options.run_id!r}: {options.endpoint} was reached, but the secret was refused (secret_file "
            f"in --rdzv-conf): {error}"
        ) from error
    except NotSupported as error:
        raise RendezvousConnectionError(
            f"rendezvous {options.run_id!r}: {options.endpoint} was reached, but cannot be used: {error}"
        ) from error
    except (TrystateError, OSError) as error:
        waited, limit = time.monotonic() - began, f"read_timeout={options.read_timeout:g} s"
        when = (
            f"within {limit}" if waited >= options.read_timeout else f"after {waited:.1f} s, before the end of {limit}"
        )
        raise RendezvousConnectionError(
            f"rendezvous {options.run_id!r}: {options.endpoint or 'the endpoint'} was not reached {when}: {error}. One "
            "node must serve it: start that one, set is_host=1 there if it does not know itself by that name, or run "
            "`trystate store serve`"
        ) from error


def place(options: Options) -> tuple[str, int]:
    """Host and port of the endpoint. Raises RendezvousSettingsError if the options name none."""
    if options.store_type != "tcp":
        return "", 0
    try:
        return host_and_port(options.endpoint or "localhost", DEFAULT_PORT)
    except UsageError as error:
        raise RendezvousSettingsError(f"--rdzv-endpoint: {error}; give host:port") from error


def _tcp(options: Options, host: str, port: int) -> Endpoint:
    server, unserved = None, ""
    with said_when_late(f"the name {host!r} is being looked up: this machine's resolver has not answered yet"):
        serves = options.is_host if options.is_host is not None else port == 0 or is_here(host)
    if options.record and serves:
        try:
            check_free(Path(options.record))
        except UsageError as error:
            raise RendezvousSettingsError(str(error)) from error
    if serves:
        try:
            server = TCPStoreServer(_bound(host), port, secret=options.secret, record=options.record or None)
        except UsageError as error:
            if options.is_host:
                raise
            unserved = str(error)
    if options.record and server is None:
        say(f"--record {options.record}: another node serves the endpoint, so that nothing is recorded here")
    try:
        within, at = timedelta(seconds=options.read_timeout), server.port if server is not None else port
        reach(Client(host, at, options.secret), options.read_timeout, say, unserved)
        store = TCPStore(host, at, timeout=within, secret=options.secret)
        if server is not None:
            hosting.claim(store, options.run_id)
        owner = hosting.owner(store, options.run_id)
    except BaseException:
        if server is not None:
            server.close()
        raise
    return Endpoint(store, server, host, options.run_id, owner)


def _file(options: Options) -> FileStore:
    if not options.endpoint:
        raise RendezvousSettingsError("store_type=file: give --rdzv-endpoint a path that all nodes see")
    return FileStore(options.endpoint, -1)


_memories: dict[str, HashStore] = {}
_memories_lock = threading.Lock()


def _shared(name: str) -> Any:
    """The memory of this process that has this name; each of its users has a clone."""
    with _memories_lock:
        if name not in _memories:
            _memories[name] = HashStore()
        return _memories[name].clone()


def _bound(host: str) -> str:
    """Where to listen: a name may mean another address here than it does elsewhere, an address means itself."""
    if host == "localhost":
        return "127.0.0.1"
    try:
        return str(ipaddress.ip_address(host))
    except ValueError:
        return "::" if socket.has_dualstack_ipv6() else "0.0.0.0"


def is_here(host: str) -> bool:
    """Whether a name or an address is this machine's: whether one can bind to what it means."""
    if host in ("localhost", socket.gethostname()):
        return True
    try:
        found = socket.getaddrinfo(host, 0, type=socket.SOCK_STREAM)
    except (OSError, UnicodeError):
        return False
    return any(_bindable(family, address) for family, _, _, _, address in found)


def _bindable(family: int, address: Any) -> bool:
    try:
        with socket.socket(family, socket.SOCK_STREAM) as tried:
            tried.bind((address[0], 0, *address[2:]))
        return True
    except OSError:
        return False
