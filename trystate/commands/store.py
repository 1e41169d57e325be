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
from trystate.impl.store.record.format import Keys
from trystate.impl.store.record.recorder import Recorder
from trystate.impl.store.record.writer import BYTES, FILES, Writer
from trystate.impl.store.server.driver import serve as drive
from trystate.impl.store.server.embedding import PREFIX, allow_open_files
from trystate.impl.store.server.log import Log, lines_to
from trystate.model.errors import UsageError

from ..exits import Exit
from ..version import __version__


def serve(args: argparse.Namespace) -> int:
    """Serve until SIGINT or SIGTERM; returns the exit code."""
    if args.sync is not None and args.data is None:
        raise UsageError("--sync says when the journal of --data DIR is synced: give --data too, or leave it out")
    limits = Limits(**{field.name: getattr(args, field.name) for field in dataclasses.fields(Limits)})
    secret = None if args.secret_file is None else read_secret(args.secret_file)
    log = Log(lines_to(sys.stderr, PREFIX))
    directory, writer = None, None
    try:
        if args.data is not None:
            directory = Directory(args.data, limits, log)
            log(f"{args.data}: {directory.summary}")
        writer, recorder = record(args, "store serve", log) or (None, None)
        listener = listen(args.host, args.port)
        allow_open_files(limits.connections)
        return _serve(listener, limits, secret, log, recorder, directory, args.sync or None)
    finally:
        if writer is not None:
            writer.close()
        log.close()
        if directory is not None:
            directory.close()


def _serve(
    listener: socket.socket,
    limits: Limits,
    secret: bytes | None,
    log: Log,
    recorder: Recorder | None,
    directory: Directory | None,
    sync_seconds: float | None,
) -> int:
    def started(loop: asyncio.AbstractEventLoop, stop: Callable[[], None]) -> None:
        for number in (signal.SIGINT, signal.SIGTERM):
            loop.add_signal_handler(number, stop)
        who = "for clients that know the secret" if secret else "for everybody who can reach it"
        print(f"{PREFIX}listening on {peer_name(listener.getsockname())}, {who}", flush=True)

    if directory is None:
        drive(listener, limits, secret, log, started, recorder)
        return Exit.OK
    make = partial(KeepingDriver, directory=directory, sync_seconds=sync_seconds)
    drive(listener, limits, secret, log, started, recorder, make)
    return Exit.OK if directory.contents.broken is None else Exit.FAILED


def record(args: argparse.Namespace, by: str, log: Log) -> tuple[Writer, Recorder] | None:
    """The record that was asked for, if one was. Raises UsageError if it cannot be written, or an option has none."""
    if args.record is None:
        for option in ("keys", "values", "bytes", "files"):
            if getattr(args, f"record_{option}"):
                raise UsageError(f"--record-{option} is for a record: name its file with --record FILE")
        return None
    keys = Keys(args.record_keys or Keys.RENDEZVOUS.value)
    header = {"by": by, "version": __version__, "keys": keys.value, "values": args.record_values}
    writer = Writer(
        args.record, header, bytes_max=args.record_bytes or BYTES, files=args.record_files or FILES, log=log
    )
    return writer, Recorder(writer, writer.bytes_max, keys, args.record_values)
