"""`trystate store`: the options of a store's server, and of a proxy before one that records it."""

from __future__ import annotations

import argparse
import dataclasses
from pathlib import Path

from trystate.impl.host.addresses import host_and_port, host_of
from trystate.impl.store.limits import Limits
from trystate.impl.store.record.format import Keys
from trystate.impl.store.record.writer import BYTES, FILES
from trystate.model.errors import UsageError

from ..choosing import port, positive, tls_option, whole
from ..manual import LIMITS, add_page


def store_options(p: argparse.ArgumentParser) -> None:
    commands = p.add_subparsers(title="commands", metavar="COMMAND", dest="server", required=True)
    _serve(add_page(commands, "serve", "store serve"))
    _proxy(add_page(commands, "proxy", "store proxy"))


def _serve(p: argparse.ArgumentParser) -> None:
    _listening(p)
    p.add_argument(
        "--secret-file",
        type=Path,
        metavar="FILE",
        help="the file of the secret that clients must have; torch's own client has none (default: serve all clients)",
    )
    tls_option(p)
    p.add_argument(
        "--data",
        metavar="DIR",
        help="keep the store in this directory, across restarts of the server (default: in memory only)",
    )
    p.add_argument(
        "--sync",
        type=_sync,
        metavar="always|S",
        help="with --data: sync before each answer, or every S seconds (default: always)",
    )
    _record(p)
    group = p.add_argument_group("limits", "for each peer; a peer that exceeds one is disconnected and logged")
    for field in dataclasses.fields(Limits):
        seconds = field.name.endswith("_seconds")
        group.add_argument(
            f"--{field.name.replace('_', '-')}",
            type=positive if seconds else whole,
            default=field.default,
            metavar="S" if seconds else "N",
            help=f"{LIMITS[field.name]} (default: {field.default:{'g' if seconds else ','}})",
        )


def _proxy(p: argparse.ArgumentParser) -> None:
    p.add_argument("--to", type=_address, required=True, metavar="HOST:PORT", help="the store's server")
    _listening(p)
    tls_option(p)
    _record(p, required=True)


def _listening(p: argparse.ArgumentParser) -> None:
    p.add_argument(
        "--host",
        type=_host,
        default="127.0.0.1",
        help="the one address to listen on; 0.0.0.0 or :: for all (default: %(default)s)",
    )
    p.add_argument(
        "--port", type=port, default=29500, metavar="N", help="the port; 0 for any free port (default: %(default)s)"
    )


def _host(text: str) -> str:
    try:
        return host_of(text)
    except UsageError as error:
        raise argparse.ArgumentTypeError(str(error)) from None


def _address(text: str) -> tuple[str, int]:
    try:
        host, port = host_and_port(text)
    except UsageError as error:
        raise argparse.ArgumentTypeError(str(error)) from None
    if not port:
        raise argparse.ArgumentTypeError(f"{text!r} has port 0: give the port that the store listens on")
    return host, port


def _sync(text: str) -> float:
    """The seconds between two syncs; 0 for `always`."""
    return 0.0 if text == "always" else positive(text)


def _record(p: argparse.ArgumentParser, required: bool = False) -> None:
    group = p.add_argument_group("record", "what the clients of the store do, as lines of JSON: see docs/stores.md")
    group.add_argument(
        "--record",
        type=Path,
        required=required,
        metavar="FILE",
        help="a file that is new or empty" + ("" if required else " (default: no record)"),
    )
    group.add_argument(
        "--record-keys",
        choices=[keys.value for keys in Keys],
        help="the keys to record: rendezvous keys, with their states, or all (default: rendezvous)",
    )
    group.add_argument("--record-values", action="store_true", help="record the values of other keys too")
    group.add_argument(
        "--record-bytes",
        type=whole,
        metavar="N",
        help=f"bytes of one file before the next, FILE.1 and so on, begins (default: {BYTES:,})",
    )
    group.add_argument("--record-files", type=whole, metavar="N", help=f"keep the latest N files (default: {FILES})")


def store(args: argparse.Namespace) -> int:
    """Carry out the command; returns the exit code."""
    from .serving import proxy, serve  # they load torch

    return serve(args) if args.server == "serve" else proxy(args)
