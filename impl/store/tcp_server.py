"""The server of a store for use in a program: `with TCPStoreServer() as server: ... server.port`.

Rule: it listens only on the given address. After it is closed no process, thread or socket of it is left.
"""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from types import TracebackType
from typing import Literal, Self

from trystate.model.errors import UsageError

from ..host.listening import adopt, listen
from ..host.tls import Tls
from .limits import Limits
from .record.writer import check_free
from .server.embedding import START_SECONDS, ServerProcess, ServerThread


class TCPStoreServer:
    """A server of TCPStore's protocol, for torch's own clients and for ours.

    It listens on `host` (default 127.0.0.1; "0.0.0.0" or "::" for all interfaces) and `port` (0: any free port), or on
    `listen_fd`, a bound socket of the caller that it takes over. With a `secret` it serves only clients that prove that
    they have it, which torch's own clients cannot. With `tls` it serves only clients with a certificate of the same
    authority. `run_in` is "process" or "thread". A process is a child that ends
    with this process and writes its log to stderr. With "thread", `log` gets a line for each connection that broke a
    rule (default: stderr). It is called in its own thread, where it may wait and raise. torch's client must then not be
    used in this process, because it would deadlock (see `embedding`).

    With `record` a process records the operations on keys of rendezvous in that file, for `trystate explain`.

    Raises UsageError if the server cannot listen on the address or the record exists already, and UnavailableError if
    the server does not start within `start_seconds`.
    """

    def __init__(
        self,
        host: str = "127.0.0.1",
        port: int = 0,
        *,
        listen_fd: int | None = None,
        secret: bytes | None = None,
        tls: Tls | None = None,
        limits: Limits | None = None,
        run_in: Literal["process", "thread"] = "process",
        log: Callable[[str], object] | None = None,
        start_seconds: float = START_SECONDS,
        record: str | None = None,
    ) -> None:
        if record is not None and run_in == "thread":
            raise UsageError('record= needs run_in="process", because a thread has no time for it')
        if record is not None:
            check_free(Path(record))
        if run_in not in ("process", "thread"):
            raise UsageError(f'run_in={run_in!r}; pass "process" or "thread"')
        if log is not None and run_in == "process":
            raise UsageError('log= needs run_in="thread", because a process writes its lines to stderr')
        if secret is not None and not isinstance(secret, bytes):
            raise UsageError(f"the secret is a {type(secret).__name__}; give bytes, or None for no secret")
        if secret is not None and not secret:
            raise UsageError("an empty secret protects nothing; give some bytes, or None for no secret")
        listener = listen(host, port) if listen_fd is None else adopt(listen_fd)
        self.host: str = host if listen_fd is None else listener.getsockname()[0]
        self.port: int = listener.getsockname()[1]
        self._embedded: ServerProcess | ServerThread
        if run_in == "thread":
            self._embedded = ServerThread(listener, limits or Limits(), secret, log, start_seconds, tls)
            return
        with listener:  # the child has a copy; after this one is closed, clients notice the end of the child
            self._embedded = ServerProcess(listener, limits or Limits(), secret, start_seconds, record, tls)

    @property
    def pid(self) -> int:
        """The pid of the process that serves."""
        return self._embedded.pid

    @property
    def running(self) -> bool:
        """Whether the server still runs."""
        return self._embedded.running

    def close(self) -> None:
        """Stop the server. Returns when the port is free and the process or thread has ended. May be called twice."""
        self._embedded.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    def __repr__(self) -> str:
        return f"<TCPStoreServer on {self.host}:{self.port}, {'running' if self.running else 'ended'}>"
