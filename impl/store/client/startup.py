"""The start of a TCPStore: a master starts its server, and the workers are counted until all have connected.

Rule: the constructor's timeout covers all of this. After a failure no process and no thread is left running.
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
from ...host.tls import Tls
from ..errors import AddressRefused, StoreTimeout
from ..limits import Limits
from ..operations import Add
from ..server.embedding import StartTimeout
from ..tcp_server import TCPStoreServer
from ..wire import COUNTER_KEY
from . import codec
from .calls import GRACE_SECONDS
from .client import CallText, Client, Kind
from .codec import Garbled
from .connection import Connection, HungUp

AGENT_STORE = "TORCHELASTIC_USE_AGENT_STORE"
EVERYWHERE = ("0.0.0.0", "::")
POLL_SECONDS, POLL_SECONDS_MAX = 0.01, 0.1  # torch's own master polls every 10 ms


@dataclass(frozen=True, slots=True)
class MasterOptions:
    """The server that a master wants. `None` for `bind_host` or `limits` accepts any."""

    host: str
    port: int
    bind_host: str | None
    secret: bytes | None
    limits: Limits | None
    tls: Tls | None = None

    @property
    def bound(self) -> str:
        return self.bind_host or self.host


@dataclass(slots=True)
class _Shared:
    server: TCPStoreServer
    options: MasterOptions  # the options of the master that started it
    users: int


_shared: dict[int, _Shared] = {}
_lock = threading.Lock()  # guards `_shared`
_starting = threading.Lock()  # held while a server starts that others may share


def _in_child() -> None:
    """Make new locks in the child: the threads that may hold the old ones stayed in the parent."""
    global _lock, _starting
    _lock, _starting = threading.Lock(), threading.Lock()


os.register_at_fork(after_in_child=_in_child)


def agent_serves(port: int) -> bool:
    """Whether the agent of this worker serves on the port.

    torch considers any port the agent's. On another port the job then has no server.
    """
    return os.environ.get(AGENT_STORE) == str(True) and os.environ.get("MASTER_PORT", str(port)) == str(port)


def begun(
    options: MasterOptions, listen_fd: int | None, shared: bool, deadline: float, seconds: float
) -> Master | None:
    """A master's hold on its server; None if the agent of this worker has the port and serves there.

    Many scripts make `TCPStore(MASTER_ADDR, MASTER_PORT, world_size, rank == 0)`. Under an agent rank 0 then finds the
    port in use by the agent's server and becomes a client of it, as with torch's TCPStore.
    """
    try:
        return Master(options, listen_fd, shared, deadline, seconds)
    except AddressRefused as error:
        if getattr(error.__cause__, "errno", None) == errno.EADDRINUSE and agent_serves(options.port):
            return None
        raise


class Master:
    """A master's hold on its server: its own server or, with `multi_tenant`, the server of this process on the port."""

    def __init__(
        self, options: MasterOptions, listen_fd: int | None, shared: bool, deadline: float, seconds: float
    ) -> None:
        """Raises AddressRefused, UsageError (the server has other options), or StoreTimeout, which names `seconds`."""
        if not shared:
            self._held: _Shared | None = _start(options, listen_fd, deadline, seconds)
        elif not _starting.acquire(timeout=max(deadline - monotonic(), 0)):
            raise StoreTimeout(f"TCPStore: after {rounded(seconds)} s another master of this process is still starting "
                               "its server; raise the timeout")  # fmt: skip
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
        """Release the server. The last release closes it."""
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
            tls=options.tls,
            start_seconds=max(deadline - monotonic(), 0),
        )
    except StartTimeout as error:
        raise StoreTimeout(f"TCPStore: after {rounded(seconds)} s {error}") from None
    except UsageError as error:
        raise AddressRefused(str(error)) from error.__cause__
    return _Shared(server, options, 1)


def _found(options: MasterOptions) -> _Shared | None:
    """A server to share, with one more user. Raises UsageError if the server has other options than are wanted."""
    with _lock:
        found = _shared.get(options.port)
        if found is None or not found.server.running:
            return None
        has = found.options
        here = f"the server that this process has on port {options.port}"
        # A caller without a bind_host only needs a server that listens at its host.
        if options.bound != has.bound and (options.bind_host is not None or has.bound not in EVERYWHERE):
            raise UsageError(f"{here} listens on {has.bound}, not on {options.bound}; give the same address, or "
                             "another port")  # fmt: skip
        if options.limits is not None and options.limits != (has.limits or Limits()):
            raise UsageError(f"{here} has {has.limits or Limits()}, not {options.limits}; give the same limits, or "
                             "another port")  # fmt: skip
        if options.tls != has.tls:
            raise UsageError(f"{here} has tls={has.tls}, not {options.tls}; give the same files, or another port")
        if options.secret != has.secret:
            named = {True: "no secret", False: "a secret"}
            raise UsageError(f"{here} has {named[has.secret is None]}, but {named[options.secret is None]} was given, "
                             "and the two differ; give the same secret, or another port")  # fmt: skip
        found.users += 1
        return found


def count_in(client: Client, world_size: int, is_master: bool, deadline: float, seconds: float) -> None:
    """Count this worker in; the master also waits for all workers. Raises StoreTimeout or ConnectionLost."""
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
    # The watch comes first. From then on the master sees the arrival of every worker, its own included.
    connection = client.dedicated(_call(seconds), _left(deadline))
    try:
        connection.ask(codec.keyed(Extension.WATCH, COUNTER_KEY), codec.accepted, _left(deadline))
        here = _add(client, 1, deadline, seconds)
        # With a timeout of 0 the master does not wait for the others.
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
    """The time for the next round trip. One that starts as the time ends gets a grace, to report how many arrived."""
    return max(deadline - monotonic(), GRACE_SECONDS)


def _call(seconds: float, writes: bool = False) -> CallText:
    return CallText("wait_for_workers", (), seconds, writes)


def _add(client: Client, amount: int, deadline: float, seconds: float) -> int:
    """Add to the number of workers, and return the sum."""
    spec = Add.SPEC
    request = spec.ours if client.kind is Kind.EXTENDED else spec.torch
    assert request is not None
    reply = codec.granted(codec.number) if client.kind is Kind.EXTENDED else codec.number
    body = codec.encoder(request)((COUNTER_KEY, amount))
    return client.ask(_call(seconds, writes=True), body, reply, _left(deadline))


def _heard(connection: Connection, deadline: float, here: int) -> int:
    """The count after the next arrival; the same count as before if the time is over."""
    try:
        status = connection.read(codec.byte(), deadline)
    except TimeoutError:
        return here
    if status != Status.EVENT:
        raise Garbled("it sent another message than an event")
    return int(connection.read(codec.told(), deadline).new or b"0")


def _check_time(client: Client, here: int, world_size: int, deadline: float, seconds: float) -> None:
    if monotonic() >= deadline:
        raise StoreTimeout(f"Timed out after {rounded(seconds)} seconds waiting for clients. {here}/{world_size} "
                           f"clients joined. ({client.where}) See whether the others started, whether they reach "
                           "this address, and whether world_size is right.")  # fmt: skip
