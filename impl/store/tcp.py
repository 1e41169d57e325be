"""`TCPStore`: a store on a server, with torch's constructor. It works on our server and on torch's.

Rule: every operation keeps the store's timeout, whatever the server does. An operation that returns has happened.
"""

from __future__ import annotations

import threading
from collections.abc import Callable
from datetime import timedelta
from time import monotonic
from typing import NoReturn, TypeVar

from ..host.deadlines import rounded
from ..host.forking import let_go_after_fork
from ..host.tls import Tls
from .base import DEFAULT_TIMEOUT, Event, OnLost, Store, Watch
from .client import codec
from .client.calls import ASKING, ExtendedCalls
from .client.client import LOOK_SECONDS, MASTER_START_SECONDS_MIN, START_SECONDS_MIN, CallText, Client, Kind
from .client.codec import Garbled, Refusal
from .client.connection import Connection, HungUp
from .client.fast_path import FastPaths
from .client.startup import Master, MasterOptions, begun, count_in
from .client.torch_calls import TorchCalls
from .client.watches import Watcher
from .errors import InvalidArgument, InvalidType, NotSupported, StoreTimeout
from .limits import Limits
from .operations import Barrier, Operation, Result

T = TypeVar("T")


class TCPStore(FastPaths):
    """A store on the server at `host_name` and `port`. The first nine arguments are torch's.

    Several threads may use it at once: each operation has its own connection while it runs. On our server a waiting
    operation is woken by the server. On torch's it also looks again each second. torch's servers have no `watch_key`
    and no `take`, its legacy server has no queues. A store that is used in a forked child connects again there.

    Args:
        world_size: with `wait_for_workers`, each store counts itself in, and the master's constructor returns when
            `world_size` stores have done so. None or negative: no store counts.
        is_master: start the server in a child process that ends with this process or with `close()`. It listens on
            `bind_host` (default: `host_name`; "0.0.0.0" for all interfaces) and `port` (0: any free port). In a worker
            whose agent serves at that port (TORCHELASTIC_USE_AGENT_STORE is "True", and MASTER_PORT is the port) it
            uses the agent's server.
        timeout: the timeout of this constructor and of each operation; see `set_timeout`.
        multi_tenant: masters of this process on the same port share one server, if their options agree.
        master_listen_fd: the number of a bound socket that the master's server takes over and listens on.
        use_libuv: accepted as in torch and ignored; the client finds out which kind of server answers.
        secret: the client proves to the server that it has the secret, and the server proves the same. A master's
            server gets this secret. All later bytes are bound to the proof, so a relay cannot alter them.
        tls: the connection uses TLS with these files, in both directions. A master's server uses them too.
        limits: the limits of a master's server.

    Raises:
        StoreTimeout: the server did not answer, or not all workers came, in time.
        ConnectionLost: no server answers, or it is not the server of a store.
        SecretRefused: server and client have different secrets, or only one of them has a secret. `TlsRefused`, a
            subclass: they do not accept each other's certificate, or only one of them uses TLS.
        AddressRefused: a master cannot listen there: the port is in use, or the host unknown.
        UsageError: an argument is wrong.
    """

    _calls: ExtendedCalls | TorchCalls
    _master: Master | None
    _watcher: Watcher | None

    def __init__(
        self,
        host_name: str,
        port: int,
        world_size: int | None = None,
        is_master: bool = False,
        timeout: timedelta = DEFAULT_TIMEOUT,
        wait_for_workers: bool = True,
        multi_tenant: bool = False,
        master_listen_fd: int | None = None,
        use_libuv: bool = True,
        *,
        secret: bytes | None = None,
        tls: Tls | None = None,
        bind_host: str | None = None,
        limits: Limits | None = None,
    ) -> None:
        _check(host_name, port, world_size, is_master, secret)
        super().__init__(timeout)
        self._begin(host_name, port, secret, tls)
        seconds = self._timeout_seconds("TCPStore")
        deadline = monotonic() + (seconds or (MASTER_START_SECONDS_MIN if is_master else START_SECONDS_MIN))
        try:
            if is_master:
                options = MasterOptions(host_name, port, bind_host, secret, limits, tls)
                self._master = begun(options, master_listen_fd, multi_tenant, deadline, seconds)
                self._client.port = self._master.port if self._master is not None else port
            self._connect("TCPStore", deadline)
            if world_size is not None and world_size > 0 and wait_for_workers:
                count_in(self._client, world_size, is_master, deadline, seconds)
        except BaseException:
            self.close()
            raise

    def _begin(self, host: str, port: int, secret: bytes | None, tls: Tls | None) -> None:
        self._client = Client(host, port, secret, tls)
        self._master = None
        self._watcher = None
        self._kept_connections: list[Connection] = []
        self.forked()
        let_go_after_fork(self)

    def forked(self) -> None:
        """Close the copies of kept connections in the child, and make a new lock: its holder may be in the parent."""
        for connection in self._kept_connections:
            connection.close()
        self._kept_connections = []
        self._watching = threading.Lock()

    def _connect(self, operation: str, deadline: float | None = None) -> None:
        client = self._client
        seconds = self._timeout_seconds(operation)
        client.start(seconds, monotonic() + (seconds or LOOK_SECONDS) if deadline is None else deadline)
        self._has_barrier_tokens = client.kind is Kind.EXTENDED
        self._calls = ExtendedCalls(client) if self._has_barrier_tokens else TorchCalls(client)
        # The "/" before each key counts for the server's limit.
        self.key_bytes, self.value_bytes = client.terms.key_bytes - 1, client.terms.value_bytes
        self.keys_in_request = client.terms.keys_in_request
        self._use_fast_paths()

    @property
    def host(self) -> str:
        """The host that the store connects to."""
        return self._client.host

    @property
    def port(self) -> int:
        """The server's port. If the master was given 0, the free port that was found."""
        return self._client.port

    @property
    def secret(self) -> bytes | None:
        """The secret that the store proves to its server; None if it has no secret."""
        return self._client.secret

    @property
    def tls(self) -> Tls | None:
        """The files of the store's TLS; None without TLS."""
        return self._client.tls

    @property
    def libuvBackend(self) -> bool:
        """False if the server is torch's legacy server, which has no queues."""
        return self._client.kind is not Kind.LEGACY

    @property
    def rooms(self) -> bool:
        """Whether the server applies rendezvous itself, in rooms (`ask_room`)."""
        return self._client.kind is Kind.EXTENDED and self._client.terms.rooms

    def ask_room(self, run_id: str, request: bytes) -> bytes:
        """Send one request of `rendezvous/rooms/messages` to the room of a rendezvous, and return its answer.

        Raises:
            NotSupported: the server has no rooms.
            StoreError: the room has refused the request; the text gives the reason.
            ConnectionLost: the server was lost. `OutcomeUnknown`, a subclass: the request may have been applied.
        """
        seconds = self._timeout_seconds("ask_room")
        name, within = run_id.encode(), seconds or LOOK_SECONDS
        call = CallText("ask_room", [name], seconds, writes=True)
        self._client.need_rooms(call)
        reply, decode = codec.GRANTED[Result.BLOB], codec.decode_blob
        answer: bytes = self._client.ask(call, codec.room(name, request), reply, within, decode)
        return answer

    def _watch(self, name: bytes, callback: Callable[[Event], None], on_lost: OnLost | None = None) -> Watch:
        key = name.decode()
        if self._client.kind is not Kind.EXTENDED:
            kind = (self._client.kind or Kind.LIBUV).value
            raise NotSupported(f"watch_key({key!r}): {kind} has no watches ({self._where()}); use "
                               "`trystate store serve` instead")  # fmt: skip
        seconds = self._timeout_seconds("watch_key")
        deadline = monotonic() + (seconds or LOOK_SECONDS)
        if not self._watching.acquire(timeout=min(seconds or LOOK_SECONDS, threading.TIMEOUT_MAX)):
            raise StoreTimeout(f"watch_key({key!r}): another thread of this process tries to connect for its watch for "
                               f"{rounded(seconds)} s ({self._where()}); see whether the server hangs")  # fmt: skip
        try:
            if self._watcher is None or self._watcher.lost:
                call = CallText("watch_key", [b"/" + name], seconds)
                connection = self._client.dedicated(call, deadline - monotonic())
                self._watcher = Watcher(connection, seconds, self._where())
                if self._closed:  # meanwhile
                    self._watcher.close()
            watcher = self._watcher
        finally:
            self._watching.release()
        return watcher.watch(key, callback, on_lost, max(deadline - monotonic(), 0.0))

    def __reduce__(self) -> NoReturn:
        raise InvalidType(f"a TCPStore cannot be pickled: its connections belong to this process; make another one "
                          f"there with TCPStore({self.host!r}, {self.port})")  # fmt: skip

    def __repr__(self) -> str:
        return f"<TCPStore on {self._where()}{', closed' if self._closed else ''}>"

    # Hooks of `Store`.

    def _do(self, operation: Operation[T]) -> T:
        result = self._calls.do(operation.under(b"/"), self._timeout_seconds(operation.SPEC.name))
        return operation.above(result, b"/")

    def _await(self, operation: Operation[T], seconds: float) -> T | None:
        timeout = seconds or self._timeout_seconds(operation.SPEC.name)
        return self._calls.wait(operation.under(b"/"), seconds, timeout)

    def _keep(self, barrier: Barrier, *, look: bool = False) -> bool:
        client, asking = self._client, ASKING[Barrier]
        if client.kind is not Kind.EXTENDED:
            return True
        seconds = self._timeout_seconds("barrier") or LOOK_SECONDS
        full, reply = barrier.under(b"/"), asking.reply
        assert reply is not None
        # Both requests are sent in one write. The second is never answered. The answer to the first shows whether the
        # barrier accepted the second.
        arrive, stay = (asking.encode([ms, *full.fields]) for ms in (0, -1))
        call = CallText.of(full, seconds)
        connection = client.dedicated(call, seconds)
        try:
            connection.ask(arrive if look else arrive + stay, reply, seconds)
        except Refusal:
            connection.close()
            return False
        except (OSError, HungUp, Garbled) as error:
            connection.close()
            raise client.failed(call, error) from None
        if not look:
            self._kept_connections.append(connection)
        if look or self._closed:
            connection.close()
        return True

    def _clone(self) -> TCPStore:
        other = TCPStore.__new__(TCPStore)
        Store.__init__(other, self.timeout)
        other._begin(self.host, self.port, self._client.secret, self._client.tls)
        other._client.terms = self._client.terms  # the clone fails if the server has other contents now
        try:
            other._connect("clone")
        except BaseException:
            other.close()
            raise
        return other

    def _close(self) -> None:
        if not hasattr(self, "_client"):
            return
        if self._watcher is not None:
            self._watcher.close()
        for connection in self._kept_connections:
            connection.close()
        self._client.close()
        if self._watcher is not None:
            self._watcher.join()
        if self._master is not None:
            self._master.close()

    def _where(self) -> str:
        return self._client.where

    def _timeout_seconds(self, operation: str) -> float:
        """The store's timeout in seconds, last set by C++ or Python."""
        seconds: float = self.timeout.total_seconds()
        return seconds if 0 <= seconds <= threading.TIMEOUT_MAX else self._seconds(operation, None)


def _check(host: str, port: int, world_size: int | None, is_master: bool, secret: bytes | None) -> None:
    if not isinstance(host, str) or not host:
        raise InvalidArgument(f'the host is {host!r}; pass a name or an address, such as "127.0.0.1"')
    if not isinstance(port, int) or not 0 <= port <= 65535:
        raise InvalidArgument(f"the port is {port!r}; pass a number from 1 to 65535, or 0 for a master")
    if not port and not is_master:
        raise InvalidArgument("the port is 0 (any free port), which only a master may use; pass the master's `port`")
    if world_size == 0:
        raise InvalidArgument("the world_size is 0; pass the number of stores to wait for, or None to wait for none")
    if secret is not None and (not isinstance(secret, bytes) or not secret):
        raise InvalidArgument("the secret must be bytes, and not empty; pass None for no secret")
