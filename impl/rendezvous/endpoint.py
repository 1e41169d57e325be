"""The store at the rendezvous' endpoint: the node whose address it is serves it, and all nodes are its clients.

Rule: the server runs in its own process, which ends with the node; a node that finds the port taken is a client.
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

from torch.distributed import FileStore  # type: ignore[attr-defined]

from trystate.model.errors import TrystateError, UsageError

from ..host.addresses import host_and_port
from ..host.listening import listen
from ..store.client.client import Client
from ..store.errors import NotSupported, SecretRefused, TlsRefused
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
    """The store in which the nodes meet, and its server if this node serves it."""

    store: Any
    server: TCPStoreServer | None = None
    host: str = ""  # the host of the endpoint; empty without an endpoint
    job: str = ""
    owner: str = ""  # the job whose node serves the store, if it is another job
    unused: bool = False  # `serve_others` has seen that no other job uses the store

    def serve_others(self, seconds: float) -> None:
        """Return when no node of another job uses the store that this node serves, or after `seconds`."""
        if self.server is not None:
            self.unused = hosting.serve(self.store, self.job, seconds)

    def close(self) -> None:
        """Close the connection and stop serving; may be called twice."""
        if self.server is not None and not self.unused:
            hosting.warn_of_others(self.store, self.job)
        if not isinstance(self.store, FileStore):  # torch's store has no `close`
            self.store.close()
        if self.server is not None:
            self.server.close()


def meet(options: Options) -> Endpoint:
    """The store that the options name; this node serves it if the options or its address require that.

    Raises:
        RendezvousConnectionError: no process serves it, it refuses the secret, or another program has the port.
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
    except (TrystateError, OSError) as error:
        if isinstance(error, TlsRefused):
            why = f"was reached, but there is no connection with TLS (tls in --rdzv-conf): {error}"
        elif isinstance(error, SecretRefused):
            why = f"was reached, but the secret was refused (secret_file in --rdzv-conf): {error}"
        elif isinstance(error, NotSupported):
            why = f"was reached, but cannot be used: {error}"
        else:
            waited, limit = time.monotonic() - began, f"read_timeout={options.read_timeout:g} s"
            late = waited >= options.read_timeout
            why = (f"was not reached {'within' if late else f'after {waited:.1f} s, before the end of'} {limit}: "
                   f"{error}. One node must serve it: start that node, set is_host=1 there if it does not recognise "
                   "its own name, or run `trystate store serve`")  # fmt: skip
        at = f"rendezvous {options.run_id!r}: {options.endpoint or 'the endpoint'}"
        raise RendezvousConnectionError(f"{at} {why}") from error


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
    if serves:
        try:
            with listen(_bound(host), port) as listener:  # before the record: another agent of this machine may serve
                if options.record:
                    _check_record(options.record)
                server = TCPStoreServer(
                    listen_fd=listener.detach(), secret=options.secret, tls=options.tls, record=options.record or None
                )
        except UsageError as error:
            if options.is_host:
                raise
            unserved = str(error)
    if options.record and server is None:
        say(f"--record {options.record}: another node serves the endpoint, so nothing is recorded here")
    try:
        within, at = timedelta(seconds=options.read_timeout), server.port if server is not None else port
        reach(Client(host, at, options.secret, options.tls), options.read_timeout, say, unserved)
        store = TCPStore(host, at, timeout=within, secret=options.secret, tls=options.tls)
        if server is not None:
            store.set(hosting.KEY, options.run_id)  # the job whose node serves the store
        owner = hosting.owner(store, options.run_id)
    except BaseException:
        if server is not None:
            server.close()
        raise
    return Endpoint(store, server, host, options.run_id, owner)


def _check_record(path: str) -> None:
    try:
        check_free(Path(path))
    except UsageError as error:
        raise RendezvousSettingsError(str(error)) from error


def _file(options: Options) -> Any:
    """torch's FileStore. It deletes nothing: the nodes that will come are not known."""
    if not options.endpoint:
        raise RendezvousSettingsError("store_type=file: give --rdzv-endpoint a path that all nodes see")
    return FileStore(options.endpoint)


_memories: dict[str, HashStore] = {}
_memories_lock = threading.Lock()


def _shared(name: str) -> Any:
    """The store in this process's memory that has this name; each user has a clone."""
    with _memories_lock:
        if name not in _memories:
            _memories[name] = HashStore()
        return _memories[name].clone()


def _bound(host: str) -> str:
    """The address to listen on: a name may mean another address here than elsewhere, an address means itself."""
    if host == "localhost":
        return "127.0.0.1"
    try:
        return str(ipaddress.ip_address(host))
    except ValueError:
        return "::" if socket.has_dualstack_ipv6() else "0.0.0.0"


def is_here(host: str) -> bool:
    """Whether a name or an address belongs to this machine, which means that a socket can be bound to it."""
    if host in ("localhost", socket.gethostname()):
        return True
    try:
        found = socket.getaddrinfo(host, 0, type=socket.SOCK_STREAM)
    except (OSError, UnicodeError):
        return False
    here = {address[0] for family, _, _, _, address in found if _bindable(family, address)}
    others = {str(address[0]) for *_, address in found} - here
    if here and others:
        say(f"the name {host!r} has an address of this machine and others: {', '.join(sorted(others))}. Each "
            "machine with one of them serves another store: give all nodes a name of one machine")  # fmt: skip
    return bool(here)


def _bindable(family: int, address: Any) -> bool:
    try:
        with socket.socket(family, socket.SOCK_STREAM) as tried:
            tried.bind((address[0], 0, *address[2:]))
        return True
    except OSError:
        return False
