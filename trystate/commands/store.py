"""`trystate store serve`: a store's server in the foreground.

Rule: an error that keeps it from serving is said before it listens, in a line; from then on only a signal ends it.
"""

from __future__ import annotations

import argparse
import asyncio
import dataclasses
import signal
import socket
import sys
from collections.abc import Callable
from functools import partial

from trystate.impl.host.listening import listen, peer_name
from trystate.impl.host.secret import read_secret
from trystate.impl.store.durable.directory import Directory
from trystate.impl.store.durable.driver import KeepingDriver
from trystate.impl.store.limits import Limits
from trystate.impl.store.server.driver import serve as drive
from trystate.impl.store.server.embedding import PREFIX, allow_open_files
from trystate.impl.store.server.log import Log, lines_to
from trystate.model.errors import UsageError

from ..exits import Exit


def serve(args: argparse.Namespace) -> int:
    """Serve until SIGINT or SIGTERM; returns the exit code."""
    if args.sync is not None and args.data is None:
        raise UsageError("--sync says when the journal of --data DIR is synced: give --data too, or leave it out")
    limits = Limits(**{field.name: getattr(args, field.name) for field in dataclasses.fields(Limits)})
    secret = None if args.secret_file is None else read_secret(args.secret_file)
    log = Log(lines_to(sys.stderr, PREFIX))
    directory = None
    try:
        if args.data is not None:
            directory = Directory(args.data, limits, log)
            log(f"{args.data}: {directory.summary}")
        listener = listen(args.host, args.port)
        allow_open_files(limits.connections)
        return _serve(listener, limits, secret, log, directory, args.sync or None)
    finally:
        log.close()
        if directory is not None:
            directory.close()


def _serve(
    listener: socket.socket,
    limits: Limits,
    secret: bytes | None,
    log: Log,
    directory: Directory | None,
    sync_seconds: float | None,
) -> int:

    def started(loop: asyncio.AbstractEventLoop, stop: Callable[[], None]) -> None:
        for number in (signal.SIGINT, signal.SIGTERM):
            loop.add_signal_handler(number, stop)
        who = "for clients that know the secret" if secret else "for everybody who can reach it"
        print(f"{PREFIX}listening on {peer_name(listener.getsockname())}, {who}", flush=True)

    if directory is None:
        drive(listener, limits, secret, log, started)
        return Exit.OK
    make = partial(KeepingDriver, directory=directory, sync_seconds=sync_seconds)
    drive(listener, limits, secret, log, started, make)
    return Exit.OK if directory.contents.broken is None else Exit.FAILED
