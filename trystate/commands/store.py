"""`trystate store serve`: a store's server in the foreground.

Rule: an error that keeps it from serving is said before it listens, in a line; from then on only a signal ends it.
"""

from __future__ import annotations

import argparse
import asyncio
import dataclasses
import signal
import sys
from collections.abc import Callable

from trystate.impl.host.listening import listen, peer_name
from trystate.impl.host.secret import read_secret
from trystate.impl.store.limits import Limits
from trystate.impl.store.server.driver import serve as drive
from trystate.impl.store.server.embedding import PREFIX, allow_open_files
from trystate.impl.store.server.log import Log, lines_to

from ..exits import Exit


def serve(args: argparse.Namespace) -> int:
    """Serve until SIGINT or SIGTERM; returns the exit code."""
    limits = Limits(**{field.name: getattr(args, field.name) for field in dataclasses.fields(Limits)})
    secret = None if args.secret_file is None else read_secret(args.secret_file)
    listener = listen(args.host, args.port)
    allow_open_files(limits.connections)
    log = Log(lines_to(sys.stderr, PREFIX))

    def started(loop: asyncio.AbstractEventLoop, stop: Callable[[], None]) -> None:
        for number in (signal.SIGINT, signal.SIGTERM):
            loop.add_signal_handler(number, stop)
        who = "for clients that know the secret" if secret else "for everybody who can reach it"
        print(f"{PREFIX}listening on {peer_name(listener.getsockname())}, {who}", flush=True)

    drive(listener, limits, secret, log, started)
    log.close()
    return Exit.OK
