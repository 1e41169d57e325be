"""A server next to the caller's own work: in a child process, or in a thread of this process.

Rule: a child process ends with its parent, however the parent ends, and inherits only the listening socket. In a thread
the server needs the caller's GIL. torch's own client holds the GIL in list_keys and queue_len while it waits for the
answer (torch 2.13, c10d/init.cpp), so a thread deadlocks in a process that uses that client.
"""

from __future__ import annotations

import asyncio
import contextlib
import dataclasses
import gc
import json
import os
import resource
import selectors
import signal
import socket
import subprocess
import sys
import threading
import weakref
from collections.abc import Callable, Iterator
from concurrent.futures import Future
from functools import partial
from pathlib import Path

from trystate.model.errors import UnavailableError

from ...host.tls import Tls
from ..limits import Limits
from ..record.format import Keys
from ..record.recorder import Recorder
from ..record.writer import Writer
from .driver import LINGER_SECONDS, Driver, serve
from .log import Log, lines_to

START_SECONDS = 60.0  # the time for an interpreter to start on a busy machine
YOUNGER_COLLECTIONS = 100  # before a full one: the garbage of some ten thousand connections, which is some 100 MiB
START_SECONDS_MAX = 86_400.0  # the system counts milliseconds in 32 bits
PREFIX = "trystate store: "
ENTRY = """import json, sys
config = json.loads(sys.stdin.buffer.readline())
sys.path[:] = config.pop("path")
from trystate.impl.store.server.embedding import child
child(**config)"""


class StartTimeout(UnavailableError, TimeoutError):
    """A server did not start in time. It was ended."""


class ServerProcess:
    """A server in a child process. It gets its configuration through a pipe and ends when the pipe is closed."""

    def __init__(
        self,
        listener: socket.socket,
        limits: Limits,
        secret: bytes | None,
        start_seconds: float = START_SECONDS,
        record: str | None = None,
        tls: Tls | None = None,
    ) -> None:
        """Return when the server serves. Raises UnavailableError, or StartTimeout after `start_seconds`.

        Args:
            record: the file in which the server's operations are recorded; None records nothing.
        """
        self._owner = os.getpid()  # a fork of this process has a copy of this object and must not end the server
        self._process = subprocess.Popen(
            [sys.executable, "-P", "-c", ENTRY],  # -P: no module of the current folder
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            pass_fds=[listener.fileno()],
            bufsize=0,
        )
        self.close = weakref.finalize(self, _end, self._process, self._owner)
        config = {
            "path": sys.path,
            "descriptor": listener.fileno(),
            "parent": self._owner,
            "limits": dataclasses.asdict(limits),
            "secret": None if secret is None else secret.hex(),
            "record": record,
            "tls": tls and tls.folder,
        }
        assert self._process.stdin is not None and self._process.stdout is not None
        with contextlib.suppress(BrokenPipeError):
            self._process.stdin.write(json.dumps(config).encode() + b"\n")
        if not _readable(self._process.stdout.fileno(), start_seconds):
            self._process.kill()
            self.close()
            raise StartTimeout("the store's server process did not start in time; see whether the machine is busy, or "
                               "raise the timeout")  # fmt: skip
        if not self._process.stdout.read(1):
            self.close()
            code = self._process.returncode
            raise UnavailableError(
                f"the store's server process did not start (exit code {code}); see what it wrote to stderr"
            )

    @property
    def pid(self) -> int:
        return self._process.pid

    @property
    def running(self) -> bool:
        return self._process.poll() is None


def _readable(descriptor: int, seconds: float) -> bool:
    with selectors.DefaultSelector() as selector:
        selector.register(descriptor, selectors.EVENT_READ)
        return bool(selector.select(min(seconds, START_SECONDS_MAX)))


def _end(process: subprocess.Popen[bytes], owner: int) -> None:
    """End the child and collect it. In a fork of the owner only close the pipes.

    A fork that lives keeps its copy of the pipe open. So a byte ends the child, not only the pipe's end.
    """
    if os.getpid() == owner and process.stdin is not None:
        with contextlib.suppress(OSError):
            process.stdin.write(b"\n")
    for pipe in (process.stdin, process.stdout):
        if pipe is not None:
            pipe.close()
    if os.getpid() != owner:
        process.returncode = 0  # not our child: do not wait for it, and prevent a ResourceWarning
        return
    try:
        process.wait(LINGER_SECONDS + 3.0)
    except subprocess.TimeoutExpired:
        process.kill()
        process.wait()


def child(
    descriptor: int, parent: int, limits: dict[str, float], secret: str | None, record: str | None, tls: str | None
) -> None:
    """Serve in the child process until the parent closes the pipe or ends."""
    # These signals come from a terminal, or from a supervisor that ends a whole process group. The server ignores them:
    # the parent decides when its clients no longer need the server.
    for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP, signal.SIGQUIT):
        signal.signal(number, signal.SIG_IGN)
    allow_open_files(int(limits["connections"]))
    collect_rarely()
    log = Log(lines_to(sys.stderr, PREFIX))

    def started(loop: asyncio.AbstractEventLoop, stop: Callable[[], None]) -> None:
        loop.add_reader(sys.stdin.fileno(), stop)  # a byte or the pipe's end: the parent has closed it
        # A fork of the parent may keep the pipe open after the parent has ended. Some builds of Python lack pidfd_open.
        with contextlib.suppress(OSError, AttributeError):
            loop.add_reader(os.pidfd_open(parent), stop)
        if os.getppid() != parent:
            stop()
        with contextlib.suppress(BrokenPipeError):
            os.write(sys.stdout.fileno(), b"\n")

    listener = socket.socket(fileno=descriptor)
    known = None if secret is None else bytes.fromhex(secret)
    with _recorder(record, log) as recorder:
        serve(partial(Driver, listener, Limits(**limits), known, log, recorder, tls and Tls(tls)), started)  # type: ignore[arg-type]
    log.close()


@contextlib.contextmanager
def _recorder(record: str | None, log: Log) -> Iterator[Recorder | None]:
    """The recorder of the rendezvous' keys. It writes the same record as `trystate store serve --record`."""
    if record is None:
        yield None
        return
    from importlib.metadata import version  # the import takes a tenth of the start of a server

    header = {"by": "store serve", "version": version("trystate"), "keys": Keys.RENDEZVOUS.value, "values": False}
    with Writer(Path(record), header, log=log) as writer:
        yield Recorder(writer, writer.bytes_max)


def collect_rarely() -> None:
    """Let the garbage collector walk through all objects less often: this process only serves.

    With the sessions and the table of 32,768 nodes a walk takes 0.2 s, in which no request is answered. The collector's
    usual third threshold, 10, causes a walk for each notice to 32,768 nodes.
    """
    gc.set_threshold(*gc.get_threshold()[:2], YOUNGER_COLLECTIONS)


def allow_open_files(connections: int) -> None:
    """Raise this process's limit of open files to the need of `connections`, as far as the system allows."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    wanted = connections + 64  # the descriptors of the loop, of the log, and of modules that are imported
    if hard != resource.RLIM_INFINITY:
        wanted = min(wanted, hard)
    if soft != resource.RLIM_INFINITY and soft < wanted:
        with contextlib.suppress(OSError, ValueError):  # some systems have a second bound
            resource.setrlimit(resource.RLIMIT_NOFILE, (wanted, hard))


class ServerThread:
    """A server in a thread of this process. The module describes which processes must not use it."""

    def __init__(
        self,
        listener: socket.socket,
        limits: Limits,
        secret: bytes | None,
        write: Callable[[str], object] | None,
        start_seconds: float = START_SECONDS,
        tls: Tls | None = None,
    ) -> None:
        """Return when the server serves. Raises StartTimeout after `start_seconds`; the thread then ends by itself."""
        started: Future[Callable[[], None]] = Future()
        log = Log(lines_to(sys.stderr, PREFIX) if write is None else write)

        def run() -> None:
            try:
                serve(partial(Driver, listener, limits, secret, log, tls=tls), report)
            except BaseException as error:
                if started.done():
                    raise
                started.set_exception(error)
            finally:
                log.close()

        def report(loop: asyncio.AbstractEventLoop, stop: Callable[[], None]) -> None:
            if started.set_running_or_notify_cancel():
                started.set_result(lambda: _tell(loop, stop))
            else:  # the constructor has raised StartTimeout
                stop()

        self._thread = threading.Thread(target=run, name="trystate store", daemon=True)
        self._thread.start()
        self._stop = _begun(started, start_seconds)
        self.close = weakref.finalize(self, _join, self._thread, self._stop, os.getpid())

    @property
    def pid(self) -> int:
        return os.getpid()

    @property
    def running(self) -> bool:
        return self._thread.is_alive()


def _begun(started: Future[Callable[[], None]], seconds: float) -> Callable[[], None]:
    try:
        return started.result(min(seconds, START_SECONDS_MAX))
    except TimeoutError as error:
        if not started.cancel():  # it has started or failed just now
            return started.result()
        raise StartTimeout("the store's server thread did not start in time; see whether the machine is busy, or "
                           "raise the timeout") from error  # fmt: skip


def _tell(loop: asyncio.AbstractEventLoop, stop: Callable[[], None]) -> None:
    with contextlib.suppress(RuntimeError):  # the loop is closed
        loop.call_soon_threadsafe(stop)


def _join(thread: threading.Thread, stop: Callable[[], None], owner: int) -> None:
    if os.getpid() == owner:  # a fork has the object, but not the thread
        stop()
        thread.join(LINGER_SECONDS + 3.0)
