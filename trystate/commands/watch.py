"""`trystate watch`: a running job on one screen, from its store or from a record that grows.

Rule: it writes nothing to the store. It reports only what it has seen, and reports where it may have missed something.
"""

from __future__ import annotations

import argparse
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from itertools import islice
from pathlib import Path
from typing import TYPE_CHECKING

from rich.console import Console, Group
from rich.live import Live
from rich.panel import Panel
from rich.text import Text

from trystate.impl.host.secret import read_secret
from trystate.impl.host.visible import visible
from trystate.model.errors import UnavailableError, UsageError

from ..choosing import port, positive, tls_option, whole
from ..exits import Exit

if TYPE_CHECKING:
    from trystate.monitor.sources import Look
    from trystate.monitor.status import Status
    from trystate.monitor.watch import Notice, Watch

LATEST = 12  # notices and warnings on the screen
NODES_MAX = 16  # nodes of each list on the screen; `trystate status` prints all
DRAW_SECONDS = 0.2  # between two pictures of it
STYLES = {"warning": "bold red", "over": "green", "unseen": "yellow", "change": ""}


def watch_options(p: argparse.ArgumentParser) -> None:
    p.add_argument("file", nargs="?", type=Path, metavar="FILE", help="a record that grows, instead of a store")
    p.add_argument("--rdzv-endpoint", metavar="HOST:PORT", help="the endpoint of the job's nodes")
    p.add_argument("--rdzv-id", metavar="JOB", help="the id of the job; not needed for a record of one job")
    p.add_argument("--secret-file", type=Path, metavar="FILE", help="as secret_file in --rdzv-conf (default: none)")
    tls_option(p)
    p.add_argument(
        "--interval", type=positive, default=1.0, metavar="S", help="seconds between two reads (default: %(default)g)"
    )
    p.add_argument("--for", dest="seconds", type=positive, metavar="S", help="stop after S seconds (default: never)")
    group = p.add_argument_group("metrics", "for Prometheus; needs prometheus-client: pip install 'trystate[metrics]'")
    group.add_argument("--metrics", type=port, metavar="PORT", help="serve metrics at http://HOST:PORT/metrics")
    group.add_argument("--metrics-host", default="127.0.0.1", metavar="HOST",
                       help="listen on this address (default: %(default)s)")  # fmt: skip
    group = p.add_argument_group("torch's rendezvous", "its state does not have these: give what --rdzv-conf has")
    for option, default, what in (
        ("--keep-alive-interval", 5.0, "between two heartbeats (default: %(default)g)"),
        ("--last-call", 30.0, "of the last call (default: %(default)g)"),
        ("--join-timeout", 0.0, "until a node that joins gives up (default: 600, of nodes of trystate run 900)"),
    ):
        group.add_argument(option, type=positive, default=default, metavar="S", help=f"seconds {what}")
    group.add_argument("--keep-alive-max-attempt", type=whole, default=3, metavar="N",
                       help="missed heartbeats until a node is dropped (default: %(default)s)")  # fmt: skip


def watch(args: argparse.Namespace) -> int:
    """Watch until the job is closed, its record ends, or the time is over; 1 if it was closed as failed.

    Raises:
        UsageError: the options do not fit together.
        UnavailableError: torch is not installed, or the store is not reached.
    """
    looks, seen = _source(args)
    looks = _reached(looks)
    console = Console(highlight=False, markup=False)
    with ExitStack() as stack:
        if args.metrics is not None:
            from trystate.monitor.metrics import serve

            stack.callback(serve(seen, args.metrics, args.metrics_host))
        show = _screen(console, seen, stack) if console.is_terminal else _lines(console)
        return _followed(looks, seen, show, args.seconds)


def _source(args: argparse.Namespace) -> tuple[Iterator[Look], Watch]:
    try:
        from trystate.impl.rendezvous.errors import RendezvousSettingsError  # noqa: F401  # needs torch
        from trystate.monitor.sources import polled, tailed
        from trystate.monitor.watch import Times, Watch
    except ImportError as error:
        raise UnavailableError(f"this command needs torch: {error}; pip install 'trystate[torch]'") from error
    window = args.keep_alive_interval * args.keep_alive_max_attempt
    terms = Times(args.keep_alive_interval, window, args.last_call, args.join_timeout)
    if args.file is not None:
        if args.rdzv_endpoint is not None:
            raise UsageError("a FILE and --rdzv-endpoint are both given: watch one of them")
        return tailed(args.file, args.rdzv_id), Watch(args.rdzv_id or "", str(args.file), terms)
    if args.rdzv_endpoint is None or args.rdzv_id is None:
        raise UsageError("nothing to watch: give --rdzv-endpoint and --rdzv-id, or the FILE of a record")
    secret = None if args.secret_file is None else read_secret(args.secret_file)
    looks = polled(args.rdzv_endpoint, args.rdzv_id, secret, args.interval, args.tls)
    return looks, Watch(args.rdzv_id, args.rdzv_endpoint, terms)


def _reached(looks: Iterator[Look]) -> Iterator[Look]:
    """The looks. A store that cannot be reached at first, or an invalid endpoint, is an error of one line."""
    from trystate.impl.rendezvous.errors import RendezvousConnectionError, RendezvousSettingsError

    try:
        yield from looks
    except RendezvousConnectionError as error:
        raise UnavailableError(str(error)) from error
    except RendezvousSettingsError as error:
        raise UsageError(str(error)) from error


def _followed(
    looks: Iterator[Look], seen: Watch, show: Callable[[list[Notice], str], None], seconds: float | None
) -> int:
    from trystate.monitor.live import Live

    until = None if seconds is None else time.monotonic() + seconds
    live = Live(seen)
    for look in looks:
        show(live.take(look), look.waits_for)
        status = seen.status()
        if status is not None and status.closed is not None and look.line is None:
            return Exit.FAILED if _has_failed(status) else Exit.OK
        if until is not None and time.monotonic() >= until:
            break
    live.finish()
    return Exit.FAILED if seen.warnings or live.is_wrong or _has_failed(seen.status()) else Exit.OK


def _has_failed(status: Status | None) -> bool:
    from trystate.impl.rendezvous.jobs import OURS

    if status is None or status.backend != OURS or status.closed is None:
        return False
    return status.closed["verdict"] != "succeeded"


def _lines(console: Console) -> Callable[[list[Notice], str], None]:
    """Print each notice, and a job that is not there, once."""
    said = ""
    offset = time.time() - time.monotonic()

    def show(notices: list[Notice], waits_for: str) -> None:
        nonlocal said
        if waits_for and waits_for != said:
            console.print(visible(waits_for), soft_wrap=True)
        said = waits_for
        for each in notices:
            mark = "" if each.kind == "change" else f"{each.kind}: "
            console.print(f"{_clock(each.time, offset)}  {mark}{visible(each.text)}", soft_wrap=True)

    return show


def _screen(console: Console, seen: Watch, stack: ExitStack) -> Callable[[list[Notice], str], None]:
    """One screen, redrawn at each look."""
    live = stack.enter_context(Live(console=console, screen=False, auto_refresh=False))
    offset = time.time() - time.monotonic()
    drawn = 0.0

    def show(notices: list[Notice], waits_for: str) -> None:
        nonlocal drawn
        if time.monotonic() - drawn >= DRAW_SECONDS:
            drawn = time.monotonic()
            live.update(_drawn(seen, waits_for, offset), refresh=True)

    stack.callback(lambda: live.update(_drawn(seen, "", offset), refresh=True))

    return show


def _drawn(seen: Watch, waits_for: str, offset: float) -> Panel:
    from trystate.monitor.status import lines

    status = seen.status()
    shown = [waits_for or "nothing was seen yet"] if status is None else lines(status, NODES_MAX)
    rows = [Text(visible(line)) for line in shown]
    if seen.warnings:
        texts = [visible(each.text) for each in islice(seen.warnings.values(), LATEST)]
        texts += [f"{len(seen.warnings) - LATEST} more warnings"] * (len(seen.warnings) > LATEST)
        rows += [Text(), *(Text(f"! {text}", STYLES["warning"]) for text in texts)]
    latest = list(seen.notices)[-LATEST:]
    rows += [Text(), *(Text(f"{_clock(n.time, offset)}  {visible(n.text)}", STYLES[n.kind]) for n in latest)]
    return Panel(Group(*rows), title=Text(f"trystate watch {visible(seen.job)}"), title_align="left")


def _clock(seconds: float, offset: float) -> str:
    """The wall's time of day; times of a record are of the epoch already."""
    return time.strftime("%H:%M:%S", time.localtime(seconds if seconds > offset / 2 else seconds + offset))
