"""Starting up: the server that a master brings along, and counting until all workers are there.

Rule: the constructor's timeout covers all of it; nothing is left running when it fails.
"""

from __future__ import annotations

import errno
import os
import threading
from dataclasses import dataclass
from time import monotonic, sleep

from trystate.model.errors import UsageError
from trystate.model.store.vocabulary import Extension, Status

from ...host.deadlines import rounded
from ..errors import AddressRefused, StoreTimeout
from ..limits import Limits
from ..operations import Add
from ..server.embedding import StartTimeout
from ..tcp_server import TCPStoreServer
from ..wire import COUNTER_KEY
from . import codec
from .calls import GRACE_SECONDS
from .client import Call, Client, Kind
from .codec import Garbled
from .connection import Connection, HungUp

AGENT_STORE = "TORCHELASTIC_USE_AGENT_STORE"
EVERYWHERE = ("0.0.0.0", "::")
POLL_SECONDS, POLL_SECONDS_MAX = 0.01, 0.1  # torch's own master asks every 10 ms


@dataclass(frozen=True, slots=True)
class MasterOptions:
    """The server that a master wants. `bind_host` and `limits`: None for whatever there is."""

    host: str
    port: int
    bind_host: str | None
    secret: bytes | None
    limits: Limits | None

    @property
    def bound(self) -> str:
        return self.bind_host or self.host


@dataclass(slots=True)
class _Shared:
    server: TCPStoreServer
    options: MasterOptions  # of whoever started it
    users: int


_shared: dict[int, _Shared] = {}
_lock = threading.Lock()  # of the table
_starting = threading.Lock()  # of a server that others may share: held for as long as it takes to start


def _in_child() -> None:
    """Threads that had the locks stayed in the parent."""
    global _lock, _starting
    _lock, _starting = threading.Lock(), threading.Lock()


os.register_at_fork(after_in_child=_in_child)


def agent_serves(port: int) -> bool:
    """Whether the agent of this worker serves there. torch takes any port for the agent's, and then nobody serves."""
    return os.environ.get(AGENT_STORE) == str(True) and os.environ.get("MASTER_PORT", str(port)) == str(port)


def begun(
    options: MasterOptions, listen_fd: int | None, shared: bool, deadline: float, seconds: float
) -> Master | None:
    """A master's hold on its server; None if the agent of this worker has the port, and serves there.

    Many scripts make `TCPStore(MASTER_ADDR, MASTER_PORT, world_size, rank == 0)`: under an agent rank 0 finds the port
    taken by the agent's server, and is a client of it, as with torch's.
    """
    try:
        return Master(options, listen_fd, shared, deadline, seconds)
    except AddressRefused as error:
        if getattr(error.__cause__, "errno", None) == errno.EADDRINUSE and agent_serves(options.port):
            return None
        raise


class Master:
    """A master's hold on its server: its own, or with `multi_tenant` one that this process already has on the port."""

    def __init__(
        self, options: MasterOptions, listen_fd: int | None, shared: bool, deadline: float, seconds: float
    ) -> None:
        """Raises AddressRefused, UsageError for another server than is wanted, StoreTimeout that says `seconds`."""
        if not shared:
            self._held: _Shared | None = _start(options, listen_fd, deadline, seconds)
        elif not _starting.acquire(timeout=max(deadline - monotonic(), 0)):
            raise StoreTimeout(f"TCPStore: after {rounded(seconds)} s another master of this process still starts its "
                               "server; raise the timeout")  # fmt: skip
        else:
            try:
                self._held = _found(options) or _start(options, listen_fd, deadline, seconds)
                with _lock:
                    _shared[self._held.server.port] = self._held
            finally:
                _starting.release()
        assert self._held is not None
        self.port = self._held.server.port

    def close(self) -> None:
        """Let go of the server; the last one ends it."""
        with _lock:
            held, self._held = self._held, None
            if held is None:
                return
            held.users -= 1
            if held.users:
                return
            if _shared.get(held.server.port) is held:
                del _shared[held.server.port]
        held.server.close()


def _start(options: MasterOptions, listen_fd: int | None, deadline: float, seconds: float) -> _Shared:
    try:
        server = TCPStoreServer(
            options.bound,
            options.port,
            listen_fd=listen_fd,
            secret=options.secret,
            limits=options.limits,
            start_seconds=max(deadline - monotonic(), 0),
        )
    except StartTimeout as error:
        raise StoreTimeout(f"TCPStore: after {rounded(seconds)} s {error}") from None
    except UsageError as error:
        raise AddressRefused(str(error)) from error.__cause__
    return _Shared(server, options, 1)


def _found(options: MasterOptions) -> _Shared | None:
    """A server to share, with one user more. Raises UsageError if it is another one than is wanted."""
    with _lock:
        found = _shared.get(options.port)
        if found is None or not found.server.running:
            return None
        has = found.options
        here = f"the server that this process has on port {options.port}"
        # A caller that names no bind_host only wants to be served at its host.
        if options.bound != has.bound and (options.bind_host is not None or has.bound not in EVERYWHERE):
            raise UsageError(f"{here} listens on {has.bound}, not on {options.bound}; name one address, or take "
                             "another port")  # fmt: skip
        if options.limits is not None and options.limits != (has.limits or Limits()):
            raise UsageError(f"{here} has {has.limits or Limits()}, not {options.limits}; give the same, or take "
                             "another port")  # fmt: skip
        if options.secret != has.secret:
            named = {True: "no secret", False: "a secret"}
            raise UsageError(f"{here} has {named[has.secret is None]}, and {named[options.secret is None]} was given "
                             "that is not the same; give the same, or take another port")  # fmt: skip
        found.users += 1
        return found


def count_in(client: Client, world_size: int, is_master: bool, deadline: float, seconds: float) -> None:
    """Add this worker to those who are there; the master waits for all. Raises StoreTimeout, ConnectionLost."""
    if client.kind is not Kind.EXTENDED:
        here = _add(client, 1, deadline, seconds)
        pause = POLL_SECONDS
        while is_master and here < world_size:
            _check_time(client, here, world_size, deadline, seconds)
            sleep(pause)
            pause = min(1.5 * pause, POLL_SECONDS_MAX)
            here = _add(client, 0, deadline, seconds)
        return
    if not is_master:
        _add(client, 1, deadline, seconds)
        return
    # Watched first: from then on no worker's arrival, nor one's own, goes unheard.
    connection = client.dedicated(_call(seconds), _left(deadline))
    try:
        connection.ask(codec.keyed(Extension.WATCH, COUNTER_KEY), codec.accepted, _left(deadline))
        here = _add(client, 1, deadline, seconds)
        while here < world_size:
            _check_time(client, here, world_size, deadline if seconds else 0.0, seconds)
            here = max(here, _heard(connection, deadline, here))
    except (OSError, HungUp, Garbled) as error:
        if isinstance(error, StoreTimeout):
            raise
        raise client.failed(_call(seconds), error) from None
    finally:
        connection.close()


def _left(deadline: float) -> float:
    """For the next round trip; a grace for one that begins as the time ends, so that it is known how many came."""
    return max(deadline - monotonic(), GRACE_SECONDS)


def _call(seconds: float, writes: bool = False) -> Call:
    return Call("wait_for_workers", (), seconds, writes)


def _add(client: Client, amount: int, deadline: float, seconds: float) -> int:
    """Add to the number of workers; the sum."""
    spec = Add.SPEC
    request = spec.ours if client.kind is Kind.EXTENDED else spec.torch
    assert request is not None
    reply = codec.granted(codec.number) if client.kind is Kind.EXTENDED else codec.number
    body = codec.encoder(request)((COUNTER_KEY, amount))
    return client.ask(_call(seconds, writes=True), body, reply, _left(deadline))


def _heard(connection: Connection, deadline: float, here: int) -> int:
    """The count after the next arrival; the same as before when the time is over."""
    try:
        status = connection.read(codec.byte(), deadline)
    except TimeoutError:
        return here
    if status != Status.EVENT:
        raise Garbled("it sent no event where one is due")
    return int(connection.read(codec.told(), deadline).new or b"0")


def _check_time(client: Client, here: int, world_size: int, deadline: float, seconds: float) -> None:
    if monotonic() >= deadline:
        raise StoreTimeout(f"Timed out after {rounded(seconds)} seconds waiting for clients. {here}/{world_size} "
                           f"clients joined. ({client.where}) See why the others did not start, whether they reach "
                           "this address, and whether world_size is right.")  # fmt: skip
