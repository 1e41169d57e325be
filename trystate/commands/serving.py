"""`trystate store serve` and `proxy`: a store's server in the foreground, or a proxy that records another server.

Rule: an error that prevents serving is printed in one line before it listens. From then on only a signal ends it.
"""

from __future__ import annotations

import argparse
import asyncio
import contextlib
import dataclasses
import resource
import signal
import socket
import sys
from collections.abc import Callable, Iterator
from functools import partial

from trystate.impl.host.listening import listen, peer_name
from trystate.impl.host.secret import read_secret
from trystate.impl.store.durable.directory import Directory
from trystate.impl.store.durable.driver import KeepingDriver
from trystate.impl.store.errors import FileRefused
from trystate.impl.store.limits import Limits
from trystate.impl.store.record.format import Keys
from trystate.impl.store.record.recorder import Recorder
from trystate.impl.store.record.writer import BYTES, FILES, Writer
from trystate.impl.store.server.driver import Driver
from trystate.impl.store.server.driver import serve as drive
from trystate.impl.store.server.embedding import PREFIX, allow_open_files, collect_rarely
from trystate.impl.store.server.log import Log, lines_to
from trystate.impl.store.server.proxy import Proxy
from trystate.model.errors import UsageError

from ..exits import Exit
from ..version import __version__


def serve(args: argparse.Namespace) -> int:
    """Serve until SIGINT or SIGTERM; returns the exit code."""
    if args.sync is not None and args.data is None:
        raise UsageError("--sync sets when the journal of --data DIR is synced: give --data too, or leave out --sync")
    limits = Limits(**{field.name: getattr(args, field.name) for field in dataclasses.fields(Limits)})
    secret = None if args.secret_file is None else read_secret(args.secret_file)
    collect_rarely()
    who = "for clients that have the secret" if secret else "for every client that can reach it"
    who = f"over TLS, {who}" if args.tls else who
    with (
        logging(limits.connections, warns=limits.connections > Limits().connections) as log,
        keeping(args.data, limits, log) as directory,
        listen(args.host, args.port) as listener,
        recording(args, "store serve", log) as recorder,
    ):
        kind = (
            Driver if directory is None else partial(KeepingDriver, directory=directory, sync_seconds=args.sync or None)
        )
        drive(partial(kind, listener, limits, secret, log, recorder, args.tls), partial(started, listener, who))
    return Exit.OK if directory is None or directory.contents.broken is None else Exit.FAILED


def proxy(args: argparse.Namespace) -> int:
    """Forward and record requests until SIGINT or SIGTERM; returns the exit code."""
    try:
        socket.getaddrinfo(args.to[0], args.to[1], type=socket.SOCK_STREAM)
    except (OSError, UnicodeError) as error:
        raise UsageError(f"--to: unknown host {args.to[0]!r} ({error}): give the store's address") from error
    who = f"for {peer_name(args.to)}"
    with (
        listen(args.host, args.port) as listener,
        logging(2 * Limits().connections) as log,
        recording(args, "store proxy", log) as recorder,
    ):
        assert recorder is not None  # its option is required
        drive(partial(Proxy, listener, args.to, recorder, log, args.tls), partial(started, listener, who))
    return Exit.OK


def started(listener: socket.socket, who: str, loop: asyncio.AbstractEventLoop, stop: Callable[[], None]) -> None:
    """Print where it listens, and for whom; from now on a signal ends it."""
    for number in (signal.SIGINT, signal.SIGTERM):
        loop.add_signal_handler(number, stop)
    print(f"{PREFIX}listening on {peer_name(listener.getsockname())}, {who}", flush=True)


@contextlib.contextmanager
def logging(connections: int, warns: bool = False) -> Iterator[Log]:
    """A log to stderr, whose lines are all written when the block ends. The limit of open files is raised before.

    With `warns`, a line is logged if that limit is too low for the number of connections.
    """
    log = Log(lines_to(sys.stderr, PREFIX))
    allow_open_files(connections)
    files, _ = resource.getrlimit(resource.RLIMIT_NOFILE)
    if warns and resource.RLIM_INFINITY != files < connections:
        log(f"the hard limit of open files is {files}, and connections={connections} need more: newcomers above that "
            "are turned away; raise the limit (ulimit -Hn, or LimitNOFILE= of systemd)")  # fmt: skip
    try:
        yield log
    finally:
        log.close()


@contextlib.contextmanager
def keeping(path: str | None, limits: Limits, log: Log) -> Iterator[Directory | None]:
    """The directory that the store is kept in, if one was given. Raises UsageError if it is refused."""
    if path is None:
        yield None
        return
    try:
        directory = Directory(path, limits, log)
    except FileRefused as error:
        raise UsageError(str(error)) from error
    log(f"{path}: {directory.summary}")
    try:
        yield directory
    finally:
        directory.close()


@contextlib.contextmanager
def recording(args: argparse.Namespace, by: str, log: Log) -> Iterator[Recorder | None]:
    """The record, if --record was given.

    Raises:
        UsageError: the record cannot be written, or an option needs a record and --record is missing.
    """
    if args.record is None:
        for option in ("keys", "values", "bytes", "files"):
            if getattr(args, f"record_{option}"):
                raise UsageError(f"--record-{option} needs a record: name its file with --record FILE")
        yield None
        return
    keys = Keys(args.record_keys or Keys.RENDEZVOUS.value)
    header = {"by": by, "version": __version__, "keys": keys.value, "values": args.record_values}
    most = args.record_bytes or BYTES
    with Writer(args.record, header, bytes_max=most, files=args.record_files or FILES, log=log) as writer:
        yield Recorder(writer, writer.bytes_max, keys, args.record_values)
